"""From rows of cited answers to the frontier: citation scores, gaps and verdicts of each point, each with its interval.

A question that failed at any point of a data set is left out of all of its points, and counted. Shares and scores lie
in [0, 1].
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.experiment import Experiment
from experiments.summary import budget, by_point, count_evidence, is_failed, speed
from ragjax.cite.verifying import CHECKS
from ragjax.evals.run import Row
from ragjax.evals.significance import bootstrap_interval, holm, paired_comparison

FEWEST = 0.1
"""The share of answers with a citation under which a run is no measurement of citations."""

SCORES = {
    "generated_precision": ("generated", "precision"),
    "generated_recall": ("generated", "recall"),
    "grounded_precision": ("grounded", "precision"),
    "grounded_recall": ("grounded", "recall"),
}


def summarize_frontier(rows: Sequence[Row], timings: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> Row:
    """The summary of a run of cited answers; `pairs` are the hashes of points that are compared, (point, against)."""
    points, seconds = by_point(rows), by_point(timings)
    excluded = exclude(rows)
    kept = {hash_: [row for row in of if row["item"] not in excluded] for hash_, of in points.items()}
    return {
        "scale": "scores in [0, 1]; intervals are 95 % percentile bootstraps over questions",
        "excluded": excluded,
        "judges": sorted({row["citation"]["judge"] for row in rows if row.get("citation")}),
        "judge_settings": judge_settings(rows),
        "citers": sorted({row["answer"]["citer"] for row in rows if "answer" in row}),
        "points": {hash_: summarize_cited(points[hash_], of, seconds.get(hash_, [])) for hash_, of in kept.items()},
        "paired": {name: compare(kept, pairs, name) for name in (*SCORES, *quality_names(rows))},
    }


def judge_settings(rows: Sequence[Row]) -> list[Row]:
    """What defines the judges' numbers, and the probability from which they entail: one entry, unless points differ."""
    citations = [row["citation"] for row in rows if row.get("citation")]
    found = [{"name": one["judge"], **one.get("judge_settings", {}), "tau": one["tau"]} for one in citations]
    return list({json.dumps(one, sort_keys=True): one for one in found}.values())


def exclude(rows: Sequence[Row]) -> dict[str, Row]:
    """The questions that failed at some point: their id, and the points with the reasons."""
    found: dict[str, Row] = {}
    for row in rows:
        if is_failed(row):
            reasons = found.setdefault(row["item"], {"id": row["id"], "reasons": []})["reasons"]
            reasons.append(f"{row['point']}: {row['status']}")
    return found


def summarize_cited(every: Sequence[Row], rows: Sequence[Row], timings: Sequence[Row]) -> Row:
    """One point: counts of all rows; scores of those that are left."""
    return {
        "label": every[0]["point"],
        "counts": cited_counts(every),
        "budget": budget(rows),
        "frontier": measure_cited(rows),
        "speed": speed(timings),
        "choices": None,
    }


def cited_counts(rows: Sequence[Row]) -> Row:
    """How many rows there are of each kind that a reader of the report has to know."""
    done = [row for row in rows if not is_failed(row)]
    answers = [row["answer"] for row in done]
    return {
        **count_evidence(rows, done),
        "cut_answers": sum(answer["finish_reason"] == "length" for answer in answers),
        "empty_answers": sum(not answer["text"].strip() for answer in answers),
        "statements": sum(len(answer["statements"]) for answer in answers),
        "invalid_citations": sum(row["citation"]["invalid"] for row in done),
        "dropped_units": sum(row["dropped_units"] for row in done),
        "unscored": sum(row["quality"] is None for row in done),
    }


def measure_cited(rows: Sequence[Row]) -> Row:
    """Citation scores, gaps, shares, quality and verdicts, each with its interval."""
    citations = [row["citation"] for row in rows]
    rates = [one["reattributed"] / one["undeclared"] if one["undeclared"] else None for one in citations]
    gaps = [one["generated"]["precision"] - one["grounded"]["precision"] for one in citations]
    return {
        **{name: interval(rows, [value_of(row, name) for row in rows]) for name in (*SCORES, *quality_names(rows))},
        "laundering": interval(rows, gaps),
        "reattribution_rate": interval(rows, rates) if any(rate is not None for rate in rates) else None,
        "left_out": sum(rate is None for rate in rates),
        "share_citing": interval(rows, [float(one["cites"]) for one in citations]),
        "invalid": sum(one["invalid"] for one in citations),
        "verification": {mode: verification(rows, mode) for mode in CHECKS},
    }


def verification(rows: Sequence[Row], mode: str) -> Row:
    """The share of claims without support by one mode, the part of it that is by structure alone, and what it costs.

    Shares and tokens are means over questions, shares over those with a claim: what the generator reads, what the
    verifier is given before any saving.
    """
    found = [row["citation"]["verification"][mode] for row in rows]
    shares = {
        name: [one[name] / one["claims"] if one["claims"] else None for one in found]
        for name in ("unsupported", "structural")
    }
    tokens = {
        "verifier_tokens": [one["verifier_tokens"] for one in found],
        "generator_tokens": [row["generator_tokens"] for row in rows],
    }
    return {
        "unsupported": interval(rows, shares["unsupported"]),
        "structural": interval(rows, shares["structural"])["value"],
        **{name: float(np.mean(values)) if values else None for name, values in tokens.items()},
    }


def quality_names(rows: Sequence[Row]) -> list[str]:
    """The measures of answer quality that some row has."""
    found = [row["quality"] for row in rows if row.get("quality")]
    return list(dict.fromkeys(name for one in found for name, value in one.items() if is_number(value)))


def is_number(value: Any) -> bool:
    """Whether a value is a number and no truth."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_of(row: Row, name: str) -> float | None:
    """One question's score or quality by its name."""
    if name in SCORES:
        view, part = SCORES[name]
        return row["citation"][view][part]
    value = (row["quality"] or {}).get(name)
    return float(value) if is_number(value) else None


def interval(rows: Sequence[Row], values: Sequence[float | None]) -> Row:
    """The mean of some values and its bootstrap interval; questions on one paper are resampled together."""
    return asdict(bootstrap_interval(values, clusters=[cluster_of(row) for row in rows]))


def cluster_of(row: Row) -> str:
    """What a question shares with those that it is not independent of: its paper, else itself."""
    return row.get("paper") or row["item"]


def compare(points: Mapping[str, Sequence[Row]], pairs: Sequence[tuple[str, str]], name: str) -> list[Row]:
    """Each pair of points on one score, Holm-corrected within it."""
    results = []
    for hash_, other in pairs:
        values = [{row["item"]: value_of(row, name) for row in points[one]} for one in (hash_, other)]
        if not all(values):
            continue
        a, b = values
        clusters = {row["item"]: cluster_of(row) for one in (hash_, other) for row in points[one]}
        compared = paired_comparison(list(a.values()), list(b.values()), list(a), list(b), clusters=clusters)
        names = {"point": points[hash_][0]["point"], "against": points[other][0]["point"]}
        results.append({**names, "settings": hash_, **asdict(compared)})
    for result, adjusted in zip(results, holm([result["p_permutation"] for result in results]), strict=True):
        result["p_permutation_holm"] = adjusted
    return results


def choose_pairs(points: Sequence[Experiment]) -> list[tuple[int, int]]:
    """What is compared with what, by position: each point with the raw documents, ECR with extraction at its budget.

    Only points over the same data and for the same reader are compared.
    """
    pairs = []
    for n, point in enumerate(points):
        peers = {k: peer for k, peer in enumerate(points) if k != n and setting_of(peer) == setting_of(point)}
        pairs += [(n, k) for k, peer in peers.items() if peer.method == "raw"]
        if point.method == "ecr":
            same = (point.budget, point.scorer, point.encoder)
            alike = {k: peer for k, peer in peers.items() if peer.method == "extract"}
            pairs += [(n, k) for k, peer in alike.items() if (peer.budget, peer.scorer, peer.encoder) == same]
    return pairs


def setting_of(point: Experiment) -> tuple:
    """What two points that are compared have in common."""
    return point.data, point.dataset, point.split, point.limit, point.reader, point.top_k, point.citer, point.judge


def few_citations(summary: Row) -> list[str]:
    """The points of which fewer than `FEWEST` of the answers cite anything."""
    shares = {point["label"]: point["frontier"]["share_citing"]["value"] for point in summary["points"].values()}
    return [label for label, share in shares.items() if share is not None and share < FEWEST]
