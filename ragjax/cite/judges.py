"""Models as judges of entailment: a classifier of pairs, a T5 that writes "1" or "0", any causal model asked yes or no.

Each reads premise and hypothesis whole where they fit. Where they do not, the premise loses its end, counted, or is
read in overlapping windows; a hypothesis is never cut: one that leaves no room is refused before the model runs.
The first time that a judge is used it is tried on a sentence that entails itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from ragjax.cite.entailment import ClaimTooLong, Judge, Judged, Pair, Remembered
from ragjax.cite.overlap import LexicalOverlap
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, texts_of
from ragjax.decode.engine import Execution, check_settings, next_log_probs, require_causal
from ragjax.decode.prompt import Prompt, build_prompt, count_each, encode_alone, encode_with_offsets
from ragjax.decode.text import text_prompt
from ragjax.encode.batches import NonFinite, read_rows
from ragjax.encode.labels import windows
from ragjax.encode.texts import require_head
from ragjax.encode.tokens import Row, frame_of, room_of, tokenize, tokenize_with_places
from ragjax.hub import kind_of, load
from ragjax.memory import check_models, find_config
from ragjax.models.t5_config import T5Config
from ragjax.runtime import LOG
from ragjax.typing import Int

LEXICAL = "lexical"
"""The name that `make_judge` takes for the judge without a model."""

PAIR_LENGTH = 512
"""Tokens of the longest pair that a classifier reads, special ones included, if its model has as many positions."""

_SENTENCE = "The museum was opened to the public in 1952."

_ENTAILMENT = ("entailment", "entailed", "entails")
_SHOWN = 80


class _Tried:
    """What judges with a model share: they are tried on a pair whose answer is known before they are believed."""

    @cached_property
    def self_entailment(self) -> float:
        """The probability that a sentence entails itself. One below 0.5 is a warning: the label may be another."""
        (value,) = self._judge([(_SENTENCE, _SENTENCE)]).values
        if value < 0.5:
            LOG.warning("%s finds that a sentence entails itself with probability %.3f alone", self.name, value)
        return float(value)

    def probabilities(self, pairs: Sequence[Pair]) -> Judged:
        """As `Judge.probabilities`."""
        if not pairs:
            return Judged(np.zeros(0), np.zeros(0, int), np.zeros(0, int))
        _ = self.self_entailment
        return self._judge(pairs)


def _beginning(words: Int[np.ndarray, " T"], room: int) -> list[tuple[int, int]]:
    return [(0, min(len(words), room))]


def _overlapping(words: Int[np.ndarray, " T"], room: int) -> list[tuple[int, int]]:
    return [(start, stop) for start, stop, _ in windows(words, room, room // 2)] or [(0, 0)]


MODES: Mapping[str, Callable[[Int[np.ndarray, " T"], int], list[tuple[int, int]]]] = {
    "truncate": _beginning,
    "windows": _overlapping,
}
"""What of a premise is read, as (start, stop) in its sub-words, beside a claim that leaves room for so many: its
beginning, or windows that overlap by half, so that anything up to half as long as one is in some window whole."""


@dataclass(frozen=True, eq=False)
class Classifier(_Tried):
    """A classifier of pairs, as DeBERTa on MNLI, FEVER and ANLI: the softmax probability of its entailment label.

    Args:
      model: an `Encoder` with a sequence head of two labels or more. Its tokenizer's pair is premise, hypothesis.
      mode: of `MODES`: "truncate" reads the beginning of a long premise, "windows" all of it; the best window counts.
      label: the id of the entailment label; default: the one of that name, in any case.
      max_length: tokens of the longest pair (default: 512, or all the model's positions where they are fewer).
      batch: pairs or windows that are read at a time.

    Raises:
      ValueError: for a model without such a head, or labels of which none is named entailment.
    """

    model: Any
    mode: str = "truncate"
    label: int | None = None
    max_length: int | None = None
    batch: int = 32

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, got {self.mode!r}")
        require_head(self.model, "sequence")
        self._label  # noqa: B018, refuses labels that do not say which is entailment
        self._room  # noqa: B018, refuses a length that cannot be

    @property
    def name(self) -> str:
        """As `Judge.name`."""
        return f"{_named(self.model)}, {self.mode})"

    def describe(self) -> dict[str, Any]:
        """As `Judge.describe`."""
        own = {"mode": self.mode, "label": self._label, "label_name": self.model.labels[self._label]}
        return {"judge": "classifier", **_described(self.model), **own, "max_length": self._length}

    @cached_property
    def _label(self) -> int:
        return entailment_label(self.model.name, self.model.labels, self.label)

    @property
    def _length(self) -> int:
        return min(PAIR_LENGTH, self.model.config.max_positions) if self.max_length is None else self.max_length

    @cached_property
    def _room(self) -> int:
        return room_of(self.model, frame_of(self.model, 2), self._length)

    def _judge(self, pairs: Sequence[Pair]) -> Judged:
        rows, tokens, truncated = self._rows(pairs)
        try:
            logits = read_rows(self.model, rows, "classes", self.batch)
        except NonFinite as error:
            raise _non_finite(self.name, error.text, pairs) from error
        found = softmax(np.stack(logits).astype(np.float64), axis=-1)[:, self._label]
        values = np.zeros(len(pairs))
        np.maximum.at(values, [row.text for row in rows], found)
        return Judged(values, tokens, truncated)

    def _rows(self, pairs: Sequence[Pair]) -> tuple[list[Row], np.ndarray, np.ndarray]:
        """What the model reads of the pairs, a row or several each; their tokens, and how many are not read."""
        premises, hypotheses = (list(dict.fromkeys(texts)) for texts in zip(*pairs, strict=True))
        read = dict(zip(premises, tokenize_with_places(self.model, premises), strict=True))
        claims = dict(zip(hypotheses, tokenize(self.model, hypotheses), strict=True))
        long = {text: len(ids) for text, ids in claims.items() if len(ids) >= self._room}
        if long:
            raise _too_long(self.name, long)
        frame = frame_of(self.model, 2)
        rows, tokens, truncated = [], [], []
        for number, (premise, hypothesis) in enumerate(pairs):
            whole, claim = read[premise], claims[hypothesis]
            spans = MODES[self.mode](whole.words, self._room - len(claim))
            rows += [frame.row(number, whole.ids[start:stop], claim) for start, stop in spans]
            tokens.append(len(whole.ids) + len(claim))
            truncated.append(len(whole.ids) - spans[-1][1])
        return rows, np.array(tokens, int), np.array(truncated, int)


def entailment_label(name: str, labels: Sequence[str], given: int | None = None) -> int:
    """The id of the label that means entailment: the one given, else the one of that name, in any case.

    Raises:
      ValueError: naming the model and its labels: for one label alone, none or several of that name, or an id that
        there is not.
    """
    found = [i for i, label in enumerate(labels) if label.strip().casefold() in _ENTAILMENT]
    if len(labels) < 2:
        raise ValueError(f"{name} has the labels {list(labels)}: entailment is one of two or more")
    if given is not None:
        if not 0 <= given < len(labels):
            raise ValueError(f"label counts {name}'s labels {list(labels)} from 0, got {given}")
        return given
    if len(found) != 1:
        raise ValueError(f"{name} has the labels {list(labels)}: give the id of the one that means entailment as label")
    return found[0]


@dataclass(frozen=True, eq=False)
class TrueT5(_Tried):
    """A T5 that writes "1" where the premise entails the hypothesis and "0" where not (TRUE, arXiv 2204.04991).

    It reads "premise: ... hypothesis: ...". The value is the probability of the first token of "1" against that of
    "0": above 0.5 where greedy decoding writes "1" rather than "0".

    Args:
      model: an `EncoderDecoder`.
      max_length: tokens of the longest source; of a longer one the premise loses its end (default: no limit).
      batch: pairs that are read at a time.
    """

    model: Any
    max_length: int | None = None
    batch: int = 8

    def __post_init__(self) -> None:
        if not isinstance(self.model.config, T5Config):
            raise ValueError(f"{self.model.name} is of the kind {type(self.model).__name__}, not an encoder-decoder")
        self._answers  # noqa: B018, refuses a tokenizer that does not tell the answers apart

    @property
    def name(self) -> str:
        """As `Judge.name`."""
        return f"{_named(self.model)}, writes 1 or 0)"

    def describe(self) -> dict[str, Any]:
        """As `Judge.describe`."""
        return {"judge": "true", **_described(self.model), "max_length": self.max_length}

    @cached_property
    def _answers(self) -> tuple[list[int], list[int]]:
        return _first_tokens(self.model, ("1",), ("0",))

    def _judge(self, pairs: Sequence[Pair]) -> Judged:
        return _ask(self, self.model, _true_source, self.max_length, pairs)


def _true_source(model: Any, premise: str, hypothesis: str) -> Prompt:
    return text_prompt(model, f"premise: {premise} hypothesis: {hypothesis}")


@dataclass(frozen=True, eq=False)
class AskYesNo(_Tried):
    """Any causal model, asked in our own words whether the evidence says what the claim says.

    The value is the probability that its answer begins with a token of "yes", against one of "no", each in several
    spellings; whatever else it might write is left out. (The question, the spellings and this rule are ours.)

    Args:
      lm: a `LanguageModel`.
      prompt_format: "chat" or "plain", for a model without a chat template.
      prompts: whose `judge_system` and `judge_user` are asked.
      max_length: tokens of the longest prompt; of a longer one the premise loses its end (default: all positions).
      batch: pairs that are read at a time.
    """

    lm: Any
    prompt_format: str = "chat"
    prompts: PromptSet = DEFAULT_PROMPTS
    max_length: int | None = None
    batch: int = 8

    def __post_init__(self) -> None:
        require_causal("a judge that is asked yes or no", self.lm)
        check_settings(1, prompt_format=self.prompt_format)
        self._prompt(self.lm, "", "")
        self._answers  # noqa: B018, refuses a tokenizer that does not tell the answers apart

    @property
    def name(self) -> str:
        """As `Judge.name`."""
        return f"{_named(self.lm)}, asked yes or no)"

    def describe(self) -> dict[str, Any]:
        """As `Judge.describe`."""
        own = {"prompt_format": self.prompt_format, "prompts": texts_of(self.prompts, {"judge"})}
        return {"judge": "yes or no", **_described(self.lm), **own, "max_length": self.max_length}

    @cached_property
    def _answers(self) -> tuple[list[int], list[int]]:
        return _first_tokens(self.lm, *(_spellings(word) for word in ("yes", "no")))

    def _judge(self, pairs: Sequence[Pair]) -> Judged:
        limits = [limit for limit in (self.max_length, self.lm.config.max_positions) if limit is not None]
        return _ask(self, self.lm, self._prompt, min(limits, default=None), pairs)

    def _prompt(self, lm: Any, premise: str, hypothesis: str) -> Prompt:
        data = {"premise": premise, "hypothesis": hypothesis}
        texts = self.prompts.judge_system, self.prompts.judge_user
        return build_prompt(lm.tokenizer, *texts, data, prompt_format=self.prompt_format)


def _spellings(word: str) -> tuple[str, ...]:
    cased = word, word.capitalize(), word.upper()
    return (*cased, *(f" {text}" for text in cased))


def _first_tokens(model: Any, yes: Sequence[str], no: Sequence[str]) -> tuple[list[int], list[int]]:
    """The tokens that begin two answers, each in some spellings, without those that begin both.

    Of an answer with spellings that are one token, these alone count: the first of several begins other words too.
    """
    spelled = [[encode_alone(model.tokenizer, text) for text in texts] for texts in (yes, no)]
    begun = [{ids[0] for ids in own if len(ids) == 1} or {ids[0] for ids in own} for own in spelled]
    own = [sorted(begun[0] - begun[1]), sorted(begun[1] - begun[0])]
    if not all(own):
        raise ValueError(f"the tokenizer of {model.name} begins {yes[0]!r} and {no[0]!r} with the same token")
    return own[0], own[1]


def _ask(
    judge: "TrueT5 | AskYesNo",
    model: Any,
    build: Callable[[Any, str, str], Prompt],
    limit: int | None,
    pairs: Sequence[Pair],
) -> Judged:
    """The judgement of a model that writes, from the first token of its answer to each pair's prompt."""
    fitted = [_fit(judge.name, model, partial(build, model), limit, pair) for pair in pairs]
    yes, no = judge._answers
    log_probs = next_log_probs(
        model, [prompt for prompt, _ in fitted], [*yes, *no], execution=Execution(batch=judge.batch)
    ).astype(np.float64)
    values = np.exp(logsumexp(log_probs[:, : len(yes)], axis=1) - logsumexp(log_probs, axis=1))
    for number in np.flatnonzero(~np.isfinite(values)):
        raise _non_finite(judge.name, int(number), pairs)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    count = dict(zip(texts, count_each(model.tokenizer, texts), strict=True))
    tokens = np.array([count[premise] + count[hypothesis] for premise, hypothesis in pairs], int)
    return Judged(values, tokens, np.array([cut for _, cut in fitted], int))


def _fit(
    name: str, model: Any, build: Callable[[str, str], Prompt], limit: int | None, pair: Pair
) -> tuple[Prompt, int]:
    """The prompt of a pair with as much of the premise as fits, and how many of its tokens do not."""
    premise, hypothesis = pair
    prompt = build(premise, hypothesis)
    if limit is None or len(prompt.ids) <= limit:
        return prompt, 0
    ends = encode_with_offsets(model.tokenizer, premise)[1][:, 1]
    # What is cut may be tokenised otherwise at its end: one token less until it fits.
    for kept in range(len(ends) - len(prompt.ids) + limit, 0, -1):
        prompt = build(premise[: ends[kept - 1]], hypothesis)
        if len(prompt.ids) <= limit:
            return prompt, len(ends) - kept
    raise _too_long(name, {hypothesis: count_each(model.tokenizer, [hypothesis])[0]})


def _too_long(name: str, lengths: Mapping[str, int]) -> ClaimTooLong:
    told = "; ".join(f"{text[:_SHOWN]!r} ({length} tokens)" for text, length in list(lengths.items())[:3])
    count = f"{len(lengths)} claims leave" if len(lengths) > 1 else "a claim leaves"
    return ClaimTooLong(f"{name}: {count} no room for a premise, and a claim is never cut: {told}", list(lengths))


def _non_finite(name: str, number: int, pairs: Sequence[Pair]) -> NonFinite:
    premise, hypothesis = pairs[number]
    told = f"premise {premise[:_SHOWN]!r}, hypothesis {hypothesis[:_SHOWN]!r}"
    return NonFinite(number, f"{name}: the probability of pair {number} is not finite ({told})")


def _named(model: Any) -> str:
    return f"{model.name} ({model.dtype.name}"


def _described(model: Any) -> dict[str, Any]:
    return {"model": model.fingerprint, "dtype": model.dtype.name, "tokenizer_class": model.tokenizer_class}


def judge_kind(text: str) -> str | None:
    """The kind, of `ragjax.hub.KINDS`, of the model that a judge's name stands for; None for "lexical".

    Of a model on the hub its config alone is fetched. Raises as `ragjax.memory.check_models`.
    """
    return None if text == LEXICAL else kind_of(find_config(text))


def make_judge(
    text: str,
    *,
    mode: str | None = None,
    label: int | None = None,
    dtype: Any = None,
    mesh: Any = None,
    batch: int | None = None,
    folder: str | PathLike | None = None,
) -> Remembered:
    """The judge that a command line names: "lexical", or a model's name or folder.

    What a model is decides how it is asked: an encoder classifies, an encoder-decoder writes "1" or "0", a causal
    model answers yes or no, in a chat where it has a template.

    Args:
      text: the name.
      mode: of a classifier, as its `label`.
      dtype: of the model, as its `mesh`, as in `ragjax.load`.
      batch: pairs that are read at a time.
      folder: where judgements are kept.

    Raises:
      FileNotFoundError, OutOfMemoryError: as `ragjax.memory.check_models`, before any weight is read.
      ValueError: for a model that cannot judge, or a setting that its judge does not have.
    """
    kind = judge_kind(text)
    settings = {"mode": mode, "label": label, "batch": batch}
    settings = {name: value for name, value in settings.items() if value is not None}
    unknown = [name for name in settings if name not in _SETTINGS[kind]]
    if unknown:
        raise ValueError(f"the judge {text!r} has no {unknown[0]}")
    if kind is None:
        return Remembered(LexicalOverlap())  # Looking it up takes longer than counting words.
    check_models([(text, dtype, kind)])
    return Remembered(_MAKERS[kind](load(text, dtype=dtype, mesh=mesh), **settings), folder)


def _make_ask(lm: Any, **settings: Any) -> AskYesNo:
    return AskYesNo(lm, "chat" if lm.tokenizer.chat_template else "plain", **settings)


_MAKERS: Mapping[str, Callable[..., Judge]] = {
    "encoder": Classifier,
    "encoder-decoder": TrueT5,
    "causal": _make_ask,
}

_SETTINGS: Mapping[str | None, tuple[str, ...]] = {
    None: ("batch",),
    "encoder": ("mode", "label", "batch"),
    "encoder-decoder": ("batch",),
    "causal": ("batch",),
}
