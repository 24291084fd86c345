"""ASQA's answer quality: hand cases, properties, and ALCE's published labels and means."""

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.data import DataError, Example
from ragjax.data.openqa import with_short_answers
from ragjax.evals.asqa import answered_pairs, reference_answers, rouge_l, score_asqa
from ragjax.evals.quality import answer_quality

GATE = (("old", ["1900"]), ("new", ["1950", "the year 1950"]))


def asqa(*pairs, references=()):
    pairs = [{"question": question, "short_answers": answers} for question, answers in pairs]
    annotations = [{"knowledge": [], "long_answer": text} for text in references]
    return Example("e", "When did the gate open?", meta={"qa_pairs": pairs, "annotations": annotations})


@pytest.mark.parametrize(
    ("text", "answered", "em", "hit"),
    [
        ("The old gate opened in 1900, the new one in 1950.", (True, True), 1.0, 1.0),
        ("It opened in 1900.", (True, False), 0.5, 0.0),
        ("In (1-9-5-0)!", (False, True), 0.5, 0.0),
        ("In 19000 or so", (True, False), 0.5, 0.0),
        ("I do not know.", (False, False), 0.0, 0.0),
        ("", (False, False), 0.0, 0.0),
    ],
)
def test_a_reading_is_answered_by_a_substring_of_the_normalised_answer(text, answered, em, hit):
    scored = score_asqa(asqa(*GATE), text)
    assert (scored.answered, scored.str_em, scored.str_hit) == (answered, em, hit)
    assert scored.rouge_l is None
    assert scored.words == len(text.split())


def test_a_short_answer_that_normalises_to_nothing_is_no_gold():
    scored = score_asqa(asqa(("grade", ["A+", "the"]), ("old", ["1900", "a"]), ("none", [])), "Around 1900.")
    assert (scored.answered, scored.str_em, scored.str_hit) == ((None, True, None), 1.0, 1.0)
    scored = score_asqa(asqa(("grade", ["A+"])), "anything")
    assert (scored.answered, scored.str_em, scored.str_hit) == ((None,), None, None)
    assert answered_pairs(Example("e", "q"), "anything") == ()


def test_pairs_in_columns_are_read_and_other_shapes_refused():
    columns = {"question": ["old", "new"], "short_answers": [["1900"], ["1950"]]}
    assert answered_pairs(Example("e", "q", meta={"qa_pairs": columns}), "1950") == (False, True)
    with pytest.raises(DataError, match="a list of records"):
        answered_pairs(Example("e", "q", meta={"qa_pairs": 3}), "1950")


def test_the_reference_that_fits_best_counts():
    # Five of the answer's six words are among the reference's five: P 5/6, R 1, F 10/11. The other shares one of two.
    example = asqa(references=("the old gate opened first", "nothing opened"))
    assert score_asqa(example, "the old gate was opened first").rouge_l == pytest.approx(10 / 11)
    assert rouge_l("the old gate was opened first", ["nothing opened"]) == pytest.approx(2 / 8)
    assert rouge_l("anything", []) is None
    assert rouge_l("", ["anything"]) == 0


def test_rouge_goes_sentence_by_sentence_and_by_stems():
    one, other = "The gate opened in spring. It closed in autumn.", "It closed in autumn. The gate opened in spring."
    assert rouge_l(one, [other]) == 1
    assert rouge_l(one.replace(".", ","), [other.replace(".", ",")]) < 1
    assert rouge_l("gates opening", ["gate opened"]) == 1
    assert rouge_l("gates opening", ["gate opened"], stem=False) == 0


def test_references_are_the_annotations_or_what_the_row_calls_long_answers():
    example = asqa(*GATE, references=("one", "two"))
    assert reference_answers(example) == ("one", "two")
    plain = Example("e", "q", ("one", "two"), meta={"qa_pairs": example.meta["qa_pairs"]})
    assert reference_answers(plain) == ()
    assert reference_answers(with_short_answers(plain)) == ("one", "two")


def test_the_columns_of_a_row():
    assert answer_quality(asqa(*GATE, references=("In 1900 and 1950.",)), "In 1900 and 1950.") == {
        "str_em": 1,
        "str_hit": 1,
        "rouge_l": 1,
    }
    assert answer_quality(Example("e", "q", ("gold",)), "gold") == {}


WORDS = st.lists(st.sampled_from(["gate", "1900", "1950", "opened", "the", "New.", "-", "Ü"]), max_size=8).map(" ".join)


@given(WORDS, WORDS, st.lists(WORDS, max_size=3))
def test_scores_stay_in_range_and_grow_with_the_answer_and_the_golds(text, more, references):
    example = asqa(*GATE, references=references)
    scored, longer = score_asqa(example, text), score_asqa(example, f"{text} {more}")
    for found in (scored, longer):
        assert 0 <= found.str_hit <= found.str_em <= 1
        assert found.rouge_l is None or 0 <= found.rouge_l <= 1
    assert longer.str_em >= scored.str_em
    assert longer.words == scored.words + len(more.split())
    again = score_asqa(asqa(*GATE, references=[*references, text or "-"]), text).rouge_l
    assert again >= (scored.rouge_l or 0)
    if set(text.split()) & {"gate", "1900", "1950", "opened", "the", "New."}:
        assert again == 1


@pytest.fixture(scope="module")
def judged(shared):
    lines = (shared / "data" / "alce_asqa_human_eval.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def published(shared):
    lines = (shared / "data" / "alce_human_eval_overall.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["system"]: row["overall_results"] for row in rows if row["task"] == "asqa"}


def example_of(row):
    annotations = [{"long_answer": text} for text in row["answers"]]
    return Example(row["id"], row["question"], meta={"qa_pairs": row["qa_pairs"], "annotations": annotations})


@pytest.mark.shared
def test_the_published_labels_of_every_reading(judged):
    assert len(judged) == 400
    wrong = [
        (row["id"], row["system"])
        for row in judged
        if list(answered_pairs(example_of(row), row["output"])) != row["automatic_correctness_scores"]
    ]
    assert wrong == []


@pytest.mark.shared
def test_the_published_means(judged, published):
    """ROUGE is published as the middle of a bootstrap, and is met without stems, which ALCE's script now takes."""
    scores = defaultdict(list)
    for row in judged:
        example = example_of(row)
        plain = rouge_l(row["output"], reference_answers(example), stem=False)
        scores[row["system"]].append((score_asqa(example, row["output"]), plain))
    assert scores.keys() == published.keys()
    for system, found in scores.items():
        means = {
            "str_em": sum(100 * scored.str_em for scored, _ in found) / len(found),
            "str_hit": sum(100 * scored.str_hit for scored, _ in found) / len(found),
            "length": sum(scored.words for scored, _ in found) / len(found),
        }
        assert means == pytest.approx({name: published[system][name] for name in means}, abs=1e-9)
        assert sum(100 * plain for _, plain in found) / len(found) == pytest.approx(
            published[system]["rougeLsum"], abs=0.15
        )
