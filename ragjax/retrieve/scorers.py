"""How much a text, a passage or a sentence, has to do with a question: what rerankers, extractors and ECR share.

A scorer sees all questions of a call with all their texts at once, so that an encoder runs in full batches.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ragjax.models.embedding_config import SIMILARITIES
from ragjax.retrieve.lexical import terms


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores [n] of a question's n texts, higher is better, and the tokens that did not fit the scorer's model."""

    values: np.ndarray
    truncated: int = 0


class Scorer(Protocol):
    """What every scorer offers."""

    def score(self, questions: Sequence[str], texts: Sequence[Sequence[str]]) -> list[Scores]:
        """The scores of each question's own texts. Equal texts of a question score equal.

        A scorer may also offer `similarities(texts) -> [n, n]` for each list of texts, as `BiEncoder`.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class BM25:
    """Okapi BM25 in Lucene's form, whose idf is never negative; the corpus of a question is its own texts.

    `k1` bounds what a repeated word adds, `b` in [0, 1] how much long texts are marked down.
    """

    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise ValueError(f"BM25 takes k1 of at least 0 and b in [0, 1], got {self.k1} and {self.b}")

    def score(self, questions: Sequence[str], texts: Sequence[Sequence[str]]) -> list[Scores]:
        """As `Scorer.score`."""
        return [Scores(self._score(question, own)) for question, own in zip(questions, texts, strict=True)]

    def _score(self, question: str, texts: Sequence[str]) -> np.ndarray:
        # Importing it runs a JAX function, which starts the devices: not before they are needed anyway.
        from bm25s import BM25 as Index
        from bm25s import logger

        logger.setLevel("WARNING")  # It tells of every index it builds.

        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in terms(text)] for text in texts]
        asked = [vocabulary[word] for word in terms(question) if word in vocabulary]
        if not asked:
            return np.zeros(len(texts), np.float32)
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # It sets DEBUG itself, and tells of every index.
        index = Index(k1=self.k1, b=self.b)
        index.index((ids, vocabulary), show_progress=False)
        return index.get_scores_from_ids(asked)


@dataclass(frozen=True, eq=False, kw_only=True)
class BiEncoder:
    """The similarity of two embeddings, the question's and the text's.

    What is None is as the model's own files state it for sentence-transformers; so are the prompts before questions
    and texts, the longest text and, for dot products, whether vectors have length 1.

    Args:
      model: an `Encoder`.
      similarity: "cosine" (Sentence-BERT; also where nothing is stated) or "dot" (Contriever).
      pooling: as in `ragjax.encode.embed`: "mean", "cls" or "max".
      batch: texts a batch.

    Raises:
      ValueError: for another similarity, or naming what the model's files state and is not supported.
    """

    model: Any
    similarity: str | None = None
    pooling: str | None = None
    batch: int = 32

    def __post_init__(self) -> None:
        if self.similarity not in (None, *SIMILARITIES):
            raise ValueError(f"similarity is one of {SIMILARITIES}, got {self.similarity!r}")
        given = [name for name in ("similarity", "pooling") if getattr(self, name) is not None]
        self.model.embedding.require(self.model.name, given)

    def score(self, questions: Sequence[str], texts: Sequence[Sequence[str]]) -> list[Scores]:
        """As `Scorer.score`; every distinct text is embedded once."""
        stated = self.model.embedding
        cosine = (self.similarity or stated.similarity or "cosine") == "cosine"
        questions = [stated.query_prompt + question for question in questions]
        texts = self._prompted(texts)
        place, found = self._embed([questions, *texts], normalize=cosine or bool(stated.normalize))
        scores = []
        for question, own in zip(questions, texts, strict=True):
            asked, rows = place[question], [place[text] for text in own]
            # A sum for each row: a matrix product may round equal rows differently.
            values = (found.vectors[rows] * found.vectors[asked]).sum(axis=-1)
            scores.append(Scores(values, int(found.truncated[rows].sum() + found.truncated[asked])))
        return scores

    def similarities(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """The cosines [n, n] of each list's n texts with each other."""
        texts = self._prompted(texts)
        place, found = self._embed(texts, normalize=True)
        vectors = [found.vectors[[place[text] for text in own]] for own in texts]
        return [own @ own.T for own in vectors]

    def _prompted(self, texts: Sequence[Sequence[str]]) -> list[list[str]]:
        return [[self.model.embedding.document_prompt + text for text in own] for own in texts]

    def _embed(self, texts: Sequence[Sequence[str]], *, normalize: bool) -> tuple[dict[str, int], Any]:
        """The row of each distinct text, which has its prompt, and the embeddings."""
        from ragjax.encode import embed  # BM25 alone needs no JAX.

        place = {text: row for row, text in enumerate(dict.fromkeys(text for own in texts for text in own))}
        asked = {"pooling": self.pooling, "normalize": normalize, "prompt": "", "batch": self.batch}
        return place, embed(self.model, list(place), **asked)


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossEncoder:
    """What a classifier of (question, text) pairs says: the logit of its single label, or the second of two.

    Args:
      model: an `Encoder` with a head for sequences, of one label (rerankers) or two (no, yes).
      batch: pairs a batch.
    """

    model: Any
    batch: int = 32

    def __post_init__(self) -> None:
        labels = self.model.config.labels
        if len(labels) not in (1, 2):
            raise ValueError(f"a cross-encoder has one label or two, {self.model.name} has {list(labels)}")

    def score(self, questions: Sequence[str], texts: Sequence[Sequence[str]]) -> list[Scores]:
        """As `Scorer.score`; every distinct pair is read once. Of a pair that is too long the text is cut."""
        from ragjax.encode import classify  # BM25 alone needs no JAX.

        pairs = [[(question, text) for text in own] for question, own in zip(questions, texts, strict=True)]
        place = {pair: row for row, pair in enumerate(dict.fromkeys(pair for own in pairs for pair in own))}
        found = classify(self.model, [q for q, _ in place], [t for _, t in place], batch=self.batch)
        rows = [[place[pair] for pair in own] for own in pairs]
        return [Scores(found.logits[own, -1], int(found.truncated[own].sum())) for own in rows]
