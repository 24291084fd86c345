"""Converted checkpoints: bit-equal, atomic, with provenance, restored where the caller wants them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ragjax import hub
from ragjax.models.decoder import abstract
from ragjax.testing import byte_tokenizer, random_params, tiny_config, write_checkpoint
from ragjax.weights import checkpoint, convert
from ragjax.weights.convert import convert_model
from ragjax.weights.fingerprint import fingerprint_files
from ragjax.weights.opening import open_published

CONFIG = tiny_config(qkv_bias=True, output_bias=True)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A published-looking folder."""
    params = random_params(CONFIG, dtype=jnp.bfloat16)
    return write_checkpoint(tmp_path_factory.mktemp("published") / "tiny", CONFIG, params, byte_tokenizer())


@pytest.fixture(scope="module")
def converted(folder, tmp_path_factory) -> Path:
    path, _ = convert_model(str(folder), str(tmp_path_factory.mktemp("home") / "tiny"), jnp.float32)
    return Path(path)


def same(a, b) -> bool:
    equal = jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(np.asarray(x), np.asarray(y)), a, b)
    return jax.tree.all(equal)


def run(code: str, *args: str, **environment: str) -> subprocess.CompletedProcess:
    """Run code in a process of its own, where torch is not to be had."""
    paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    env = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env=env, cwd=ROOT)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_conversion_keeps_every_bit(folder, tmp_path, dtype):
    out, ledger = convert_model(str(folder), str(tmp_path / "out"), dtype)
    straight, restored = hub.load(folder, dtype=dtype), hub.load(out, dtype=dtype)
    assert straight.params is not restored.params
    assert same(straight.params, restored.params)
    assert len(ledger.entries) == len(jax.tree.leaves(restored.params))
    assert (restored.config, restored.stop_ids) == (straight.config, straight.stop_ids)
    ids = [
        model.tokenizer.apply_chat_template([{"role": "user", "content": "h\u00e9"}]) for model in (straight, restored)
    ]
    assert ids[0] == ids[1]


def test_a_checkpoint_says_where_it_is_from(folder, converted):
    manifest = json.loads((converted / "ragjax.json").read_text())
    assert manifest["source"] == str(folder)
    assert manifest["source_fingerprint"] == open_published(folder).fingerprint()
    assert checkpoint.fingerprint_of(converted, manifest) == hub.load(converted).fingerprint
    assert (manifest["dtype"], manifest["format"]) == ("float32", 1)
    assert manifest["config"] == json.loads((folder / "config.json").read_text())
    assert manifest["bytes"] == 4 * manifest["parameters"] > 0
    assert manifest["versions"]["jax"] == jax.__version__


def test_fingerprints_follow_the_content_not_the_place(folder, tmp_path):
    first, second = shutil.copytree(folder, tmp_path / "a"), shutil.copytree(folder, tmp_path / "b" / "c")
    prints = {open_published(path).fingerprint() for path in (folder, first, second)}
    assert len(prints) == 1
    weights = bytearray((second / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (second / "model.safetensors").write_bytes(weights)
    (first / "generation_config.json").write_text("{}")
    assert len(prints | {open_published(path).fingerprint() for path in (first, second)}) == 3


def test_fingerprints_tell_names_and_borders_apart(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"xy")
    b.write_bytes(b"z")
    first = fingerprint_files({"m": a, "n": b})
    assert first == fingerprint_files({"n": b, "m": a}) != fingerprint_files({"m": b, "n": a})
    a.write_bytes(b"x")
    b.write_bytes(b"yz")
    assert first != fingerprint_files({"m": a, "n": b})


def test_two_conversions_agree_and_dtypes_differ(folder, converted, tmp_path):
    again, _ = convert_model(str(folder), str(tmp_path / "again"), jnp.float32)
    short, _ = convert_model(str(folder), str(tmp_path / "short"), jnp.bfloat16)
    prints = [hub.load(path).fingerprint for path in (converted, again, short)]
    assert prints[0] == prints[1] != prints[2]


def test_an_edited_chat_template_is_another_model(converted, tmp_path):
    edited = shutil.copytree(converted, tmp_path / "edited")
    assert hub.load(edited).fingerprint == hub.load(converted).fingerprint
    template = edited / "chat_template.jinja"
    template.write_text(template.read_text() + "{# edited #}")
    assert hub.load(edited).fingerprint != hub.load(converted).fingerprint
    assert hub.load(edited).params is hub.load(converted).params


def test_an_existing_folder_is_never_overwritten_unasked(folder, tmp_path):
    out, stranger = tmp_path / "out", tmp_path / "stranger"
    convert_model(str(folder), str(out), jnp.float32)
    with pytest.raises(FileExistsError, match="is a checkpoint already"):
        convert_model(str(folder), str(out), jnp.bfloat16)
    assert checkpoint.read_manifest(out)["dtype"] == "float32"
    convert_model(str(folder), str(out), jnp.bfloat16, force=True)
    assert checkpoint.read_manifest(out)["dtype"] == "bfloat16"
    stranger.mkdir()
    (stranger / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is no checkpoint"):
        convert_model(str(folder), str(stranger), jnp.float32, force=True)
    assert (stranger / "notes.txt").read_text() == "mine"


KILL_AT = """
import no_torch, os, signal, sys
from ragjax.weights import checkpoint, convert
module, name = {"weights": (checkpoint, "_save_params"), "manifest": (checkpoint, "_manifest")}[sys.argv[3]]
work = getattr(module, name)
def killed(*args):
    work(*args)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, name, killed)
convert.main([sys.argv[1], "--out", sys.argv[2]])
"""


@pytest.mark.parametrize("moment", ["weights", "manifest"])
def test_a_killed_conversion_leaves_nothing_that_loads(folder, tmp_path, moment):
    out = tmp_path / "out"
    done = run(KILL_AT, str(folder), str(out), moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [".out.partial"]
    assert not checkpoint.is_checkpoint(tmp_path / left[0])
    convert_model(str(folder), str(out), jnp.float32)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert same(hub.load(out).params, hub.load(folder).params)


def test_a_failed_conversion_leaves_an_old_checkpoint_alone(folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    convert_model(str(folder), str(out), jnp.float32)
    monkeypatch.setattr(checkpoint, "_manifest", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert_model(str(folder), str(out), jnp.bfloat16, force=True)
    assert hub.load(out, dtype=jnp.float32).dtype == jnp.float32
    assert checkpoint.read_manifest(out)["dtype"] == "float32"


def test_a_folder_without_a_manifest_is_no_checkpoint(converted, tmp_path):
    copy = shutil.copytree(converted, tmp_path / "copy")
    (copy / "ragjax.json").unlink()
    with pytest.raises(FileNotFoundError, match="no finished checkpoint"):
        checkpoint.read_manifest(copy)
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors"):
        hub.load(copy)


def test_another_format_is_refused(converted, tmp_path):
    copy = shutil.copytree(converted, tmp_path / "copy")
    manifest = json.loads((copy / "ragjax.json").read_text())
    (copy / "ragjax.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ValueError, match="checkpoint format 99"):
        hub.load(copy)


def test_a_checkpoint_that_does_not_fit_is_refused_naming_the_leaves(converted):
    other = abstract(tiny_config(num_layers=4, intermediate_size=96), jnp.float32)
    with pytest.raises(ValueError, match=r"layers\.3\.mlp\.gate is missing") as error:
        checkpoint.restore(converted, other)
    assert "layers.0.attention.q_bias is over" in str(error.value)
    assert "layers.0.mlp.down has shape [80, 48], not [96, 48]" in str(error.value)


RESTORE = """
import no_torch, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from ragjax.models.decoder import abstract
from ragjax.weights import checkpoint
from ragjax.weights.opening import open_published
published = open_published(sys.argv[2])
target = abstract(published.config, jnp.float32)
plain, _ = published.load_params(jnp.float32)
for shape in ((1, 1), (1, 2), (2, 4)):
    mesh = jax.make_mesh(shape, ("data", "model"), devices=jax.devices()[: shape[0] * shape[1]])
    place = lambda s: NamedSharding(mesh, P(*("model" if a == "F" else None for a in s.axes)))
    wanted = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place(s)), target)
    restored = checkpoint.restore(sys.argv[1], wanted)
    gate = restored.layers[0].mlp.gate
    assert len(gate.addressable_shards) == shape[0] * shape[1]
    assert gate.addressable_shards[0].data.shape[1] == gate.shape[1] // shape[1]
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(np.asarray(a), np.asarray(b)), restored, plain))
print("bit-equal")
"""


def test_H07_restores_onto_the_sharding_that_the_caller_gives(folder, converted):
    done = run(RESTORE, str(converted), str(folder), XLA_FLAGS="--xla_force_host_platform_device_count=8")
    assert "bit-equal" in done.stdout, done.stderr


def test_the_command_line_tells_what_it_did(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    convert.main([str(folder), "--dtype", "bfloat16"])
    told = capsys.readouterr().out
    assert f"{tmp_path / 'tiny'}: " in told
    assert "read: 42 tensors" in told
    assert "left alone: nothing" in told
    with pytest.raises(SystemExit) as stop:
        convert.main([str(folder)])
    assert stop.value.code == 1
    assert "is a checkpoint already" in capsys.readouterr().err
    manifest = checkpoint.read_manifest(tmp_path / "tiny")
    assert hub.load("tiny").fingerprint == checkpoint.fingerprint_of(tmp_path / "tiny", manifest)
