"""Reranking: whole passages, those first that a scorer finds to have most to do with the question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.compress.base import Compressed, Unit
from ragjax.compress.packing import pack
from ragjax.compress.units import Copying, Request, document_unit, rank
from ragjax.data.records import Document
from ragjax.decode.prompt import count_prefixes
from ragjax.retrieve.scorers import Scorer

LAST = ("cut", "whole")


@dataclass(frozen=True, eq=False, kw_only=True)
class Rerank(Copying):
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

    def choose(self, requests: Sequence[Request]) -> list[Compressed]:
        """The best passages of each example, best first; all of them without a budget."""
        numbers = [[n for n, d in enumerate(r.example.documents) if d.text.strip()] for r in requests]
        passages = [[_titled(r.example.documents[n]) for n in own] for r, own in zip(requests, numbers, strict=True)]
        found = []
        for request, own, ranking in zip(requests, numbers, rank(self.scorer, requests, passages), strict=True):
            units = self._packed(request, [own[place] for place in ranking.order])
            found.append(request.fulfil(units, "ok" if units else "too_small", ranking.notes))
        return found

    def _packed(self, request: Request, ranked: Sequence[int]) -> list[Unit]:
        """Units of the documents numbered in `ranked`, best first: each whole, else one of them up to a sentence."""
        documents, offers, claims, sizes = request.example.documents, [], [], []
        for number in ranked:
            text = documents[number].text
            ends = [len(text), *(self._cuts(request, number) if self.last == "cut" else ())]
            offers += [(number, end) for end in ends]
            claims += [{number}, *({number, "cut"} for _ in ends[1:])]
            sizes += count_prefixes(self.tokenizer, "\n" + text, [end + 1 for end in ends])
        texts = [documents[number].text[:end] for number, end in offers]
        kept = pack(self.tokenizer, texts, range(len(texts)), request.requested, claims=claims, sizes=sizes)
        taken = [offers[i] for i in kept]
        return [document_unit(documents, number, request.sentences, end) for number, end in taken]

    @staticmethod
    def _cuts(request: Request, number: int) -> list[int]:
        """Where a document may be cut, the longest first: at the end of each sentence that something follows."""
        length = len(request.example.documents[number].text)
        return [s.end for s in reversed(request.sentences) if s.document == number and s.end < length]


def _titled(document: Document) -> str:
    return f"{document.title}\n{document.text}" if document.title else document.text
