"""Does a better score of a summary go with a better answer? The correlation study of xCompress (2508.05909, table 1).

Each question has C candidates, each with a score (lower is better: perplexity, LongPPL, SPS) and the quality of the
answer that a reader gave from it (EM and F1). The published measure ranks the candidates of each question, takes the
mean quality of each rank over all questions, and correlates the C means with their ranks. C means of hundreds of
answers hide most of the spread, so what a single score says stands beside it: AUROC and Spearman's correlation over
all candidates, and the same within a question, where the difficulty of the question plays no part. In everything here
"positive", and an AUROC above one half, says that a better score goes with a better answer.

All of it is one function of how often each question counts. With every question once it gives the values; with the
questions drawn anew it gives the intervals, so the candidates of a question are never taken for independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ragjax.evals.significance import RESAMPLES, Interval

QUALITIES = ("em", "f1")
# Bin means or ranks closer than this are equal: what differs beyond is rounding.
_EQUAL = 1e-9
# An interval needs the statistic to exist in this share of the resamples.
_DEFINED = 0.95
# Bounds each array of a block of resamples to about 1 MB.
_BLOCK_ELEMENTS = 100_000


@dataclass(frozen=True)
class Correlation:
    """How a score of summaries goes with the answers read from them; every interval is over questions.

    `bins[quality]` holds the mean quality of each rank, worst score first. `pearson`, `spearman` and
    `spearman_within` are by quality. `auroc` is that of EM = 1 by the score over all candidates; `auroc_within` is the
    mean over the questions whose candidates differ in EM, `spearman_within` over those that differ in the quality,
    among questions whose candidates differ in score. A statistic that does not exist is None. Drawing questions anew
    adds noise to the bins' means, so the interval of `pearson` reaches further towards 0 than away from it.

    `questions` and `candidates` were used. Of all candidates, `unscored` have no score (no text, no key token) and
    `unanswered` no quality (a failed row, no gold); both are left out. `left_out` counts the questions without any
    candidate left, by reason; `tied` the used ones whose candidates all score the same and fill all bins alike.
    """

    bins: Mapping[str, tuple[Interval, ...]]
    pearson: Mapping[str, Interval]
    auroc: Interval
    auroc_within: Interval
    spearman: Mapping[str, Interval]
    spearman_within: Mapping[str, Interval]
    questions: int
    candidates: int
    unscored: int
    unanswered: int
    left_out: Mapping[str, int]
    tied: int


class _Levels(NamedTuple):
    """Values as the numbers of their distinct values: `of` [N]; sorted by `order` [N], each number has its start."""

    of: np.ndarray
    order: np.ndarray
    starts: np.ndarray

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """The sums of weights [R, N] at each level, [R, L]."""
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1) if len(self.starts) else weights


@dataclass(frozen=True)
class _Table:
    """The used candidates [N] of the used questions [Q], and what each question says by itself.

    `owner` is a candidate's question; `scores` numbers the distinct scores from the worst up, `qualities` [2] the
    values of each quality; `right` is EM. `bins` is [2, Q, C], `within` [3, Q]: AUROC and Spearman by quality, NaN
    where undefined. `tied` [Q]: all scores are equal.
    """

    owner: np.ndarray
    scores: _Levels
    qualities: tuple[_Levels, ...]
    right: np.ndarray
    bins: np.ndarray
    within: np.ndarray
    tied: np.ndarray


def correlate(
    scores: Sequence[Sequence[float | None]],
    em: Sequence[Sequence[float | None]],
    f1: Sequence[Sequence[float | None]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Correlation:
    """The study of one score. Neither the order of the questions nor an increasing map of the scores changes anything.

    Candidates with equal scores fill the bins of their ranks with their mean, as if ties were broken in every way.
    Where only k of the C candidates are left, they fill the C bins evenly, each one C / k bins: so every question
    weighs the same in every bin, and bins never differ in which questions they hold.

    Args:
      scores: [Q, C], lower is better; None or not finite: no score.
      em: [Q, C], 0 or 1; None: no answer or no gold.
      f1: [Q, C], in [0, 1]; None as in `em`.
      seed: of the resampling. A percentile interval leaves out the resamples in which the statistic does not exist;
        there is none where more than one in twenty are such, and none of a single question.

    Raises:
      ValueError: the shapes differ or are no table, EM is neither 0 nor 1, or F1 lies outside [0, 1].
    """
    score, quality = _checked(scores, em, f1)
    scored, answered = np.isfinite(score), ~np.isnan(quality).any(axis=0)
    usable = scored & answered
    kept = usable.any(axis=1)
    table = _tabulate(score[kept], quality[:, kept], usable[kept])
    (values,) = _statistics(table, np.ones((1, np.sum(kept))))
    low, high = _bounds(_resampled(table, seed, resamples), confidence)
    sizes = _sizes(table)
    intervals = [
        Interval(value, *((bottom, top) if n > 1 and value is not None else (None, None)), n, len(kept) - n)
        for value, bottom, top, n in zip(_finite(values), _finite(low), _finite(high), sizes, strict=True)
    ]
    return Correlation(
        **_named(intervals, score.shape[1]),
        questions=int(np.sum(kept)),
        candidates=int(np.sum(usable)),
        unscored=int(np.sum(~scored)),
        unanswered=int(np.sum(~answered)),
        left_out=_reasons(scored[~kept].any(axis=1), answered[~kept].any(axis=1)),
        tied=int(np.sum(table.tied)),
    )


def _checked(*tables: Sequence[Sequence[float | None]]) -> tuple[np.ndarray, np.ndarray]:
    """The scores [Q, C] and the qualities [2, Q, C] as float64, NaN for None. Raises as `correlate`."""
    rows = {len(row) for table in tables for row in table}
    if len(rows) > 1 or len({len(table) for table in tables}) > 1:
        raise ValueError(f"scores, EM and F1 are tables of one shape; their rows have {sorted(rows)} candidates")
    width = rows.pop() if rows else 1
    score, em, f1 = (np.array([list(row) for row in of], float).reshape(len(of), width) for of in tables)
    if not np.isin(em[~np.isnan(em)], (0, 1)).all():
        raise ValueError(f"EM is 0 or 1, got values from {np.nanmin(em)} to {np.nanmax(em)}")
    if not ((f1 >= 0) & (f1 <= 1) | np.isnan(f1)).all():
        raise ValueError(f"F1 lies in [0, 1], got values from {np.nanmin(f1)} to {np.nanmax(f1)}")
    return score, np.stack([em, f1])


def _reasons(scored: np.ndarray, answered: np.ndarray) -> dict[str, int]:
    """How many questions without a usable candidate lack what, by whether any candidate has a score or a quality."""
    counts = {
        "no answer to compare with a gold": np.sum(~answered),
        "no candidate has a score": np.sum(answered & ~scored),
        "no candidate has both": np.sum(answered & scored),
    }
    return {reason: int(times) for reason, times in counts.items() if times}


def _tabulate(score: np.ndarray, quality: np.ndarray, usable: np.ndarray) -> _Table:
    """Scores become levels, and the questions stand in an order of their contents, so that nothing else matters."""
    level = np.full(score.shape, -1)
    level[usable] = np.unique(-score[usable], return_inverse=True)[1]
    quality = np.where(usable, quality, 0)
    order = np.lexsort(np.concatenate([level, *quality], axis=1).T)
    level, quality, usable = level[order], quality[:, order], usable[order]
    return _Table(
        owner=np.nonzero(usable)[0],
        scores=_levels(level[usable]),
        qualities=tuple(_levels(of[usable]) for of in quality),
        right=quality[0][usable],
        bins=_fill(level, quality, usable),
        within=_within(level, quality, usable),
        tied=np.all((level == level.max(axis=1, keepdims=True, initial=-1)) | ~usable, axis=1),
    )


def _levels(values: np.ndarray) -> _Levels:
    _, of, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return _Levels(of, np.argsort(of, kind="stable"), np.cumsum(sizes) - sizes)


def _fill(level: np.ndarray, quality: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """The mean quality [2, Q, C] of each rank, worst score first; see `correlate` for the rule."""
    less, same = _peers(level, usable)
    width = usable.shape[1]
    scale = width / np.sum(usable, axis=1)[:, None, None]
    starts, ends = less[..., None] * scale, (less + same)[..., None] * scale  # of a candidate and its equals, in bins
    ranks = np.arange(width)
    overlap = np.clip(np.minimum(ranks + 1, ends) - np.maximum(ranks, starts), 0, None)
    shares = overlap * usable[..., None] / np.maximum(same, 1)[..., None]
    return np.einsum("kqc,qcr->kqr", quality, shares)


def _within(level: np.ndarray, quality: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """AUROC, and Spearman for each quality, among the candidates of each question: [3, Q]."""
    right, wrong = quality[0] * usable, (1 - quality[0]) * usable
    less, same = _peers(level, wrong)
    pairs = np.sum(right, axis=1) * np.sum(wrong, axis=1)
    differ = np.any((level != level.max(axis=1, keepdims=True, initial=-1)) & usable, axis=1)
    exists = (pairs > 0) & differ
    auroc = np.where(exists, np.sum(right * (less + same / 2), axis=1) / np.where(exists, pairs, 1), np.nan)
    ranks = [less + same / 2 for less, same in (_peers(of, usable) for of in (level, *quality))]
    return np.stack([auroc, *(_pearson(ranks[0], of, usable.astype(float)) for of in ranks[1:])])


def _peers(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value [Q, C], the weight [Q, C] of the lower ones and of the equal ones of its row, itself included."""
    own, other = values[:, :, None], values[:, None, :]
    return tuple(np.einsum("qij,qj->qi", found, weights) for found in ((own > other) * 1.0, (own == other) * 1.0))


def _statistics(table: _Table, counts: np.ndarray) -> np.ndarray:
    """Every statistic [R, S], in the order of `_named`, with each question counted `counts` [R, Q] times; NaN: none."""
    with np.errstate(invalid="ignore"):  # 0 / 0: no question
        means = counts @ table.bins / np.sum(counts, axis=-1, keepdims=True)
        within = counts @ np.nan_to_num(table.within).T / (counts @ ~np.isnan(table.within).T)
    weights, ranks = counts[:, table.owner], np.arange(means.shape[-1])
    whole = [
        *(_pearson(ranks, of, np.ones_like(of)) for of in means),
        _auroc(table.scores, table.right, weights),
        *_spearman(table.scores, table.qualities, weights),
    ]
    return np.concatenate([*means, np.stack(whole, axis=-1), within], axis=-1)


def _sizes(table: _Table) -> list[int]:
    """How many questions each statistic rests on."""
    _, questions, width = table.bins.shape
    return [questions] * (2 * width + 5) + [int(n) for n in np.sum(~np.isnan(table.within), axis=1)]


def _named(found: Sequence[Interval], width: int) -> dict[str, Any]:
    """The fields of `Correlation` from the intervals in the order of `_statistics`."""
    bins = dict(zip(QUALITIES, (tuple(found[:width]), tuple(found[width : 2 * width])), strict=True))
    rest = found[2 * width :]
    return {
        "bins": bins,
        "pearson": dict(zip(QUALITIES, rest[:2], strict=True)),
        "auroc": rest[2],
        "spearman": dict(zip(QUALITIES, rest[3:5], strict=True)),
        "auroc_within": rest[5],
        "spearman_within": dict(zip(QUALITIES, rest[6:], strict=True)),
    }


def _resampled(table: _Table, seed: int, resamples: int) -> np.ndarray:
    """The statistics [resamples, S] of questions drawn with replacement, in blocks of a bounded size."""
    generator, n = np.random.default_rng(seed), len(table.tied)
    if not n:
        return _statistics(table, np.zeros((1, 0)))
    block, chances = max(1, _BLOCK_ELEMENTS // len(table.owner)), np.full(n, 1 / n)
    found = []
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        found.append(_statistics(table, generator.multinomial(n, chances, rows).astype(float)))
    return np.concatenate(found)


def _bounds(samples: np.ndarray, confidence: float) -> tuple[list[float], list[float]]:
    """The percentile bounds of each column; NaN where too few resamples have a value."""
    tail = (1 - confidence) / 2
    bounds = []
    for column in samples.T:
        defined = column[~np.isnan(column)]
        enough = len(defined) and len(defined) >= _DEFINED * len(column)
        bounds.append(np.quantile(defined, [tail, 1 - tail]) if enough else (np.nan, np.nan))
    return [low for low, _ in bounds], [high for _, high in bounds]


def _finite(values: Sequence[float]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _auroc(scores: _Levels, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The chance that a right candidate has the better score than a wrong one, ties one half (Mann-Whitney U): [R].

    `weights` is [R, N]. NaN where all are right, all are wrong, or all scores are equal.
    """
    at, hit = scores.sums(weights), scores.sums(weights * right)
    wrong = at - hit
    pairs = np.sum(wrong, axis=1) * np.sum(hit, axis=1)
    ordered = np.sum(hit * (np.cumsum(wrong, axis=1) - wrong / 2), axis=1)
    exists = (pairs > 0) & (np.count_nonzero(at, axis=1) > 1)
    return np.where(exists, ordered / np.where(exists, pairs, 1), np.nan)


def _spearman(scores: _Levels, qualities: Sequence[_Levels], weights: np.ndarray) -> list[np.ndarray]:
    """Spearman's correlation [R] of scores and each quality, ties at their mean rank; NaN where one is constant.

    Ranks are less their mean, so that no sum needs it; those of the scores are summed at each level of the quality.
    """
    at = scores.sums(weights)
    rank = _centred_ranks(at)
    weighted = weights * rank[:, scores.of]
    variance, found = np.sum(at * rank * rank, axis=1), []
    for quality in qualities:
        other = quality.sums(weights)
        ranks = _centred_ranks(other)
        scale = np.sqrt(variance * np.sum(other * ranks * ranks, axis=1))
        covariance = np.sum(quality.sums(weighted) * ranks, axis=1)
        exists = np.minimum(np.count_nonzero(at, axis=1), np.count_nonzero(other, axis=1)) > 1
        found.append(np.where(exists, np.clip(covariance / np.where(exists, scale, 1), -1, 1), np.nan))
    return found


def _centred_ranks(at: np.ndarray) -> np.ndarray:
    """The mean rank of each level, less the mean of all, when `at` [R, L] values stand at it."""
    return np.cumsum(at, axis=1) - at / 2 - np.sum(at, axis=1, keepdims=True) / 2


def _pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's correlation along the last axis, with weights; NaN where one side is constant."""
    x, y = (_centred(of, weights) for of in (x, y))
    variances = [np.sum(weights * of * of, axis=-1) for of in (x, y)]
    spread = np.min([np.max(np.abs(of) * (weights > 0), axis=-1, initial=0) for of in (x, y)], axis=0)
    exists = spread > _EQUAL
    scale = np.sqrt(np.where(exists, variances[0] * variances[1], 1))
    return np.where(exists, np.clip(np.sum(weights * x * y, axis=-1) / scale, -1, 1), np.nan)


def _centred(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The values less their mean."""
    total = np.sum(weights, axis=-1, keepdims=True)
    return values - np.sum(weights * values, axis=-1, keepdims=True) / np.where(total > 0, total, 1)
