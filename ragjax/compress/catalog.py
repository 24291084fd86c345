"""Compressors by the names that are typed: what each is made of, for programs that build them from words."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from types import UnionType
from typing import Any

from ragjax import compressors
from ragjax.compress.base import Compressor

SCORERS = ("bm25", "bi_encoder", "cross_encoder")

_WORDS = tuple[str, ...]
_PLAIN = (bool, int, float, str, _WORDS)


def _several_summaries(
    *,
    compressor: Any,
    reader: Any,
    tokenizer: Any,
    max_new: int = 128,
    prompt_format: str = "chat",
    seed: int = 0,
    candidates: int = 5,
    temperature: float = 1.0,
    repetition_penalty: float = 1.2,
    selector: str = "sps",
    sampler: str = "samples",
    initial_joins: bool = False,
    batch: int = 8,
) -> Compressor:
    """Zero-shot summaries of the compressor, among which the reader chooses; no filter, since it has to be calibrated.

    `temperature` and `repetition_penalty` are those of the drawing: the initial summary is greedy.
    """
    writer = compressors.zero_shot_summary(
        compressor, tokenizer=tokenizer, max_new=max_new, prompt_format=prompt_format, seed=seed, batch=batch
    )
    return compressors.XCompress(
        compressor=writer,
        reader=reader,
        candidates=candidates,
        temperature=temperature,
        repetition_penalty=repetition_penalty,
        selector=selector,
        sampler=sampler,
        initial_joins=initial_joins,
        batch=batch,
    )


@dataclass(frozen=True)
class Family:
    """How a compressor is made: its name in `ragjax.compressors`, and the role of the model each argument takes.

    The roles are "model", which compresses, "target", which the evidence is for, and "encoder", which scores; `kind`
    is that of the first (see `ragjax.hub.KINDS`). `scored` says that some scorer ranks passages or sentences for it.
    `fixed` are arguments that the name implies; `assemble` makes it where no single call of that name does.
    """

    name: str
    models: Mapping[str, str] = field(default_factory=dict)
    kind: str = "causal"
    scored: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    assemble: Callable[..., Compressor] | None = None

    @property
    def make(self) -> Callable[..., Compressor]:
        """What takes its tokenizer, models, scorer and settings by name."""
        return self.assemble or getattr(compressors, self.name)

    @property
    def settings(self) -> dict[str, Any]:
        """What can be typed for it, each with the type it takes."""
        return _settings_of(self.make, {"tokenizer", "scorer", *self.models, *self.fixed})


_WRITES = {"compressor": "model"}

FAMILIES: Mapping[str, Family] = {
    "identity": Family("Identity"),
    "gold": Family("Gold"),
    "no_context": Family("NoContext"),
    "prefix": Family("Prefix"),
    "random_sentences": Family("RandomSentences"),
    "rerank": Family("Rerank", scored=True),
    "extract": Family("Extract", scored=True),
    "recomp_extractive": Family("recomp_extractive", {"encoder": "encoder"}),
    "ecr": Family("ECR", scored=True),
    "recomp_abstractive": Family("RecompAbstractive", {"model": "model"}, "encoder-decoder"),
    "llmlingua2": Family("LLMLingua2", {"model": "model"}, "encoder"),
    "longllmlingua": Family("LongLLMLingua", {"lm": "model"}),
    "zero_shot": Family("FaviComp", _WRITES, fixed={"alpha": 0.0}),
    "favicomp": Family("FaviComp", {"compressor": "model", "target": "target"}),
    "compact": Family("CompAct", {"lm": "model"}),
    "xcompress": Family("XCompress", {"compressor": "model", "reader": "target"}, assemble=_several_summaries),
}


def make_compressor(
    method: str, tokenizer: Any, models: Mapping[str, Any], scorer: Any = None, **settings: Any
) -> Compressor:
    """A compressor of a family of `FAMILIES`.

    Args:
      tokenizer: the generator's, in which lengths are counted.
      models: by role; at least those that the family needs.
      scorer: what scores for it, where something does.
      settings: as in `check_settings`.

    Raises:
      ValueError: naming a setting that the method does not have, or a value that it does not take.
    """
    settings, family = check_settings(method, settings), FAMILIES[method]
    own = {argument: models[role] for argument, role in family.models.items()}
    scores = {"scorer": scorer} if family.scored else {}
    return family.make(tokenizer=tokenizer, **own, **scores, **family.fixed, **settings)


def make_scorer(kind: str, encoder: Any = None, **settings: Any) -> Any:
    """A scorer of one of `SCORERS`; those that are models take an encoder. Raises as `check_scorer_settings` does."""
    own = {} if kind == "bm25" else {"model": encoder}
    return _make_of(kind)(**own, **check_scorer_settings(kind, settings))


def check_scorer_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a scorer of one of `SCORERS` takes them. Raises as `check_settings` does."""
    return _checked(kind, _settings_of(_make_of(kind), {"model"}), settings)


def check_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the method takes them: a list of words, or one word, stands for several words.

    Raises:
      ValueError: for one that is none of the method's own, or of another type; names what it has or takes.
    """
    return _checked(method, FAMILIES[method].settings, settings)


def _make_of(kind: str) -> Callable[..., Any]:
    return getattr(compressors, {"bm25": "BM25", "bi_encoder": "BiEncoder", "cross_encoder": "CrossEncoder"}[kind])


def _settings_of(make: Callable[..., Any], taken: Collection[str]) -> dict[str, Any]:
    """The arguments that can be typed, but for those `taken`, each with the type it takes."""
    every = signature(make).parameters.values()
    return {one.name: one.annotation for one in every if one.name not in taken and _is_plain(one)}


def _checked(what: str, own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in settings.items():
        if name not in own:
            raise ValueError(f"{what} has no setting {name!r}; it has {', '.join(own) or 'none'}")
        found[name] = tuple([value] if isinstance(value, str) else value) if _is_words(own[name], value) else value
        if not any(_is_of(kind, found[name]) for kind in _kinds(own[name])):
            taken = " or ".join(_WORD_OF[kind] for kind in _kinds(own[name]))
            raise ValueError(f"{what}: {name} takes {taken}, got {value!r}")
    return found


_WORD_OF = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    _WORDS: "a list of words",
    type(None): "null",
}


def _is_plain(one: Parameter) -> bool:
    """Whether an argument has a default, and takes what can be typed."""
    return one.default is not Parameter.empty and set(_kinds(one.annotation)) <= {*_PLAIN, type(None)}


def _kinds(hint: Any) -> tuple[Any, ...]:
    return hint.__args__ if isinstance(hint, UnionType) else (hint,)


def _is_words(hint: Any, value: Any) -> bool:
    return hint == _WORDS and isinstance(value, str | list)


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value is of a type: a whole number is a number, true and false are not."""
    if kind == _WORDS:
        return isinstance(value, tuple) and all(isinstance(word, str) for word in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)
