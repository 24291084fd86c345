"""LongPPL against its definition, token by token, over plain forward passes."""

import numpy as np
import pytest

from ragjax.decode.ensemble import VocabularyMismatch
from ragjax.decode.longppl import long_perplexity
from ragjax.decode.prompt import encode_after
from ragjax.testing import byte_tokenizer, tiny_model
from tests.oracle import log_softmax, our_logits

GIVEN = "Zug lies by a lake; "
TEXTS = ["the lake of Zug.", "ore", ""]
WINDOW, STRIDE = 6, 4


@pytest.fixture(scope="module")
def lm():
    return tiny_model()


def expected(lm, given, text, gain, floor):
    """Key tokens' mean NLL by the definition: each window is a run of its own."""
    prompt = encode_after(lm.tokenizer, given, text, 10_000)
    ids, (begin, end) = list(prompt.ids), prompt.spans["text"]

    def nll(context, token):
        return -log_softmax(our_logits(lm, [context], 64)[0][-1])[token]

    full = {t: nll(ids[:t], ids[t]) for t in range(max(begin, 1), end)}
    near = dict(full)
    for start in range(max(begin, WINDOW + 1), end, STRIDE):
        for t in range(start, min(start + STRIDE, end)):
            near[t] = nll(ids[start - WINDOW : t], ids[t])
    key = [t for t in full if near[t] - full[t] > gain and -full[t] > floor]
    return [full[t] for t in key]


@pytest.mark.parametrize(("gain", "floor"), [(0.1, -20.0), (0.5, -6.0)])
def test_key_tokens_are_those_that_the_long_context_explains(lm, gain, floor):
    settings = {"window": WINDOW, "stride": STRIDE, "gain": gain, "floor": floor, "batch": 4}
    found = long_perplexity(lm, TEXTS, [GIVEN] * 3, **settings)
    for score, text in zip(found[:2], TEXTS, strict=False):
        key = expected(lm, GIVEN, text, gain, floor)
        assert score.count == len(key)
        if key:
            assert score.perplexity == pytest.approx(np.exp(np.mean(key)), rel=1e-4)
    assert any(score.count for score in found)
    assert found[2].perplexity is None
    assert found[2].reason == "empty text"


def test_the_published_windows_leave_a_short_text_without_a_key_token(lm):
    (found,) = long_perplexity(lm, TEXTS[:1], [GIVEN], window=4096, stride=1024, gain=0.1, floor=-20.0, batch=4)
    assert (found.count, found.perplexity, found.reason) == (0, None, "no key token")


def test_bad_windows_and_another_vocabulary_are_refused(lm):
    with pytest.raises(ValueError, match="at least 1"):
        long_perplexity(lm, TEXTS, [GIVEN] * 3, window=0)
    import dataclasses

    other = dataclasses.replace(lm, tokenizer=byte_tokenizer(bos=False), name="other")
    with pytest.raises(VocabularyMismatch):
        long_perplexity(lm, TEXTS, [GIVEN] * 3, evaluator=other)
