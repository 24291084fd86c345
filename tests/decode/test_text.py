"""Texts in, texts out: `generate` and `perplexity` against transformers, and what they refuse."""

import dataclasses
import math

import jax
import numpy as np
import pytest
import torch

from ragjax.decode.likelihood import summarize
from ragjax.decode.prompt import encode
from ragjax.decode.text import DecodeFailed, generate, perplexity
from ragjax.testing import END, byte_tokenizer, random_params
from tests.oracle import bigram_model, chain, log_softmax, pair

TEXTS = [
    "The quick brown fox jumps over the lazy dog and runs on.",
    "Zürich liegt am See; die Stadt hat rund 430000 Leute.",
    "What is the capital of France? It is Paris, I am sure.",
    "0123456789 0123456789 0123456789 0123456789 0123456789",
]
RUN = {"max_new": 12, "batch": 4}


@pytest.fixture(scope="module")
def both():
    return pair()


def their_tokens(both, text, **settings):
    ids = torch.tensor([encode(both.ours.tokenizer, text)])
    with torch.no_grad():
        found = both.theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=list(both.ours.stop_ids),
            pad_token_id=both.ours.tokenizer.pad_token_id,
            suppress_tokens=list(range(both.ours.vocab_width, both.ours.config.vocab_size)),
            **settings,
        )
    return [i for i in found[0, ids.shape[1] :].tolist() if i not in both.ours.stop_ids]


def test_greedy_tokens_equal_those_of_transformers(both):
    for text, found in zip(TEXTS, generate(both.ours, TEXTS, **RUN), strict=True):
        assert found.tokens.tolist() == their_tokens(both, text)
        assert found.prompt_tokens == len(text.encode()) + 1
        logits = both.logits([*encode(both.ours.tokenizer, text), *found.tokens])
        expected = log_softmax(logits)[found.prompt_tokens - 1 : -1]
        chosen = np.take_along_axis(expected, found.tokens[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(found.log_probs, chosen, atol=1e-4)


@pytest.mark.parametrize("penalty", [1.3, 3.0])
def test_repetition_penalty_equals_that_of_transformers(both, penalty):
    found = generate(both.ours, TEXTS, repetition_penalty=penalty, **RUN)
    expected = [their_tokens(both, text, repetition_penalty=penalty) for text in TEXTS]
    assert [f.tokens.tolist() for f in found] == expected
    assert expected != [their_tokens(both, text) for text in TEXTS]


def test_penalty_on_generated_ids_alone_never_repeats_when_it_is_strong(both):
    found = generate(both.ours, TEXTS, repetition_penalty=1e6, penalty_scope="generated", **RUN)
    assert all(len(set(f.tokens.tolist())) == 12 for f in found)
    assert any(set(f.tokens.tolist()) & set(encode(both.ours.tokenizer, t)) for f, t in zip(found, TEXTS, strict=True))


def test_shapes_of_the_answer_follow_those_of_the_question(both):
    lm = both.ours
    several = generate(lm, TEXTS, **RUN)
    (single, samples) = generate(lm, TEXTS[0], **RUN), generate(lm, TEXTS, candidates=2, temperature=1.0, **RUN)
    assert single.tokens.tolist() == several[0].tokens.tolist()
    assert [len(s) for s in samples] == [2] * 4
    assert generate(lm, [], **RUN) == []
    chat = [{"role": "user", "content": "Who painted the Mona Lisa, and when?"}]
    assert generate(lm, chat, **RUN).tokens.tolist() == generate(lm, [chat], **RUN)[0].tokens.tolist()
    with pytest.raises(ValueError, match="candidates counts samples"):
        generate(lm, TEXTS, candidates=0)


def test_B05_each_stop_id_stops():
    tokenizer = byte_tokenizer()
    eos, end = tokenizer.convert_tokens_to_ids(["<eos>", END])
    ids = {c: tokenizer.convert_tokens_to_ids(c) for c in "abcdwxyz"}
    successor = {ids["a"]: ids["b"], ids["b"]: eos, ids["w"]: ids["x"], ids["x"]: ids["y"], ids["y"]: end}
    lm = bigram_model(chain(successor))
    assert set(lm.stop_ids) == {eos, end}
    prompts = [f"{'-' * 50}{c}" for c in "awc"]
    found = generate(lm, [*prompts, prompts[0]], **RUN)
    assert [f.text for f in found[:2]] == ["b", "xy"]
    assert [f.finish_reason for f in found] == ["stop", "stop", "length", "stop"]
    # Without the second id the same row runs on, and the text still shows no special token.
    alone = generate(dataclasses.replace(lm, stop_ids=(eos, eos)), [*prompts, prompts[0]], **RUN)
    assert (alone[1].finish_reason, len(alone[1].tokens)) == ("length", 12)
    assert END not in alone[1].text


def test_B17_a_text_cut_in_a_character_says_length_and_ends_whole():
    tokenizer = byte_tokenizer()
    mountain = [*map(int, tokenizer("🏔", add_special_tokens=False)["input_ids"])]
    lm = bigram_model(chain(dict(zip(mountain, mountain[1:] + mountain[:1], strict=True))))
    prompts = ["-" * 50 + "🏔"] * 4
    found = generate(lm, prompts, max_new=12, batch=4)
    assert {f.text for f in found} == {"🏔" * 3}
    cut = generate(lm, prompts, max_new=10, batch=4)
    assert {(f.text, f.finish_reason, len(f.tokens)) for f in cut} == {("🏔🏔", "length", 10)}


def test_B09_strict_raises_where_the_default_reports(both):
    lm = both.ours
    poisoned = lm.params.embedding.at[lm.tokenizer.convert_tokens_to_ids("?")].set(np.nan)
    broken = dataclasses.replace(lm, params=lm.params.replace(embedding=poisoned))
    found = generate(broken, TEXTS, **RUN)
    reasons = [f.finish_reason.startswith("failed(non-finite") for f in found]
    assert reasons[2]
    assert all(f.text == "" for f, failed in zip(found, reasons, strict=True) if failed)
    assert not all(reasons)
    with pytest.raises(DecodeFailed, match="non-finite at step"):
        generate(broken, TEXTS, strict=True, **RUN)


@pytest.fixture(scope="module")
def small():
    """A table of 200 rows under a tokenizer of 261 ids."""
    lm = pair().ours
    cfg = dataclasses.replace(lm.config, vocab_size=200)
    return dataclasses.replace(lm, config=cfg, params=random_params(cfg), name="small")


@pytest.mark.parametrize("entry", [generate, perplexity])
def test_A18_ids_outside_the_table_are_refused(small, entry):
    with pytest.raises(ValueError, match="row 0: token id 256 is outside small's 200 embeddings"):
        entry(small, ["a", "b"])


def test_B14_long_prompts_are_refused_never_cut(both):
    short = dataclasses.replace(both.ours, config=dataclasses.replace(both.ours.config, max_positions=2048))
    with pytest.raises(ValueError, match="row 1: 2041 prompt tokens and 64 new ones exceed the 2048 positions"):
        generate(short, ["a", "b" * 2040], max_new=64)


def nll_of(both, text, given=""):
    """The NLL of each scored byte of `text`, by transformers."""
    ids = encode(both.ours.tokenizer, given + text)
    logs = log_softmax(both.logits(ids)[:-1])
    each = -np.take_along_axis(logs, np.array(ids[1:])[:, None], axis=1)[:, 0]
    return each[-len(text.encode()) :]


@pytest.mark.parametrize("given", ["", "It was said: "])
def test_D01_padding_is_never_scored(both, given):
    texts = ["abcde", "nine byte", "x" * 30 + "0" * 34]
    expected = [nll_of(both, text, given) for text in texts]
    for batch in (1, 4):
        found = perplexity(both.ours, texts, given=given, batch=batch)
        assert [f.count for f in found] == [5, 9, 64]
        np.testing.assert_allclose([f.nll for f in found], [e.sum() for e in expected], atol=1e-4)
    single = perplexity(both.ours, texts[0], given=given)
    assert single.perplexity == math.exp(single.nll / 5)


def test_D01_bucketed_further_the_sums_stay(both, monkeypatch):
    texts = ["abcde", "nine byte", "x" * 64]
    plain = perplexity(both.ours, texts)
    monkeypatch.setattr("ragjax.decode.buckets.SHORTEST", 128)
    wide = perplexity(both.ours, texts)
    assert [f.count for f in wide] == [f.count for f in plain]
    np.testing.assert_allclose([f.nll for f in wide], [f.nll for f in plain], atol=1e-4)


def test_D03_without_bos_the_first_token_is_not_scored(both):
    without = dataclasses.replace(both.ours, tokenizer=byte_tokenizer(bos=False))
    given, alone = perplexity(without, ["abc"], given="It: "), perplexity(without, ["abc"])
    assert [given[0].count, alone[0].count] == [3, 2]
    ids = encode(without.tokenizer, "abc")
    logs = log_softmax(both.logits(ids))
    assert alone[0].nll == pytest.approx(-logs[0, ids[1]] - logs[1, ids[2]], abs=1e-4)
    assert perplexity(both.ours, ["abc"])[0].count == 3
    assert perplexity(without, "A").reason == "no token with anything before it"


def test_D05_only_the_given_text_is_cut(both):
    short = dataclasses.replace(both.ours, config=dataclasses.replace(both.ours.config, max_positions=4))
    found, flagged = perplexity(short, ["de", "defg"], given="abc")
    assert (found.count, found.notes) == (2, ("2 tokens of the given text did not fit",))
    assert found.nll == pytest.approx(nll_of(both, "de", "c").sum(), abs=1e-4)
    assert (flagged.count, flagged.perplexity) == (0, None)
    assert flagged.reason == "longer than the model's 4 positions"


def test_D07_texts_with_nothing_to_score_have_no_perplexity(both):
    texts = ["a good text", "", " ", "\n", "A", "<eos>", "another one"]
    found = perplexity(both.ours, texts)
    assert [f.perplexity is None for f in found] == [False, True, True, True, False, False, False]
    assert [f.count for f in found] == [11, 0, 0, 0, 1, 5, 11]  # "<eos>" in a text is five letters
    best = min(range(7), key=lambda i: math.inf if found[i].perplexity is None else found[i].perplexity)
    assert texts[best].strip()
    summary = summarize(found)
    assert (summary.count, summary.skipped) == (4, 3)
    assert perplexity(both.ours, []) == []
    without = dataclasses.replace(both.ours, tokenizer=byte_tokenizer(bos=False))
    assert [f.reason for f in perplexity(without, ["", "A"])] == ["empty text", "no token with anything before it"]


def test_D10_id_zero_is_scored_like_any_other(both):
    """The same model under a vocabulary with ids 0 and 7 swapped gives the same numbers."""
    lm, swap = both.ours, np.arange(272)
    swap[[0, 7]] = 7, 0
    params = lm.params.replace(embedding=lm.params.embedding[swap], head=lm.params.head[swap])
    zero = lm.tokenizer.decode([0])
    text = f"{zero}x{zero}y{zero}"
    renamed = dataclasses.replace(lm, params=params, tokenizer=SwappedIds(lm.tokenizer, swap))
    one, two = perplexity(lm, text), perplexity(renamed, text)
    assert encode(lm.tokenizer, text).count(0) == 3
    assert encode(renamed.tokenizer, text).count(0) == 0
    assert (one.count, two.count) == (5, 5)
    assert one.nll == pytest.approx(two.nll, abs=1e-5)


class SwappedIds:
    """A tokenizer that gives some ids each other's strings."""

    def __init__(self, tokenizer, swap):
        self._tokenizer, self._swap = tokenizer, swap

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __call__(self, *args, **settings):
        found = dict(self._tokenizer(*args, **settings))
        ids = found["input_ids"]
        nested = ids and isinstance(ids[0], list)
        return found | {"input_ids": [self._swap[row].tolist() for row in ids] if nested else self._swap[ids].tolist()}


def test_D11_bits_per_byte_stand_beside_the_perplexity(both):
    found = perplexity(both.ours, "Zürich 🏔")
    assert found.bytes == len("Zürich 🏔".encode()) == found.count
    assert found.bits_per_byte == pytest.approx(math.log2(found.perplexity))


def test_B13_padded_rows_take_no_mass_from_a_text():
    flat = np.zeros((272, 272), np.float32)
    flat[:, 265] = 30.0
    found = perplexity(bigram_model(flat), "abcdef")
    assert found.perplexity == pytest.approx(261, rel=1e-5)


def test_given_texts_must_be_as_many_as_texts(both):
    with pytest.raises(ValueError, match="2 texts need as many given texts, got 1"):
        perplexity(both.ours, ["a", "b"], given=["x"])


def test_nothing_in_a_usual_decode_is_nan(both):
    with jax.debug_nans(True):
        debugged = generate(both.ours, TEXTS, **RUN)
    assert [f.tokens.tolist() for f in debugged] == [f.tokens.tolist() for f in generate(both.ours, TEXTS, **RUN)]
