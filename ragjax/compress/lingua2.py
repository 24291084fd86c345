"""LLMLingua-2: words dropped by a classifier that says of each sub-word whether to keep it (arXiv 2403.12968).

The classifier reads each document alone, without the question: the same words go whatever is asked. A word's
probability is the mean of its sub-words' (section 4.2), and the words of all documents of an example are ranked in one
order, the earlier of equals first. With a budget the longest prefix of that order that fits is kept; the published
code sets a threshold per piece of 512 tokens instead, and so misses the rate that it is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragjax.compress.base import Compressed
from ragjax.compress.pruning import Pruning, Source, prune
from ragjax.compress.words import check_aggregate, word_values
from ragjax.encode import token_probabilities
from ragjax.encode.texts import require_head
from ragjax.typing import Float


@dataclass(frozen=True, eq=False, kw_only=True)
class LLMLingua2(Pruning):
    """A compressor that keeps the words which a token classifier is surest of.

    Args:
      model: an `Encoder` with a token-classification head.
      tokenizer: the generator's, in which lengths are counted.
      label: the id of the label that means "keep": 1 in the published models (LABEL_1).
      aggregate: how a word's sub-words count: "mean" (the published way), "sum", "max" or "min".
      threshold: without a budget, words above this probability are kept.
      keep: what survives byte for byte: some of "question" (its words, in any case), "digits", "newlines". What is
        protected alone exceeding the budget gives the status "too_small".
      keep_patterns: regular expressions of the `regex` module; words they touch survive too.
      declare: give units the ids of the sentences that their words come from (the published method declares none).
      language: of those sentences, as in `split_sentences`.
      batch: windows of text that the model reads at a time.
    """

    model: Any
    tokenizer: Any
    label: int = 1
    aggregate: str = "mean"
    threshold: float = 0.5
    keep: tuple[str, ...] = ()
    keep_patterns: tuple[str, ...] = ()
    declare: bool = False
    language: str = "en"
    batch: int = 32

    def __post_init__(self) -> None:
        check_aggregate(self.aggregate)
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"a threshold is a probability, got {self.threshold}")
        require_head(self.model, "token")
        labels = self.model.config.labels
        if not 0 <= self.label < len(labels):
            raise ValueError(f"label counts {self.model.name}'s labels {labels} from 0, got {self.label}")
        self._opener  # noqa: B018, refuses a name or a pattern that cannot be

    def choose(self, groups: Sequence[Sequence[Source]]) -> list[list[Compressed]]:
        """As `Pruning.choose`."""
        scores = self.scores([group[0] for group in groups])
        return [[self._prune(source, own) for source in group] for group, own in zip(groups, scores, strict=True)]

    def scores(self, sources: Sequence[Source]) -> list[Float[np.ndarray, " W"]]:
        """The probability to keep each word of each source; -inf for a word that the model's tokenizer passes over."""
        texts = [source.words[d].text for source in sources for d in source.filled]
        labelled = iter(token_probabilities(self.model, texts, batch=self.batch))
        found = []
        for source in sources:
            read = [(source.words[d], next(labelled)) for d in source.filled]
            values = [
                word_values(words, one.offsets, one.probabilities[:, self.label], self.aggregate) for words, one in read
            ]
            found.append(np.concatenate(values))
        return found

    def _prune(self, source: Source, scores: Float[np.ndarray, " W"]) -> Compressed:
        if source.request.requested is not None:
            return prune(source, np.argsort(-scores, kind="stable"))
        spans = source.kept_spans((scores > self.threshold) | source.protected, source.filled)
        return source.fulfil(spans, "ok" if spans else "empty")
