"""SPS of real weights against transformers in float64 and numpy: scores within 1e-4, and the same ranking.

The oracle reads the GGUF file by itself, as in the other tests of these models.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import ragjax
from experiments.models import CACHE, GEMMA3, MODELS, SMOLLM2
from ragjax.data import load_examples

ROOT = Path(__file__).resolve().parent.parent
RANKS = {SMOLLM2: 525, GEMMA3: 584}


@pytest.fixture(scope="module")
def summaries():
    """40 texts of 3 to 45 words: the documents of the shipped questions, cut short."""
    examples = load_examples(ROOT / "experiments/data/questions.jsonl", limit=20).examples
    documents = [document.text for example in examples for document in example.documents[:2]]
    return [" ".join(text.split()[: 3 + 7 * number % 43]) for number, text in enumerate(documents[:40])]


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3])
def case(request, summaries, tmp_path_factory):
    """A model that keeps its subspaces elsewhere, and what the oracle needs of the same weights, in float64."""
    folder = request.getfixturevalue("smollm2" if request.param == SMOLLM2 else "gemma3")
    lm = dataclasses.replace(ragjax.load(folder), folder=tmp_path_factory.mktemp("subspaces"))
    gguf = ROOT / CACHE / MODELS[request.param].file
    if not gguf.exists():
        pytest.skip("the GGUF file that the checkpoint was converted from is gone: run `make models` anew")
    torch.set_num_threads(os.cpu_count() or 1)
    oracle = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers refuses to cast what came from a GGUF file; its weights are plain float32 all the same.
    body = torch.nn.Module.double(oracle.eval().model)
    states = [their_states(body, lm.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in summaries]
    matrices = {
        "paper": body.embed_tokens.weight.detach().numpy()[: lm.vocab_width],
        "code": body.layers[-2].self_attn.q_proj.weight.detach().numpy(),
    }
    return request.param, lm, matrices, states


def their_states(body, ids):
    with torch.no_grad():
        return body(torch.tensor([ids]), output_hidden_states=True).hidden_states[-2][0].numpy()


def their_subspace(matrix, squared):
    """Rank, the directions beyond it, and the mean: from the eigenvectors of the Gram matrix."""
    mean = matrix.mean(axis=0) if squared else np.zeros(matrix.shape[1])
    centred = matrix - mean if squared else matrix
    squares, vectors = np.linalg.eigh(centred.T @ centred)
    squares, vectors = np.maximum(squares[::-1], 0), vectors[:, ::-1]
    shares = np.cumsum(squares if squared else np.sqrt(squares))
    rank = int(np.argmax(shares >= 0.95 * shares[-1])) + 1
    return rank, vectors[:, rank:], mean


def check(scores, states, skipped, beyond, mean):
    """The largest relative difference, once it is small and the ranking is the oracle's."""
    pooled = np.stack([rows[skipped:].max(axis=0) for rows in states])
    expected = np.linalg.norm((pooled - mean) @ beyond, axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert np.argsort(scores).tolist() == np.argsort(expected).tolist()
    return np.abs(scores / expected - 1).max()


def test_scores_and_rankings(case, summaries, capsys):
    """40 summaries: both presets in batches of 8; the paper's also without the first token, and one text at a time."""
    name, lm, matrices, states = case
    for preset, matrix in matrices.items():
        subspace = ragjax.sps_subspace(lm, preset)
        rank, *rest = their_subspace(matrix, squared=preset == "code")
        assert subspace.rank == rank
        worst = check(ragjax.sps(lm, summaries, subspace=subspace), states, 0, *rest)
        if preset == "paper":
            assert rank == RANKS[name]
            check(ragjax.sps(lm, summaries, subspace=subspace, first_token="drop"), states, 1, *rest)
            check([ragjax.sps(lm, text, subspace=subspace) for text in summaries], states, 0, *rest)
        with capsys.disabled():
            print(f"\n  {name}, {preset}: R = {rank} of {matrix.shape[1]}, scores within {worst:.1e}")
