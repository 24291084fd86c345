"""Compressors by the names that are typed: what each is made of, for programs that build them from words."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ragjax import compressors
from ragjax.compress.base import Compressor

SCORERS = ("bm25", "bi_encoder", "cross_encoder")


@dataclass(frozen=True)
class Family:
    """How a compressor is made: its class, and the role of the model that each of its arguments takes.

    The roles are "model", which compresses, and "target", which the evidence is for; `kind` is that of the first (see
    `ragjax.hub.KINDS`). `scored` says that something scores passages or sentences for it. `fixed` are arguments that
    the name implies.
    """

    name: str
    models: Mapping[str, str] = field(default_factory=dict)
    kind: str = "causal"
    scored: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)


_WRITES = {"compressor": "model"}

FAMILIES: Mapping[str, Family] = {
    "identity": Family("Identity"),
    "gold": Family("Gold"),
    "no_context": Family("NoContext"),
    "prefix": Family("Prefix"),
    "random_sentences": Family("RandomSentences"),
    "rerank": Family("Rerank", scored=True),
    "extract": Family("Extract", scored=True),
    "ecr": Family("ECR", scored=True),
    "recomp_abstractive": Family("RecompAbstractive", {"model": "model"}, "encoder-decoder"),
    "llmlingua2": Family("LLMLingua2", {"model": "model"}, "encoder"),
    "longllmlingua": Family("LongLLMLingua", {"lm": "model"}),
    "zero_shot": Family("FaviComp", _WRITES, fixed={"alpha": 0.0}),
    "favicomp": Family("FaviComp", {"compressor": "model", "target": "target"}),
    "compact": Family("CompAct", {"lm": "model"}),
}


def make_compressor(
    method: str, tokenizer: Any, models: Mapping[str, Any], scorer: Any = None, **settings: Any
) -> Compressor:
    """A compressor of a family of `FAMILIES`.

    Args:
      tokenizer: the generator's, in which lengths are counted.
      models: by role; at least those that the family needs.
      scorer: what scores for it, where something does.
      settings: other arguments of its class.

    Raises:
      ValueError: naming a setting that the class does not have, or that it does not take.
    """
    check_method(method, settings)
    family = FAMILIES[method]
    make = getattr(compressors, family.name)
    own = {argument: models[role] for argument, role in family.models.items()}
    scores = {"scorer": scorer} if family.scored else {}
    return make(tokenizer=tokenizer, **own, **scores, **family.fixed, **settings)


def make_scorer(kind: str, encoder: Any = None, **settings: Any) -> Any:
    """A scorer of one of `SCORERS`; those that are models take an encoder."""
    if kind == "bm25":
        return compressors.BM25(**settings)
    make = compressors.BiEncoder if kind == "bi_encoder" else compressors.CrossEncoder
    return make(model=encoder, **settings)


def check_method(method: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting that is none of the method's own; names those that are."""
    family = FAMILIES[method]
    taken = {"tokenizer", "scorer", *family.models, *family.fixed}
    every = fields(getattr(compressors, family.name))
    own = [one.name for one in every if one.name not in taken and _is_plain(one)]
    for name in settings:
        if name not in own:
            raise ValueError(f"{method} has no setting {name!r}; it has {', '.join(own) or 'none'}")


def _is_plain(one: Any) -> bool:
    """Whether a field holds a number, a word, a truth or nothing by default: what can be typed."""
    return one.default is not MISSING and (one.default is None or isinstance(one.default, bool | int | float | str))
