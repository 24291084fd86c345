"""xCompress: several summaries, and the reader's own geometry chooses (arXiv 2508.05909).

1. The compressor writes an initial summary of every question.
2. A filter keeps it where the reader's states of it are concentrated enough (`ragjax.compress.filters`).
3. For the other questions the compressor draws candidates over one prompt cache, and a selector takes the one with
   the lowest score (`ragjax.compress.select`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ragjax.compress.base import Budget, Choice, Compressed, Compressor, Writer
from ragjax.compress.filters import Filter, OnlinePool, measure
from ragjax.compress.select import Candidates, Selection, Selector
from ragjax.data.records import Example
from ragjax.decode.sampling import check_knobs

SAMPLERS = ("samples", "beams")
UNDECODED = ("short_input", "empty")
"""Statuses of an initial summary for which there is nothing to draw: it is the source itself, or there is none."""


@dataclass(frozen=True, eq=False)
class XCompress(Compressor):
    """A compressor around another one.

    Args:
      compressor: what writes the summaries: `FaviComp`, `CompAct`, or anything that has their `sample`.
      reader: the `LanguageModel` whose geometry chooses (a `Reader` is taken for its model).
      candidates: how many summaries are drawn.
      temperature, repetition_penalty: of the drawing.
      selector: a kind of `ragjax.compress.select.SELECTORS`, or a `Selector` of your own.
      filter: None draws for every question; a `Filter` (see `calibrate_filter`); or "online_pool", the published
        code's, whose decisions depend on the order of the questions.
      sampler: "samples", or "beams": the published code's choice, which ignores the temperature.
      initial_joins: whether the initial summary is a candidate too.
    """

    compressor: Writer
    reader: Any
    candidates: int = 5
    temperature: float = 1.0
    repetition_penalty: float = 1.2
    selector: str | Selector = "sps"
    filter: Filter | OnlinePool | str | None = None
    sampler: str = "samples"
    initial_joins: bool = False
    batch: int = 8

    def __post_init__(self) -> None:
        check_knobs(self.temperature, 0, 1.0, self.repetition_penalty)
        if self.candidates < 1:
            raise ValueError(f"candidates counts summaries and is at least 1, got {self.candidates}")
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler is one of {SAMPLERS}, got {self.sampler!r}")
        if isinstance(self.filter, str) and self.filter != "online_pool":
            raise ValueError(f'filter is None, a Filter, or "online_pool", got {self.filter!r}')
        self._selector  # noqa: B018, refuses a selector that does not exist

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """The chosen summary of each example; its `choice` says among what."""
        self.prepare(examples, budget)
        initial = self.compressor.compress(examples, budget)
        skipped, rhos = self.keep(initial)
        rest = [i for i, why in enumerate(skipped) if why is None]
        drawn: list[list[Compressed]] = [[] for _ in examples]
        fresh = self.draw([examples[i] for i in rest], budget, [initial[i] for i in rest])
        for i, texts in zip(rest, fresh, strict=True):
            drawn[i] = texts
        return self.choose(examples, initial, drawn, skipped, rhos)

    def prepare(self, examples: Sequence[Example], budget: Budget | None = None) -> None:
        """See that the filter may be used, and have the selector's subspace at hand, where there are such.

        The subspace is made once per checkpoint: it is no question's cost.

        Raises:
          ValueError: the filter was calibrated on one of these examples, or with another model, prompt or budget.
        """
        if self._filter is not None:
            self._filter.check(self._reader, self.compressor, examples, budget)
        self._selector.own_subspace  # noqa: B018, computed or read, and kept

    def keep(self, initial: Sequence[Compressed]) -> tuple[list[str | None], np.ndarray]:
        """Why each example keeps its initial summary (None: it does not), and rho of each summary, [n].

        The reason is "filter", or the status of a summary beside which there is nothing to draw.
        """
        skipped = [one.status if one.status in UNDECODED and one.trace is None else None for one in initial]
        rhos = np.full(len(initial), np.nan)
        if self._filter is None:
            return skipped, rhos
        open_ = [i for i, why in enumerate(skipped) if why is None]
        settings = {name: getattr(self._filter, name) for name in ("rho", "first_token", "layer")}
        rhos[open_] = measure(self._reader, [initial[i].text for i in open_], batch=self.batch, **settings)
        for i, kept in zip(open_, self._filter.keeps(rhos[open_]), strict=True):
            skipped[i] = "filter" if kept else None
        return skipped, rhos

    def draw(
        self,
        examples: Sequence[Example],
        budget: Budget | None = None,
        initial: Sequence[Compressed] | None = None,
    ) -> list[list[Compressed]]:
        """The candidates of each example; `initial` are their first summaries."""
        return self.compressor.sample(
            examples,
            self.candidates,
            temperature=self.temperature,
            repetition_penalty=self.repetition_penalty,
            budget=budget,
            beams=self.sampler == "beams",
            initial=initial,
        )

    def choose(
        self,
        examples: Sequence[Example],
        initial: Sequence[Compressed],
        drawn: Sequence[Sequence[Compressed]],
        skipped: Sequence[str | None],
        rhos: np.ndarray,
    ) -> list[Compressed]:
        """The summary of each example: the initial one where nothing was drawn, else the selector's choice."""
        rest = [i for i, why in enumerate(skipped) if why is None]
        pools = {i: [*drawn[i], *([initial[i]] if self.initial_joins else [])] for i in rest}
        sets = [as_candidates(examples[i], pools[i]) for i in rest]
        selected = dict(zip(rest, self._selector.select(sets), strict=True))
        found = []
        for i, (first, why, rho) in enumerate(zip(initial, skipped, rhos, strict=True)):
            pick = selected.get(i)
            winner = first if pick is None else pools[i][pick.chosen]
            choice = self._choice(first, () if pick is None else drawn[i], pick)
            known = replace(choice, rho=float(rho) if np.isfinite(rho) else None, skipped=why)
            found.append(replace(winner, choice=known))
        return found

    def _choice(self, initial: Compressed, drawn: Sequence[Compressed], pick: Selection | None) -> Choice:
        """What is known of a choice; without a pick the initial text stands."""
        stands = pick is None or pick.chosen == len(drawn)
        return Choice(
            initial=initial,
            candidates=tuple(drawn),
            scores=() if pick is None else pick.scores,
            chosen=-1 if stands else pick.chosen,
            threshold=getattr(self._filter, "threshold", None),
            subspace=None if pick is None else self._measured_against,
        )

    @cached_property
    def _reader(self) -> Any:
        return getattr(self.reader, "lm", self.reader)

    @cached_property
    def _selector(self) -> Selector:
        if not isinstance(self.selector, str):
            return self.selector
        return Selector(kind=self.selector, lm=self._reader, batch=self.batch)

    @cached_property
    def _measured_against(self) -> tuple[int, int] | None:
        subspace = self._selector.own_subspace
        return None if subspace is None else (subspace.rank, subspace.vectors.shape[0])

    @cached_property
    def _filter(self) -> Filter | OnlinePool | None:
        return OnlinePool() if self.filter == "online_pool" else self.filter


def as_candidates(example: Example, texts: Sequence[Compressed]) -> Candidates:
    """What a selector chooses from."""
    source = "\n".join(document.text for document in example.documents)
    return Candidates(tuple(one.text for one in texts), example.id, example.question, source)
