"""How good a long answer to an ambiguous question is, by the rules of ALCE's evaluation of ASQA.

A reading of the question (`qa_pairs`) is answered where one of its short answers is a substring of the answer, both
normalised as SQuAD does. STR-EM is the share of readings answered, STR-hit says whether all are. ROUGE-L is the
F-measure of ROUGE-Lsum on stemmed words, the best over the long reference answers.

Two things differ from ALCE's script. Sentences, which ROUGE-Lsum goes by, are split as everywhere here, not by NLTK;
and a short answer that normalises to nothing, which would be a substring of every answer, is no gold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragjax.data.nested import as_records
from ragjax.data.records import Document, Example
from ragjax.evals.qa import contains_substring
from ragjax.retrieve.sentences import split_sentences


@dataclass(frozen=True)
class AsqaScore:
    """The scores of one answer; None where the example has no gold for it.

    `str_em` and `rouge_l` are in [0, 1], `str_hit` is 0.0 or 1.0. `words`: the answer's length, split at white space.
    `answered` has one entry for each of the `qa_pairs`, None for one without a usable short answer, which is left out
    of `str_em` and `str_hit`.
    """

    str_em: float | None
    str_hit: float | None
    rouge_l: float | None
    words: int
    answered: tuple[bool | None, ...]

    def columns(self) -> dict[str, float | None]:
        """What a row of results keeps: `str_em`, `str_hit` and `rouge_l`."""
        return {"str_em": self.str_em, "str_hit": self.str_hit, "rouge_l": self.rouge_l}


def score_asqa(example: Example, text: str) -> AsqaScore:
    """Score an answer to a question of ASQA.

    Args:
      example: its `meta` has `qa_pairs`, and `annotations` or `long_answers`, as the adapters of `ragjax.data` keep
        them.
      text: the answer without citation markers: the number in a marker can be a short answer.

    Raises DataError where `qa_pairs` or `annotations` are no lists of records.
    """
    answered = answered_pairs(example, text)
    usable = [found for found in answered if found is not None]
    return AsqaScore(
        str_em=sum(usable) / len(usable) if usable else None,
        str_hit=float(all(usable)) if usable else None,
        rouge_l=rouge_l(text, reference_answers(example)),
        words=len(text.split()),
        answered=answered,
    )


def answered_pairs(example: Example, text: str) -> tuple[bool | None, ...]:
    """For each of the `qa_pairs`, whether the answer has one of its short answers; None where it has no usable one."""
    pairs = as_records(example.meta.get("qa_pairs"))
    found = [contains_substring(text, pair.get("short_answers")) for pair in pairs]
    return tuple(None if hit is None else bool(hit) for hit in found)


def reference_answers(example: Example) -> tuple[str, ...]:
    """The annotators' long answers or, where there are none, those that the row names otherwise."""
    annotations = as_records(example.meta.get("annotations"))
    long = [annotation["long_answer"] for annotation in annotations if annotation.get("long_answer")]
    return tuple(long or example.meta.get("long_answers") or ())


def rouge_l(text: str, references: Sequence[str], *, stem: bool = True) -> float | None:
    """The best ROUGE-Lsum F-measure over the references, in [0, 1]; None without a reference.

    `stem`: words are compared by their Porter stems, as in ALCE's script. Letters beyond ASCII are no parts of words
    (rouge-score's tokeniser).
    """
    scorer, answer = _scorer(stem), _lines(text)
    scores = [scorer.score(_lines(reference), answer)["rougeLsum"].fmeasure for reference in references]
    return max(scores, default=None)


@lru_cache(maxsize=2)
def _scorer(stem: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # It imports all of NLTK, which takes seconds.

    return RougeScorer(["rougeLsum"], use_stemmer=stem)


def _lines(text: str) -> str:
    """The text with a line for each sentence, which is how ROUGE-Lsum is told of them."""
    return "\n".join(sentence.text for sentence in split_sentences([Document(text)]))
