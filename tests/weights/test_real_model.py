"""The converted SmolLM2-135M-Instruct against what its publishers say of it."""

import json

import pytest

from ragjax import hub
from ragjax.models.architectures import parse_config


@pytest.fixture(scope="module")
def lm(smollm2):
    return hub.load(smollm2)


@pytest.mark.shared
def test_its_file_says_what_the_published_config_says(lm, shared):
    published = shared / "models" / "configs" / "HuggingFaceTB__SmolLM2-135M-Instruct.json"
    assert lm.config == parse_config(json.loads(published.read_text()))


def test_its_tokenizer_keeps_specials_digits_and_white_space(lm):
    tokenizer = lm.tokenizer
    assert lm.stop_ids == (2,)
    assert lm.vocab_width == lm.config.vocab_size == 49152
    assert tokenizer.encode("<|im_start|>user<|im_end|>")[::2] == [1, 2]
    assert tokenizer.tokenize("\n\n12  3") == ["\u010a\u010a", "1", "2", "\u0120\u0120", "3"]
    text = "In 1969, caf\u00e9s opened.\n\n1. \u4e2d\u6587 \U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert rendered.startswith("<|im_start|>system\n")
    assert rendered.endswith("<|im_start|>user\nHi<|im_end|>\n")
