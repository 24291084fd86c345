"""Claims checked in three modes, with what that costs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.cite.records import Tally, Verified
from ragjax.cite.scoring import score
from ragjax.cite.verifying import CHECKS, verify
from tests.cite.keyword_judge import KeywordJudge, cited
from tests.cite.test_scoring import examples, write

DOCUMENTS = [["ALPHA is one.", "BETA is two.", "GAMMA is three."]]
UNITS = [("ALPHA", ["0.0"]), "BETA", "GAMMA OMEGA", ("DELTA", [])]
ANSWER = "ALPHA [1]. ALPHA BETA [1][2]. GAMMA [3]. OMEGA [3]. DELTA [4]. ALPHA. ALPHA [9]."


@pytest.mark.parametrize(
    ("mode", "supported", "refused", "tokens"),
    [
        # Units joined, then the claim: 1+1, 2+2, 2+1, 2+1, 1+1 words.
        ("summary", (1, 1, 1, 1, 1, 0, 0), (0, 0, 0, 0, 0, 1, 1), 2 + 4 + 3 + 3 + 2),
        # Claims 1 and 2 on the one sentence that is declared: 3+1, 3+2.
        ("span", (1, 0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 1, 1, 1), 4 + 5),
        # Unit 2 is recovered, unit 3 is not: 3+1, 6+2, and re-attribution before them: 3x(3+1) + 3x(3+2).
        ("recovered", (1, 1, 0, 0, 0, 0, 0), (0, 0, 1, 1, 1, 1, 1), 4 + 8 + 12 + 15),
    ],
)
def test_each_mode_takes_its_own_evidence(mode, supported, refused, tokens):
    (one,) = verify([cited(ANSWER, UNITS, DOCUMENTS)], KeywordJudge(), mode=mode)
    assert one.supported == tuple(map(bool, supported))
    assert one.refused == tuple(map(bool, refused))
    assert (one.claims, one.unsupported, one.structural) == (7, supported.count(0), refused.count(1))
    assert one.verifier_tokens == tokens


def test_evidence_is_pooled_over_the_cited_units():
    judge = KeywordJudge()
    verify([cited("ALL [3][1].", [("u", ["0.1"]), ("v", []), ("w", ["0.0", "0.1"])], DOCUMENTS)], judge, mode="span")
    verify([cited("ALL [3][1].", [("u", ["0.1"]), ("v", []), ("w", ["0.0", "0.1"])], DOCUMENTS)], judge)
    assert judge.pairs == [("ALPHA is one.\nBETA is two.", "ALL."), ("u\nw", "ALL.")]


def test_what_was_scored_is_not_asked_again():
    example = cited(ANSWER, UNITS, DOCUMENTS)
    scored = score([example], KeywordJudge())
    judge = KeywordJudge()
    assert verify([example], judge, mode="recovered", scored=scored) == verify(
        [example], KeywordJudge(), mode="recovered"
    )
    assert len(judge.pairs) == 2
    for mode in CHECKS:
        alone = verify([example], KeywordJudge(), mode=mode)
        assert verify([example], KeywordJudge(), mode=mode, scored=scored) == alone
    with pytest.raises(ValueError, match="other examples"):
        verify([replace(example, id="p")], judge, scored=scored)


def test_tokens_may_be_counted_by_another():
    example = cited("ALPHA [1].", ["ALPHA"], ["ALPHA is."])
    (one,) = verify([example], KeywordJudge(), mode="recovered", count=len)
    assert one.verifier_tokens == (9 + 5) + (9 + 6)
    assert one.asked == Tally(2, 29)
    scored = score([example], KeywordJudge(), count=len)
    assert verify([example], KeywordJudge(), mode="recovered", count=len, scored=scored) == [one]


def test_an_answer_without_claims_has_none():
    assert verify([cited("", UNITS, DOCUMENTS)], KeywordJudge()) == [Verified((), ())]


def test_settings_out_of_range_are_refused():
    for settings, word in (({"mode": "source"}, "summary, span, recovered"), ({"tau": -1}, "tau"), ({"top": 0}, "top")):
        with pytest.raises(ValueError, match=word):
            verify([cited("", [])], KeywordJudge(), **settings)


@given(examples())
def test_where_all_units_declare_the_recovered_check_is_the_span_check(example):
    answer, units, documents = example
    made = cited(write(answer), [(text, sids or []) for text, sids in units], documents)
    span, recovered = (verify([made], KeywordJudge(), mode=mode) for mode in ("span", "recovered"))
    assert span == recovered
    (scored,) = score([made], KeywordJudge())
    assert scored.undeclared == ()
    # Grounded scoring is span scoring: what is recalled is what the span check supports.
    assert tuple(s.recalled for s in scored.grounded.statements) == span[0].supported


@given(examples())
def test_where_no_unit_declares_the_span_check_refuses_everything_without_asking(example):
    answer, units, documents = example
    judge = KeywordJudge()
    (one,) = verify([cited(write(answer), [text for text, _ in units], documents)], judge, mode="span")
    assert one.unsupported == one.structural == one.claims == len(answer)
    assert judge.calls == []
    assert one.verifier_tokens == 0


@given(examples(), st.sampled_from(CHECKS))
def test_a_check_supports_what_scoring_recalls(example, mode):
    answer, units, documents = example
    made = cited(write(answer), units, documents)
    (scored,) = score([made], KeywordJudge())
    (one,) = verify([made], KeywordJudge(), mode=mode)
    view = scored.generated if mode == "summary" else scored.grounded
    recalled = tuple(s.recalled for s in view.statements)
    if mode == "span":
        # Recovered sources can only add support.
        assert all(before <= after for before, after in zip(one.supported, recalled, strict=True))
    else:
        assert one.supported == recalled
