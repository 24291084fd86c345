"""Citation precision and recall: hand-worked numbers, ALCE's own count, and what holds of any answer."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.cite.parsing import parse
from ragjax.cite.records import PrecisionRecall
from ragjax.cite.scoring import score
from tests.cite.keyword_judge import KeywordJudge, cited

F04 = "ALPHA BETA [1][2][3]. GAMMA [3]. DELTA [1]. OMEGA. "
UNITS = ["ALPHA", "BETA", "GAMMA"]


def numbers(answer, units, documents=(), **settings):
    """(precision, recall) generated, (precision, recall) grounded."""
    (one,) = score([cited(answer, units, documents)], KeywordJudge(), **settings)
    return tuple((view.precision, view.recall) for view in (one.generated, one.grounded))


@pytest.mark.parametrize(
    ("answer", "mode", "precision", "recall", "invalid"),
    [
        (F04, "strict", 3 / 5, 2 / 4, 0),
        (F04, "alce", 3 / 5, 2 / 4, 0),
        (F04 + "ZETA [9].", "strict", 3 / 6, 2 / 5, 1),
        (F04 + "ZETA [9].", "alce", 3 / 5, 2 / 5, 1),
        (F04 + "ZETA [9][0][9].", "strict", 3 / 7, 2 / 5, 2),
    ],
)
def test_F04_invalid_citations_count_against_precision(answer, mode, precision, recall, invalid):
    assert numbers(answer, UNITS, mode=mode)[0] == (precision, recall)
    assert parse(answer, 3, mode=mode).invalid == invalid


def test_F06_duplicates_count_once():
    assert numbers("A [1][1].", ["A", "B"])[0] == (1, 1)
    assert numbers("A B [1][2][1].", ["A", "B"])[0] == (1, 1)
    assert numbers("A [1][1].", ["A", "B"], mode="alce")[0] == (1, 1)
    assert numbers("A B [1][2][1].", ["A", "B"], mode="alce")[0] == (1 / 3, 1)


def test_F07_an_answer_that_says_or_cites_nothing_scores_zero():
    for answer in ("", " \n", "A. B.", "A [9]."):
        assert numbers(answer, UNITS) == ((0, 0), (0, 0))


def test_each_statement_says_what_was_recalled_and_which_citations_were_precise():
    (one,) = score([cited(F04, UNITS)], KeywordJudge())
    assert [(s.recalled, s.precise) for s in one.generated.statements] == [
        (True, (0, 1)),
        (True, (2,)),
        (False, ()),
        (False, ()),
    ]
    assert isinstance(one.generated, PrecisionRecall)
    # No documents: nothing is recovered, so nothing is precise or recalled in the source.
    assert not any(s.recalled or s.precise for s in one.grounded.statements)
    assert one.undeclared == (0, 1, 2)
    assert one.recovered == ()


SENTENCES = [["ALPHA.", "BETA.", "GAMMA."]]
OVERLAPPING = [("u", ["0.0", "0.1"]), ("v", ["0.1", "0.2"])]


@pytest.mark.parametrize(
    ("answer", "grounded"),
    [
        # 1 entails alone; without 2 its own two sentences still do.
        ("ALPHA BETA [1][2].", (1 / 2, 1)),
        # Neither alone, and without either a word is gone.
        ("ALPHA GAMMA [1][2].", (1, 1)),
        # Both alone.
        ("BETA [1][2].", (1, 1)),
        # Without 1 the sentence that both stand for is still there.
        ("BETA GAMMA [1][2].", (1 / 2, 1)),
        ("ALPHA GAMMA [1].", (0, 0)),
    ],
)
def test_taking_a_citation_away_takes_what_no_other_resolves_to(answer, grounded):
    assert numbers(answer, OVERLAPPING, SENTENCES)[1] == grounded


def test_a_unit_without_sources_supports_nothing_and_is_not_precise():
    units = [("ALPHA", ["0.0"]), "BETA of no sentence, ALPHA GAMMA", ("BETA", [])]
    (one,) = score([cited("ALPHA [1][2]. BETA [2]. ALPHA BETA [1][3].", units, SENTENCES)], KeywordJudge())
    assert one.sources == {0: ("0.0",), 1: (), 2: ()}
    assert one.undeclared == (1,)
    assert (one.generated.precision, one.generated.recall) == (1, 1)
    assert [(s.recalled, s.precise) for s in one.grounded.statements] == [(True, (0,)), (False, ()), (False, ())]
    assert (one.grounded.precision, one.grounded.recall) == (1 / 5, 1 / 3)


def test_laundering_shows_as_the_gap_between_the_views():
    # A summary that says what a sentence says, then one that adds a word which no source has.
    generated, grounded = numbers("ALPHA [1]. OMEGA [1].", ["ALPHA"], SENTENCES)
    assert generated == grounded == (1 / 2, 1 / 2)
    generated, grounded = numbers("ALPHA [1]. OMEGA [1].", ["ALPHA OMEGA"], SENTENCES)
    assert (generated, grounded) == ((1, 1), (0, 0))


def test_premises_are_joined_in_the_order_of_units_and_of_the_documents():
    units = [("u", ["1.0", "0.0"]), ("v", ["0.1"]), ("w", ["0.1", "1.0"])]
    judge = KeywordJudge()
    score([cited("ALL [3][1].", units, [["One.", "Two."], "Three."])], judge)
    assert judge.calls == [[("u\nw", "ALL."), ("One.\nTwo.\nThree.", "ALL.")]]


def test_alce_s_premises_keep_the_order_and_the_repetitions_of_the_citations():
    judge = KeywordJudge()
    score([cited("ALL [3][1][3].", [("u", []), ("v", []), ("w", [])])], judge, mode="alce")
    assert judge.calls == [[("w\nu\nw", "ALL.")]]
    judge = KeywordJudge()
    score([cited("A B [1][2][1].", [("A", []), ("B", [])])], judge, mode="alce")
    # The first copy of a repeated citation is the one that is taken away, whichever copy is asked about.
    assert judge.calls[2] == [("B\nA", "A B."), ("A\nA", "A B."), ("B\nA", "A B.")]


def test_all_examples_share_four_rounds():
    answers = [F04, "ALPHA BETA [1][2].", "", "GAMMA [3][1]."]
    judge = KeywordJudge()
    together = score([cited(a, UNITS, SENTENCES, id=a) for a in answers], judge)
    assert len(judge.calls) == 4
    apart = [score([cited(a, UNITS, SENTENCES, id=a)], KeywordJudge())[0] for a in answers]
    assert together == apart
    assert [one.asked.pairs for one in together] == [one.asked.pairs for one in apart]
    assert sum(one.asked.pairs for one in together) == len(judge.pairs)
    assert score([], judge) == []


def test_what_was_asked_is_counted_whole():
    (one,) = score([cited("ALPHA [1].", ["ALPHA x y"], ["ALPHA one two."])], KeywordJudge(reach=2))
    # (3 + 3) re-attribution, not entailed by a unit of three words: ALPHA alone decides; 3 + 1 twice a view.
    assert one.recovery.tokens == 6
    assert one.recovery.truncated == 1
    assert one.asked.tokens == 6 + 2 * (4 + 4)
    assert one.asked.pairs == one.asked.truncated == 5
    (counted,) = score([cited("ALPHA [1].", ["ALPHA x y"], ["ALPHA one two."])], KeywordJudge(), count=len)
    assert counted.recovery.tokens == len("ALPHA one two.") + len("ALPHA x y")


WORDS = ["ALPHA", "BETA", "GAMMA", "DELTA"]
CLAIMS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True)
MARKS = st.lists(st.integers(0, 5), max_size=4)
ANSWERS = st.lists(st.tuples(CLAIMS, MARKS), max_size=4)
DOCUMENTS = st.lists(st.lists(CLAIMS.map(lambda words: " ".join(words) + "."), min_size=1, max_size=3), max_size=3)


def write(statements) -> str:
    return " ".join(f"{' '.join(words)} {''.join(f'[{n}]' for n in marks)}." for words, marks in statements)


@st.composite
def examples(draw):
    documents = draw(DOCUMENTS)
    sids = [f"{d}.{s}" for d, sentences in enumerate(documents) for s in range(len(sentences))]
    declared = st.lists(st.sampled_from(sids), max_size=3) if sids else st.just([])
    units = [
        (" ".join(draw(CLAIMS)), draw(declared) if draw(st.booleans()) else None)
        for _ in range(draw(st.integers(0, 4)))
    ]
    return draw(ANSWERS), units, documents


def values(answer, units, documents, mode="strict"):
    return numbers(write(answer), units, documents, mode=mode)


@given(examples(), st.sampled_from(["strict", "alce"]))
def test_precision_and_recall_lie_between_0_and_1(example, mode):
    assert all(0 <= value <= 1 for view in values(*example, mode=mode) for value in view)


@given(examples(), st.randoms())
def test_the_order_of_citations_does_not_matter(example, random):
    answer, units, documents = example
    shuffled = [(words, random.sample(marks, len(marks))) for words, marks in answer]
    assert values(shuffled, units, documents) == values(answer, units, documents)


@given(examples(), st.data())
def test_citing_a_unit_twice_changes_nothing(example, data):
    answer, units, documents = example
    doubled = [
        (words, marks + data.draw(st.lists(st.sampled_from(marks), max_size=2)) if marks else marks)
        for words, marks in answer
    ]
    assert values(doubled, units, documents) == values(answer, units, documents)


@given(examples())
def test_units_that_are_the_sentences_they_declare_score_alike_in_both_views(example):
    answer, _, documents = example
    units = [(text, [f"{d}.{s}"]) for d, sentences in enumerate(documents) for s, text in enumerate(sentences)]
    judge = KeywordJudge()
    (one,) = score([cited(write(answer), units, documents)], judge)
    assert one.generated == one.grounded
    # Premise by premise, whatever the judge.
    assert all(len(call) % 2 == 0 and call[: len(call) // 2] == call[len(call) // 2 :] for call in judge.calls)


def by_definition(answer, texts, stands) -> tuple[float, float]:
    """Precision and recall as they are defined; `texts` by piece, and the pieces that each unit stands for."""

    def entails(pieces, words) -> bool:
        return bool(pieces) and KeywordJudge.entails(" ".join(texts[piece] for piece in pieces), " ".join(words))

    precise = citations = recalled = 0
    for words, marks in answer:
        valid = {n - 1 for n in marks if 1 <= n <= len(stands)}
        citations += len(set(marks))
        if not entails(set().union(*(stands[unit] for unit in valid)), words):
            continue
        recalled += 1
        for unit in valid:
            others = set().union(*(stands[other] for other in valid - {unit}))
            precise += bool(stands[unit]) and (entails(stands[unit], words) or not entails(others, words))
    return precise / citations if citations else 0, recalled / len(answer) if answer else 0


@given(examples())
def test_both_views_count_as_they_are_defined(example):
    answer, units, documents = example
    texts = {f"{d}.{s}": text for d, sentences in enumerate(documents) for s, text in enumerate(sentences)}
    sources = [
        {sid for sid in texts if KeywordJudge.entails(texts[sid], text)} if sids is None else set(sids)
        for text, sids in units
    ]
    generated = by_definition(answer, [text for text, _ in units], [{n} for n in range(len(units))])
    assert values(answer, units, documents) == (generated, by_definition(answer, texts, sources))


def alce_count(answer: str, texts: list[str]) -> tuple[float, float]:
    """Precision and recall by the steps of ALCE's script, a pair at a time; a full stop ends a sentence."""
    entails = KeywordJudge.entails
    supported = good = total = 0
    sentences = [sentence + "." for sentence in answer.split(".") if sentence.strip()]
    for sentence in sentences:
        claim = re.sub(r" ?\[\d+\]", "", sentence)
        refs = [int(digits) - 1 for digits in re.findall(r"\[(\d+)", sentence)]
        if not refs or max(refs) >= len(texts):
            continue
        refs = refs[:3]
        total += len(refs)
        if not entails("\n".join(texts[ref] for ref in refs), claim):
            continue
        supported += 1
        for ref in refs:
            others = list(refs)
            others.remove(ref)
            needed = not entails("\n".join(texts[other] for other in others), claim)
            good += len(refs) == 1 or entails(texts[ref], claim) or needed
    return good / total if total else 0, supported / len(sentences) if sentences else 0


@given(examples())
def test_alce_mode_counts_as_alce(example):
    answer, units, documents = example
    if units:
        generated, _ = values(answer, units, documents, mode="alce")
        assert generated == alce_count(write(answer), [text for text, _ in units])
