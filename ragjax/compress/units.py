"""What families that copy share: units that know their place, and the results that need no choice.

A unit declares the sids of the sentences it holds and the span it was copied from. Shown to the generator, units are
numbered documents, each under the title of the document it comes from.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragjax.compress.base import Budget, Compressed, Compressor, Unit
from ragjax.compress.cut import source_length
from ragjax.compress.prompts import number_documents
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.retrieve.scorers import Scorer
from ragjax.retrieve.sentences import Sentence, split_sentences


@dataclass(frozen=True, eq=False)
class Request:
    """An example to compress, with its sentences, and the tokens that it has and may keep (None: no budget).

    `sentences` is None for families that declare no sources.
    """

    tokenizer: Any
    example: Example
    sentences: tuple[Sentence, ...] | None
    source_tokens: int
    requested: int | None

    def settle(self) -> Compressed | None:
        """The result that needs no choice: nothing of documents without a text, and documents that fit whole."""
        if not any(document.text.strip() for document in self.example.documents):
            return self.fulfil((), "empty")
        if self.requested is None or self.source_tokens > self.requested:
            return None
        return self.fulfil(document_units(self.example.documents, self.sentences), "short_input")

    def fulfil(
        self, units: Sequence[Unit], status: str, notes: tuple[str, ...] = (), achieved: int | None = None
    ) -> Compressed:
        """The result of some units; `achieved` are their tokens, where they were counted before."""
        if achieved is None:
            achieved = count_tokens(self.tokenizer, "\n".join(unit.text for unit in units))
        prompt = achieved
        if self.sentences is not None:
            shown = shown_documents(units, self.example.documents)
            prompt = count_tokens(self.tokenizer, number_documents(shown))
        return Compressed(tuple(units), self.requested, achieved, prompt, self.source_tokens, status, notes=notes)


def make_request(
    tokenizer: Any, example: Example, budget: Budget | None, sentences: tuple[Sentence, ...] | None
) -> Request:
    """A request; documents of nothing but white space have no tokens to keep."""
    blank = not any(document.text.strip() for document in example.documents)
    source = 0 if blank else source_length(tokenizer, example.documents)
    return Request(tokenizer, example, sentences, source, budget.resolve(source) if budget else None)


def without_decoding(tokenizer: Any, example: Example, budget: Budget | None) -> Compressed | None:
    """The result of a family that declares no sources where it needs no model: see `Request.settle`."""
    return make_request(tokenizer, example, budget, None).settle()


class Copying(Compressor):
    """A family that copies: it settles each request, or answers all others in one call of `choose`.

    Requests of one call may be of one example at several budgets: what is scored is scored once.
    """

    tokenizer: Any
    language: str

    @abstractmethod
    def choose(self, requests: Sequence[Request]) -> Sequence[Compressed]:
        """The results of requests that nothing settles."""

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """Compress each example's documents; the result's order is the examples'."""
        return self.compress_budgets(examples, (budget,))[0]

    def compress_budgets(self, examples: Sequence[Example], budgets: Sequence[Budget | None]) -> list[list[Compressed]]:
        """As `Compressor.compress_budgets`."""
        split = [(example, split_sentences(example.documents, self.language)) for example in examples]
        requests = [make_request(self.tokenizer, e, budget, own) for budget in budgets for e, own in split]
        found = [request.settle() for request in requests]
        rest = [i for i, one in enumerate(found) if one is None]
        chosen = self.choose([requests[i] for i in rest]) if rest else ()
        for i, one in zip(rest, chosen, strict=True):
            found[i] = one
        return [found[n * len(examples) : (n + 1) * len(examples)] for n in range(len(budgets))]


def sentence_unit(sentence: Sentence) -> Unit:
    """A sentence as a unit."""
    return Unit(sentence.text, (sentence.sid,), ((sentence.document, sentence.start, sentence.end),))


def document_unit(
    documents: Sequence[Document], number: int, sentences: Sequence[Sentence] | None, end: int | None = None
) -> Unit:
    """A document, or its first `end` characters, as a unit; it declares every sentence that it holds or begins."""
    text = documents[number].text[:end]
    held = [s.sid for s in sentences or () if s.document == number and s.start < len(text)]
    return Unit(text, None if sentences is None else tuple(held), ((number, 0, len(text)),))


def document_units(documents: Sequence[Document], sentences: Sequence[Sentence] | None) -> tuple[Unit, ...]:
    """Every document that has a text, whole."""
    numbers = [n for n, document in enumerate(documents) if document.text.strip()]
    return tuple(document_unit(documents, n, sentences) for n in numbers)


def shown_documents(units: Sequence[Unit], documents: Sequence[Document]) -> tuple[Document, ...]:
    """Units as documents for a reader, under the titles of those they come from (a unit without a span has none)."""
    titles = [documents[unit.spans[0][0]].title if unit.spans else "" for unit in units]
    return tuple(Document(unit.text, title) for unit, title in zip(units, titles, strict=True))


@dataclass(frozen=True, eq=False)
class Ranking:
    """The order [n] of an example's n texts, best first, their scores [n], and what there is to tell of them."""

    order: list[int]
    values: np.ndarray
    notes: tuple[str, ...] = ()


def rank(scorer: Scorer, requests: Sequence[Request], texts: Sequence[Sequence[str]]) -> list[Ranking]:
    """Rank the texts of each request's example, in one call of the scorer; ties keep their order.

    Raises:
      ValueError: for a score that is no finite number, naming the example.
    """
    rankings = []
    for request, found in zip(requests, scorer.score([r.example.question for r in requests], texts), strict=True):
        if not np.isfinite(found.values).all():
            raise ValueError(f"example {request.example.id!r}: the scorer gave a score that is not finite")
        order = np.argsort(-found.values, kind="stable").tolist()
        cut = f"{found.truncated} tokens were beyond the reach of the scorer's model"
        rankings.append(Ranking(order, found.values, (cut,) if found.truncated else ()))
    return rankings
