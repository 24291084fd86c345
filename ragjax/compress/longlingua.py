"""LongLLMLingua: words dropped by what the question does to their likelihood (arXiv 2310.06839).

1. A document matters as much as it makes the question likely: the mean NLL of the question, and of a statement that
   the documents answer it, after the document. Those that matter least are left out, until the rest is about the
   budget (section 4.1, the coarse step).
2. A word counts by how much likelier the question makes it, NLL(x | x before) - NLL(x | question, x before), the mean
   of its tokens (section 4.1, the fine step; as in the published code a difference of NLLs, not of perplexities).
3. The documents are put in order, what matters most first (section 4.2).
4. They share the budget: what a document may keep falls in a line with its rank, from base + dynamic_ratio for the
   first to base - dynamic_ratio for the last (section 4.3).

Settled by us: every document is read alone, and each of its tokens scored by one forward without the question and one
with it, where the published code walks through the compressed text in segments of 200 tokens and draws a threshold in
each. Words are kept whole; each document gives its best words in proportion to its share, and the longest prefix of
that common order that fits is kept, so that the budget is met exactly. A document longer than the model is read in
windows that overlap by half: nothing of it is left unread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragjax.compress.base import Compressed
from ragjax.compress.contrast import question_nlls, room_beside, token_contrasts
from ragjax.compress.pruning import Pruning, Source, prune
from ragjax.compress.words import check_aggregate, word_values
from ragjax.compress.writing import PromptTooLong
from ragjax.data.records import Example
from ragjax.decode.engine import require_causal
from ragjax.typing import Float, Int

REORDER = ("sort", "none")


@dataclass(frozen=True)
class Coarse:
    """The coarse step: documents are taken by rank until they have more than factor * budget + extra tokens.

    The one that passes that length is still taken. The published default is 100 more tokens than the budget.
    """

    factor: float = 1.0
    extra: int = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class LongLLMLingua(Pruning):
    """A compressor that keeps the words which the question makes likelier, most of them from documents that matter.

    Without a budget the documents are only put in order.

    Args:
      lm: the `LanguageModel` that reads.
      tokenizer: the generator's, in which lengths are counted; default the model's own.
      dynamic_ratio: how far the first document's share of words lies above the mean, and the last one's below it.
      reorder: "sort" puts the documents that matter most first, "none" leaves them in their order.
      coarse: how many documents get into the fine step; None takes all.
      statement: what is said after the question where documents are ranked; "" says nothing.
      aggregate: how a word's tokens count: "mean", "sum", "max" or "min".
      keep, keep_patterns: what survives byte for byte: see `LLMLingua2`. It survives in documents that the coarse step
        leaves out as well.
      declare: give units the ids of the sentences that their words come from (the published method declares none).
      language: of those sentences, as in `split_sentences`.
      batch: prompts that the model reads at a time.
    """

    lm: Any
    tokenizer: Any = None
    dynamic_ratio: float = 0.3
    reorder: str = "sort"
    coarse: Coarse | None = field(default_factory=Coarse)
    statement: str = "The answer to this question can be found in the documents above."
    aggregate: str = "mean"
    keep: tuple[str, ...] = ()
    keep_patterns: tuple[str, ...] = ()
    declare: bool = False
    language: str = "en"
    batch: int = 8

    def __post_init__(self) -> None:
        require_causal("LongLLMLingua", self.lm)
        check_aggregate(self.aggregate)
        if self.reorder not in REORDER:
            raise ValueError(f"reorder is one of {REORDER}, got {self.reorder!r}")
        if not 0 <= self.dynamic_ratio <= 1:
            raise ValueError(f"dynamic_ratio is a difference of shares in [0, 1], got {self.dynamic_ratio}")
        self._opener  # noqa: B018, refuses a name or a pattern that cannot be

    def choose(self, groups: Sequence[Sequence[Source]]) -> list[list[Compressed]]:
        """As `Pruning.choose`. An example that the model has no finite likelihood for is failed."""
        rankings = self.rank_documents([group[0] for group in groups])
        taken = [[self._take(s, ranking) for s in group] for group, ranking in zip(groups, rankings, strict=True)]
        scores = self.scores([group[0] for group in groups], [sorted(set().union(*own)) for own in taken])
        return [
            [self._prune(source, ranking, own, words) for source, own in zip(group, several, strict=True)]
            for group, ranking, several, words in zip(groups, rankings, taken, scores, strict=True)
        ]

    def rank_documents(self, sources: Sequence[Source]) -> list[list[int] | None]:
        """The documents of each example, what matters most first; None where the likelihood is not finite.

        Raises:
          PromptTooLong: for a question that leaves no room for a document in the model.
        """
        for source in sources:
            self._check_room(source.request.example)
        asked = [self._asked(source.request.example.question) for source in sources for _ in source.filled]
        texts = [source.words[d].text for source in sources for d in source.filled]
        nlls = iter(question_nlls(self.lm, asked, texts, self.batch).tolist())
        rankings = []
        for source in sources:
            own = np.array([next(nlls) for _ in source.filled])
            order = [source.filled[place] for place in np.argsort(own, kind="stable")]
            rankings.append(order if np.isfinite(own).all() else None)
        return rankings

    def scores(
        self, sources: Sequence[Source], documents: Sequence[Sequence[int]]
    ) -> list[dict[int, Float[np.ndarray, " words"]]]:
        """The contrast of each word of some documents of each example; NaN where a likelihood is not finite."""
        asked = [s.request.example.question for s, own in zip(sources, documents, strict=True) for _ in own]
        texts = [s.words[d].text for s, own in zip(sources, documents, strict=True) for d in own]
        read = token_contrasts(self.lm, asked, texts, self.batch)
        tokens = ((offsets, values if np.isfinite(values).all() else values * np.nan) for offsets, values in read)
        return [
            {d: word_values(source.words[d], *next(tokens), self.aggregate) for d in own}
            for source, own in zip(sources, documents, strict=True)
        ]

    def _take(self, source: Source, ranking: Sequence[int] | None) -> list[int]:
        """The documents that get into the fine step, by rank: none without a budget."""
        if source.request.requested is None or ranking is None:
            return []
        if self.coarse is None:
            return list(ranking)
        before = np.cumsum([0, *(source.costs[source.part(d)].sum() for d in ranking)])
        limit = self.coarse.factor * source.request.requested + self.coarse.extra
        return [d for d, tokens in zip(ranking, before, strict=False) if tokens <= limit]

    def _prune(
        self,
        source: Source,
        ranking: Sequence[int] | None,
        taken: Sequence[int],
        scores: dict[int, Float[np.ndarray, " words"]],
    ) -> Compressed:
        own = {d: scores[d] for d in taken}
        if ranking is None or any(np.isnan(values).any() for values in own.values()):
            return source.fulfil({}, "failed(non-finite likelihood)")
        arrangement = ranking if self.reorder == "sort" else source.filled
        if source.request.requested is None:
            return source.fulfil(source.kept_spans(np.ones(len(source.costs), bool), arrangement), "ok")
        left_out = len(ranking) - len(taken)
        notes = (f"the coarse step left out {left_out} of {len(ranking)} documents",) if left_out else ()
        return prune(source, rank_words(source, own, self.dynamic_ratio), arrangement, notes)

    def _asked(self, question: str) -> str:
        return f"{question} {self.statement}" if self.statement else question

    def _check_room(self, example: Example) -> None:
        if room_beside(self.lm, self._asked(example.question)) < 2:
            raise PromptTooLong(
                f"example {example.id!r}: the question leaves no room for a document in the "
                f"{self.lm.config.max_positions} positions of {self.lm.name}"
            )

    @property
    def _counter(self) -> Any:
        return self.tokenizer or self.lm.tokenizer


def document_shares(base: float, dynamic_ratio: float, count: int) -> Float[np.ndarray, " documents"]:
    """The share of its words that each document keeps, by rank (section 4.3).

    From base + dynamic_ratio for the first to base - dynamic_ratio for the last, even about the base as in the
    published code, within [0, 1]; base for one alone.
    """
    slope = np.linspace(1, -1, count) if count > 1 else np.zeros(count)
    return np.clip(base + dynamic_ratio * slope, 0, 1)


def rank_words(
    source: Source, scores: dict[int, Float[np.ndarray, " W"]], dynamic_ratio: float
) -> Int[np.ndarray, " ranked"]:
    """The words of some documents in one order in which each document advances in proportion to its share.

    A word's place is the share of its document's tokens that it and the document's better words have, over the share
    that the document is to keep: at 1 every document keeps just its share. `scores` come by rank of the documents.
    """
    tokens = {d: max(int(source.costs[source.part(d)].sum()), 1) for d in scores}
    shares = document_shares(source.request.requested / sum(tokens.values()), dynamic_ratio, len(scores))
    indices, places = [], []
    for (document, values), share in zip(scores.items(), shares, strict=True):
        best = np.argsort(-values, kind="stable") + source.bounds[document]
        indices.append(best)
        # A document whose share is 0 comes after all others.
        places.append(np.cumsum(source.costs[best]) / tokens[document] / max(share, 1e-9))
    return np.concatenate(indices)[np.argsort(np.concatenate(places), kind="stable")]
