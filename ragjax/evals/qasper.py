"""How good an answer about a paper is, and how well its sources were chosen, against QASPER's annotators.

By the official evaluation: token F1 of the answer and F1 of the evidence, which is a list of paragraphs compared as
strings, each the best over the annotators. Empty evidence is right where an annotator calls the question unanswerable.

By an interpretation of ours: precision, recall and F1 of a set of source sentences against what an annotator
highlighted, and of their paragraphs against his evidence, again the best over the annotators. Figures and tables are
out of reach for sentences, so an annotator who names nothing else is left out of it.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.data.papers import FLOAT
from ragjax.data.records import Example
from ragjax.evals.qa import token_f1
from ragjax.retrieve.sentences import Sentence, split_sentences


@dataclass(frozen=True)
class Overlap:
    """How far a selection and a gold agree, each in [0, 1]: all 1 where both are empty, all 0 where they share none."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class QasperScore:
    """The scores of one answer and its sources.

    `answer_f1` is in [0, 1], `answer_type` is that of the annotation which gave it: "extractive", "abstractive",
    "boolean" or "none"; both None without a usable gold. `evidence` is the official overlap; `paragraphs` and
    `sentences` are the interpretation's. They are None where no sources were declared, or no annotator has a gold.
    `unfound`: the highlighted texts that are in none of the documents; they count against the recall of `sentences`.
    """

    answer_f1: float | None
    answer_type: str | None
    evidence: Overlap | None
    paragraphs: Overlap | None
    sentences: Overlap | None
    unfound: int

    def columns(self) -> dict[str, float | None]:
        """What a row of results keeps: `answer_f1`, and `precision`, `recall` and `f1` of the other three.

        Those have the prefixes `evidence_`, `paragraph_` and `sentence_`.
        """
        levels = {"evidence": self.evidence, "paragraph": self.paragraphs, "sentence": self.sentences}
        parts = {
            f"{level}_{part}": getattr(found, part, None)
            for level, found in levels.items()
            for part in ("precision", "recall", "f1")
        }
        return {"answer_f1": self.answer_f1, **parts}


def score_qasper(
    example: Example, text: str, sids: Collection[str] | None = None, *, text_only: bool = False
) -> QasperScore:
    """Score an answer to a question of QASPER, and the sentences that it declares as its sources.

    Args:
      example: its `meta` has the `annotations` that `ragjax.data` reads; its documents are the paragraphs that the
        sids count.
      text: the answer, without citation markers.
      sids: the declared sentences (`ragjax.retrieve.sentences`), None where the method declares none.
      text_only: figures and tables are no evidence, in the official overlap (`--text_evidence_only`).

    Raises ValueError for a sid that the example does not have.
    """
    f1, kind = answer_f1(example, text)
    if sids is None:
        return QasperScore(f1, kind, None, None, None, 0)
    sentences = split_sentences(example.documents)
    chosen = _chosen(example, sids, sentences)
    paragraphs = dict.fromkeys(example.documents[sentence.document].text for sentence in chosen)
    golds = _sentence_golds(example, sentences)
    return QasperScore(
        answer_f1=f1,
        answer_type=kind,
        evidence=evidence_overlap(example, tuple(paragraphs), text_only=text_only),
        paragraphs=_paragraph_overlap(example, paragraphs),
        sentences=_best([sentence.sid for sentence in chosen], golds),
        unfound=sum(isinstance(item, tuple) for gold in golds for item in gold),
    )


def answer_f1(example: Example, text: str) -> tuple[float | None, str | None]:
    """The best token F1 over the annotators' answers, by the official rule, and the type of the first that gave it."""
    scores = [
        (token_f1(text, annotation["answer"], yes_no=False), annotation["type"]) for annotation in _annotations(example)
    ]
    usable = [score for score in scores if score[0] is not None]
    return max(usable, key=lambda score: score[0], default=(None, None))


def evidence_overlap(example: Example, paragraphs: Sequence[str], *, text_only: bool = False) -> Overlap | None:
    """The official evidence score of some paragraphs: their overlap with the best annotator's, compared as they are.

    A caption (FLOAT SELECTED) is evidence like any other, or with `text_only` none. None without annotations.
    """
    golds = [_official_evidence(annotation, text_only) for annotation in _annotations(example)]
    return _best(paragraphs, golds)


def overlap(chosen: Collection[Hashable], gold: Collection[Hashable]) -> Overlap:
    """The overlap of two collections; one that repeats an item counts it in its length, as the official script does."""
    if not chosen and not gold:
        return Overlap(1.0, 1.0, 1.0)
    same = len(set(chosen) & set(gold))
    if not same:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = same / len(chosen), same / len(gold)
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall))


def _best(chosen: Collection[Hashable], golds: Sequence[Collection[Hashable]]) -> Overlap | None:
    """The overlap with the best annotator by F1, the first of several."""
    return max((overlap(chosen, gold) for gold in golds), key=lambda found: found.f1, default=None)


def _annotations(example: Example) -> Sequence[Mapping[str, Any]]:
    return example.meta.get("annotations") or ()


def _official_evidence(annotation: Mapping[str, Any], text_only: bool) -> list[str]:
    """What the official script compares with: nothing for an unanswerable question, whatever was marked."""
    if annotation["type"] == "none":
        return []
    return [text for text in annotation["evidence"] if not (text_only and FLOAT in text)]


def _chosen(example: Example, sids: Collection[str], sentences: Sequence[Sentence]) -> list[Sentence]:
    """The declared sentences, each once, in the order of the documents."""
    if unknown := sorted(set(sids) - {sentence.sid for sentence in sentences}):
        raise ValueError(f"{example.id}: no sentence has the sid {unknown[0]!r}")
    return [sentence for sentence in sentences if sentence.sid in sids]


def _texts(annotation: Mapping[str, Any], field: str) -> list[str] | None:
    """The texts that an annotator marked; None where he marked figures alone, or nothing though there is an answer."""
    if annotation["type"] == "none":
        return []
    return [text for text in annotation[field] if FLOAT not in text] or None


def _paragraph_overlap(example: Example, paragraphs: Collection[str]) -> Overlap | None:
    golds = [_texts(annotation, "evidence") for annotation in _annotations(example)]
    return _best(
        {text.strip() for text in paragraphs}, [{text.strip() for text in gold} for gold in golds if gold is not None]
    )


def _sentence_golds(example: Example, sentences: Sequence[Sentence]) -> list[set[Hashable]]:
    """For each annotator who marked text, the sids of what he highlighted, and as 1-tuples the texts not found."""
    golds = []
    for annotation in _annotations(example):
        texts = _texts(annotation, "highlighted_evidence")
        if texts is not None:
            evidence = {text.strip() for text in annotation["evidence"]}
            # A text over several paragraphs has a line for each.
            lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
            golds.append({sid for line in lines for sid in _touched(line, example, evidence, sentences)})
    return golds


def _touched(
    line: str, example: Example, evidence: Collection[str], sentences: Sequence[Sentence]
) -> list[str] | list[tuple[str]]:
    """The sids of the sentences that a highlighted text touches, in the annotator's own paragraphs before others.

    The annotators' sentences were split by another program, so one of theirs may be a part or several of ours.
    """
    places = [number for number, document in enumerate(example.documents) if line in document.text]
    if not places:
        return [(line,)]
    place = next((number for number in places if example.documents[number].text.strip() in evidence), places[0])
    start = example.documents[place].text.index(line)
    return [
        sentence.sid
        for sentence in sentences
        if sentence.document == place and sentence.start < start + len(line) and start < sentence.end
    ]
