"""Evidence that is chosen among several summaries, or is one of them: xCompress and its ablations in one decode.

All points of a group draw from the same candidates; they differ in how many of them they look at, in filter and in
selector. Each stage (write, filter, draw, select) is charged to every point that needs it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from experiments.evidence import Clock, Evidence, as_evidence, charge, decoded_tokens, significant, timed
from experiments.experiment import Experiment
from ragjax.compress.base import Budget, Choice, Compressed
from ragjax.compress.xcompress import as_candidates
from ragjax.data.records import Example
from ragjax.evals.run import Row, Tell

SCORERS: Mapping[str, Mapping[str, Any]] = {
    "ppl": {"kind": "ppl"},
    "longppl": {"kind": "longppl"},
    "sps": {"kind": "sps"},
    "sps_drop": {"kind": "sps", "first_token": "drop"},
}
"""What a candidate that is shown whatever its scores is scored by; "sps_drop" is SPS without the first token."""

Drawn = Mapping[int, Sequence[Compressed]]
Kept = tuple[list[str | None], np.ndarray]


@dataclass(frozen=True)
class Choosing:
    """The points of a group; `choosers` makes the `XCompress` of each that chooses, by its position.

    `writer` writes and draws the summaries; `scorers` (selectors by name) score the candidates of points that show a
    fixed one, by position; `count` counts the reader's tokens.
    """

    writer: Any
    choosers: Mapping[int, Callable[[], Any]]
    scorers: Mapping[int, Mapping[str, Any]]
    count: Callable[[str], int]

    def gather(
        self, points: Mapping[int, Experiment], examples: Sequence[Example], tell: Tell
    ) -> tuple[list[list[Evidence]], list[Row]]:
        """As `Maker.gather`."""
        budget, n = Budget.of(next(iter(points.values())).budget), len(examples)
        choosers = {p: self.choosers[p]() for p in points if p in self.choosers}
        for chooser in choosers.values():
            chooser.prepare(examples, budget)
        if choosers:
            tell("writing summaries")
        initial, writing = timed(lambda: self.writer.compress(examples, budget) if choosers else [])
        kept = {p: timed(partial(chooser.keep, initial)) for p, chooser in choosers.items()}
        tell("drawing candidates")
        keeping = {p: of for p, (of, _) in kept.items()}
        drawn, drawing = timed(lambda: self._draw(points, keeping, examples, budget, initial))
        tell("choosing")
        chosen = {
            p: timed(partial(choosers[p].choose, examples, initial, cut(drawn, points[p], n), *of))
            for p, (of, _) in kept.items()
        }
        fixed = [p for p in points if p not in choosers]
        scores, scoring = timed(lambda: self._score(examples, drawn, fixed))
        evidence = {p: [self._chosen(one, points[p]) for one in found] for p, (found, _) in chosen.items()}
        for p in fixed:
            rows = zip(cut(drawn, points[p], n), scores[p], strict=True)
            evidence[p] = [self._candidate(points[p].draw, row, of) for row, of in rows]
        filtered = {p: of for p, of in kept.items() if points[p].filter != "none"}
        clocks = {"filter": filtered, "select": chosen}
        timings = [charge(stage, clock, p, 1.0, 0, n) for stage, of in clocks.items() for p, (_, clock) in of.items()]
        timings += [charge("write", writing, p, 1.0, decoded_tokens(initial), n) for p in choosers]
        timings += [charge("measure", scoring, p, 1 / len(fixed), 0, n) for p in fixed]
        timings += draw_costs(points, keeping, drawn, drawing, n)
        return [evidence[p] for p in points], timings

    def _draw(
        self,
        points: Mapping[int, Experiment],
        kept: Mapping[int, Kept],
        examples: Sequence[Example],
        budget: Budget | None,
        initial: Sequence[Compressed],
    ) -> Drawn:
        """The candidates of the questions for which some point needs them, as many as the largest count."""
        wanted = [i for i in range(len(examples)) if any(needs(p, i, kept) for p in points)]
        first = next(iter(points.values()))
        rows = self.writer.sample(
            [examples[i] for i in wanted],
            max(point.candidates for point in points.values()),
            temperature=first.candidate_temperature or 0.0,
            repetition_penalty=first.candidate_penalty,
            budget=budget,
            beams=first.sampler == "beams",
            initial=[initial[i] for i in wanted] if initial else None,
        )
        return dict(zip(wanted, rows, strict=True))

    def _score(
        self, examples: Sequence[Example], drawn: Drawn, fixed: Sequence[int]
    ) -> dict[int, list[dict[str, np.ndarray]]]:
        """For each of the points `fixed`, the scores of each question's candidates by each scorer, arrays of [C]."""
        distinct = {id(scorer): scorer for p in fixed for scorer in self.scorers[p].values()}
        sets = [as_candidates(example, drawn[i]) for i, example in enumerate(examples)] if fixed else []
        found = {key: scorer.score(sets) for key, scorer in distinct.items()}
        return {
            p: [{name: found[id(of)][i] for name, of in self.scorers[p].items()} for i in range(len(examples))]
            for p in fixed
        }

    def _chosen(self, one: Compressed, point: Experiment) -> Evidence:
        evidence = as_evidence([one], self.count)
        how = {"selector": point.selector, "first_token": point.first_token}
        columns = {**evidence.columns, "choice": {**how, **choice_columns(one.choice)}}
        drawn = decoded_tokens(one.choice.candidates)
        return replace(evidence, columns=columns, generated=one.choice.initial.decoded_tokens + drawn)

    def _candidate(self, draw: int, row: Sequence[Compressed], scores: Mapping[str, np.ndarray]) -> Evidence:
        evidence = as_evidence([row[draw]], self.count)
        mine = {name: finite(values[draw]) for name, values in scores.items()}
        columns = {**evidence.columns, "candidate": {"draw": draw, "scores": mine}}
        return replace(evidence, columns=columns)


def needs(p: int, i: int, kept: Mapping[int, Kept]) -> bool:
    """Whether point p has candidates drawn for question i."""
    return p not in kept or kept[p][0][i] is None


def cut(drawn: Drawn, point: Experiment, n: int) -> list[Sequence[Compressed]]:
    """The candidates that a point looks at, for each of n questions: the first of those drawn."""
    return [drawn.get(i, ())[: point.candidates] for i in range(n)]


def draw_costs(
    points: Mapping[int, Experiment], kept: Mapping[int, Kept], drawn: Drawn, clock: Clock, n: int
) -> list[Row]:
    """What drawing cost each point: the share of the tokens that are its own. Shares may add up to more than 1.

    A point that shows a fixed candidate has that one's tokens alone.
    """
    total = sum(map(decoded_tokens, drawn.values()))
    rows = []
    for p, point in points.items():
        seen = [row for i, row in enumerate(cut(drawn, point, n)) if needs(p, i, kept)]
        mine = [one for row in seen for one in (row if p in kept else row[point.draw : point.draw + 1])]
        tokens = decoded_tokens(mine)
        rows.append(charge("draw", clock, p, tokens / total if total else 0.0, tokens, n))
    return rows


def choice_columns(choice: Choice) -> Row:
    """How a text was chosen, for the record."""
    return {
        "candidates": len(choice.candidates),
        "distinct": choice.distinct,
        "chosen": choice.chosen,
        "skipped": choice.skipped,
        "rho": finite(choice.rho),
        "threshold": finite(choice.threshold),
        "scores": [finite(score) for score in choice.scores],
        "drawn_tokens": decoded_tokens(choice.candidates),
        "subspace": None if choice.subspace is None else list(choice.subspace),
    }


def finite(value: float | None) -> float | None:
    """A number to a few significant digits, None where there is none."""
    return significant(value) if value is not None and np.isfinite(value) else None
