"""SmolLM2-135M-Instruct against transformers on the same dequantised weights: logits, greedy tokens, the ensemble.

The oracle reads the GGUF file by itself; we read the converted checkpoint. So dequantisation, the rows permuted for
rotary embedding, the key table, the config and the decode loop are all under test at once.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DynamicCache

import ragjax
from experiments.models import SMOLLM2
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.prompts import DEFAULT_PROMPTS, number_documents
from ragjax.data import load_examples
from ragjax.decode.buckets import left_pad
from ragjax.decode.loop import prefill
from ragjax.decode.prompt import build_prompt
from ragjax.decode.text import generate
from ragjax.models import decoder
from tests.oracle import converted_from
from tests.real_sps import check_sps

ROOT = Path(__file__).resolve().parent.parent
TEXT = (
    "Rivers carry more than water. In spring the Orrin brings down gravel from the Stannick hills, and the villages "
    "along it have built their bridges with wide arches, so that the stones may pass. When the 1868 flood took the "
    "old crossing, the masons measured the gravel first and the water second: 41 carts a day, they wrote, for 3 weeks."
)


pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(scope="module")
def lm(smollm2: Path) -> ragjax.LanguageModel:
    return ragjax.load(smollm2)


@pytest.fixture(scope="module")
def oracle() -> torch.nn.Module:
    return converted_from(SMOLLM2)


def test_logits_at_every_position(lm, oracle) -> None:
    """Within max(1e-4, 3 x the oracle's own float32-to-float64 deviation), and the same best token everywhere."""
    ids = [list(lm.tokenizer(TEXT * 2)["input_ids"]), list(lm.tokenizer(TEXT[:60])["input_ids"])]
    tokens, valid = left_pad(ids, 2, 192)
    hidden, _ = decoder.forward(lm.params, lm.config, tokens, valid)
    found = np.asarray(decoder.logits(lm.params, hidden, lm.vocab_width))
    for row, row_ids in enumerate(ids):
        with torch.no_grad():
            single = oracle(torch.tensor([row_ids])).logits[0].numpy()
        deviation = np.abs(single - _float64(oracle, row_ids)).max()
        mine = found[row, -len(row_ids) :]
        assert np.abs(mine - single).max() <= max(1e-4, 3 * deviation)
        assert np.array_equal(mine.argmax(-1), single.argmax(-1))


def _float64(oracle: torch.nn.Module, ids: list[int]) -> np.ndarray:
    # transformers refuses to cast what came from a GGUF file; its weights are plain float32 all the same.
    try:
        with torch.no_grad():
            return torch.nn.Module.double(oracle)(torch.tensor([ids])).logits[0].numpy()
    finally:
        torch.nn.Module.float(oracle)


def test_greedy_tokens(lm, oracle) -> None:
    """64 greedy tokens equal the oracle's, for a raw text and a chat in one left-padded batch."""
    chat = [{"role": "user", "content": "Why do masons measure gravel before they build a bridge?"}]
    rendered = lm.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompts = [lm.tokenizer(TEXT)["input_ids"], lm.tokenizer(rendered, add_special_tokens=False)["input_ids"]]
    for ids, mine in zip(prompts, generate(lm, [TEXT, chat], max_new=64), strict=True):
        assert mine.prompt_tokens == len(ids)
        assert mine.tokens.tolist() == _reference([(oracle, ids)], [1.0], 64, lm.stop_ids)


def _reference(members: list, shares: list[float], count: int, stops: tuple[int, ...]) -> list[int]:
    """The plain loop: each member's float32 log-probabilities, weighted, summed, and the best token fed back."""
    caches = [DynamicCache() for _ in members]
    inputs = [torch.tensor([ids]) for _, ids in members]
    tokens: list[int] = []
    while len(tokens) < count:
        mixed = 0.0
        for (model, _), cache, new, share in zip(members, caches, inputs, shares, strict=True):
            with torch.no_grad():
                logits = model(new, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
            mixed = mixed + share * torch.log_softmax(logits.float(), dim=-1)
        token = int(torch.argmax(mixed))
        if token in stops:
            break
        tokens.append(token)
        inputs = [torch.tensor([[token]]) for _ in members]
    return tokens


def test_ensemble_equals_a_plain_loop_on_real_questions(lm, oracle) -> None:
    """FaviComp's tokens on the first 8 shipped questions, in one batch, equal the loop above run one by one."""
    loaded = load_examples(ROOT / "experiments/data/questions.jsonl", limit=8).examples
    examples = [dataclasses.replace(e, documents=e.documents[:3]) for e in loaded]
    found = FaviComp(compressor=lm, target=lm, alpha=0.5, max_new=16).compress(examples)
    words = DEFAULT_PROMPTS
    for example, compressed in zip(examples, found, strict=True):
        documents = number_documents(example.documents)
        data = {"question": example.question, "documents": documents}
        compression = build_prompt(lm.tokenizer, words.compress_system, words.compress_user, data)
        context = build_prompt(lm.tokenizer, words.context_system, words.context_user, data)
        members = [(oracle, list(compression.ids)), (oracle, list(context.ids))]
        assert compressed.trace.tokens.tolist() == _reference(members, [0.5, 0.5], 16, lm.stop_ids)


def test_hidden_dtype_is_the_checkpoint_s(lm) -> None:
    """The demo's checkpoint is float32 on a CPU, and prefill keeps it: nothing is cast on the way."""
    tokens, valid = left_pad([[1, 2, 3]], 1, 32)
    filled = prefill(lm.params, lm.config, tokens, valid, width=lm.vocab_width)
    assert filled.cache.keys[0].dtype == np.float32
    assert filled.logits.shape == (1, lm.vocab_width)


def test_sps_scores_and_rankings(lm, oracle, tmp_path, capsys) -> None:
    """As numpy's in float64, from the states of the same oracle; the published energy keeps 525 directions."""
    line = check_sps(lm, oracle, tmp_path, 525)
    with capsys.disabled():
        print(f"\n  {line}")
