"""Gemma 3 270M against transformers on the same dequantised weights: logits past the window, greedy tokens, FaviComp.

As for SmolLM2, the oracle reads the GGUF file by itself and we read the converted checkpoint.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DynamicCache

import ragjax
from experiments.models import GEMMA3
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.prompts import DEFAULT_PROMPTS, number_documents
from ragjax.data import load_examples
from ragjax.decode.buckets import left_pad
from ragjax.decode.prompt import build_prompt
from ragjax.decode.text import generate
from ragjax.models import decoder
from ragjax.models.published import published_config
from tests.oracle import converted_from
from tests.real_sps import check_sps

ROOT = Path(__file__).resolve().parent.parent
STORY = (
    "The lighthouse at Varn stands 41 metres over the sea. Its keeper wrote down every ship that passed: the name, the "
    "hour, the wind, and whether the crew had waved. In the winter of 1902 she counted 317 of them.\n\n"
)


pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(scope="module")
def lm(gemma3: Path) -> ragjax.LanguageModel:
    return ragjax.load(gemma3)


@pytest.fixture(scope="module")
def oracle() -> torch.nn.Module:
    return converted_from(GEMMA3)


def their_logits(oracle: torch.nn.Module, ids: list[int], keep: int) -> np.ndarray:
    with torch.no_grad():
        return oracle(torch.tensor([ids]), logits_to_keep=keep).logits[0].numpy()


def in_float64(oracle: torch.nn.Module, ids: list[int], keep: int) -> np.ndarray:
    # transformers refuses to cast what came from a GGUF file; its weights are plain float32 all the same.
    try:
        return their_logits(torch.nn.Module.double(oracle), ids, keep)
    finally:
        torch.nn.Module.float(oracle)


def greedy(oracle: torch.nn.Module, members: list[tuple[list[int], float]], count: int, stops: tuple) -> list[int]:
    """The plain loop: each prompt's log-probabilities, weighted, summed, and the best token fed back to all."""
    caches, inputs, tokens = [DynamicCache() for _ in members], [ids for ids, _ in members], []
    while len(tokens) < count:
        mixed = 0.0
        for cache, new, (_, share) in zip(caches, inputs, members, strict=True):
            with torch.no_grad():
                logits = oracle(torch.tensor([new]), past_key_values=cache, logits_to_keep=1).logits[0, -1]
            mixed = mixed + share * torch.log_softmax(logits, dim=-1)
        token = int(torch.argmax(mixed))
        if token in stops:
            break
        tokens.append(token)
        inputs = [[token]] * len(members)
    return tokens


def test_the_file_says_what_is_published(lm) -> None:
    assert lm.config == published_config("google/gemma-3-270m")
    assert lm.stop_ids == (1,)
    assert lm.vocab_width == 262144


def test_B04_the_tokenizer_starts_once_and_keeps_white_space(lm) -> None:
    """The ids are those of transformers' reader of this file (5.24)."""
    tokenizer = lm.tokenizer
    assert tokenizer("  two  spaces\n\n\nIn 1868")["input_ids"] == [
        2, 138, 13498, 138, 35220, 109, 902, 236743, 236770, 236828, 236825, 236828,
    ]  # fmt: skip
    assert tokenizer.encode("<start_of_turn>user")[:2] == [2, 105]
    text = "caf\u00e9 \u4e2d\u6587 \U0001f600\t\U000130c0 don't "
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_logits_reach_past_the_window(lm, oracle) -> None:
    """Within max(1e-4, 3 x the oracle's own float32-to-float64 deviation), with the same best token, for a text of
    more than 512 tokens and a short one in the same batch."""
    examples = load_examples(ROOT / "experiments/data/questions.jsonl", limit=3).examples
    text = " ".join(document.text for example in examples for document in example.documents)
    rows = [list(lm.tokenizer(text)["input_ids"])[:640], list(lm.tokenizer(STORY[:99])["input_ids"])]
    assert len(rows[0]) == 640
    tokens, valid = left_pad(rows, 2, len(rows[0]))
    hidden, _ = decoder.forward(lm.params, lm.config, tokens, valid)
    for row, ids in enumerate(rows):
        keep = min(64, len(ids))
        found = np.asarray(decoder.logits(lm.params, hidden[row, -keep:], lm.vocab_width))
        single = their_logits(oracle, ids, keep)
        deviation = np.abs(single - in_float64(oracle, ids, keep)).max()
        assert np.abs(found - single).max() <= max(1e-4, 3 * deviation)
        assert np.array_equal(found.argmax(-1), single.argmax(-1))


def test_greedy_tokens(lm, oracle) -> None:
    """64 tokens after a text longer than the window."""
    text = STORY * 10 + "The keeper"
    found = generate(lm, text, max_new=64)
    assert len(found.tokens) == 64
    ids = list(lm.tokenizer(text)["input_ids"])
    assert found.prompt_tokens == len(ids) > 512
    assert found.tokens.tolist() == greedy(oracle, [(ids, 1.0)], 64, lm.stop_ids)


def test_favicomp_runs_without_a_chat_template(lm, oracle) -> None:
    examples = load_examples(ROOT / "experiments/data/questions.jsonl", limit=1).examples
    found = FaviComp(compressor=lm, target=lm, alpha=0.5, max_new=12, prompt_format="plain").compress(examples)
    words = DEFAULT_PROMPTS
    for example, compressed in zip(examples, found, strict=True):
        data = {"question": example.question, "documents": number_documents(example.documents)}
        pairs = ((words.compress_system, words.compress_user), (words.context_system, words.context_user))
        prompts = [build_prompt(lm.tokenizer, *pair, data, prompt_format="plain") for pair in pairs]
        members = [(list(prompt.ids), 0.5) for prompt in prompts]
        assert all(ids.count(lm.tokenizer.bos_token_id) == 1 for ids, _ in members)
        assert compressed.trace.tokens.tolist() == greedy(oracle, members, 12, lm.stop_ids)


def test_sps_scores_and_rankings(lm, oracle, tmp_path, capsys) -> None:
    """As numpy's in float64, from the states of the same oracle; the published energy keeps 584 directions."""
    line = check_sps(lm, oracle, tmp_path, 584)
    with capsys.disabled():
        print(f"\n  {line}")
