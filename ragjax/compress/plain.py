"""What every method is compared with: the documents as they are, the gold ones, none, their beginning, chance.

`Identity`, `Gold` and `NoContext` ignore a budget; their results state it beside what they achieved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from ragjax.compress.base import Budget, Compressed, Compressor, Unit
from ragjax.compress.cut import cut_to_budget
from ragjax.compress.packing import pack
from ragjax.compress.units import (
    Copying,
    Request,
    document_unit,
    document_units,
    make_request,
    sentence_unit,
)
from ragjax.data.overlap import matching_documents
from ragjax.data.records import Example
from ragjax.retrieve.sentences import split_sentences


@dataclass(frozen=True, eq=False, kw_only=True)
class Identity(Compressor):
    """The raw documents, each a unit that declares all its sentences; `language` as in `split_sentences`."""

    tokenizer: Any
    language: str = "en"

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """All documents of each example that have a text."""
        requests = _requests(self, examples, budget)
        return [_unchosen(r, document_units(r.example.documents, r.sentences)) for r in requests]


@dataclass(frozen=True, eq=False, kw_only=True)
class Gold(Compressor):
    """The documents that match a gold one, as `ragjax.data.overlap` tells; all where none does.

    `language` as in `split_sentences`.
    """

    tokenizer: Any
    language: str = "en"

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """The gold documents of each example. The notes say where there was no match."""
        return [self._compressed(request) for request in _requests(self, examples, budget)]

    def _compressed(self, request: Request) -> Compressed:
        documents = request.example.documents
        golds = matching_documents(documents, request.example.gold_documents)
        kept = [n for n, document in enumerate(documents) if document in golds and document.text.strip()]
        if kept:
            return _unchosen(request, [document_unit(documents, n, request.sentences) for n in kept])
        whole = document_units(documents, request.sentences)
        return _unchosen(request, whole, ("no document matches a gold one: all are shown",) if whole else ())


@dataclass(frozen=True, eq=False, kw_only=True)
class NoContext(Compressor):
    """Nothing: the reader answers from what it knows. Its status is "ok", since nothing is what it is for."""

    tokenizer: Any

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """No unit for any example."""
        return [make_request(self.tokenizer, example, budget, ()).fulfil((), "ok") for example in examples]


@dataclass(frozen=True, eq=False, kw_only=True)
class Prefix(Copying):
    """The documents' beginning: as many whole words of their joined text as fit, a unit a document.

    Of a first word that does not fit, as many characters as do. A unit declares the sentences that it holds or begins;
    `language` as in `split_sentences`.
    """

    tokenizer: Any
    language: str = "en"

    def choose(self, requests: Sequence[Request]) -> list[Compressed]:
        """The beginning of each example's documents."""
        found = [self._units(request) for request in requests]
        return [r.fulfil(units, "ok" if units else "too_small") for r, units in zip(requests, found, strict=True)]

    def _units(self, request: Request) -> Sequence[Unit]:
        documents = request.example.documents
        if request.requested is None:
            return document_units(documents, request.sentences)
        numbers = [n for n, document in enumerate(documents) if document.text.strip()]
        joined = "\n".join(documents[n].text for n in numbers)
        left = len(cut_to_budget(self.tokenizer, joined, request.requested, inside_words=True)[0])
        units = []
        for n in numbers:
            if documents[n].text[: max(left, 0)].strip():
                units.append(document_unit(documents, n, request.sentences, min(left, len(documents[n].text))))
            left -= len(documents[n].text) + 1
        return units


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomSentences(Copying):
    """Sentences by chance, in the documents' order. `language` as in `split_sentences`.

    What is drawn depends on `seed` and on the example's id and number of sentences, not on the examples beside it.
    """

    tokenizer: Any
    seed: int = 0
    language: str = "en"

    def choose(self, requests: Sequence[Request]) -> list[Compressed]:
        """Random sentences of each example, as many as fit."""
        found = []
        for request in requests:
            stream = np.random.default_rng([self.seed, xxhash.xxh3_64_intdigest(request.example.id.encode())])
            order = stream.permutation(len(request.sentences)).tolist()
            kept = pack(self.tokenizer, [s.text for s in request.sentences], order, request.requested)
            units = [sentence_unit(request.sentences[i]) for i in kept]
            found.append(request.fulfil(units, "ok" if units else "too_small"))
        return found


def _requests(compressor: Identity | Gold, examples: Sequence[Example], budget: Budget | None) -> list[Request]:
    pairs = [(example, split_sentences(example.documents, compressor.language)) for example in examples]
    return [make_request(compressor.tokenizer, example, budget, sentences) for example, sentences in pairs]


def _unchosen(request: Request, units: Sequence[Unit], notes: tuple[str, ...] = ()) -> Compressed:
    return request.fulfil(units, "ok" if units else "empty", notes)
