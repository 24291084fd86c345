"""SPS of real weights against transformers and numpy in float64, for the tests of the models it is checked on."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ragjax
from ragjax.data import load_examples

QUESTIONS = Path(__file__).resolve().parent.parent / "experiments/data/questions.jsonl"


def check_sps(lm: Any, oracle: torch.nn.Module, folder: Path, rank: int) -> str:
    """Scores within 1e-4 and the oracle's rankings of 40 texts of 3 to 22 words; `rank` is the paper preset's.

    The paper's preset scores them in batches of 8 and one by one, the code's in batches without the first token. The
    subspaces are kept in `folder`. Returns a line that says what was found.
    """
    lm, texts, found = dataclasses.replace(lm, folder=folder), _summaries(), []
    states = _their_states(oracle, [lm.tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts])
    body = oracle.model
    for preset, first_token, weight, rows in (
        ("paper", "keep", body.embed_tokens.weight, lm.vocab_width),
        ("code", "drop", body.layers[-2].self_attn.q_proj.weight, None),
    ):
        subspace = ragjax.sps_subspace(lm, preset)
        theirs, beyond, mean = _their_subspace(weight.detach().numpy()[:rows], squared=preset == "code")
        assert subspace.rank == theirs
        pooled = np.stack([s[first_token == "drop" :].max(axis=0) for s in states])
        expected = np.linalg.norm((pooled - mean) @ beyond, axis=1)
        settings = {"subspace": subspace, "first_token": first_token}
        runs = [ragjax.sps(lm, texts, **settings)]
        if preset == "paper":
            assert theirs == rank
            runs.append(np.array([ragjax.sps(lm, text, **settings) for text in texts]))
        for scores in runs:
            np.testing.assert_allclose(scores, expected, rtol=1e-4)
            assert np.argsort(scores).tolist() == np.argsort(expected).tolist()
        worst = np.abs(runs[0] / expected - 1).max()
        found.append(f"{preset}: R = {theirs} of {len(mean)}, scores within {worst:.1e}")
    return f"{Path(lm.name).name}, {'; '.join(found)}"


def _summaries() -> list[str]:
    """The documents of the shipped questions, cut short."""
    documents = [document.text for e in load_examples(QUESTIONS, limit=20).examples for document in e.documents[:2]]
    return [" ".join(text.split()[: 3 + 7 * number % 20]) for number, text in enumerate(documents)]


def _their_states(oracle: torch.nn.Module, rows: list[list[int]]) -> list[np.ndarray]:
    """`hidden_states[-2]` [T, D] of each text in float64; the oracle is left as it was."""
    # transformers refuses to cast what came from a GGUF file; its weights are plain float32 all the same.
    body = torch.nn.Module.double(oracle.model)
    try:
        with torch.no_grad():
            read = [body(torch.tensor([ids]), output_hidden_states=True).hidden_states[-2][0] for ids in rows]
        return [states.numpy() for states in read]
    finally:
        torch.nn.Module.float(body)


def _their_subspace(weight: np.ndarray, squared: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """Rank, the directions beyond it, and the mean: from the eigenvectors of the Gram matrix in float64."""
    matrix = weight.astype(np.float64)
    mean = matrix.mean(axis=0) if squared else np.zeros(matrix.shape[1])
    matrix -= mean
    squares, vectors = np.linalg.eigh(matrix.T @ matrix)
    squares, vectors = np.maximum(squares[::-1], 0), vectors[:, ::-1]
    shares = np.cumsum(squares if squared else np.sqrt(squares))
    rank = int(np.argmax(shares >= 0.95 * shares[-1])) + 1
    return rank, vectors[:, rank:], mean
