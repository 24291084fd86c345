"""Labels of sub-words against transformers, in windows that drop nothing and give nothing twice."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragjax import hub
from ragjax.encode import NonFinite, token_probabilities
from ragjax.encode.labels import windows
from ragjax.testing import encoder_tokenizer, random_encoder_params, tiny_encoder, tiny_encoder_config, write_checkpoint
from tests.oracle import encoder_pair

FAMILIES = ("bert", "xlm-roberta", "deberta-v2")
TEXT = (
    "The cafe\u0301 in 中文 was seen, \U0001f469\u200d\U0001f467 and the cat is 12,5 ``ok``.\n\nIt is [SEP] or </s>. "
)


def their_probabilities(pair, ids):
    """Of one framed row."""
    with torch.no_grad():
        return torch.softmax(pair.theirs(torch.tensor([ids])).logits[0], -1).numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_equal_transformers(family):
    pair = encoder_pair(family, "token", num_layers=1)
    tokenizer = pair.ours.tokenizer
    texts = ["the cat was seen", "It is in the house, and of 12 to 9. " * 5, "x"]
    for text, found in zip(texts, token_probabilities(pair.ours, texts, batch=2), strict=True):
        ids = tokenizer(text)["input_ids"]
        assert found.probabilities.shape == (len(ids) - 2, 2)
        np.testing.assert_allclose(found.probabilities, their_probabilities(pair, ids)[1:-1], atol=1e-5)
        assert "".join(text[a:b] for a, b in dict.fromkeys(map(tuple, found.offsets))) == "".join(text.split())


@pytest.mark.parametrize("overlap", [0, 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_text_is_read_in_windows_of_whole_words(family, overlap):
    """Each window, in the tokenizer's own special tokens and run by transformers, gives the labels of its own."""
    pair = encoder_pair(family, "token", num_layers=1)
    model, tokenizer = pair.ours, pair.ours.tokenizer
    text = "the house was seen in it and to 12 of " * 9
    (found,) = token_probabilities(model, [text], max_length=40, overlap=overlap)
    encoded = tokenizer([text], add_special_tokens=False)
    ids, words = encoded["input_ids"][0], np.array(encoded.word_ids(0))
    assert len(found.probabilities) == len(ids) > 3 * 38
    pieces = windows(words, 38, overlap)
    first, last = tokenizer("")["input_ids"]
    for number, (start, stop, own) in enumerate(pieces):
        assert stop == len(ids) or words[stop] != words[stop - 1]
        assert stop - start <= 38
        theirs = their_probabilities(pair, [first, *ids[start:stop], last])[1:-1]
        until = pieces[number + 1][2] if stop < len(ids) else stop
        np.testing.assert_allclose(found.probabilities[own:until], theirs[own - start : until - start], atol=1e-5)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=40), st.integers(1, 20), st.data())
def test_windows_cover_each_sub_word_once(lengths, room, data):
    overlap = data.draw(st.integers(0, room - 1))
    words = np.repeat(np.arange(len(lengths)), lengths)
    found = windows(words, room, overlap)
    assert all(start <= own < stop <= start + room for start, stop, own in found)
    kept = [(own, found[n + 1][2] if n + 1 < len(found) else stop) for n, (_, stop, own) in enumerate(found)]
    assert [i for own, until in kept for i in range(own, until)] == list(range(len(words)))
    for _, stop, _ in found[:-1]:
        whole = words[stop] != words[stop - 1]
        assert whole or overlap or lengths[words[stop]] > room


def test_a_word_longer_than_a_window_is_cut_inside():
    assert windows(np.zeros(10, int), 4, 0) == [(0, 4, 0), (4, 8, 4), (8, 10, 8)]
    assert windows(np.array([0, 0, 1, 1, 1, 2]), 4, 0) == [(0, 2, 0), (2, 6, 2)]
    assert windows(np.array([], int), 4, 0) == []


def test_what_two_windows_read_goes_half_to_each():
    """Of an odd number, the larger half to the first."""
    assert windows(np.arange(10), 6, 2) == [(0, 6, 0), (4, 10, 5)]
    assert windows(np.arange(10), 6, 3) == [(0, 6, 0), (3, 9, 5), (6, 10, 8)]


@pytest.mark.parametrize("family", FAMILIES)
def test_B01_labels_do_not_depend_on_batch_order_or_company(family):
    model = tiny_encoder(family, "token", num_layers=1, max_positions=64)
    texts = [TEXT * 6, TEXT, "", "中" * 200, "x", " \n"]
    one = token_probabilities(model, texts, batch=4)
    two = token_probabilities(model, texts[::-1], batch=1)[::-1]
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine.offsets, other.offsets)
        np.testing.assert_allclose(mine.probabilities, other.probabilities, atol=1e-5)
        np.testing.assert_allclose(mine.probabilities.sum(1), 1, atol=1e-5)
    assert one[2].offsets.shape == (0, 2)
    assert one[2].probabilities.shape == (0, 2)
    assert token_probabilities(model, []) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_G05_the_name_of_a_folder_changes_nothing(family, tmp_path):
    cfg = tiny_encoder_config(family, "token", num_layers=1)
    params, found = random_encoder_params(cfg), []
    for name in ("m", "my-bert", "xlm-roberta-x"):
        folder = write_checkpoint(tmp_path / name, cfg, params, encoder_tokenizer(family))
        found.append(token_probabilities(hub.load(folder, dtype="float32"), [TEXT])[0])
    for other in found[1:]:
        np.testing.assert_array_equal(other.offsets, found[0].offsets)
        np.testing.assert_array_equal(other.probabilities, found[0].probabilities)


def test_settings_and_models_that_cannot_be_are_refused():
    model = tiny_encoder("bert", "token", num_layers=1)
    with pytest.raises(ValueError, match="overlap lies from 0 to below the 30 sub-words of a window, got 30"):
        token_probabilities(model, ["a"], max_length=32, overlap=30)
    with pytest.raises(ValueError, match="tiny-bert-0 has a sequence head"):
        token_probabilities(tiny_encoder("bert", "sequence"), ["a"])


def test_A18_an_id_outside_the_table_is_refused():
    with pytest.raises(ValueError, match=r"text 1: token id 1\d\d is outside"):
        token_probabilities(tiny_encoder("bert", "token", num_layers=1, vocab_size=40), ["a", "the"])


def test_B09_a_probability_that_is_no_number_is_an_error():
    model = tiny_encoder("bert", "token", num_layers=1)
    broken = model.params.replace(embedding=model.params.embedding.at[5].set(np.inf))
    text = model.tokenizer.convert_ids_to_tokens(5)
    with pytest.raises(NonFinite, match="text 1: the model's output is not finite"):
        token_probabilities(dataclasses.replace(model, params=broken), ["the", text])
