"""SPS of a tiny model against transformers and numpy in float64, and the files that keep its subspace."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import ragjax
from ragjax import sps, sps_subspace
from ragjax.compress import geometry
from ragjax.compress.subspace import principal_subspace
from ragjax.decode.states import token_states
from ragjax.testing import byte_tokenizer, random_params, tiny_config, tiny_model, write_checkpoint
from ragjax.weights.convert import convert_model
from tests.oracle import pair

TEXTS = [
    "The Orrin rises near Gannet Top.",
    "Salt was taxed for six years.",
    "",
    "Tobin Aldersey never built a bridge.",
]
BATCH = 4


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty place for the files of models that lie nowhere."""
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def calls(monkeypatch):
    """The shapes that `principal_subspace` was called with."""
    seen = []

    def counting(matrix, **settings):
        seen.append(tuple(matrix.shape))
        return principal_subspace(matrix, **settings)

    monkeypatch.setattr(geometry, "principal_subspace", counting)
    return seen


def their_matrix(both, preset):
    if preset == "paper":
        return both.theirs.get_input_embeddings().weight.detach().double().numpy()[: both.ours.vocab_width]
    return both.theirs.model.layers[-2].self_attn.q_proj.weight.detach().double().numpy()


def their_scores(both, texts, preset, first=0):
    """SPS from transformers' states, with the full SVD in float64."""
    matrix = their_matrix(both, preset)
    mean = matrix.mean(axis=0) if preset == "code" else 0
    _, values, rows = np.linalg.svd(matrix - mean, full_matrices=False)
    shares = np.cumsum(values**2 if preset == "code" else values)
    kept = rows[: int(np.argmax(shares >= 0.95 * shares[-1])) + 1]
    scores = []
    for text in texts:
        ids = both.ours.tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            states = both.theirs.model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-2][0]
        x = states.double().numpy()[first:].max(axis=0) - mean
        scores.append(np.linalg.norm(x - x @ kept.T @ kept))
    return scores


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@pytest.mark.parametrize("preset", ["paper", "code"])
def test_scores_are_those_of_numpy_and_transformers(family, preset):
    both = pair(family=family)
    texts = [text for text in TEXTS if text]
    found = sps(both.ours, TEXTS, preset=preset, batch=BATCH)
    assert found.dtype == np.float32
    assert np.isnan(found[2])
    kept = found[[0, 1, 3]]
    np.testing.assert_allclose(kept, their_scores(both, texts, preset), rtol=1e-4)
    dropped = sps(both.ours, texts, preset=preset, first_token="drop", batch=BATCH)
    np.testing.assert_allclose(dropped, their_scores(both, texts, preset, first=1), rtol=1e-4)
    alone = sps(both.ours, texts[0], preset=preset, batch=BATCH)
    assert isinstance(alone, float)
    assert alone == pytest.approx(kept[0], rel=1e-5)


def test_presets_differ_in_matrix_centre_and_square():
    lm = pair().ours
    paper, code = sps_subspace(lm), sps_subspace(lm, "code")
    assert paper.mean is None
    assert code.mean.shape == (48,)
    weights = np.asarray(lm.params.layers[1].attention.q).reshape(48, 64).T
    expected = principal_subspace(weights, squared=True, centred=True)
    np.testing.assert_array_equal(code.vectors, expected.vectors)
    mixed = sps_subspace(lm, "code", matrix="embedding")
    assert mixed.mean is not None
    assert mixed.rank != paper.rank


def test_poolings_and_layers_are_choices():
    lm = pair().ours
    found = {
        (pooling, layer): tuple(sps(lm, TEXTS[:2], pooling=pooling, layer=layer, batch=BATCH))
        for pooling, layer in (("max", -2), ("mean", -2), ("last", -2), ("max", -1))
    }
    assert len(set(found.values())) == 4


def test_a_bank_of_states_spans_a_subspace():
    lm = pair().ours
    found = sps_subspace(lm, matrix="states", texts=TEXTS, energy=0.9)
    expected = principal_subspace(token_states(lm, TEXTS), energy=0.9)
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    assert np.isfinite(sps(lm, TEXTS[0], subspace=found, batch=BATCH))
    for settings in ({"matrix": "states"}, {"texts": TEXTS}):
        with pytest.raises(ValueError, match='matrix="states" goes with texts'):
            sps_subspace(lm, **settings)


def test_S05_rows_beyond_the_tokenizer_are_left_out():
    lm = tiny_model()
    loud = lm.params.embedding.at[lm.vocab_width :].set(1e3)
    changed = dataclasses.replace(lm, params=lm.params.replace(embedding=loud))
    assert lm.vocab_width < lm.config.vocab_size
    plain, padded = (sps_subspace(model, cache=False) for model in (lm, changed))
    np.testing.assert_array_equal(plain.vectors, padded.vectors)
    broken = dataclasses.replace(lm, params=lm.params.replace(embedding=lm.params.embedding.at[7].set(jnp.nan)))
    with pytest.raises(ValueError, match="row 7 of the matrix has a value that is not finite"):
        sps_subspace(broken, cache=False)


def test_S02_a_bfloat16_model_is_scored():
    lm = tiny_model(dtype=jnp.bfloat16)
    wide = dataclasses.replace(lm, params=jax.tree.map(lambda x: x.astype(jnp.float32), lm.params))
    for preset in ("paper", "code"):
        narrow, full = (sps_subspace(model, preset, cache=False) for model in (lm, wide))
        np.testing.assert_allclose(narrow.vectors, full.vectors, atol=1e-6)
    scores = sps(lm, TEXTS, batch=BATCH)
    reference = sps(wide, TEXTS, batch=BATCH)
    np.testing.assert_allclose(scores, reference, rtol=0.05)
    assert scores.dtype == np.float32


def test_S02_a_second_call_does_not_compute(calls, home):
    lm = tiny_model()
    first = sps_subspace(lm, "code")
    second = sps_subspace(tiny_model(), "code")
    assert len(calls) == 1
    np.testing.assert_array_equal(first.vectors, second.vectors)
    np.testing.assert_array_equal(first.mean, second.mean)
    names = ("rank", "complement", "energy", "note")
    assert [getattr(first, name) for name in names] == [getattr(second, name) for name in names]
    sps(lm, TEXTS, preset="code", batch=BATCH)
    assert len(calls) == 1
    assert [path.suffix for path in (home / "sps").iterdir()] == [".npz"]
    sps_subspace(lm, "code", cache=False)
    assert len(calls) == 2


def test_S02_a_new_process_does_not_compute(home):
    lm = tiny_model()
    found = sps_subspace(lm)
    script = """
from ragjax.compress import geometry
from ragjax.testing import tiny_model
del geometry.principal_subspace
print(geometry.sps_subspace(tiny_model()).rank)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == found.rank


def test_every_setting_and_all_weights_have_a_file_of_their_own(calls, home):
    lm = tiny_model()
    bank = {"matrix": "states", "texts": TEXTS}
    runs = [
        (lm, {}),
        (lm, {"energy": 0.9}),
        (lm, {"preset": "code"}),
        (lm, {"matrix": "q_proj"}),
        (lm, bank),
        (lm, bank | {"layer": -1}),
        (lm, bank | {"texts": TEXTS[:1]}),
        (tiny_model(1), {}),
        (dataclasses.replace(lm, params=jax.tree.map(lambda x: x.astype(jnp.bfloat16), lm.params)), {}),
    ]
    for model, settings in runs * 2:
        sps_subspace(model, **settings)
    assert len(calls) == len(runs) == len(list((home / "sps").iterdir()))
    sps_subspace(lm, layer=-3)  # The embedding is no layer's.
    assert len(calls) == len(runs)


def test_the_file_lies_beside_the_checkpoint_and_changes_nothing_about_it(tmp_path, home, calls):
    cfg = tiny_config()
    source = write_checkpoint(tmp_path / "source", cfg, random_params(cfg), byte_tokenizer())
    folder, _ = convert_model(str(source), str(tmp_path / "tiny"))
    before = ragjax.load(folder)
    found = sps_subspace(before)
    assert len(list((folder / "sps").iterdir())) == 1
    assert not home.exists()
    after = ragjax.load(folder)
    assert after.fingerprint == before.fingerprint
    np.testing.assert_array_equal(sps_subspace(after).vectors, found.vectors)
    assert len(calls) == 1
    # The folder of safetensors is no checkpoint: nothing is written into it.
    sps_subspace(ragjax.load(source))
    assert not (source / "sps").exists()
    assert len(calls) == 2
    assert len(list((home / "sps").iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, caplog, calls):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "file"))
    found = [sps_subspace(tiny_model()) for _ in range(2)]
    assert len(calls) == 2
    np.testing.assert_array_equal(found[0].vectors, found[1].vectors)
    assert caplog.text.count("cannot be kept in") == 2


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_damaged_file_is_computed_anew(content, home, caplog, calls):
    lm = tiny_model()
    expected = sps_subspace(lm)
    (path,) = (home / "sps").iterdir()
    path.write_bytes(path.read_bytes()[:-400] if content is None else content)
    np.testing.assert_array_equal(sps_subspace(lm).vectors, expected.vectors)
    assert "cannot be read" in caplog.text
    caplog.clear()
    sps_subspace(lm)
    assert len(calls) == 2
    assert not caplog.text


def test_what_cannot_be_scored_is_refused(calls):
    lm = pair().ours
    for settings, message in (
        ({"preset": "book"}, "preset is one of"),
        ({"pooling": "sum"}, "pooling is one of"),
        ({"first_token": "skip"}, "first_token is one of"),
        ({"layer": 4}, "has the layers -4 to 3"),
    ):
        with pytest.raises(ValueError, match=message):
            sps(lm, TEXTS, **settings)
    with pytest.raises(ValueError, match="matrix is one of"):
        sps_subspace(lm, matrix="head")
    with pytest.raises(ValueError, match="tiny-llama-0 has one block"):
        sps_subspace(tiny_model(num_layers=1), "code")
    other = principal_subspace(np.eye(40, dtype=np.float32))
    with pytest.raises(ValueError, match="one of 40 dimensions, the states of tiny-0 have 48"):
        sps(lm, TEXTS, subspace=other)


def test_no_text_and_empty_texts_have_no_score():
    lm = pair().ours
    assert sps(lm, []).shape == (0,)
    assert np.isnan(sps(lm, ["", " "])).all()
    assert np.isnan(sps(lm, ""))
