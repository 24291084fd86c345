"""One judge, many examples: rounds, what is counted, and judges that refuse."""

import numpy as np
import pytest

from ragjax.cite.entailment import ClaimTooLong, Judged
from ragjax.cite.records import Tally
from ragjax.cite.rounds import ask, converse
from ragjax.cite.scoring import score
from tests.cite.keyword_judge import KeywordJudge, cited


def talk(*rounds):
    """Asks its rounds in turn; returns all verdicts and their tally."""
    heard, tally = [], Tally()
    for number, pairs in enumerate(rounds):
        verdicts, asked = yield from ask({(number, k): pair for k, pair in enumerate(pairs)})
        heard += verdicts.values()
        tally += asked
    return heard, tally


def test_a_round_of_all_talks_is_one_call():
    judge = KeywordJudge(reach=2)
    yes, no = ("A B C", "A"), ("B", "A x")
    found = converse([talk([yes], [no, yes]), talk(), talk([no]), talk([], [yes])], judge, 0.5)
    assert found == [
        ([True, False, True], Tally(pairs=3, tokens=4 + 3 + 4, truncated=2)),
        ([], Tally()),
        ([False], Tally(pairs=1, tokens=3)),
        ([True], Tally(pairs=1, tokens=4, truncated=1)),
    ]
    assert judge.calls == [[yes, no], [no, yes, yes]]


def test_no_pair_is_no_call():
    judge = KeywordJudge()
    assert converse([talk([], [])], judge, 0.5) == [([], Tally())]
    assert judge.calls == []


def test_tokens_may_be_counted_by_another():
    assert converse([talk([("ABC", "A")])], KeywordJudge(), 0.5, len)[0][1].tokens == 4


class Narrow(KeywordJudge):
    """Refuses hypotheses of more than three words, one of them at a time."""

    def probabilities(self, pairs):
        long = [hypothesis for _, hypothesis in pairs if len(hypothesis.split()) > 3]
        if long:
            raise ClaimTooLong("too long", long[:1])
        return super().probabilities(pairs)


def test_a_claim_that_the_judge_refuses_is_not_entailed_and_counted():
    pairs = [("A", "A a a a"), ("A", "A"), ("A", "A b b b"), ("A", "A a a a")]
    judge = Narrow()
    assert converse([talk(pairs)], judge, 0.0) == [([False, True, False, False], Tally(4, 2, unread=3))]
    assert judge.calls == [[("A", "A")]]
    assert converse([talk(pairs[:1])], Narrow(), 0.0, len) == [([False], Tally(1, 8, unread=1))]
    (scored,) = score([cited("A a a a [1]. A [1].", [("A", ["0.0"])], ["A"])], Narrow())
    assert scored.generated.recall == scored.generated.precision == 0.5
    assert scored.asked.unread == 2


def test_a_judge_that_refuses_what_it_was_not_asked_is_an_error():
    class Broken(KeywordJudge):
        def probabilities(self, pairs):
            raise ClaimTooLong("too long", [])

    with pytest.raises(ClaimTooLong):
        converse([talk([("A", "A")])], Broken(), 0.5)


@pytest.mark.parametrize("value", [np.nan, 1.5, -0.1])
def test_what_is_no_probability_is_an_error(value):
    class Broken(KeywordJudge):
        def probabilities(self, pairs):
            return Judged(np.array([value]), np.array([1]), np.array([0]))

    with pytest.raises(ValueError, match="no probability"):
        converse([talk([("A", "A")])], Broken(), 0.5)
