"""How sure a number is, and whether two methods differ: intervals, paired tests and their correction.

Values that are None or NaN are questions without a score: they are left out and counted, never taken as 0. Every
resampling is over questions and depends on nothing but the values and the seed.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

RESAMPLES = 2000
PERMUTATIONS = 9999
# Bounds the resampled array to about 16 MB.
_BATCH_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class Interval:
    """An estimate with its percentile bootstrap interval.

    `value` is None where nothing is left to estimate from, `low` and `high` also where one question is left; each is
    None too where it is not finite. `n` questions were used, `left_out` had no value.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    left_out: int


@dataclass(frozen=True)
class PairedComparison:
    """Method a against method b on the questions both answered.

    `difference` is the mean of a - b with its paired bootstrap interval, `p_permutation` the two-sided sign-flip
    p-value, `p_mcnemar` the exact McNemar p-value of binary outcomes (else None), `only_a` and `only_b` its
    discordant counts. `left_out` counts the questions that are absent or without a value in either. None: no pair.
    """

    n: int
    left_out: int
    difference: float | None
    low: float | None
    high: float | None
    p_permutation: float | None
    p_mcnemar: float | None
    only_a: int | None
    only_b: int | None


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean after the lowest and the highest quarter, floor(n / 4) values each, are dropped; n < 4 drops none."""
    return stats.trim_mean(values, 0.25, axis=axis)


# The names under which a report gives a statistic.
STATISTICS: dict[str, Callable[..., np.ndarray]] = {
    "mean": np.mean,
    "median": np.median,
    "interquartile_mean": interquartile_mean,
}


def bootstrap_interval(
    values: Sequence[float | None],
    *,
    statistic: str = "mean",
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """One of `STATISTICS` of the values [n], with its percentile bootstrap interval.

    Of values that come in `clusters` [n] (questions on one paper) whole clusters are resampled, and the statistic is
    the mean.

    Raises:
      ValueError: for clusters with another statistic, or as many of them as there are not values.
    """
    kept, left_out = _present(values)
    if clusters is None:
        return _interval((kept,), STATISTICS[statistic], left_out, seed, resamples, confidence)
    if statistic != "mean":
        raise ValueError(f"clusters are resampled for the mean, not for {statistic!r}")
    present = [c for c, v in zip(clusters, values, strict=True) if v is not None and not math.isnan(v)]
    return _clustered(kept, present, left_out, seed, resamples, confidence)


def ratio_interval(
    numerators: Sequence[float | None],
    denominators: Sequence[float | None],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """sum(numerators) / sum(denominators) over questions [n], resampled as pairs: the compression rate of METHODS.

    A bound (or the ratio) is None where its denominators sum to 0. Raises ValueError where the lengths differ.
    """
    pairs = np.array(list(zip(numerators, denominators, strict=True)), float).reshape(-1, 2)
    kept = pairs[~np.isnan(pairs).any(axis=1)]
    return _interval((kept[:, 0], kept[:, 1]), _ratio_of_sums, len(pairs) - len(kept), seed, resamples, confidence)


def paired_comparison(
    a: Sequence[float | None],
    b: Sequence[float | None],
    ids_a: Sequence[str],
    ids_b: Sequence[str],
    *,
    clusters: Mapping[str, str] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
    confidence: float = 0.95,
) -> PairedComparison:
    """Compare two methods question by question; the order of the questions does not matter.

    `clusters` name the cluster of each id: questions of one are not independent, and are resampled and flip their sign
    together.

    Raises ValueError where an id is repeated within one method or values and ids differ in number.
    """
    first, second, used, left_out = _aligned(_by_id(a, ids_a), _by_id(b, ids_b))
    named = used if clusters is None else [clusters[one] for one in used]
    differences, totals = first - second, _sums(first - second, named)[0]
    difference = _clustered(differences, named, left_out, seed, resamples, confidence)
    binary = bool(len(first)) and set(np.concatenate([first, second])) <= {0.0, 1.0}
    only_a, only_b = int(np.sum(first > second)), int(np.sum(first < second))
    return PairedComparison(
        n=len(first),
        left_out=left_out,
        difference=difference.value,
        low=difference.low,
        high=difference.high,
        p_permutation=_sign_flip(totals, seed, permutations),
        p_mcnemar=_mcnemar(only_a, only_b) if binary else None,
        only_a=only_a if binary else None,
        only_b=only_b if binary else None,
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of a family of p-values, in the given order; a None is no test and stays None."""
    tests = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(tests):
        largest = max(largest, min(1.0, p * (len(tests) - rank)))
        adjusted[i] = largest
    return adjusted


def _present(values: Sequence[float | None]) -> tuple[np.ndarray, int]:
    """The values that are there, as float64, and the number of those that are not."""
    array = np.array(list(values), float)  # None becomes NaN
    kept = array[~np.isnan(array)]
    return kept, len(array) - len(kept)


def _interval(
    samples: tuple[np.ndarray, ...],
    statistic: Callable[..., np.ndarray],
    left_out: int,
    seed: int,
    resamples: int,
    confidence: float,
) -> Interval:
    n = len(samples[0])
    if n == 0:
        return Interval(None, None, None, 0, left_out)
    value = _finite(statistic(*samples, axis=-1))
    if n == 1:
        return Interval(value, None, None, 1, left_out)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # equal values: the interval is that value
        result = stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            batch=max(1, _BATCH_ELEMENTS // n),
            vectorized=True,
            paired=True,
            confidence_level=confidence,
            method="percentile",
            random_state=np.random.default_rng(seed),
        )
    low, high = result.confidence_interval
    return Interval(value, _finite(low), _finite(high), n, left_out)


def _clustered(
    values: np.ndarray, clusters: Sequence[str], left_out: int, seed: int, resamples: int, confidence: float
) -> Interval:
    """The mean of some values whose clusters are resampled; of clusters of one, that of the values themselves."""
    if len(set(clusters)) == len(values):
        return _interval((values,), np.mean, left_out, seed, resamples, confidence)
    found = _interval(_sums(values, clusters), _ratio_of_sums, left_out, seed, resamples, confidence)
    return replace(found, n=len(values))


def _sums(values: np.ndarray, clusters: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The sum and the number of each cluster's values, in the order in which the clusters come."""
    places: dict[str, int] = {}
    rows = [places.setdefault(cluster, len(places)) for cluster in clusters]
    return np.bincount(rows, values, len(places)), np.bincount(rows, minlength=len(places)).astype(float)


def _ratio_of_sums(numerators: np.ndarray, denominators: np.ndarray, axis: int = -1) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sum(numerators, axis=axis) / np.sum(denominators, axis=axis)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _by_id(values: Sequence[float | None], ids: Sequence[str]) -> dict[str, float | None]:
    by_id = dict(zip(ids, values, strict=True))
    if len(by_id) < len(ids):
        raise ValueError(f"an id is repeated: {next(i for i in ids if list(ids).count(i) > 1)!r}")
    return by_id


def _aligned(a: dict[str, float | None], b: dict[str, float | None]) -> tuple[np.ndarray, np.ndarray, list[str], int]:
    """The values of the questions that have one in both, in a's order, their ids, and the number of all others."""
    both = [i for i in a if i in b]
    pairs = np.array([(a[i], b[i]) for i in both], float).reshape(-1, 2)
    there = ~np.isnan(pairs).any(axis=1)
    used = [one for one, kept in zip(both, there, strict=True) if kept]
    return pairs[there, 0], pairs[there, 1], used, len(a.keys() | b.keys()) - len(used)


def _sign_flip(differences: np.ndarray, seed: int, permutations: int) -> float | None:
    """Two-sided p-value of a zero mean when each difference may change its sign; exact where 2^n <= permutations."""
    if len(differences) < 2:
        return 1.0 if len(differences) else None
    result = stats.permutation_test(
        (differences, np.zeros_like(differences)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _BATCH_ELEMENTS // len(differences)),
        random_state=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _mcnemar(only_a: int, only_b: int) -> float:
    discordant = only_a + only_b
    return float(stats.binomtest(only_a, discordant).pvalue) if discordant else 1.0
