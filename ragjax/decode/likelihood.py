"""How surprising a text is to a model: NLL, perplexity and bits per byte of one span a row.

The first token of a text is scored only where something stands before it: the given text, or the family's BOS. A
tokenizer without BOS (Qwen) therefore scores one token fewer, and never borrows another special token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Score:
    """The NLL of one text in nats, summed over `count` tokens; `bytes` is its length in UTF-8.

    A text without a scored token has no perplexity: `reason` says why, and such a text never wins a comparison.
    """

    nll: float
    count: int
    bytes: int
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def perplexity(self) -> float | None:
        """exp(mean NLL a token), None without a scored token."""
        return math.exp(self.nll / self.count) if self.reason is None else None

    @property
    def bits_per_byte(self) -> float | None:
        """NLL in bits over UTF-8 bytes: comparable between tokenizers, which perplexity is not."""
        return self.nll / math.log(2) / self.bytes if self.reason is None else None


def score_span(nll: np.ndarray, start: int, stop: int, text: str) -> Score:
    """The score of tokens [start, stop) of a row, from the row's NLL per token ([T] nats, pads cut off).

    The very first token of a row has nothing before it and is not counted.
    """
    first = max(start, 1)
    if not text.strip():
        return Score(0.0, 0, len(text.encode()), "empty text")
    if first >= stop:
        return Score(0.0, 0, len(text.encode()), "no token with anything before it")
    total = float(np.sum(nll[first:stop], dtype=np.float64))
    reason = None if math.isfinite(total) else "non-finite likelihood"
    return Score(total, stop - first, len(text.encode()), reason)


def unscored(text: str, tokens: int, limit: int, notes: tuple[str, ...]) -> Score:
    """The score of a text that is empty or, with what must stand before it, longer than the model's `limit`."""
    reason = f"longer than the model's {limit} positions" if tokens > limit else "empty text"
    return Score(0.0, 0, len(text.encode()), reason, notes)


@dataclass(frozen=True)
class PerplexitySummary:
    """Perplexity of many texts. Every mean is over texts except `pooled`, which is over their tokens.

    `interquartile_mean` drops the lowest and the highest quarter of texts (the number FaviComp publishes).
    `count` texts are in it; `skipped` had no perplexity.
    """

    mean: float | None
    median: float | None
    interquartile_mean: float | None
    pooled: float | None
    count: int
    skipped: int


def summarize(scores: Sequence[Score | None]) -> PerplexitySummary:
    """Pool scores; texts without a perplexity (None, empty, non-finite) are skipped and counted."""
    kept = [s for s in scores if s is not None and s.perplexity is not None]
    skipped = len(scores) - len(kept)
    if not kept:
        return PerplexitySummary(None, None, None, None, 0, skipped)
    values = [s.perplexity for s in kept]
    return PerplexitySummary(
        mean=float(np.mean(values)),
        median=float(np.median(values)),
        interquartile_mean=float(stats.trim_mean(values, 0.25)),
        pooled=math.exp(sum(s.nll for s in kept) / sum(s.count for s in kept)),
        count=len(kept),
        skipped=skipped,
    )
