"""all-MiniLM-L6-v2 against transformers on the weights that the checkpoint was converted from."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import ragjax
from experiments.models import CACHE, MINILM, MODELS
from ragjax.encode import embed
from ragjax.models.architectures import parse_config
from tests.oracle import ROOT

pytestmark = pytest.mark.usefixtures("optimised")

TEXTS = [
    "The lighthouse of Tamsay burned oil until 1931.",
    "A ferry leaves at noon.",
    "Gravel, not water, decides how wide a bridge must be.",
    "caf\u00e9s and cafe\u0301s, \u4e2d\u6587, \U0001f600",
]


@pytest.fixture(scope="module")
def model(minilm: Path) -> ragjax.Encoder:
    return ragjax.load(minilm)


@pytest.fixture(scope="module")
def sentences(shared: Path) -> list[str]:
    """200 sentences of HotpotQA's paragraphs, then ten of its questions."""
    lines = (shared / "data" / "hotpotqa_distractor.jsonl").read_text().splitlines()[:30]
    rows = [json.loads(line) for line in lines]
    texts = [text.strip() for row in rows for document in row["docs"] for text in document["sentences"]]
    return [*list(dict.fromkeys(texts))[:200], *(row["question"] for row in rows[:10])]


def their_vectors(texts: list[str]) -> np.ndarray:
    """Mean pooling over the mask, length 1."""
    from transformers import AutoModel, AutoTokenizer

    folder = ROOT / CACHE / MODELS[MINILM].source
    if not folder.exists():
        pytest.skip("the files that the checkpoint was converted from are gone: run `make models` anew")
    oracle, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    for start in range(0, len(texts), 42):
        inputs = tokenizer(texts[start : start + 42], padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            states = oracle(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        rows.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(rows)


def top(vectors: np.ndarray) -> list[list[int]]:
    """The five sentences nearest to each query, best first."""
    scores = vectors[200:] @ vectors[:200].T
    return np.argsort(-scores, axis=1, kind="stable")[:, :5].tolist()


@pytest.mark.shared
def test_vectors_and_the_five_nearest(model, sentences):
    found, expected = embed(model, sentences), their_vectors(sentences)
    assert len(sentences) == 210
    assert not found.truncated.any()
    np.testing.assert_allclose(found.vectors, expected, atol=1e-4)
    assert top(found.vectors) == top(expected)


def test_vectors_of_odd_texts(model):
    np.testing.assert_allclose(embed(model, TEXTS).vectors, their_vectors(TEXTS), atol=1e-4)


def test_bfloat16_is_finite_and_near(model):
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params)
    found = embed(dataclasses.replace(model, params=narrow), TEXTS).vectors
    assert np.isfinite(found).all()
    assert (found * embed(model, TEXTS).vectors).sum(1).min() > 0.99


def test_G05_the_name_of_its_folder_changes_nothing(model, minilm, tmp_path):
    other = ragjax.load(shutil.copytree(minilm, tmp_path / "xlm-roberta-x"))
    assert other.fingerprint == model.fingerprint
    np.testing.assert_array_equal(embed(other, TEXTS).vectors, embed(model, TEXTS).vectors)


@pytest.mark.shared
def test_its_file_says_what_the_published_config_says(model, shared):
    published = shared / "models" / "configs" / "sentence-transformers__all-MiniLM-L6-v2.json"
    assert model.config == parse_config(json.loads(published.read_text()))
    assert model.tokenizer_class == "BertTokenizer"
