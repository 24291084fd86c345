"""Texts after a shared long one: the same numbers as reading each prompt whole, with the long one read once."""

import numpy as np
import pytest

from ragjax.decode import tails
from ragjax.decode.engine import Execution, token_nlls
from ragjax.decode.prompt import encode_after
from ragjax.decode.tails import tail_nlls
from ragjax.testing import tiny_model

GIVEN = ["The lighthouse of Tamsay was lit in 1868. ", "A ferry sails. ", ""]
TEXTS = ["It was lit.", "In 1868, they say, by a keeper.", "No.", "The ferry sails to Tamsay from Skerrow."]


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def lm(request):
    return tiny_model(family=request.param, num_layers=3)


def test_tails_equal_whole_prompts_and_prefixes_are_read_once(lm, monkeypatch):
    pairs = [(0, 0), (0, 1), (1, 2), (0, 2), (1, 3), (2, 0), (2, 1), (1, 0)]
    prompts = [encode_after(lm.tokenizer, GIVEN[g], TEXTS[t], 200) for g, t in pairs]
    read = []
    real = tails.prefill

    def counted(params, cfg, tokens, valid, **settings):
        read.append(valid.sum())
        return real(params, cfg, tokens, valid, **settings)

    monkeypatch.setattr(tails, "prefill", counted)
    found = tail_nlls(lm, prompts, "text", execution=Execution(batch=4))
    expected = token_nlls(lm, prompts, "text", execution=Execution(batch=4))
    for prompt, mine, theirs in zip(prompts, found, expected, strict=True):
        start, stop = prompt.spans["text"]
        assert len(mine) == len(prompt.ids) == stop
        assert not mine[:start].any()
        np.testing.assert_allclose(mine[max(start, 1) :], theirs[max(start, 1) :], atol=1e-4)
    prefixes = {prompt.ids[: prompt.spans["text"][0]] for prompt in prompts}
    assert sum(read) == sum(map(len, prefixes))


def test_a_token_outside_the_vocabulary_is_refused(lm):
    prompt = encode_after(lm.tokenizer, GIVEN[0], TEXTS[0], 200)
    bad = type(prompt)((*prompt.ids[:-1], 10_000), prompt.text, prompt.pieces, prompt.spans)
    with pytest.raises(ValueError, match="row 1: token id 10000"):
        tail_nlls(lm, [prompt, bad], "text")
