"""Vectors and classes against transformers and against themselves: order, company, truncation, failures."""

import dataclasses

import numpy as np
import pytest
import torch

from ragjax.encode import NonFinite, classify, embed
from ragjax.runtime import PROGRAMS
from ragjax.testing import tiny_encoder
from tests.oracle import encoder_pair

WORDS = ["the", "cat", "was", "in", "the", "house", "and", "is", "seen", "of", "to"]
GENERATOR = np.random.default_rng(0)
TEXTS = [" ".join(GENERATOR.choice(WORDS, n)) for n in (3, 60, 1, 9, 25, 40, 2, 100, 12)]
PAIRS = TEXTS, TEXTS[::-1]
HUNDRED = GENERATOR.choice(["the", "of", "and", "in", "is", "was", "to"], 100)


def words(count):
    """The first of a hundred words that are a sub-word each, in no order that comes again."""
    return " ".join(HUNDRED[:count])


def their_inputs(pair, *texts):
    """The tensors of texts, or of pairs, padded by transformers, with types where the model has any."""
    found = pair.ours.tokenizer(*texts, padding=True, return_tensors="pt", return_token_type_ids=True)
    if not getattr(pair.ours.config, "type_vocab_size", 0):
        found.pop("token_type_ids")
    return found


def their_states(pair, texts):
    inputs = their_inputs(pair, texts)
    with torch.no_grad():
        states = pair.theirs(**inputs).last_hidden_state
    return states.numpy(), inputs["attention_mask"].numpy().astype(bool)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "deberta-v2"])
def test_vectors_equal_transformers(family, pooling):
    pair = encoder_pair(family, num_layers=1)
    states, valid = their_states(pair, TEXTS)
    expected = {
        "mean": (states * valid[..., None]).sum(1) / valid.sum(1)[:, None],
        "cls": states[:, 0],
        "max": np.where(valid[..., None], states, -np.inf).max(1),
    }[pooling]
    found = embed(pair.ours, TEXTS, pooling=pooling, normalize=False, batch=4)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-4)
    unit = embed(pair.ours, TEXTS, pooling=pooling, batch=4).vectors
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    assert found.vectors.dtype == np.float32
    assert not found.truncated.any()


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "deberta-v2"])
def test_logits_of_pairs_equal_transformers(family):
    pair = encoder_pair(family, "sequence", num_layers=1)
    with torch.no_grad():
        expected = pair.theirs(**their_inputs(pair, *PAIRS)).logits.numpy()
    found = classify(pair.ours, *PAIRS, batch=4)
    np.testing.assert_allclose(found.logits, expected, atol=1e-4)
    with torch.no_grad():
        expected = pair.theirs(**their_inputs(pair, TEXTS)).logits.numpy()
    np.testing.assert_allclose(classify(pair.ours, TEXTS, batch=4).logits, expected, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_B01_a_text_does_not_depend_on_batch_order_or_company(family):
    model = tiny_encoder(family, "sequence", num_layers=1)
    vectors, logits = embed(model, TEXTS, batch=4).vectors, classify(model, *PAIRS, batch=4).logits
    order = [4, 0, 8, 2, 6, 1, 3, 5, 7]
    np.testing.assert_allclose(embed(model, [TEXTS[i] for i in order], batch=16).vectors, vectors[order], atol=1e-5)
    np.testing.assert_allclose(embed(model, TEXTS[1:2]).vectors[0], vectors[1], atol=1e-5)
    shuffled = classify(model, *([texts[i] for i in order] for texts in PAIRS), batch=4)
    np.testing.assert_allclose(shuffled.logits, logits[order], atol=1e-5)


def test_few_programs_compile_and_none_twice():
    model = tiny_encoder("bert", num_layers=1, hidden_size=24, num_heads=2)
    before = PROGRAMS.copy()
    embed(model, TEXTS, batch=4)
    made = PROGRAMS - before
    assert {(key[0], key[2]) for key in made} == {("encode", 4)}
    assert len(made) <= len({32, 48, 64, 96, 128})
    embed(model, TEXTS[::-1], batch=4)
    assert PROGRAMS - before == made


def test_what_does_not_fit_is_cut_and_counted():
    model = tiny_encoder("bert", num_layers=1, max_positions=64)
    found = embed(model, ["the", words(62), words(100)])
    assert found.truncated.tolist() == [0, 0, 38]
    np.testing.assert_allclose(found.vectors[2], found.vectors[1], atol=1e-6)
    assert embed(model, [words(100)], max_length=12).truncated.tolist() == [90]


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_of_a_pair_only_the_text_that_is_named_is_cut(family):
    model = tiny_encoder(family, "sequence", num_layers=1, max_positions=64)
    room = 61 if family == "bert" else 60
    short, long = "the cat", words(100)
    whole = len(model.tokenizer(short, add_special_tokens=False)["input_ids"])
    fits = words(room - whole)
    second = classify(model, [short] * 2, [fits, long])
    assert second.truncated.tolist() == [0, 100 + whole - room]
    np.testing.assert_allclose(second.logits[1], second.logits[0], atol=1e-5)
    first = classify(model, [fits, long], [short] * 2, truncate="first")
    assert first.truncated.tolist() == [0, 100 + whole - room]
    np.testing.assert_allclose(first.logits[1], first.logits[0], atol=1e-5)
    with pytest.raises(ValueError, match=f"text 1: 100 sub-words of the text that is never cut do not fit {room}"):
        classify(model, [short, long], ["a", "b"])


def test_B11_no_texts_and_empty_texts_are_results():
    model = tiny_encoder("bert", "sequence", num_layers=1)
    assert embed(model, []).vectors.shape == (0, 48)
    assert classify(model, []).logits.shape == classify(model, [], []).logits.shape == (0, 3)
    assert np.isfinite(embed(model, ["", " "]).vectors).all()
    np.testing.assert_array_equal(*embed(model, ["", " \n"]).vectors)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: embed(m, ["a"], pooling="sum"), "pooling is one of mean, cls, max, got 'sum'"),
        (lambda m: embed(m, ["a"], batch=0), "a batch has at least 1 row"),
        (lambda m: classify(m, ["a"], truncate="both"), 'truncate is "first" or "second"'),
        (lambda m: classify(m, ["a"], ["b", "c"]), "there are 1 first texts and 2 second ones"),
        (lambda m: classify(tiny_encoder("bert"), ["a"]), "tiny-bert-0 has no head; this asks for a sequence"),
        (lambda m: classify(tiny_encoder("bert", "token"), ["a"]), "tiny-bert-0 has a token head"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(tiny_encoder("bert", "sequence", num_layers=1))


def test_A18_an_id_outside_the_table_is_refused_before_the_model_runs(monkeypatch):
    model = tiny_encoder("bert", "sequence", num_layers=1, vocab_size=40)
    monkeypatch.setattr("ragjax.encode.batches._read", None)
    for call in (embed, classify):
        with pytest.raises(ValueError, match=r"text 1: token id 1\d\d is outside tiny-bert-0's 40 embeddings"):
            call(model, ["a", "the"])


@pytest.mark.parametrize("call", [embed, classify])
def test_B09_a_result_that_is_no_number_is_an_error_that_names_the_text(call):
    model = tiny_encoder("bert", "sequence", num_layers=1)
    word = model.tokenizer("the", add_special_tokens=False)["input_ids"][0]
    broken = model.params.replace(embedding=model.params.embedding.at[word].set(np.nan))
    with pytest.raises(NonFinite, match="text 2: the model's output is not finite"):
        call(dataclasses.replace(model, params=broken), ["a", "b", "the", "c"])
