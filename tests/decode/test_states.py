"""Hidden states of texts read alone: transformers' own, whatever the padding, the batch and the order."""

import dataclasses

import jax
import numpy as np
import pytest

from ragjax.decode import states
from ragjax.decode.states import Pooled, pool, pooled_states, token_states
from ragjax.runtime import PROGRAMS
from ragjax.testing import byte_tokenizer, tiny_model
from tests.oracle import pair

TEXTS = [
    "The Orrin rises near Gannet Top, and meets the sea.",
    "Salt.",
    "",
    "Its keeper wrote down every ship: name, hour and wind.",
    " \n",
    "é🏔 <eos> is no end",
]
FULL = [0, 1, 3, 5]
FIELDS = [field.name for field in dataclasses.fields(Pooled)]


def their_states(both, text, layer=-2, bos=False):
    """transformers' states [T, D] of one text, unpadded."""
    import torch

    ids = [both.ours.tokenizer.bos_token_id] * bos
    ids += both.ours.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    with torch.no_grad():
        found = both.theirs.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return found[layer][0].double().numpy()


def pooled_by_numpy(rows):
    return {
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "last": rows[-1],
        "token_l2": np.linalg.norm(rows, axis=1).mean(),
        "token_l1": np.abs(rows).sum(axis=1).max(),
    }


def check(both, layer, first_token):
    found = pooled_states(both.ours, TEXTS, layer=layer, first_token=first_token, batch=4)
    for row, text in enumerate(TEXTS):
        mine = {name: getattr(found, name)[row] for name in FIELDS}
        if row not in FULL:
            assert all(np.isnan(value).all() for value in mine.values())
            continue
        theirs = their_states(both, text, layer, bos=first_token == "bos")
        theirs = theirs if first_token == "keep" else theirs[1:]
        for name, expected in pooled_by_numpy(theirs).items():
            np.testing.assert_allclose(mine[name], expected, atol=1e-4, rtol=1e-5, err_msg=f"{name} of row {row}")


FAMILIES = {"llama": (-2, 0, -1), "gemma3_text": (-2, 0, -1), "qwen2": (-2,), "mixtral": (1,), "mistral": (-2,)}


@pytest.mark.parametrize(("family", "layer"), [(family, layer) for family in FAMILIES for layer in FAMILIES[family]])
def test_states_are_those_of_transformers(family, layer):
    """Texts of up to 55 tokens, the windows being 8 long."""
    check(pair(family=family), layer, "keep")


@pytest.mark.parametrize("first_token", ["drop", "bos"])
def test_the_first_token_is_left_out_or_replaced(first_token):
    for family in ("llama", "gemma3_text"):
        check(pair(family=family), -2, first_token)


def test_positive_and_negative_layers_are_one_count():
    lm = pair().ours
    for positive, negative in ((2, -2), (3, -1), (0, -4)):
        found = [pooled_states(lm, TEXTS[:2], layer=layer, batch=4).max for layer in (positive, negative)]
        np.testing.assert_array_equal(*found)
    for layer in (-5, 4):
        with pytest.raises(ValueError, match="a model of 3 blocks has the layers -4 to 3"):
            pooled_states(lm, TEXTS, layer=layer)


def test_neither_batch_nor_order_nor_company_matters():
    lm = pair().ours
    together = pooled_states(lm, TEXTS, batch=4)
    alone = [pooled_states(lm, [text], batch=1) for text in TEXTS]
    backwards = pooled_states(lm, TEXTS[::-1], batch=4)
    for name in FIELDS:
        whole = getattr(together, name)
        np.testing.assert_allclose(whole, np.concatenate([getattr(a, name) for a in alone]), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(whole, getattr(backwards, name)[::-1], rtol=1e-5, atol=1e-5)


def test_one_program_serves_a_bucket():
    lm = pair().ours
    pooled_states(lm, TEXTS, batch=4)
    before = PROGRAMS.copy()
    for first_token in states.FIRST_TOKEN:
        pooled_states(lm, ["x" * n for n in (50, 52, 54, 62)], first_token=first_token, batch=4)
    assert before == PROGRAMS


def test_texts_without_a_token_are_not_run():
    lm = tiny_model(seed=5, num_layers=1)
    before = PROGRAMS.copy()
    found = pooled_states(lm, ["", "  ", "\n"])
    assert before == PROGRAMS
    assert found.max.shape == (3, 48)
    assert np.isnan(found.max).all()
    assert pooled_states(lm, []).token_l2.shape == (0,)
    assert token_states(lm, ["", ""]).shape == token_states(lm, []).shape == (0, 48)


def test_a_text_of_one_token_has_no_other():
    lm = pair().ours
    found = pooled_states(lm, ["a", "b" * 60, "c" * 60], first_token="drop", batch=4)
    assert np.isnan(found.mean[0]).all()
    assert np.isfinite(found.mean[1:]).all()
    assert np.isfinite(pooled_states(lm, ["a", "b" * 60, "c" * 60], first_token="bos", batch=4).max).all()


def test_padding_can_never_win():
    """Whatever stands in masked places, pooled rows are those of the tokens alone; without a token they are NaN."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((3, 9, 5)).astype(np.float32) - 4
    for filler in (np.inf, np.nan, 1e30, -np.inf):
        hidden, mask = np.full((4, 16, 5), filler, np.float32), np.zeros((4, 16), bool)
        for row, length in enumerate((9, 4, 1)):
            hidden[row, -length:], mask[row, -length:] = rows[row, :length], True
        mask[1, -1] = False  # a token in the midst of a row may be left out as well
        found = jax.jit(pool)(hidden, mask)
        for row, kept in enumerate((rows[0], rows[1, :3], rows[2, :1])):
            for name, expected in pooled_by_numpy(kept).items():
                np.testing.assert_allclose(getattr(found, name)[row], expected, rtol=1e-5, atol=1e-6)
        assert all(np.isnan(getattr(found, name)[3]).all() for name in FIELDS)


def test_states_of_half_precision_are_pooled_in_float32():
    hidden = np.random.default_rng(1).standard_normal((1, 300, 4)).astype(np.float32)
    found = pool(jax.numpy.asarray(hidden, jax.numpy.bfloat16), np.ones((1, 300), bool))
    rounded = np.asarray(jax.numpy.asarray(hidden, jax.numpy.bfloat16), np.float64)[0]
    assert {getattr(found, name).dtype for name in FIELDS} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found.mean[0], rounded.mean(axis=0), rtol=1e-5, atol=1e-7)


def test_long_batches_are_read_in_parts(monkeypatch):
    lm = tiny_model(seed=6, num_layers=1)
    texts = ["a" * 30, "b" * 20, "c" * 10, "d"]
    monkeypatch.setattr(states, "PREFILL_TOKENS", 64)
    parts, pairs = (pooled_states(lm, texts, layer=-1, batch=batch) for batch in (4, 2))
    for name in FIELDS:
        np.testing.assert_allclose(getattr(parts, name), getattr(pairs, name), rtol=1e-5, atol=1e-5)


def test_the_states_of_all_tokens():
    both = pair()
    found = token_states(both.ours, TEXTS, batch=4)
    expected = np.concatenate([their_states(both, TEXTS[row]) for row in FULL])
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)


def test_what_cannot_be_read_is_refused():
    lm = pair().ours
    short = dataclasses.replace(lm, config=dataclasses.replace(lm.config, max_positions=8))
    with pytest.raises(ValueError, match="row 1: 9 prompt tokens and 0 new ones exceed the 8 positions of tiny-0"):
        pooled_states(short, ["abc", "abcdefghi"])
    with pytest.raises(ValueError, match="row 0: 9 prompt tokens"):
        pooled_states(short, ["abcdefgh"], first_token="bos")
    without = dataclasses.replace(lm, tokenizer=byte_tokenizer(bos=False))
    with pytest.raises(ValueError, match="tiny-0 has no BOS token"):
        pooled_states(without, ["abc"], first_token="bos")
    with pytest.raises(ValueError, match="first_token is one of"):
        pooled_states(lm, ["abc"], first_token="skip")
    with pytest.raises(ValueError, match="a batch has at least 1 row"):
        pooled_states(lm, ["abc"], batch=0)
    small = dataclasses.replace(lm, config=dataclasses.replace(lm.config, vocab_size=100), name="small")
    with pytest.raises(ValueError, match="row 0: token id 127 is outside small's 100 embeddings"):
        pooled_states(small, ["é"])
