"""Scores of one question: golden cases and the properties that every score keeps."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.data import DataError, Document
from ragjax.evals.normalize import NORMALIZERS
from ragjax.evals.qa import (
    METRICS,
    Rules,
    contains_substring,
    contains_tokens,
    exact_match,
    hits,
    official_rules,
    parse_answer,
    score_prediction,
    token_f1,
    usable_golds,
)
from ragjax.evals.significance import bootstrap_interval

WHALE = "the answer is blue whale"


def scores(prediction, golds, **rules):
    row = score_prediction(prediction, golds, Rules(**rules))
    return tuple(row[name] for name in METRICS)


FORMS = ["new", ["new"], ("new",), np.array(["new"]), {"aliases": ["new"]}, [["new", "b2"], ["c3"]], '["new"]']


@pytest.mark.parametrize("golds", FORMS, ids=str)
def test_E02_a_text_is_one_gold_not_its_letters(golds):
    assert scores(WHALE, golds) == (0, 0, 0, 0)
    assert scores("new", golds) == (1, 1, 1, 1)


def test_E02_unknown_shapes_are_refused():
    with pytest.raises(DataError):
        score_prediction("x", {"text": "x"})


def test_E03_the_best_alias_counts():
    golds = {"value": "Niger", "aliases": ["Niger", "Republic of Niger"]}
    assert scores("niger.", golds) == (1, 1, 1, 1)
    assert token_f1("the republic", golds) == pytest.approx(2 * 1 / (1 + 3))


SUBSTRINGS = [("us", "russia", 0), ("10", "1910", 0), ("art", "party", 0), ("king", "Martin Luther King", 1)]


@pytest.mark.parametrize(("gold", "prediction", "by_tokens"), SUBSTRINGS)
def test_E04_substring_and_token_containment_are_two_metrics(gold, prediction, by_tokens):
    assert contains_substring(prediction, gold) == 1
    assert contains_tokens(prediction, gold) == by_tokens
    assert exact_match(prediction, gold) == 0


@pytest.mark.parametrize(("gold", "prediction", "by_tokens"), SUBSTRINGS)
def test_E04_credit_of_the_released_code_needs_a_shared_token(gold, prediction, by_tokens):
    assert contains_substring(prediction, gold, credit="code") == by_tokens


def test_E04_a_reply_that_lists_everything_shows_its_length():
    golds = [f"name{n}" for n in range(10)]
    row = score_prediction(" ".join(golds * 30), golds)
    assert (row["acc"], row["em"], row["prediction_words"]) == (1, 0, 300)
    assert row["f1"] < 0.01


YES = [
    ("yes", "yes", 1, 1, 1),
    ("yes", "Yes, they were.", 0, 0, 1),
    ("yes", "no", 0, 0, 0),
    ("yes", "yes and no", 0, 0, 1),
]


@pytest.mark.parametrize(("gold", "prediction", "em", "f1", "tokens"), [*YES, ("yes minister", "yes", 0, 0, 0)])
def test_E05_yes_and_no(gold, prediction, em, f1, tokens):
    row = score_prediction(prediction, gold)
    assert (row["em"], row["f1"], row["acc_tokens"]) == (em, f1, tokens)
    assert ("both yes and no" in row["flags"]) == (prediction == "yes and no")


def test_E05_without_the_rule_overlap_counts_again():
    assert token_f1("yes", "yes minister", yes_no=False) == pytest.approx(2 / 3)
    assert scores("Yes, they were.", "yes", credit="code") == (0, 1, 0, 0)


@pytest.mark.parametrize("golds", [[], [""], None])
@pytest.mark.parametrize("prediction", ["", "unanswerable", "I don't know."])
def test_E08_without_a_gold_a_question_is_unscored(golds, prediction):
    row = score_prediction(prediction, golds)
    assert [row[name] for name in METRICS] == [None] * 4
    assert row["unscored"] == "no gold"


@pytest.mark.parametrize("golds", [[], [""], None])
@pytest.mark.parametrize(("prediction", "credit"), [("", 0), ("Unanswerable", 1), ("I don't know.", 1), ("Paris", 0)])
def test_E08_a_configured_abstention_is_credited(golds, prediction, credit):
    row = score_prediction(prediction, golds, Rules(abstentions=("unanswerable", "I don't know")))
    assert [row[name] for name in METRICS] == [credit] * 4
    assert row["unscored"] is None
    assert ("abstained" in row["flags"]) == credit


def test_golds_that_normalise_to_nothing_are_dropped_and_counted():
    assert usable_golds(["The", "A+", "b c"]) == (("b c",), 2)
    row = score_prediction("anything", ["The", "A+"])
    assert (row["acc"], row["unscored"], row["dropped_golds"]) == (None, "golds normalise to nothing", 2)
    assert score_prediction("anything", ["The", "b"])["acc"] == 0


def test_E11_columns_and_scale_survive_a_results_file(tmp_path):
    rows = [score_prediction("Ann Lee", "Ann Lee"), score_prediction("Ann Lee Bo Cy", "Ann Lee Do Ey")]
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert bootstrap_interval([row["em"] for row in read]).value == 0.5
    assert bootstrap_interval([row["f1"] for row in read]).value == 0.75


@pytest.mark.parametrize(
    "raw",
    [
        "\n\nParis",
        "Answer: Paris",
        "Final answer:\n\nParis",
        "**Answer:** Paris",
        "Paris\n\nQuestion: x",
        "Paris\nQuestion: x",
        "<think>London?\n\nNo.</think> Paris",
        "London?</think>\nParis",
        "**Paris**",
        " Paris ",
    ],
)
def test_E12_the_answer_in_a_reply(raw):
    assert parse_answer(raw) == "Paris"
    row = score_prediction(raw, "Paris")
    assert (row["raw"], row["prediction"], row["em"]) == (raw, "Paris", 1)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("Paris\nLondon", "Paris\nLondon"),
        ("<think>hm", ""),
        ("", ""),
        ("A*", "A*"),
        ("**a** and **b**", "**a** and **b**"),
    ],
)
def test_E12_what_stays_and_what_is_empty(raw, answer):
    assert parse_answer(raw) == answer


def test_hits_is_the_same_function_on_the_documents():
    documents = [Document("It is in the north.", "Lyme"), Document("Founded by Io Marr.", "Dorn")]
    assert hits(documents, ["io marr"]) == 1
    assert hits(documents, "Lyme") == 1
    assert hits(documents, "north founded") == 0  # never across two documents
    assert hits([], "Lyme") == 0
    assert hits(documents, []) is None
    assert hits(documents, ["The"]) is None


def test_rules_are_checked_and_follow_the_dataset():
    assert official_rules("hotpotqa") == Rules("squad", yes_no=True)
    assert official_rules("nq") == Rules("nq", yes_no=False)
    with pytest.raises(ValueError, match="normalizer"):
        Rules("squads")
    with pytest.raises(ValueError, match="credit"):
        Rules(credit="half")


WORDS = st.lists(
    st.sampled_from(["yes", "no", "noanswer", "a", "Paris", "of", "1.0", "10", "U.S.", "-", "x"]), max_size=5
)
TEXTS = st.one_of(WORDS.map(" ".join), st.text(max_size=12))


@given(TEXTS, st.lists(TEXTS, max_size=4), st.sampled_from(sorted(NORMALIZERS)), st.booleans())
def test_E04_scores_lie_in_the_unit_interval_and_em_never_exceeds_f1(prediction, golds, normalizer, yes_no):
    row = score_prediction(prediction, golds, Rules(normalizer, yes_no=yes_no))
    values = [row[name] for name in METRICS]
    if row["unscored"]:
        assert values == [None] * 4
    else:
        assert all(0 <= value <= 1 for value in values)
        assert row["em"] <= row["f1"]
        assert row["em"] <= row["acc_tokens"] <= row["acc"]


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_E03_another_gold_never_lowers_a_score(prediction, golds, another):
    for metric in (exact_match, token_f1, contains_substring, contains_tokens):
        assert (metric(prediction, [*golds, another]) or 0) >= (metric(prediction, golds) or 0)


@given(TEXTS, TEXTS.filter(lambda text: usable_golds([text])[0]))
def test_E02_the_container_of_a_gold_does_not_matter(prediction, gold):
    for metric in (exact_match, token_f1, contains_substring, contains_tokens):
        assert metric(prediction, [gold]) == metric(prediction, (gold,))
