"""Extraction: the sentences that a scorer finds to have most to do with the question, in the documents' order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.compress.base import Compressed
from ragjax.compress.packing import pack
from ragjax.compress.units import Copying, Request, rank, sentence_unit
from ragjax.retrieve.scorers import BiEncoder, Scorer


@dataclass(frozen=True, eq=False, kw_only=True)
class Extract(Copying):
    """Sentences in the order of their scores, as many as fit; one that does not fit is skipped.

    Args:
      tokenizer: the generator's, in which lengths are counted.
      scorer: sees each sentence by itself.
      most: sentences to take at most, whatever would fit.
      language: as in `split_sentences`.
    """

    tokenizer: Any
    scorer: Scorer
    most: int | None = None
    language: str = "en"

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise ValueError(f"most counts sentences and is at least 1, got {self.most}")

    def choose(self, requests: Sequence[Request]) -> list[Compressed]:
        """The best sentences of each example, in the documents' order."""
        texts = [[sentence.text for sentence in request.sentences] for request in requests]
        found = []
        for request, own, ranking in zip(requests, texts, rank(self.scorer, requests, texts), strict=True):
            kept = pack(self.tokenizer, own, ranking.order, request.requested, most=self.most)
            units = [sentence_unit(request.sentences[i]) for i in kept]
            found.append(request.fulfil(units, "ok" if units else "too_small", ranking.notes))
        return found


def recomp_extractive(encoder: Any, *, tokenizer: Any, most: int = 1, batch: int = 32) -> Extract:
    """RECOMP's extractive compressor: sentences by the dot product of Contriever embeddings (section 3.1).

    Args:
      encoder: the `Encoder` of a compressor's checkpoint.
      tokenizer: the generator's, in which lengths are counted.
      most: sentences of a summary: 1 for Natural Questions and TriviaQA, 2 for HotpotQA.
      batch: texts a batch.
    """
    return Extract(tokenizer=tokenizer, scorer=BiEncoder(model=encoder, similarity="dot", batch=batch), most=most)
