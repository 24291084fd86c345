"""Rows: special tokens are the tokenizer's own and never a text's, and each sub-word has its place in the text."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragjax.encode.tokens import frame_of, room_of, tokenize, tokenize_with_places, trim
from ragjax.testing import byte_tokenizer, encoder_tokenizer, tiny_encoder

FAMILIES = ("bert", "xlm-roberta", "deberta-v2")
MODELS = {family: tiny_encoder(family, num_layers=1) for family in FAMILIES}
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
ODD = f"The cafe\u0301, cafés: ﬁne 中文 {FAMILY} \u0643\u064e\u062a\u064e\u0628 12,5\t``\n\nx"


def solid(text):
    """Where a text has something else than white space."""
    return {i for i, c in enumerate(text) if not c.isspace()}


def covered_by(places):
    """Where some sub-word lies."""
    return {i for start, end in places for i in range(start, end)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frame_gives_the_ids_that_the_tokenizer_gives(family):
    model = MODELS[family]
    for texts in (("the cat",), ("the cat", "is in")):
        frame = frame_of(model, len(texts))
        row = frame.row(5, *tokenize(model, texts))
        expected = model.tokenizer(*texts, return_token_type_ids=True)
        assert row.text == 5
        assert list(row.ids) == expected["input_ids"]
        assert list(row.types) == expected["token_type_ids"]
        assert frame.size == len(row.ids) - sum(map(len, tokenize(model, texts)))
        assert max(row.types) == (1 if family != "xlm-roberta" and len(texts) == 2 else 0)


def test_types_follow_what_the_tokenizer_feeds_to_its_model():
    model = MODELS["bert"]
    tokenizer = encoder_tokenizer("bert")
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    assert set(frame_of(dataclasses.replace(model, tokenizer=tokenizer), 2).text_types) == {0}


def test_types_that_the_model_lacks_are_refused():
    model = tiny_encoder("bert", num_layers=1, type_vocab_size=1)
    with pytest.raises(ValueError, match="tiny-bert-0 has a type 1 of tokens, the model knows 1"):
        frame_of(model, 2)
    assert frame_of(model, 1).size == 2


def test_a_tokenizer_without_special_tokens_frames_single_texts_alone():
    model = dataclasses.replace(MODELS["bert"], tokenizer=byte_tokenizer(bos=False))
    assert frame_of(model, 1).size == 0
    with pytest.raises(ValueError, match="does not tell the texts of a pair apart"):
        frame_of(model, 2)


@pytest.mark.parametrize("length", [2, 1, 0, -1, 513])
def test_a_length_without_room_is_refused(length):
    with pytest.raises(ValueError, match="max_length lies over the 2 special tokens and up to the 512 positions"):
        room_of(MODELS["bert"], frame_of(MODELS["bert"], 1), length)


@pytest.mark.parametrize("family", FAMILIES)
def test_B04_text_that_spells_a_special_token_stays_text(family):
    model = MODELS[family]
    tokenizer = model.tokenizer
    names = tokenizer.all_special_tokens
    specials = {tokenizer.convert_tokens_to_ids(name) for name in names} - {tokenizer.unk_token_id}
    text = "a " + " b ".join(names) + " c"
    (ids,) = tokenize(model, [text])
    assert not specials & set(ids)
    (found,) = tokenize_with_places(model, [text])
    assert found.ids == ids
    assert covered_by(found.places) == solid(text)


def test_B04_a_spelling_is_read_letter_by_letter_where_the_vocabulary_can():
    (ids,) = tokenize(MODELS["bert"], ["a [SEP]"])
    assert MODELS["bert"].tokenizer.convert_ids_to_tokens(list(ids)) == ["a", "[", "s", "##e", "##p", "]"]


def test_a_spelling_without_an_unknown_token_is_refused():
    tokenizer = encoder_tokenizer("xlm-roberta")
    tokenizer.unk_token = None
    model = dataclasses.replace(MODELS["xlm-roberta"], tokenizer=tokenizer)
    with pytest.raises(ValueError, match="text 1 spells a special token"):
        tokenize(model, ["fine", "a </s> b"])


@pytest.mark.parametrize("text", [None, b"a", 3, "\ud800"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ValueError, match="text 1 is"):
        tokenize(MODELS["bert"], ["fine", text])


def test_one_text_in_the_place_of_several_is_refused():
    """Its characters are no texts."""
    for read in (tokenize, tokenize_with_places):
        with pytest.raises(ValueError, match="texts are a list of strings, got the one string 'the cat'"):
            read(MODELS["bert"], "the cat")
        assert len(read(MODELS["bert"], np.array(["the", "cat"]))) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_A16_places_of_marks_joiners_and_scripts_are_exact(family):
    (found,) = tokenize_with_places(MODELS[family], [ODD])
    pieces = [ODD[a:b] for a, b in found.places]
    assert all(piece == piece.strip() for piece in pieces)
    assert covered_by(found.places) == solid(ODD)
    assert "e\u0301" in pieces
    assert any("\U0001f469\u200d" in piece for piece in pieces)
    assert (np.diff(found.places[:, 0]) >= 0).all()
    composed, decomposed = tokenize(MODELS[family], ["caf\u00e9", "cafe\u0301"])
    assert composed == decomposed


@pytest.mark.shared
def test_A16_places_of_a_published_sentencepiece_vocabulary(shared):
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(shared / "models" / "t5-small-tokenizer.json"), eos_token="</s>", unk_token="<unk>"
    )
    model = dataclasses.replace(MODELS["deberta-v2"], tokenizer=tokenizer)
    text = ODD + " </s> <pad> end"
    (found,) = tokenize_with_places(model, [text])
    assert covered_by(found.places) == solid(text)
    assert not {0, 1} & set(found.ids)
    assert frame_of(model, 1).row(0, found.ids).ids == (*found.ids, 1)


CHARACTERS = "ab .,\n\t12中e\u0301\u200d\U0001f600\u0643é"


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FAMILIES), st.text(st.sampled_from(CHARACTERS), max_size=30))
def test_places_lie_in_order_inside_the_text(family, text):
    (found,) = tokenize_with_places(MODELS[family], [text])
    assert len(found.ids) == len(found.places) == len(found.words)
    for start, end in found.places:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
    assert (np.diff(found.places[:, 0]) >= 0).all()


def test_trim_leaves_white_space_and_takes_dropped_marks():
    text = " a\u0301 b"
    places = np.array([[0, 2], [3, 4], [3, 5]])
    assert trim(text, places).tolist() == [[1, 3], [4, 4], [4, 5]]
    assert trim("", np.zeros((0, 2), int)).shape == (0, 2)
