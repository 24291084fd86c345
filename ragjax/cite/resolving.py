"""From a cited unit to the source sentences behind it: those that it declares, or those that re-attribution finds.

Re-attribution: the source sentences are ranked by how alike
their words are to the unit's, the judge reads the first few, and those which by themselves entail the unit are its
sources. A unit that declares an empty list declares nothing; it is not re-attributed.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ragjax.cite.entailment import Judge, Pair
from ragjax.cite.records import Cited, Tally
from ragjax.cite.rounds import Talk, ask, converse
from ragjax.retrieve.lexical import lexical_similarities

Sources = Mapping[int, tuple[str, ...]]
"""Sids of source sentences, in document order, by the index of the unit that they stand for."""

TOP = 10


def reattribute(
    examples: Sequence[Cited], judge: Judge, *, tau: float = 0.5, top: int = TOP
) -> list[dict[int, tuple[str, ...]]]:
    """The sids recovered for each undeclared unit of each example; () where none entails it.

    Args:
      examples: all of them are asked about in one call of the judge.
      judge: reads (source sentence, unit).
      tau: the probability from which a sentence entails a unit.
      top: how many sentences it reads for a unit: those with the most alike words, ties in document order.

    Raises:
      ValueError: for a tau outside [0, 1] or a top below 1.
    """
    check_top(top)
    return [recovered for recovered, _ in converse([recover(one, top) for one in examples], judge, tau)]


def check_top(top: int) -> None:
    """Raise ValueError for a number of sentences below 1."""
    if top < 1:
        raise ValueError(f"top counts sentences and is at least 1, got {top}")


def undeclared_units(example: Cited) -> tuple[int, ...]:
    """The indices of the units that declare no sources."""
    return tuple(number for number, unit in enumerate(example.units) if unit.sources is None)


def recover(example: Cited, top: int) -> Talk[tuple[dict[int, tuple[str, ...]], Tally]]:
    """The talk that re-attributes one example's units, as `reattribute` does."""
    units = undeclared_units(example)
    entailed, tally = yield from ask(_candidates(example, units, top))
    sids = [sentence.sid for sentence in example.sentences]
    found = {unit: [] for unit in units}
    for (unit, place), verdict in sorted(entailed.items()):
        found[unit] += [sids[place]] if verdict else []
    return {unit: tuple(own) for unit, own in found.items()}, tally


def _candidates(example: Cited, units: Sequence[int], top: int) -> dict[tuple[int, int], Pair]:
    """The pairs to ask about, by unit and place of the sentence."""
    units = [unit for unit in units if example.units[unit].text.strip()]
    sentences = example.sentences
    if not units or not sentences:
        return {}
    texts = [example.units[unit].text for unit in units]
    alike = lexical_similarities([*texts, *(s.text for s in sentences)])[: len(units), len(units) :]
    ranked = np.argsort(-alike, axis=1, kind="stable")[:, :top].tolist()
    return {
        (unit, place): (sentences[place].text, text)
        for unit, text, places in zip(units, texts, ranked, strict=True)
        for place in places
    }


def resolve(example: Cited, recovered: Sources) -> dict[int, tuple[str, ...]]:
    """The sids that each unit stands for, once each, in document order: declared, else from `recovered`.

    Raises:
      ValueError: for a source that the documents do not have, and an undeclared unit that `recovered` does not name.
    """
    return {number: _sources(example, number, recovered) for number in range(len(example.units))}


def declared_sources(example: Cited) -> dict[int, tuple[str, ...]]:
    """The sids that each unit declares: none for an undeclared one. Raises as `resolve`."""
    return resolve(example, dict.fromkeys(undeclared_units(example), ()))


def _sources(example: Cited, number: int, recovered: Sources) -> tuple[str, ...]:
    sids = example.units[number].sources
    if sids is None:
        if number not in recovered:
            raise ValueError(f"example {example.id!r}: no sources are given for unit {number + 1}, which declares none")
        sids = recovered[number]
    for sid in sids:
        if sid not in example.places:
            raise ValueError(f"example {example.id!r}: unit {number + 1} has the source {sid!r}, which no document has")
    return tuple(sorted(set(sids), key=example.places.__getitem__))
