"""What weights need against what is free, before any of them is read."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from ragjax import hub
from ragjax.models.published import published_config
from ragjax.testing import byte_tokenizer, random_params, tiny_config, write_checkpoint
from ragjax.weights import room
from ragjax.weights.convert import convert_model
from ragjax.weights.room import OutOfMemoryError, free_memory, in_units, require_room_for, weight_bytes

CONFIG = tiny_config(num_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    params = random_params(CONFIG, seed=83)
    return write_checkpoint(tmp_path_factory.mktemp("room") / "tiny", CONFIG, params, byte_tokenizer())


def test_the_bytes_are_those_of_the_parameters():
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(random_params(CONFIG)))
    assert weight_bytes(CONFIG, jnp.float32) == held
    assert weight_bytes(CONFIG, "bfloat16") == held // 2
    assert weight_bytes(replace(CONFIG, num_layers=2), jnp.float32) > held


def free(monkeypatch, size):
    monkeypatch.setattr(room, "free_memory", lambda: (size, "here"))


def test_what_does_not_fit_is_refused_unread_by_every_way_of_loading(folder, tmp_path, monkeypatch):
    convert_model(str(folder), str(tmp_path / "converted"))
    free(monkeypatch, weight_bytes(CONFIG, jnp.bfloat16))
    monkeypatch.setattr("ragjax.weights.checkpoint.restore", lambda *_: pytest.fail("weights were read"))
    monkeypatch.setattr("ragjax.weights.opening.fill", lambda *_: pytest.fail("weights were read"))
    ways = (
        lambda: hub.load(folder, dtype="float32"),
        lambda: hub.load(tmp_path / "converted", dtype="float32"),
        lambda: convert_model(str(folder), str(tmp_path / "again")),
    )
    for way in ways:
        with pytest.raises(
            OutOfMemoryError, match=r"\(0 MB for .* in float32\).* free here, where the cache and the temp"
        ):
            way()
    assert not (tmp_path / "again").exists()


def test_what_just_fits_and_what_is_held_are_not_refused(folder, monkeypatch):
    free(monkeypatch, weight_bytes(CONFIG, jnp.bfloat16))
    held = hub.load(folder, dtype="bfloat16")
    free(monkeypatch, 0)
    assert hub.load(folder, dtype="bfloat16").params is held.params


def test_a_device_that_does_not_tell_refuses_nothing(monkeypatch):
    large = published_config("mistralai/Mixtral-8x7B-Instruct-v0.1")
    free(monkeypatch, 10**9)
    with pytest.raises(OutOfMemoryError):
        require_room_for("large", large, jnp.float32)
    free(monkeypatch, None)
    assert require_room_for("large", large, jnp.float32) is None


def test_sizes_are_told_in_units_that_suit_them(monkeypatch):
    assert [in_units(size) for size in (450_000, 268_098_176, 999_000_000, 1e9, 16_060_522_496)] == [
        "0 MB",
        "268 MB",
        "999 MB",
        "1.0 GB",
        "16.1 GB",
    ]
    free(monkeypatch, 8 * 10**9)
    with pytest.raises(
        OutOfMemoryError, match=r"need 32\.1 GB \(32\.1 GB for org/name in float32\) and 8\.0 GB are free"
    ):
        require_room_for("org/name", published_config("meta-llama/Llama-3.1-8B-Instruct"), "float32")


def test_asking_takes_no_time_to_speak_of():
    cfg = published_config("meta-llama/Llama-3.2-1B-Instruct")
    started = time.perf_counter()
    for _ in range(5):
        weight_bytes(cfg, jnp.bfloat16)
        free_memory()
    assert (time.perf_counter() - started) / 5 < 0.1


def test_this_machine_tells_its_memory():
    free, place = free_memory()
    assert 1e8 < free < 1e14
    assert place == "on this machine"


def test_a_container_bounds_the_memory(tmp_path, monkeypatch):
    group = {"/sys/fs/cgroup/memory.max": "1000", "/sys/fs/cgroup/memory.stat": "anon 300\nfile 600\n"}
    monkeypatch.setattr(room, "_text", lambda path: group.get(str(path), ""))
    assert free_memory()[0] == 700
