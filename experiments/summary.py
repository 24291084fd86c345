"""From rows to numbers: every metric with its interval, on all questions and on those with or without a hit.

A failed row is in no metric; a question without a usable gold is in no answer metric. Both are counted. Quality lies
in [0, 1] here; a table shows it as 0 to 100.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from experiments.experiment import Experiment
from ragjax.evals.qa import METRICS
from ragjax.evals.run import Row
from ragjax.evals.significance import STATISTICS, bootstrap_interval, holm, paired_comparison, ratio_interval

SPLITS = {"all": (None, 0.0, 1.0), "hits_0": (0.0,), "hits_1": (1.0,)}
MEASURING = ("score", "measure")
"""The stages that make no answer: perplexities of what was shown, and scores of candidates that are not chosen by."""


def summarize(rows: Sequence[Row], timings: Sequence[Row], references: Mapping[str, str]) -> Row:
    """The summary of a run. `references` names, for each point's hash, that of the point it is compared with."""
    points = by_point(rows)
    seconds = by_point(timings)
    return {
        "scale": "quality in [0, 1]; intervals are 95 % percentile bootstraps over questions",
        "points": {hash_: summarize_point(of, seconds.get(hash_, [])) for hash_, of in points.items()},
        "paired": {metric: compare(points, references, metric) for metric in METRICS},
    }


def choose_references(points: Sequence[Experiment]) -> list[int]:
    """What each point is compared with, by position: the raw documents for the same reader, else the first point.

    Only points over the same data are compared.
    """
    chosen = []
    for point in points:
        same_rows = [(peer.data, peer.dataset, peer.split, peer.limit) for peer in points]
        own = (point.data, point.dataset, point.split, point.limit)
        peers = [i for i, rows in enumerate(same_rows) if rows == own]
        raw = [i for i in peers if points[i].method == "raw"]
        same = [i for i in raw if (points[i].reader, points[i].top_k) == (point.reader, point.top_k)]
        chosen.append([*same, *raw, *peers][0])
    return chosen


def by_point(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each point's hash, in order."""
    points: dict[str, list[Row]] = {}
    for row in rows:
        points.setdefault(row["settings"], []).append(row)
    return points


def is_failed(row: Row) -> bool:
    """Whether a row has no result."""
    return row["status"].startswith("failed")


def summarize_point(rows: Sequence[Row], timings: Sequence[Row]) -> Row:
    """One point: counts, each metric on each split, the length of the evidence, speed."""
    done = [row for row in rows if not is_failed(row)]
    splits = {name: [row for row in done if row["hits"] in kept] for name, kept in SPLITS.items()}
    return {
        "label": rows[0]["point"],
        "counts": count(rows, done),
        **{name: measure(of) for name, of in splits.items()},
        "budget": budget(done),
        "speed": speed(timings),
        "choices": choices([row["choice"] for row in done if "choice" in row]),
    }


def budget(rows: Sequence[Row]) -> Row:
    """How long the evidence was to be and how long it was, as ratios of sums over the documents' tokens.

    Without a budget nothing was requested.
    """
    limited = [row for row in rows if row["requested"] is not None]
    sources = [row["source_tokens"] for row in rows]
    if not any(sources):
        return {name: asdict(ratio_interval([], [])) for name in ("requested", "achieved")}
    requested = ratio_interval([row["requested"] for row in limited], [row["source_tokens"] for row in limited])
    achieved = ratio_interval([row["achieved"] for row in rows], sources)
    return {"requested": {**asdict(requested), "low": None, "high": None}, "achieved": asdict(achieved)}


def choices(made: Sequence[Row]) -> Row | None:
    """How a point's texts were chosen; None where none was.

    `saved_tokens` is what the filter saved: its questions times the mean number of tokens drawn for the others.
    `scores` are the selector's over all drawn texts, where it measures them; `unmeasured` counts the questions none of
    whose texts has a score (no key token), which show the first one; `first_token` is what becomes of it under
    SPS and the filter (None: neither looks), `threshold` the filter's.
    """
    if not made:
        return None
    drawn = [one for one in made if one["skipped"] is None]
    skipped = Counter(one["skipped"] for one in made if one["skipped"] is not None)
    tokens = [one["drawn_tokens"] for one in drawn]
    measured = [one for one in drawn if one["selector"] not in ("first", "random", "mixture")]
    scores = [score for one in measured for score in one["scores"] if score is not None]
    return {
        "questions": len(made),
        "skipped": dict(skipped),
        "candidates": max((one["candidates"] for one in drawn), default=0),
        "distinct": float(np.mean([one["distinct"] for one in drawn])) if drawn else None,
        "drawn_tokens": sum(tokens),
        "saved_tokens": round(skipped["filter"] * float(np.mean(tokens))) if drawn else None,
        "scores": {"mean": float(np.mean(scores)), "std": float(np.std(scores))} if scores else None,
        "unmeasured": sum(all(score is None for score in one["scores"]) for one in drawn),
        "subspace": next((one["subspace"] for one in drawn), None),
        "first_token": made[0].get("first_token"),
        "threshold": made[0].get("threshold"),
    }


def count(rows: Sequence[Row], done: Sequence[Row]) -> Row:
    """How many rows there are of each kind that a reader of the table has to know."""
    return {
        **count_evidence(rows, done),
        "unscored": sum(row["scores"]["unscored"] is not None for row in done),
        "dropped_golds": sum(row["scores"]["dropped_golds"] for row in done),
        "cut_answers": sum(row["reading"]["finish_reason"] == "length" for row in done),
    }


def count_evidence(rows: Sequence[Row], done: Sequence[Row]) -> Row:
    """The counts that do not depend on how a question was answered."""
    return {
        "rows": len(rows),
        "failed": len(rows) - len(done),
        "statuses": dict(Counter("failed" if is_failed(row) else row["status"] for row in rows)),
        "empty": sum(row["status"] == "empty" for row in done),
        "cut_evidence": sum(row["status"] == "length" for row in done),
        "too_small": sum(row["status"] == "too_small" for row in done),
        "dropped_documents": sum(row["dropped_documents"] for row in done),
        "notes": dict(Counter(note for row in done for note in row["notes"])),
    }


def measure(rows: Sequence[Row]) -> Row:
    """Answer quality, compression rate and perplexity of some rows."""
    quality = {name: asdict(bootstrap_interval([row["scores"][name] for row in rows])) for name in METRICS}
    return {**quality, "compression_rate": compression_rate(rows), "perplexity": perplexity(rows)}


def compression_rate(rows: Sequence[Row]) -> Row:
    """Sum of retrieved over sum of compressed tokens; texts without a token are in both sums."""
    rates = [row["rate"] for row in rows]
    empty = sum(rate["compressed"] == 0 for rate in rates)
    if empty == len(rates):
        return {**asdict(ratio_interval([], [])), "empty": empty}
    interval = ratio_interval([rate["retrieved"] for rate in rates], [rate["compressed"] for rate in rates])
    return {**asdict(interval), "empty": empty}


def perplexity(rows: Sequence[Row]) -> Row:
    """Per-text perplexities by each statistic, their token-pooled value, and why the others have none."""
    measured = [row["perplexity"] for row in rows if row["perplexity"] is not None]
    values = [one["perplexity"] for one in measured]
    finite = [one for one in measured if one["perplexity"] is not None]
    tokens = sum(one["count"] for one in finite)
    pooled = float(np.exp(sum(one["nll"] for one in finite) / tokens)) if tokens else None
    reasons = Counter(one["reason"] for one in measured if one["perplexity"] is None)
    reasons["no evidence"] += len(rows) - len(measured)
    return {
        **{name: asdict(bootstrap_interval(values, statistic=name)) for name in STATISTICS},
        "bits_per_byte": asdict(bootstrap_interval([one["bits_per_byte"] for one in measured])),
        "pooled_over_tokens": pooled,
        "without": {reason: times for reason, times in reasons.items() if times},
    }


def speed(timings: Sequence[Row]) -> Row:
    """Generated tokens a second and seconds a question, compilation and measuring aside; resampled over batches.

    A single batch has no interval.
    """
    stages = {stage: seconds_per_item(timings, stage) for stage in dict.fromkeys(timing["stage"] for timing in timings)}
    working = [timing for timing in timings if timing["stage"] not in MEASURING]
    batches: dict[str, list[Row]] = {}
    for timing in working:
        batches.setdefault(timing["part"], []).append(timing)
    tokens, seconds = ([sum(t[what] for t in of) for of in batches.values()] for what in ("tokens", "seconds"))
    each = sum(seconds_of for stage, seconds_of in stages.items() if stage not in MEASURING)
    rate = asdict(ratio_interval(tokens, seconds) if any(seconds) else ratio_interval([], []))
    return {
        "tokens_per_second": rate if len(batches) > 1 else {**rate, "low": None, "high": None},
        "seconds_per_question": each or None,
        "seconds_per_question_by_stage": stages,
        "compile_seconds": sum(timing["compile_seconds"] for timing in timings),
    }


def seconds_per_item(timings: Sequence[Row], stage: str) -> float:
    """The mean time that a stage took for one question."""
    of = [timing for timing in timings if timing["stage"] == stage]
    return sum(timing["seconds"] for timing in of) / sum(timing["items"] for timing in of)


def compare(points: Mapping[str, Sequence[Row]], references: Mapping[str, str], metric: str) -> list[Row]:
    """Each point against its reference on the same questions, Holm-corrected within the metric.

    A question that failed at any point is left out of every comparison.
    """
    failed = {row["item"] for rows in points.values() for row in rows if is_failed(row)}
    scores = {
        hash_: {row["item"]: None if row["item"] in failed else row["scores"][metric] for row in rows}
        for hash_, rows in points.items()
    }
    results = []
    for hash_, other in references.items():
        if hash_ != other:
            a, b = scores[hash_], scores[other]
            compared = paired_comparison(list(a.values()), list(b.values()), list(a), list(b))
            names = {"point": points[hash_][0]["point"], "against": points[other][0]["point"]}
            results.append({**names, "settings": hash_, **asdict(compared)})
    for result, adjusted in zip(results, holm([result["p_permutation"] for result in results]), strict=True):
        result["p_permutation_holm"] = adjusted
    return results
