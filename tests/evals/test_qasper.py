"""QASPER's answer and evidence scores: hand cases, properties, and the official rule written again for real rows."""

import json
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.data import Document, Example
from ragjax.data.papers import read_paper
from ragjax.evals.qasper import Overlap, answer_f1, evidence_overlap, overlap, score_qasper
from ragjax.evals.quality import answer_quality
from ragjax.retrieve.sentences import split_sentences

P = ("Corn was red. Corn was blue.", "Rice was red. Rice was new.", "Oats were dry.")
TABLE = "FLOAT SELECTED: Table 1: Corn by colour."


def marked(answer="yes", kind="extractive", evidence=(), highlighted=()):
    return {"answer": answer, "type": kind, "evidence": list(evidence), "highlighted_evidence": list(highlighted)}


def question(*annotations, documents=P):
    documents = tuple(Document(text) for text in documents)
    return Example("q1", "What was red?", documents=documents, meta={"annotations": list(annotations)})


UNANSWERABLE = marked("Unanswerable", "none")
CORN = marked("corn", evidence=[P[0]], highlighted=["Corn was red."])
BOTH = marked("corn and rice", "abstractive", P[:2], ["Corn was red.", "Rice was red."])


def test_the_answer_is_compared_with_every_annotators_and_the_best_counts():
    example = question(CORN, BOTH, UNANSWERABLE)
    assert answer_f1(example, "The corn!") == (1.0, "extractive")
    assert answer_f1(example, "rice and corn") == (1.0, "abstractive")
    assert answer_f1(example, "unanswerable.") == (1.0, "none")
    assert answer_f1(example, "rice") == (0.5, "abstractive")
    assert answer_f1(example, "oats") == (0.0, "extractive")
    assert answer_f1(example, "") == (0.0, "extractive")


def test_there_is_no_yes_no_rule():
    assert answer_f1(question(marked("Yes", "boolean")), "yes, it was") == (0.5, "boolean")


def test_an_answer_without_a_token_is_no_gold():
    assert answer_f1(question(marked("a")), "a") == (None, None)
    assert answer_f1(question(marked("a"), CORN), "corn") == (1.0, "extractive")
    assert answer_f1(question(), "corn") == (None, None)


@pytest.mark.parametrize(
    ("chosen", "gold", "expected"),
    [
        ([], [], (1, 1, 1)),
        (["p"], [], (0, 0, 0)),
        ([], ["p"], (0, 0, 0)),
        (["p"], ["q"], (0, 0, 0)),
        (["p", "q"], ["p"], (0.5, 1, 2 / 3)),
        (["p"], ["p", "q", "r"], (1, 1 / 3, 0.5)),
        (["p", "p"], ["p"], (0.5, 1, 2 / 3)),
    ],
)
def test_overlap(chosen, gold, expected):
    assert overlap(chosen, gold) == Overlap(*expected)


def test_evidence_is_paragraphs_as_they_are_written():
    example = question(BOTH)
    assert evidence_overlap(example, P[:1]) == Overlap(1, 0.5, 2 / 3)
    assert evidence_overlap(example, [f"{P[0]} "]) == Overlap(0, 0, 0)
    assert evidence_overlap(question(), P[:1]) is None


def test_paragraphs_are_the_same_whatever_white_space_is_around_them():
    """In our own overlap, unlike the official one, as `gold_documents` has it."""
    scored = score_qasper(question(CORN, documents=[f"{P[0]}\n", *P[1:]]), "corn", ["0.0"])
    assert (scored.evidence, scored.paragraphs) == (Overlap(0, 0, 0), Overlap(1, 1, 1))


def test_precision_and_recall_are_of_the_annotator_with_the_best_f1():
    long = marked("all", evidence=P[:1])
    assert evidence_overlap(question(long, marked("all", evidence=P)), P[:2]) == Overlap(1, 2 / 3, 0.8)


def test_captions_are_evidence_unless_text_alone_is_asked_for():
    example = question(marked("corn", evidence=[P[0], TABLE]))
    assert evidence_overlap(example, P[:1]) == Overlap(1, 0.5, 2 / 3)
    assert evidence_overlap(example, P[:1], text_only=True) == Overlap(1, 1, 1)
    assert evidence_overlap(question(marked("corn", evidence=[TABLE])), []).f1 == 0
    assert evidence_overlap(question(marked("corn", evidence=[TABLE])), [], text_only=True).f1 == 1


def test_empty_evidence_is_right_for_an_unanswerable_question_whatever_was_marked():
    example = question(marked("Unanswerable", "none", evidence=[P[0]]))
    assert evidence_overlap(example, []) == Overlap(1, 1, 1)
    assert evidence_overlap(example, P[:1]) == Overlap(0, 0, 0)
    scored = score_qasper(example, "Unanswerable", [])
    assert scored.paragraphs == scored.sentences == Overlap(1, 1, 1)


def test_declared_sentences_at_both_levels():
    scored = score_qasper(question(BOTH), "corn", ["1.0", "0.1", "0.0", "0.0"])
    assert scored.evidence == scored.paragraphs == Overlap(1, 1, 1)
    assert scored.sentences == Overlap(2 / 3, 1, 0.8)
    scored = score_qasper(question(BOTH, CORN), "corn", ["0.0", "0.1"])
    assert scored.evidence == Overlap(1, 1, 1)
    assert scored.sentences == Overlap(0.5, 1, 2 / 3)


def test_without_declared_sources_the_answer_alone_is_scored():
    scored = score_qasper(question(CORN), "corn")
    assert (scored.answer_f1, scored.evidence, scored.paragraphs, scored.sentences) == (1, None, None, None)
    assert score_qasper(question(CORN), "corn", []).sentences == Overlap(0, 0, 0)


def test_an_annotator_who_marked_only_a_figure_says_nothing_on_sentences():
    figure = marked("corn", evidence=[TABLE], highlighted=[TABLE])
    scored = score_qasper(question(figure), "corn", ["0.0"])
    assert (scored.paragraphs, scored.sentences) == (None, None)
    assert scored.evidence == Overlap(0, 0, 0)
    assert score_qasper(question(figure, CORN), "corn", ["0.0"]).sentences == Overlap(1, 1, 1)
    assert score_qasper(question(marked("corn", evidence=[P[0]])), "corn", ["0.0"]).sentences is None


def test_a_highlighted_text_is_every_sentence_that_it_touches():
    part = marked("corn", evidence=[P[0]], highlighted=["was red. Corn"])
    assert score_qasper(question(part), "corn", ["0.0", "0.1"]).sentences == Overlap(1, 1, 1)
    lines = marked("corn", evidence=P[1:], highlighted=["Rice was new.\nOats were dry.\n"])
    assert score_qasper(question(lines), "corn", ["1.1", "2.0"]).sentences == Overlap(1, 1, 1)


def test_sentences_that_abut_a_highlighted_one_are_not_touched():
    text = "玉米是红的。玉米是蓝的。大米是新的。"
    middle = marked("corn", evidence=[text], highlighted=["玉米是蓝的。"])
    assert score_qasper(question(middle, documents=[text]), "corn", ["0.1"]).sentences == Overlap(1, 1, 1)


def test_a_highlighted_text_is_looked_for_in_the_annotators_own_paragraphs_first():
    twice = ("Oats were dry. More on oats.", "Oats were dry.")
    own = marked("oats", evidence=[twice[1]], highlighted=["Oats were dry."])
    assert score_qasper(question(own, documents=twice), "oats", ["1.0"]).sentences == Overlap(1, 1, 1)
    elsewhere = marked("oats", evidence=["Another paragraph."], highlighted=["Oats were dry."])
    assert score_qasper(question(elsewhere, documents=twice), "oats", ["0.0"]).sentences == Overlap(1, 1, 1)


def test_a_highlighted_text_that_is_nowhere_counts_against_recall():
    lost = marked("corn", evidence=[P[0]], highlighted=["Corn was red.", "Maize was red."])
    scored = score_qasper(question(lost), "corn", ["0.0"])
    assert (scored.sentences, scored.unfound) == (Overlap(1, 0.5, 2 / 3), 1)


def test_an_unknown_sid_is_refused_by_name():
    with pytest.raises(ValueError, match=r"q1: no sentence has the sid '2\.7'"):
        score_qasper(question(CORN), "corn", ["0.0", "2.7"])


def test_the_columns_of_a_row():
    row = answer_quality(question(BOTH), "corn", ["0.0"])
    assert row["answer_f1"] == 0.5
    assert [row[f"{level}_recall"] for level in ("evidence", "paragraph", "sentence")] == [0.5, 0.5, 0.5]
    assert len(row) == 10
    empty = answer_quality(question(BOTH), "corn")
    assert empty.keys() == row.keys()
    assert {name for name, value in empty.items() if value is not None} == {"answer_f1"}


SIDS = st.sets(st.sampled_from(["0.0", "0.1", "1.0", "1.1", "2.0"]))
ANNOTATIONS = st.builds(
    marked,
    answer=st.sampled_from(["corn", "rice and corn", "the", "Yes"]),
    kind=st.sampled_from(["extractive", "abstractive", "boolean", "none"]),
    evidence=st.lists(st.sampled_from([*P, TABLE]), unique=True),
    highlighted=st.lists(st.sampled_from(["Corn was red.", "Rice was new.", "was", "gone", TABLE]), unique=True),
)


@given(st.lists(ANNOTATIONS, max_size=3), st.sampled_from(["corn", "", "yes rice"]), SIDS, ANNOTATIONS)
def test_scores_stay_in_range_and_another_annotator_lowers_none(annotations, text, sids, more):
    scored = score_qasper(question(*annotations), text, sids)
    after = score_qasper(question(*annotations, more), text, sids)
    for name, value in scored.columns().items():
        assert value is None or 0 <= value <= 1
        if name.endswith("f1") and value is not None:
            assert after.columns()[name] >= value
    assert (scored.evidence is None) == (not annotations)
    for found in (scored.evidence, scored.paragraphs, scored.sentences):
        if found is not None:
            assert min(found.precision, found.recall) <= found.f1 <= max(found.precision, found.recall) + 1e-12


@given(SIDS, st.randoms())
def test_order_and_repetition_of_sids_change_nothing(sids, random):
    shuffled = [*sids, *sids]
    random.shuffle(shuffled)
    assert score_qasper(question(BOTH, CORN), "corn", shuffled) == score_qasper(question(BOTH, CORN), "corn", sids)


def normalised(text):
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def official_answer_f1(predicted, reference):
    predicted, reference = normalised(predicted), normalised(reference)
    shared = sum((Counter(predicted) & Counter(reference)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(reference)
    return 2 * precision * recall / (precision + recall)


def official_evidence_f1(predicted, reference):
    if not predicted and not reference:
        return 1.0
    shared = len(set(predicted) & set(reference))
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(reference)
    return 2 * precision * recall / (precision + recall)


def official_reference(answer, text_only):
    """Answer and evidence of a raw annotation."""
    if answer["unanswerable"]:
        return "Unanswerable", []
    evidence = [text for text in answer["evidence"] if not text_only or "FLOAT SELECTED" not in text]
    if answer["extractive_spans"]:
        return ", ".join(answer["extractive_spans"]), evidence
    if answer["free_form_answer"]:
        return answer["free_form_answer"], evidence
    return ("Yes" if answer["yes_no"] else "No"), evidence


def real_rows(shared):
    """Question, paragraphs and raw annotations of every real row; rows of the second file have spans alone."""
    for line in (shared / "data" / "qasper.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield row["question"], [document["text"] for document in row["docs"]], row["raw_answers"]
    for line in (shared / "data" / "qasper_dev_evidence.jsonl").read_text().splitlines():
        row = json.loads(line)
        raw = {"unanswerable": False, "extractive_spans": row["answers"], "free_form_answer": "", "yes_no": None}
        marks = {name: row[name] for name in ("evidence", "highlighted_evidence")}
        yield row["question"], [document["text"] for document in row["docs"]], [{**raw, **marks}]


def as_example(text, paragraphs, raw):
    record = {"question": text, "question_id": "q", "answers": [{"answer": answer} for answer in raw]}
    sections = [{"section_name": "S", "paragraphs": paragraphs}]
    (example,) = read_paper({"id": "p", "title": "T", "full_text": sections, "qas": [record]})
    return example


@pytest.mark.shared
@pytest.mark.parametrize("text_only", [False, True])
def test_the_official_rule_on_real_rows(shared, text_only):
    seen = answers = partial = 0
    for text, paragraphs, raw in real_rows(shared):
        example = as_example(text, paragraphs, raw)
        references = [official_reference(answer, text_only) for answer in raw]
        # Replies and evidence that are right, wrong and in between.
        replies = [references[0][0], "Unanswerable", "yes", "", paragraphs[0][:80], f"the {references[-1][0]} and more"]
        choices = [[], paragraphs[:1], paragraphs[:3], references[-1][1][:1], references[0][1]]
        for reply in replies:
            best = max(official_answer_f1(reply, answer) for answer, _ in references)
            found, _ = answer_f1(example, reply)
            assert found == pytest.approx(best, abs=1e-12), (text, reply)
            partial += 0 < best < 1
            answers += 1
        for chosen in choices:
            best = max(official_evidence_f1(chosen, evidence) for _, evidence in references)
            assert evidence_overlap(example, chosen, text_only=text_only).f1 == pytest.approx(best, abs=1e-12)
        seen += 1
    assert seen >= 200
    assert partial >= 0.2 * answers


@pytest.mark.shared
def test_highlighted_sentences_of_real_rows_are_found(shared):
    """Declaring all sentences recalls all that was highlighted, but for the few texts that the paragraphs lack."""
    unfound = full = 0
    for text, paragraphs, raw in real_rows(shared):
        example = as_example(text, paragraphs, raw)
        scored = score_qasper(example, "", [sentence.sid for sentence in split_sentences(example.documents)])
        unfound += scored.unfound
        if not scored.unfound and scored.sentences is not None and not any(answer["unanswerable"] for answer in raw):
            assert scored.sentences.recall == 1, text
            full += 1
    assert full >= 180
    assert unfound <= 5
