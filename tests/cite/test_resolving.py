"""Re-attribution and resolution, each number by hand."""

import pytest

from ragjax.cite.records import Tally
from ragjax.cite.resolving import declared_sources, reattribute, resolve
from ragjax.cite.scoring import score
from tests.cite.keyword_judge import KeywordJudge, cited

DOCUMENTS = [["ALPHA came.", "BETA and GAMMA came.", "BETA left."], ["ALPHA and BETA left."]]


def test_a_unit_has_the_sentences_that_entail_it_alone():
    example = cited("", ["ALPHA.", "BETA.", "ALPHA GAMMA.", ("DELTA", ["0.0"]), " "], DOCUMENTS)
    judge = KeywordJudge()
    assert reattribute([example], judge) == [{0: ("0.0", "1.0"), 1: ("0.1", "0.2", "1.0"), 2: (), 4: ()}]
    assert len(judge.calls) == 1
    # Each of the three units that say something against each of the four sentences: (sentence, unit).
    assert len(judge.pairs) == 12
    assert ("ALPHA came.", "ALPHA GAMMA.") in judge.pairs


def test_the_most_alike_sentences_are_asked_about():
    example = cited("", ["gamma came and BETA"], DOCUMENTS)
    judge = KeywordJudge()
    assert reattribute([example], judge, top=2) == [{0: ("0.1", "1.0")}]
    # Cosines of word counts: "beta and gamma came" 4/4, "alpha and beta left" 2/4, others at most 1/sqrt(8).
    assert [premise for premise, _ in judge.pairs] == ["BETA and GAMMA came.", "ALPHA and BETA left."]
    assert reattribute([example], KeywordJudge(), top=1) == [{0: ("0.1",)}]


def test_ten_sentences_are_asked_about_unless_told_otherwise():
    example = cited("", ["word"], [[f"word {n}." for n in range(12)]])
    judge = KeywordJudge()
    reattribute([example], judge)
    assert [premise for premise, _ in judge.pairs] == [f"word {n}." for n in range(10)]


def test_examples_are_asked_about_together():
    examples = [cited("", ["ALPHA."], DOCUMENTS, "a"), cited("", [], [], "b"), cited("", ["BETA."], DOCUMENTS, "c")]
    judge = KeywordJudge()
    assert reattribute(examples, judge) == [{0: ("0.0", "1.0")}, {}, {0: ("0.1", "0.2", "1.0")}]
    assert len(judge.calls) == 1
    assert reattribute([cited("", ["ALPHA."], [])], judge) == [{0: ()}]
    assert len(judge.calls) == 1


def test_tau_is_the_probability_from_which_a_sentence_entails():
    example = cited("", ["ALPHA."], DOCUMENTS)
    assert reattribute([example], KeywordJudge(), tau=0.9) == [{0: ("0.0", "1.0")}]
    assert reattribute([example], KeywordJudge(), tau=0.91) == [{0: ()}]
    assert reattribute([example], KeywordJudge(), tau=0.1) == [{0: ("0.0", "0.1", "0.2", "1.0")}]


def test_resolution_is_once_each_in_document_order():
    example = cited("", [("x", ["1.0", "0.2", "1.0"]), "y", ("z", [])], DOCUMENTS)
    assert resolve(example, {1: ("0.1", "0.0")}) == {0: ("0.2", "1.0"), 1: ("0.0", "0.1"), 2: ()}
    assert declared_sources(example) == {0: ("0.2", "1.0"), 1: (), 2: ()}
    # What declares sources, if none, keeps to them.
    assert resolve(example, {0: ("0.0",), 1: (), 2: ("0.0",)}) == {0: ("0.2", "1.0"), 1: (), 2: ()}


def test_sources_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"example 'q': unit 2 has the source '3\.0'"):
        resolve(cited("", [("x", ["0.0"]), ("y", ["3.0"])], DOCUMENTS), {})
    with pytest.raises(ValueError, match="example 'q': no sources are given for unit 1"):
        resolve(cited("", ["x"], DOCUMENTS), {})


@pytest.mark.parametrize(("settings", "word"), [({"tau": 1.5}, "tau"), ({"top": 0}, "top")])
def test_settings_out_of_range_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        reattribute([cited("", ["x"], DOCUMENTS)], KeywordJudge(), **settings)


def test_a_second_judge_may_score_what_a_first_one_recovered():
    example = cited("ALPHA [1].", ["ALPHA."], DOCUMENTS)
    (first,) = score([example], KeywordJudge())
    second = KeywordJudge()
    (fixed,) = score([example], second, tau=0.95, sources=[first.sources])
    assert fixed.sources == first.sources == {0: ("0.0", "1.0")}
    assert fixed.recovered == (0,)
    assert fixed.recovery == Tally()
    assert ("ALPHA came.", "ALPHA.") not in second.pairs
    (again,) = score([example], KeywordJudge(), tau=0.95)
    assert again.sources == {0: ()}
    with pytest.raises(ValueError, match="1 examples need as many maps of sources, got 2"):
        score([example], KeywordJudge(), sources=[{}, {}])
