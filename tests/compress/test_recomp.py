"""RECOMP's abstractive compressor: windows that lose nothing, summaries that may be empty, budgets, several at once."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragjax.compress.base import Budget, describe
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.prompts import PromptSet
from ragjax.compress.recomp import RecompAbstractive
from ragjax.compress.writing import PromptTooLong
from ragjax.compress.xcompress import XCompress
from ragjax.compressors import RecompAbstractive as Public
from ragjax.data.records import Document, Example
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Voice
from ragjax.decode.prompt import count_tokens
from ragjax.decode.text import DecodeFailed, text_prompt
from ragjax.evals.reader import Reader
from ragjax.testing import byte_tokenizer, tiny_model, tiny_t5
from tests.oracle import PLAIN, SHORT, decode, tokens_of

WORDS = PromptSet(version="short", recomp_source="Q {question} D {documents} S")
QUESTIONS = ("Who wrote Emma?", "Where is Zug?", "How old is it?", "What is ore?", "Why?")


@pytest.fixture(scope="module")
def model():
    return tiny_t5(3, num_encoder_layers=2, num_layers=1)


@pytest.fixture(scope="module")
def recomp(model):
    return RecompAbstractive(model=model, max_new=12, batch=4, prompts=WORDS)


@pytest.fixture(scope="module")
def examples():
    texts = ("Jane Austen wrote it.", "ZUG", "30 years, or more; 40?", "Rock: iron & zinc", "- - - - - - -")
    return [
        Example(f"q{n}", q, documents=(Document(t),)) for n, (q, t) in enumerate(zip(QUESTIONS, texts, strict=True))
    ]


def made(*texts, question="Who?", titles=False):
    documents = (Document(text, f"T{n}" if titles else "") for n, text in enumerate(texts))
    return Example("x", question, documents=tuple(documents))


def long_text(size, seed=0):
    """Words of five lower-case letters, `size` bytes in all."""
    letters = np.random.default_rng(seed).integers(97, 123, size)
    letters[5:-1:6] = 32
    return bytes(letters.astype(np.uint8)).decode()


def read(windows):
    """What stands between question and cue in each window."""
    return [window.text.partition(" D ")[2].removesuffix(" S") for window in windows]


def test_one_flat_text_of_question_documents_and_cue(recomp, model):
    found = recomp.compress([made("First text.", "Second </s> <eos> text.", titles=True)])
    prompt = text_prompt(model, "Q Who? D T0\nFirst text.\nT1\nSecond </s> <eos> text. S")
    assert prompt.ids.count(257) == 1
    assert [found[0].trace.tokens.tolist()] == tokens_of(decode(model, [prompt]))[0]
    assert found[0].status in ("ok", "length")
    assert found[0].units[0].sources is None
    assert found[0].text == "".join(found[0].trace.pieces).strip()
    assert set(found[0].trace.winners) == {"compressor"}
    assert Public is RecompAbstractive


def test_the_words_are_those_of_the_released_models(model):
    prompt = RecompAbstractive(model=model)._source(made("A text.", titles=True)).windows[0]
    assert prompt.text == "Question: Who?\nDocument: T0\nA text.\nSummary:"


def test_G07_five_documents_of_400_tokens(recomp, model):
    texts = [long_text(400, seed) for seed in range(5)]
    wide = dataclasses.replace(recomp, max_source=900)
    source = wide._source(made(*texts))
    assert read(source.windows) == ["\n".join(texts[:2]), "\n".join(texts[2:4]), texts[4]]
    assert max(len(window.ids) for window in source.windows) <= 900
    assert (source.notes, source.dropped_documents) == (("read in 3 windows of up to 900 tokens",), 0)
    (found,) = wide.compress([made(*texts)])
    parts = [rows[0] for rows in tokens_of(decode(model, source.windows))]
    assert found.trace.tokens.tolist() == [token for part in parts for token in part]
    assert found.decoded_tokens == sum(map(len, parts))
    assert found.notes == source.notes


def test_G07_one_document_of_3000_tokens(recomp):
    text = long_text(3000)
    source = dataclasses.replace(recomp, max_source=512)._source(made(text))
    parts = read(source.windows)
    assert " ".join(parts) == text
    assert max(len(window.ids) for window in source.windows) <= 512
    assert len(parts) == 7
    (found,) = dataclasses.replace(recomp, max_source=512).compress([made(text)], Budget(tokens=5))
    assert found.achieved <= 5
    assert found.notes == ("read in 7 windows of up to 512 tokens",)


@settings(max_examples=40, deadline=None)
@example(["x" * 300, "🏔" * 60])
@given(st.lists(st.text("abé🏔漢ن .\n", max_size=90), min_size=1, max_size=4))
def test_windows_hold_every_word_once_and_in_order(texts):
    narrow = RecompAbstractive(model=MODEL, max_source=48, prompts=WORDS)
    source = narrow._source(made(*texts))
    assert max(len(window.ids) for window in source.windows) <= 48
    assert "".join("".join(read(source.windows)).split()) == "".join("".join(texts).split())


MODEL = tiny_t5(num_encoder_layers=1)


def test_G07_truncation_counts_what_it_loses(recomp):
    texts = [long_text(400, seed) for seed in range(5)]
    source = dataclasses.replace(recomp, max_source=900, on_overflow="truncate")._source(made(*texts))
    (window,) = source.windows
    (kept,) = read([window])
    assert "\n".join(texts).startswith(kept)
    assert len(kept) > 850
    lost = len("\n".join(texts)[len(kept) :].strip())
    assert (source.notes, source.dropped_documents) == ((f"{lost} tokens of the documents did not fit",), 2)


def test_sources_that_fit_no_window_are_refused_by_name(recomp):
    strict = dataclasses.replace(recomp, max_source=60, on_overflow="error")
    with pytest.raises(PromptTooLong, match="example 'x': its source has 69 tokens, more than 60"):
        strict.compress([made("t" * 60, question="W")])
    narrow = dataclasses.replace(recomp, max_source=20)
    with pytest.raises(PromptTooLong, match="example 'x': its question leaves no room for documents in 20 tokens"):
        narrow.compress([made("text", question="W" * 30)])


@pytest.mark.parametrize("tokens", [1, 4, 8])
def test_budgets_are_kept_in_the_generators_tokens(recomp, examples, tokens):
    other = byte_tokenizer()
    for found in dataclasses.replace(recomp, tokenizer=other).compress(examples, Budget(tokens=tokens)):
        assert found.requested == tokens
        assert found.achieved == count_tokens(other, found.text) <= tokens
        assert found.status in ("ok", "length", "too_small", "empty", "short_input")
        assert (found.status in ("too_small", "empty")) == (not found.units)
        assert (found.status == "short_input") == (found.trace is None) == (found.source_tokens <= tokens)


def test_nothing_is_decoded_where_nothing_has_to_be(recomp):
    none, blank, short = recomp.compress([made(), made(" ", "\n"), made("Short.")], Budget(tokens=9))
    assert (none.status, blank.status, short.status) == ("empty", "empty", "short_input")
    assert (none.trace, blank.trace, short.text) == (None, None, "Short.")
    assert recomp.compress([]) == []


def test_G08_an_empty_summary_is_an_answer(recomp, model, examples, tmp_path):
    """Two of five texts end with their first token: their rows stay, and their reader sees no context."""
    first = [one.trace.tokens[0] for one in recomp.compress(examples)]
    ending = tuple(int(token) for token in first[1:3])
    empty = [token in ending for token in first]
    assert sum(empty) == 2
    silent = dataclasses.replace(recomp, model=dataclasses.replace(model, stop_ids=ending))
    found = silent.compress(examples)
    assert [one.status == "empty" for one in found] == empty
    for one, nothing in zip(found, empty, strict=True):
        assert (one.achieved == 0) == (one.units == ()) == (one.text == "") == nothing
        assert one.trace.finish_reason in ("stop", "length")
    path = tmp_path / "summaries.jsonl"
    path.write_text("".join(json.dumps({"text": one.text}) + "\n" for one in found))
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert texts == [one.text for one in found]
    reader = Reader(lm=tiny_model(num_layers=1), max_new=2, batch=4, prompts=SHORT)
    readings = reader.read(list(QUESTIONS), texts)
    assert [reading.context_tokens == 0 and reading.score is None for reading in readings] == empty
    for question, text, nothing in zip(QUESTIONS, texts, empty, strict=True):
        shown = reader._prompt(question, text, "question_first").text
        assert (f"Q {question} A" in shown) == (" C " not in shown) == nothing


def test_candidates_are_drawn_about_one_source(recomp, examples):
    three = recomp.sample(examples, 3)
    two = recomp.sample(examples[::-1], 2)[::-1]
    for many, few in zip(three, two, strict=True):
        assert len({one.text for one in many}) == 3
        assert [one.trace.tokens.tolist() for one in many[:2]] == [one.trace.tokens.tolist() for one in few]


def test_beams_are_those_of_the_search(recomp, model, examples):
    best = decode_beams(
        [Voice(model, [recomp._source(e).windows[0] for e in examples])], beams=3, max_new=12, execution=PLAIN
    )
    expected = tokens_of(best)
    sampled = recomp.sample(examples, 3, beams=True)
    assert [[one.trace.tokens.tolist() for one in row] for row in sampled] == expected
    searched = dataclasses.replace(recomp, beams=3).compress(examples)
    assert [one.trace.tokens.tolist() for one in searched] == [rows[0] for rows in expected]


def test_candidates_of_several_windows_are_joined_by_number(recomp):
    narrow = dataclasses.replace(recomp, max_source=64)
    whole = made(long_text(90, 1))
    parts = read(narrow._source(whole).windows)
    assert len(parts) == 2
    (row,) = narrow.sample([whole], 2, beams=True)
    alone = narrow.sample([made(part) for part in parts], 2, beams=True)
    for number, one in enumerate(row):
        assert one.trace.tokens.tolist() == [t for texts in alone for t in texts[number].trace.tokens.tolist()]
        assert one.text == " ".join(texts[number].text for texts in alone if texts[number].text)


def test_xcompress_chooses_among_its_candidates(recomp, examples):
    chooser = XCompress(recomp, tiny_model(num_layers=2), candidates=3, selector="ppl", batch=4)
    for found in chooser.compress(examples):
        assert len(found.choice.candidates) == 3
        assert found.text == found.choice.candidates[found.choice.chosen].text


def test_A14_a_summary_that_is_no_number_is_a_failure(recomp, model, examples):
    params = model.params.replace(decoder_norm=model.params.decoder_norm.at[0].set(jnp.nan))
    broken = dataclasses.replace(recomp, model=dataclasses.replace(model, params=params))
    for found in broken.compress(examples):
        assert (found.status, found.units) == ("failed(non-finite at step 0)", ())
    with pytest.raises(DecodeFailed, match="row 0 failed"):
        dataclasses.replace(broken, strict=True).compress(examples)


def test_settings_that_cannot_be_are_refused(model):
    with pytest.raises(ValueError, match="RecompAbstractive needs an encoder-decoder, and tiny-llama-0 is of the kind"):
        RecompAbstractive(model=tiny_model())
    for wrong in ({"on_overflow": "drop_docs"}, {"max_new": 0}, {"beams": 0}, {"temperature": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if "beams" not in wrong else "candidates"):
            RecompAbstractive(model=model, **wrong)
    with pytest.raises(ValueError, match="FaviComp needs a causal language model"):
        FaviComp(compressor=model, alpha=0.0)


def test_its_settings_describe_it(recomp, model):
    found = describe(recomp)
    assert (found["family"], found["model"], found["max_source"]) == ("RecompAbstractive", model.fingerprint, 1024)
    json.dumps(found)
