"""Choosing one of several texts: the candidate with the lowest score, whatever made the candidates.

    first     the first one
    random    any of them, by the example's id
    ppl       the lowest perplexity to the reader
    longppl   the lowest perplexity over the tokens that the documents explain
    sps       the lowest self-projection score
    mixture   the lowest mean rank under `ppl` and `sps`

An empty text and a score that is not finite never win; ties go to the lowest index. Equal texts are scored once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from scipy import stats

from ragjax.compress.geometry import sps, sps_subspace
from ragjax.compress.subspace import Subspace
from ragjax.decode.likelihood import Score
from ragjax.decode.longppl import long_perplexity
from ragjax.decode.states import LAYER, check_choices
from ragjax.decode.text import perplexity


@dataclass(frozen=True, eq=False)
class Candidates:
    """The texts to choose from for one example. `id` keys a random choice; `question` and `source` (the documents'
    text) are what the perplexities may be given."""

    texts: tuple[str, ...]
    id: str = ""
    question: str = ""
    source: str = ""

    @property
    def distinct(self) -> int:
        """How many of the texts differ."""
        return len(set(self.texts))


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen index and the score of each text (lower is better; NaN never wins)."""

    chosen: int
    scores: tuple[float, ...]


def choose(scores: Sequence[float]) -> int:
    """The index of the lowest score; the lowest index of equal ones. A score that is not finite never wins, unless
    none is finite: then index 0.

    Raises:
      ValueError: without any score.
    """
    if not len(scores):
        raise ValueError("there is no candidate to choose")
    finite = [value if math.isfinite(value) else math.inf for value in scores]
    return finite.index(min(finite))


@dataclass(frozen=True, eq=False, kw_only=True)
class Selector:
    """A way to choose among texts. `kind` is one of `SELECTORS`.

    Args:
      lm: the reader: every kind but "first" and "random" asks it.
      subspace: of SPS; default that of `preset` and `energy`.
      pooling, layer, first_token: see `ragjax.sps`.
      ppl_given: what "ppl" reads before a text: "nothing" (as SPS reads it) or "question".
      window, stride: the short context of "longppl".
      seed: of "random".
    """

    kind: str = "sps"
    lm: Any = None
    subspace: Subspace | None = None
    preset: str = "paper"
    energy: float = 0.95
    pooling: str = "max"
    layer: int = LAYER
    first_token: str = "keep"
    ppl_given: str = "nothing"
    window: int = 32
    stride: int = 16
    seed: int = 0
    batch: int = 8

    def __post_init__(self) -> None:
        if self.kind not in SELECTORS:
            raise ValueError(f"a selector is one of {tuple(SELECTORS)}, got {self.kind!r}")
        if self.ppl_given not in ("nothing", "question"):
            raise ValueError(f'ppl_given is "nothing" or "question", got {self.ppl_given!r}')
        check_choices(self.first_token, self.pooling)
        if self.lm is None and self.kind not in ("first", "random"):
            raise ValueError(f"the selector {self.kind!r} needs a reader: lm=")

    def select(self, candidates: Sequence[Candidates]) -> list[Selection]:
        """Choose one text of each example."""
        return [Selection(choose(scores), tuple(map(float, scores))) for scores in self.score(candidates)]

    @cached_property
    def own_subspace(self) -> Subspace | None:
        """The subspace that scores are measured against, None for a kind without one."""
        if self.subspace is not None or self.kind not in ("sps", "mixture"):
            return self.subspace
        return sps_subspace(self.lm, self.preset, energy=self.energy, layer=self.layer)

    def score(self, candidates: Sequence[Candidates]) -> list[np.ndarray]:
        """The score of each text of each example, lower is better; NaN for an empty text. [n][C]"""
        found = SELECTORS[self.kind](self, candidates)
        empty = [np.array([not text.strip() for text in one.texts]) for one in candidates]
        return [np.where(gone, np.nan, scores) for gone, scores in zip(empty, found, strict=True)]


def _first(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    return [np.arange(len(one.texts), dtype=float) for one in candidates]


def _random(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    def drawn(one: Candidates) -> np.ndarray:
        name = one.id or "\n".join(one.texts)
        key = xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"), seed=selector.seed)
        return np.random.default_rng(key).random(len(one.texts))

    return [drawn(one) for one in candidates]


def _ppl(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    def score(pairs: list[tuple[str, Candidates]]) -> list[float]:
        given = [f"{one.question}\n\n" if selector.ppl_given == "question" else "" for _, one in pairs]
        texts = [text for text, _ in pairs]
        return list(map(_value, perplexity(selector.lm, texts, given=given, batch=selector.batch)))

    return _each_once(candidates, score)


def _longppl(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    def score(pairs: list[tuple[str, Candidates]]) -> list[float]:
        given = [f"{one.source}\n\n{one.question}\n\n" for _, one in pairs]
        settings = {"window": selector.window, "stride": selector.stride, "batch": selector.batch}
        return list(map(_value, long_perplexity(selector.lm, [text for text, _ in pairs], given, **settings)))

    return _each_once(candidates, score)


def _sps(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    names = ("first_token", "pooling", "layer", "batch")
    settings = {name: getattr(selector, name) for name in names}

    def score(pairs: list[tuple[str, Candidates]]) -> list[float]:
        return list(sps(selector.lm, [text for text, _ in pairs], subspace=selector.own_subspace, **settings))

    return _each_once(candidates, score)


def _mixture(selector: Selector, candidates: Sequence[Candidates]) -> list[np.ndarray]:
    both = zip(_ppl(selector, candidates), _sps(selector, candidates), strict=True)
    return [(stats.rankdata(a, nan_policy="omit") + stats.rankdata(b, nan_policy="omit")) / 2 for a, b in both]


def _each_once(
    candidates: Sequence[Candidates], score: Callable[[list[tuple[str, Candidates]]], list[float]]
) -> list[np.ndarray]:
    """Score each distinct non-empty text of an example once; NaN for the empty ones."""
    keys = [(text, n) for n, one in enumerate(candidates) for text in one.texts if text.strip()]
    unique = list(dict.fromkeys(keys))
    values = dict(zip(unique, score([(text, candidates[n]) for text, n in unique]) if unique else [], strict=True))
    return [
        np.array([values.get((text, n), math.nan) for text in one.texts], float) for n, one in enumerate(candidates)
    ]


def _value(score: Score) -> float:
    return math.nan if score.perplexity is None else score.perplexity


SELECTORS: Mapping[str, Callable[[Selector, Sequence[Candidates]], list[np.ndarray]]] = {
    "first": _first,
    "random": _random,
    "ppl": _ppl,
    "longppl": _longppl,
    "sps": _sps,
    "mixture": _mixture,
}
"""The kinds of selector, and what gives their scores."""
