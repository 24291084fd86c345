"""Folders of safetensors: dtypes bit for bit, shards, and every way in which an index can be wrong."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ragjax import hub
from ragjax.testing import byte_tokenizer, disk_tensors, random_params, raw_config, tiny_config, write_checkpoint
from ragjax.weights.opening import open_published
from ragjax.weights.safetensors_reader import SAFETENSORS
from ragjax.weights.shards import open_weights

CONFIG = tiny_config()
SHARDS = ("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors")
DTYPES = (ml_dtypes.bfloat16, np.float16, np.float32)


@pytest.fixture
def tensors():
    """Named tensors, a third in each of three dtypes."""
    named = disk_tensors(CONFIG, random_params(CONFIG))
    return {name: value.astype(DTYPES[i % 3]) for i, (name, value) in enumerate(named.items())}


def write_shards(folder: Path, tensors: dict) -> dict[str, str]:
    """Three shards, an index, a config and a tokenizer; each shard holds all three dtypes."""
    names = list(tensors)
    weight_map = {name: SHARDS[3 * i // len(names)] for i, name in enumerate(names)}
    for shard in SHARDS:
        save_file({n: tensors[n] for n in names if weight_map[n] == shard}, folder / shard)
    write_index(folder, weight_map)
    (folder / "config.json").write_text(json.dumps(raw_config(CONFIG)))
    byte_tokenizer().save_pretrained(folder)
    return weight_map


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_A19_mixed_shards_load_in_the_dtype_that_is_asked_for(tmp_path, tensors, dtype):
    write_shards(tmp_path, tensors)
    model = hub.load(tmp_path, dtype=dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {jnp.dtype(dtype)}
    again = disk_tensors(CONFIG, model.params)
    assert set(again) == set(tensors)
    assert all(np.array_equal(again[name], tensors[name].astype(dtype)) for name in tensors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_A19_each_dtype_is_read_bit_for_bit(tmp_path, dtype):
    stored = np.random.default_rng(0).integers(0, 2**16, 96, dtype=np.uint16)
    stored = stored.view(ml_dtypes.bfloat16) if dtype is ml_dtypes.bfloat16 else stored.astype(dtype)
    save_file({"x": stored.reshape(8, 12)}, tmp_path / "model.safetensors")
    source = open_weights(tmp_path, SAFETENSORS)
    read = source.read("x", np.dtype(dtype))
    assert source.tensors["x"].dtype == read.dtype.name == np.dtype(dtype).name
    assert read.tobytes() == stored.tobytes()


def test_A19_bfloat16_target_keeps_bfloat16_weights_bit_for_bit(tmp_path):
    params = random_params(CONFIG, dtype=jnp.bfloat16)
    model = hub.load(write_checkpoint(tmp_path / "m", CONFIG, params, byte_tokenizer()), dtype=jnp.bfloat16)
    same = jax.tree.map(
        lambda a, b: a.tobytes() == b.tobytes(), *(jax.tree.map(np.asarray, p) for p in (model.params, params))
    )
    assert jax.tree.all(same)


def refusal(folder: Path, kind=ValueError) -> str:
    """Opening fails before anything is put on a device."""
    before = len(jax.live_arrays())
    with pytest.raises(kind) as error:
        hub.load(folder)
    assert len(jax.live_arrays()) == before
    assert str(folder) in str(error.value)
    return str(error.value)


def test_A19_a_missing_shard_is_named_with_its_keys(tmp_path, tensors):
    weight_map = write_shards(tmp_path, tensors)
    (tmp_path / SHARDS[1]).unlink()
    message = refusal(tmp_path)
    lost = [name for name, shard in weight_map.items() if shard == SHARDS[1]]
    assert f"{SHARDS[1]} is missing; the index puts {lost[0]}, {lost[1]}, {lost[2]} and {len(lost) - 3} more" in message


def test_A19_a_key_in_two_shards_is_named_with_both(tmp_path, tensors):
    weight_map = write_shards(tmp_path, tensors)
    name = next(n for n, shard in weight_map.items() if shard == SHARDS[0])
    save_file(load_file(tmp_path / SHARDS[2]) | {name: tensors[name]}, tmp_path / SHARDS[2])
    assert f"{name} is stored in both {SHARDS[0]} and {SHARDS[2]}" in refusal(tmp_path)


@pytest.mark.parametrize("kept", [0.7, 0.02, 0.0])
def test_A19_a_shard_cut_short_is_named_with_a_key(tmp_path, tensors, kept):
    weight_map = write_shards(tmp_path, tensors)
    data = (tmp_path / SHARDS[0]).read_bytes()
    (tmp_path / SHARDS[0]).write_bytes(data[: int(kept * len(data))])
    message = refusal(tmp_path)
    assert SHARDS[0] in message
    assert any(name in message for name, shard in weight_map.items() if shard == SHARDS[0])


def test_A19_an_index_that_disagrees_with_its_shards_is_refused(tmp_path, tensors):
    weight_map = write_shards(tmp_path, tensors)
    first, second = list(weight_map)[:2]
    write_index(tmp_path, {n: s for n, s in weight_map.items() if n != first} | {"model.ghost": SHARDS[0]})
    message = refusal(tmp_path)
    assert f"model.ghost is not in {SHARDS[0]}" in message
    assert f"{first} is in {SHARDS[0]}, but the index does not say so" in message
    assert second not in message


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ('{"weight_map": ', "not JSON"),
        ("[]", "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"model.norm.weight": 3}}', "model.norm.weight lies in 3, which is no file of this folder"),
        ('{"weight_map": {"model.norm.weight": "../a.safetensors"}}', "model.norm.weight lies in '../a.safetensors'"),
    ],
)
def test_A19_an_index_that_is_none_is_refused_with_file_and_key(tmp_path, tensors, index, words):
    write_shards(tmp_path, tensors)
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert f"model.safetensors.index.json: {words}" in refusal(tmp_path)


@pytest.mark.parametrize("header", [[1], {"a": 3}, {"a": {"dtype": "F32", "shape": [1]}}])
def test_A19_a_header_that_is_none_is_refused_with_its_file(tmp_path, tensors, header):
    write_shards(tmp_path, tensors)
    text = json.dumps(header).encode()
    (tmp_path / SHARDS[0]).write_bytes(len(text).to_bytes(8, "little") + text)
    assert f"{SHARDS[0]} is no whole safetensors file" in refusal(tmp_path)


def test_two_sets_of_weights_in_one_folder_are_refused(tmp_path, tensors):
    write_shards(tmp_path, tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    assert "keep one of them" in refusal(tmp_path)


def test_a_folder_without_weights_says_what_it_holds(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw_config(CONFIG)))
    (tmp_path / "consolidated.00.pth").touch()
    assert "it holds consolidated.00.pth" in refusal(tmp_path, FileNotFoundError)


def test_a_folder_without_config_says_so(tmp_path):
    assert "no config.json" in refusal(tmp_path, FileNotFoundError)


def test_a_refused_config_names_its_file(tmp_path, tensors):
    write_shards(tmp_path, tensors)
    (tmp_path / "config.json").write_text(json.dumps(raw_config(CONFIG) | {"hidden_act": "relu"}))
    assert "config.json: config refused: hidden_act" in refusal(tmp_path)


@pytest.mark.parametrize("equal", [True, False])
def test_a_tied_model_that_stores_its_head_is_taken_only_if_they_agree(tmp_path, equal):
    cfg = tiny_config(tied_head=True)
    write_checkpoint(tmp_path, cfg, random_params(cfg), byte_tokenizer())
    tensors = load_file(tmp_path / "model.safetensors")
    head = tensors["model.embed_tokens.weight"].copy()
    head[-1, -1] += 0.0 if equal else 1.0
    save_file(tensors | {"lm_head.weight": head}, tmp_path / "model.safetensors")
    if equal:
        params, ledger = open_published(tmp_path).load_params(jnp.float32)
        assert params.head is None
        assert ledger.copies == (("lm_head.weight", "model.embed_tokens.weight"),)
    else:
        assert "ties lm_head.weight to model.embed_tokens.weight" in refusal(tmp_path)


def test_A05_all_seven_biases_arrive(tmp_path):
    cfg = tiny_config(qkv_bias=True, output_bias=True, mlp_bias=True)
    params = random_params(cfg, seed=3)
    loaded = hub.load(write_checkpoint(tmp_path, cfg, params, byte_tokenizer())).params
    for mine, theirs in zip(loaded.layers, params.layers, strict=True):
        pairs = [
            (getattr(mine.attention, n), getattr(theirs.attention, n)) for n in ("q_bias", "k_bias", "v_bias", "o_bias")
        ]
        pairs += [(getattr(mine.mlp, n), getattr(theirs.mlp, n)) for n in ("gate_bias", "up_bias", "down_bias")]
        assert all(np.array_equal(a, b) and np.std(b) > 0.1 for a, b in pairs)
