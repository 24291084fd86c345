"""Reranking: whole passages, those first that a scorer finds to have most to do with the question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.compress.base import Budget, Compressed, Compressor, Unit
from ragjax.compress.packing import pack
from ragjax.compress.units import Request, compress_requests, document_unit, rank
from ragjax.data.records import Document, Example
from ragjax.retrieve.scorers import Scorer

LAST = ("cut", "whole")


@dataclass(frozen=True, eq=False, kw_only=True)
class Rerank(Compressor):
    """Passages in the order of their scores, as many as fit; one that does not fit is skipped.

    Args:
      tokenizer: the generator's, in which lengths are counted.
      scorer: sees each passage under its title.
      last: "whole" keeps passages whole, as published; "cut" cuts one of them at a sentence: the best of those that
        do not fit whole and whose first sentence fits. Whole ones that still fit may follow it.
      language: as in `split_sentences`.
    """

    tokenizer: Any
    scorer: Scorer
    last: str = "cut"
    language: str = "en"

    def __post_init__(self) -> None:
        if self.last not in LAST:
            raise ValueError(f"last is one of {LAST}, got {self.last!r}")

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """The best passages of each example, best first; all of them without a budget."""
        return compress_requests(self.tokenizer, examples, budget, self.language, self._choose)

    def _choose(self, requests: Sequence[Request]) -> list[Compressed]:
        numbers = [[n for n, d in enumerate(r.example.documents) if d.text.strip()] for r in requests]
        passages = [[_titled(r.example.documents[n]) for n in own] for r, own in zip(requests, numbers, strict=True)]
        found = []
        for request, own, ranking in zip(requests, numbers, rank(self.scorer, requests, passages), strict=True):
            units = self._packed(request, [own[place] for place in ranking.order])
            found.append(request.fulfil(units, "ok" if units else "too_small", ranking.notes))
        return found

    def _packed(self, request: Request, ranked: Sequence[int]) -> list[Unit]:
        """Units of the documents numbered in `ranked`, best first: each whole, else one of them up to a sentence."""
        documents, units, claims = request.example.documents, [], []
        for number in ranked:
            ends = [s.end for s in request.sentences if s.document == number]
            cuts = ends[-2::-1] if self.last == "cut" else []
            units += [document_unit(documents, number, request.sentences, end) for end in (None, *cuts)]
            claims += [{number}, *({number, "cut"} for _ in cuts)]
        kept = pack(self.tokenizer, [u.text for u in units], range(len(units)), request.requested, claims=claims)
        return [units[i] for i in kept]


def _titled(document: Document) -> str:
    return f"{document.title}\n{document.text}" if document.title else document.text
