"""LongLLMLingua against its formulas, computed token by token from a model's logits in numpy."""

from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from ragjax.compress import contrast, longlingua
from ragjax.compress.base import Budget, describe
from ragjax.compress.contrast import GAP, question_nlls, room_beside, token_contrasts, windows
from ragjax.compress.longlingua import Coarse, LongLLMLingua, document_shares, rank_words
from ragjax.compress.pruning import Opener
from ragjax.compress.writing import PromptTooLong
from ragjax.data import load_examples
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens, encode
from ragjax.decode.text import perplexity
from ragjax.models import decoder
from ragjax.testing import tiny_model
from tests.compress.pruning_oracle import check_budget, check_units, pruned_text

TEXTS = (
    "Ada Lovelace was born in London.",
    "The weather of May 1815 was dry; 3.5 mm of rain fell.",
    "Bread is made of flour, water and salt.",
)
QUESTION = "Where was Ada born?"


def example(*texts: str, question: str = QUESTION) -> Example:
    return Example("e", question, documents=tuple(map(Document, texts or TEXTS)))


def compressor(lm, **options) -> LongLLMLingua:
    return LongLLMLingua(**{"lm": lm, "batch": 1, **options})


@partial(jax.jit, static_argnames=("cfg", "width"))
def logits(params, cfg, width, tokens):
    hidden, _ = decoder.forward(params, cfg, tokens[None], np.ones((1, len(tokens)), bool))
    return decoder.logits(params, hidden[0], width)


def nlls(lm, text: str) -> np.ndarray:
    """NLL of each token of a text after the BOS, in numpy; what stands behind the text has no part in it."""
    ids = np.array(encode(lm.tokenizer, text))
    scores = np.asarray(logits(lm.params, lm.config, lm.vocab_width, np.resize(ids, 192)), np.float64)
    return -log_softmax(scores, axis=-1)[np.arange(len(ids) - 1), ids[1:]]


def test_a_documents_importance_is_the_mean_nll_of_the_question_after_it(lm):
    asked = f"{QUESTION} Read on."
    found = question_nlls(lm, [asked] * 3, TEXTS, 1)
    for text, value in zip(TEXTS, found, strict=True):
        assert value == pytest.approx(np.mean(nlls(lm, text + GAP + asked)[-len(asked) :]), abs=1e-4)


def test_a_tokens_contrast_is_the_nll_that_the_question_takes_off_it(lm):
    for text, (offsets, values) in zip(TEXTS, token_contrasts(lm, [QUESTION] * 3, TEXTS, 1), strict=True):
        alone, asked = nlls(lm, GAP + text)[-len(text) :], nlls(lm, QUESTION + GAP + text)[-len(text) :]
        assert offsets.tolist() == [[i, i + 1] for i in range(len(text))]
        np.testing.assert_allclose(values, alone - asked, atol=2e-4)
        assert np.abs(values).max() > 0.1


@given(st.integers(0, 300), st.integers(2, 50))
def test_windows_read_every_token_and_score_it_once(length, room):
    found = windows(length, room)
    assert [t for _, new, end in found for t in range(new, end)] == list(range(length))
    assert all(end - begin <= room for begin, _, end in found)
    assert all(new - begin >= room // 2 for begin, new, _ in found[1:])


def test_a_document_longer_than_the_model_is_read_in_windows():
    lm = tiny_model(max_positions=96)
    text, short = "All of this is one very long document. " * 6, "A short one."
    room = room_beside(lm, QUESTION)
    assert room < 96 < len(text)
    ((offsets, values), _) = token_contrasts(lm, [QUESTION] * 2, [text, short], 1)
    assert len(values) == len(offsets) == len(text)
    for begin, new, end in windows(len(text), room):
        piece, count = text[begin:end], end - new
        expected = nlls(lm, GAP + piece)[-count:] - nlls(lm, QUESTION + GAP + piece)[-count:]
        np.testing.assert_allclose(values[new:end], expected, atol=2e-4)
    pieces = [text[begin:end] for begin, _, end in windows(len(text), room)]
    means = [
        s.nll / s.count for s in perplexity(lm, [QUESTION] * len(pieces), given=[p + GAP for p in pieces], batch=1)
    ]
    assert question_nlls(lm, [QUESTION], [text], 1)[0] == pytest.approx(min(means), abs=1e-5)
    found = compressor(lm, statement="")(QUESTION, [text, short], 60)
    assert (found.status, found.dropped_documents) == ("ok", 0)


def test_a_question_that_leaves_no_room_is_an_error_that_names_the_example():
    lm = tiny_model(max_positions=64)
    with pytest.raises(PromptTooLong, match="example 'e': the question leaves no room"):
        compressor(lm).compress([example(question="long " * 12)], Budget(tokens=20))


def test_shares_fall_in_a_line_from_the_first_document_to_the_last():
    np.testing.assert_allclose(document_shares(0.5, 0.3, 5), [0.8, 0.65, 0.5, 0.35, 0.2])
    np.testing.assert_allclose(document_shares(0.9, 0.3, 3), [1.0, 0.9, 0.6])
    np.testing.assert_allclose(document_shares(0.1, 0.3, 3), [0.4, 0.1, 0.0])
    np.testing.assert_allclose(document_shares(0.5, 0.3, 1), [0.5])
    assert document_shares(0.5, 0.3, 0).shape == (0,)


def test_each_document_gives_its_best_words_in_proportion_to_its_share(lm):
    source = (
        Opener(lm.tokenizer)
        .open([example("aa bb cc dd ee ff gg hh", "ii jj kk ll mm nn oo pp")])[0]
        .within(Budget(tokens=24))
    )
    scores = {1: np.arange(8.0), 0: np.arange(8.0)[::-1]}
    order = rank_words(source, scores, 0.25).tolist()
    assert [i - 8 for i in order if i >= 8] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert [i for i in order if i < 8] == list(range(8))
    first = order[: order.index(2)]  # the first document's third word is a share of 3/8 of it
    assert sum(i >= 8 for i in first) in (7, 8), "shares of 0.75 and 0.25: three times as many"


def oracle(lm, one: Example, budget: Budget, statement: str, ratio: float, coarse: Coarse | None) -> tuple:
    """The ranking of documents, those taken, and the ranking of their words, by plain loops."""
    source = Opener(lm.tokenizer).open([one])[0].within(budget)
    asked = f"{one.question} {statement}" if statement else one.question
    importance = [np.mean(nlls(lm, d.text + GAP + asked)[-len(asked) :]) for d in one.documents]
    ranking = sorted(range(len(importance)), key=lambda d: importance[d])
    taken, before = [], 0
    for d in ranking:
        if coarse is None or before <= coarse.factor * source.request.requested + coarse.extra:
            taken.append(d)
        before += int(source.costs[source.part(d)].sum())
    total = sum(int(source.costs[source.part(d)].sum()) for d in taken)
    places = []
    for rank, d in enumerate(taken):
        text = one.documents[d].text
        contrasts = nlls(lm, GAP + text)[-len(text) :] - nlls(lm, one.question + GAP + text)[-len(text) :]
        slope = ratio * (1 - 2 * rank / (len(taken) - 1)) if len(taken) > 1 else 0
        share = min(max(source.request.requested / total + slope, 0), 1)
        words, base = source.words[d], int(source.bounds[d])
        means = [np.mean(contrasts[a:b]) for a, b in zip(words.starts, words.ends, strict=True)]
        used = 0
        for i in sorted(range(len(words)), key=lambda i: -means[i]):
            used += int(source.costs[base + i])
            places.append((used / source.costs[source.part(d)].sum() / max(share, 1e-9), rank, base + i))
    return source, ranking, taken, [i for *_, i in sorted(places, key=lambda place: place[0])]


@pytest.mark.parametrize("tokens", [70, 30, 12])
@pytest.mark.parametrize(
    ("reorder", "coarse", "statement"),
    [("sort", Coarse(), "Read on."), ("none", Coarse(1.0, 5), ""), ("sort", None, "")],
)
def test_the_whole_method_is_what_plain_loops_make_of_it(lm, tokens, reorder, coarse, statement):
    one, budget = example(), Budget(tokens=tokens)
    found = compressor(lm, reorder=reorder, coarse=coarse, statement=statement).compress([one], budget)[0]
    source, ranking, taken, order = oracle(lm, one, budget, statement, 0.3, coarse)
    arrangement = ranking if reorder == "sort" else [0, 1, 2]
    count = next(
        n
        for n in range(len(order))
        if count_tokens(lm.tokenizer, pruned_text(source, order[: n + 1], arrangement)) > tokens
    )
    assert found.text == pruned_text(source, order[:count], arrangement)
    assert [unit.spans[0][0] for unit in found.units] == [
        d for d in arrangement if any(source.bounds[d] <= i < source.bounds[d + 1] for i in order[:count])
    ]
    left_out = f"the coarse step left out {3 - len(taken)} of 3 documents"
    assert found.notes == ((left_out,) if len(taken) < 3 else ())
    check_units(one, found)
    check_budget(lm.tokenizer, found)


def test_the_coarse_step_takes_the_document_that_passes_the_limit(lm):
    long = example(*("one two three four five " * 3 for _ in range(5)))
    size = len(long.documents[0].text)
    for coarse, taken in ((Coarse(1.0, 0), 1), (Coarse(1.0, size), 2), (Coarse(3.0, size), 3), (Coarse(0.0, 0), 1)):
        (found,) = compressor(lm, coarse=coarse).compress([long], Budget(tokens=size // 2))
        assert found.notes == (f"the coarse step left out {5 - taken} of 5 documents",), coarse
        assert len(found.units) <= taken


def test_what_is_protected_survives_in_documents_that_are_left_out(lm):
    texts = [f"Number {n} of a long list of many things, alike." for n in range(4)]
    found = compressor(lm, coarse=Coarse(0.0, 0), keep=("digits",))(QUESTION, texts, 20)
    assert found.status == "ok"
    assert sorted(word for unit in found.units for word in unit.text.split() if word.isdigit()) == list("0123")
    assert compressor(lm, keep=("digits",))(QUESTION, texts, 6).status == "too_small"


def test_without_a_budget_documents_are_put_in_order_whole(lm):
    found = compressor(lm).compress([example()])[0]
    (_, ranking, *_) = oracle(lm, example(), Budget(tokens=1), compressor(lm).statement, 0.3, None)
    assert [unit.text for unit in found.units] == [TEXTS[d] for d in ranking]
    assert (found.status, found.requested) == ("ok", None)
    assert compressor(lm, reorder="none").compress([example()])[0].text == "\n".join(TEXTS)


def test_results_depend_on_neither_batch_nor_order_nor_company(lm):
    many = [example(*TEXTS[n:], question=f"{QUESTION} {n}") for n in range(3)] + [example("", "b")]
    budget = Budget(fraction=0.4)
    together = compressor(lm, batch=4).compress(many, budget)
    alone = [compressor(lm).compress([one], budget)[0] for one in many]
    backwards = compressor(lm, batch=4).compress(many[::-1], budget)[::-1]
    for found in (alone, backwards):
        assert [one.units for one in found] == [one.units for one in together]
        assert [one.status for one in found] == [one.status for one in together]


def test_several_budgets_are_one_reading(lm, monkeypatch):
    calls = []
    for name in ("question_nlls", "token_contrasts"):
        real = getattr(longlingua, name)
        monkeypatch.setattr(longlingua, name, lambda *a, real=real, name=name: calls.append(name) or real(*a))
    budgets = (Budget(tokens=50), None, Budget(tokens=12), Budget(tokens=1000))
    prunes = compressor(lm, coarse=Coarse(1.0, 10), statement="")
    found = prunes.compress_budgets([example()], budgets)
    assert calls == ["question_nlls", "token_contrasts"]
    for budget, (one,) in zip(budgets, found, strict=True):
        (alone,) = prunes.compress([example()], budget)
        assert (one.units, one.status, one.notes) == (alone.units, alone.status, alone.notes)


def test_G02_G03_empty_and_tiny_inputs(lm):
    prunes = compressor(lm)
    for documents in ([], [""], [" "]):
        assert (prunes(QUESTION, documents, 0.5).status, prunes(QUESTION, documents).status) == ("empty", "empty")
    assert prunes(QUESTION, ["", "some text"], 5).text in ("some", "text")
    for word in ("hello", "?", "😀"):
        assert prunes(QUESTION, [word], 10).text == word
        assert compressor(lm, statement="")("", [word, "other words"], 8).status == "ok"
        assert prunes("", [word, "other words"], 8).status == "ok"
    assert prunes(QUESTION, ["a" * 80], 70).text == "a" * 70


def test_a_likelihood_that_is_no_number_fails_that_example_alone(lm, monkeypatch):
    real = contrast.question_nlls

    def broken(model, questions, texts, batch):
        found = real(model, questions, texts, batch)
        return np.where([text == TEXTS[1] for text in texts], np.nan, found)

    monkeypatch.setattr(longlingua, "question_nlls", broken)
    found = compressor(lm).compress([example(), example(TEXTS[0], TEXTS[2])], Budget(fraction=0.5))
    assert [one.status for one in found] == ["failed(non-finite likelihood)", "ok"]
    assert found[0].units == ()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_token_without_a_finite_likelihood_fails_its_example(lm, monkeypatch, wrong):
    def broken(*arguments):
        found = contrast.token_contrasts(*arguments)
        found[0][1][3] = wrong
        return found

    monkeypatch.setattr(longlingua, "token_contrasts", broken)
    (one, other) = compressor(lm, coarse=None).compress([example(), example()], Budget(fraction=0.5))
    assert (one.status, one.units) == ("failed(non-finite likelihood)", ())
    assert other.status == "ok"


def test_options_that_cannot_be_are_refused(lm):
    for options, message in (
        ({"reorder": "two_stage"}, "reorder is one of"),
        ({"dynamic_ratio": 1.5}, "dynamic_ratio is a difference of shares"),
        ({"aggregate": "first"}, "aggregate is one of"),
        ({"keep": ("numbers",)}, "keep names some of"),
    ):
        with pytest.raises(ValueError, match=message):
            LongLLMLingua(lm=lm, **options)
    with pytest.raises(ValueError, match="LongLLMLingua needs a causal language model"):
        LongLLMLingua(lm=SimpleNamespace(name="bert", config=None))
    with pytest.raises(ValueError, match="room for at least 2 tokens"):
        windows(10, 1)
    assert describe(LongLLMLingua(lm=lm))["coarse"] == {"factor": 1.0, "extra": 100}


def test_declared_sources(lm):
    found = compressor(lm, declare=True)(QUESTION, ["One is here. Two is there.", "Three."], 20)
    for unit in found.units:
        assert set(unit.sources) <= {"0.0", "0.1", "1.0"}
        assert unit.sources


@pytest.mark.shared
def test_real_rows_meet_their_budget(lm, shared):
    """The model is random, the tokenizer one of bytes: what is looked at is the budget."""
    rows = load_examples(shared / "data" / "hotpotqa_retrieved.jsonl", limit=4).examples
    cut = [Example(e.id, e.question, documents=tuple(Document(d.text[:60]) for d in e.documents)) for e in rows]
    for fraction in (0.5, 0.1):
        for one, found in zip(cut, compressor(lm, coarse=None).compress(cut, Budget(fraction=fraction)), strict=True):
            assert found.status == "ok"
            assert found.requested - 25 <= found.achieved <= found.requested
            check_units(one, found)
            check_budget(lm.tokenizer, found)
