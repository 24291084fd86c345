"""What models need against what there is, before anything is loaded or fetched whole."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from huggingface_hub import errors

from ragjax import memory
from ragjax.memory import OutOfMemoryError, check_models, free_memory, read_config, weight_bytes
from ragjax.testing import byte_tokenizer, random_params, tiny_config, write_checkpoint
from ragjax.weights.convert import convert_model

CONFIG = tiny_config(num_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("memory") / "tiny", CONFIG, random_params(CONFIG), byte_tokenizer())


def test_the_bytes_are_those_of_the_parameters():
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(random_params(CONFIG)))
    assert weight_bytes(CONFIG, jnp.float32) == held
    assert weight_bytes(CONFIG, "bfloat16") == held // 2
    assert weight_bytes(replace(CONFIG, num_layers=2), jnp.float32) > held


def test_a_folder_and_its_checkpoint_have_one_config(folder, tmp_path):
    convert_model(str(folder), str(tmp_path / "out"))
    assert read_config(memory.epath.Path(folder)) == read_config(memory.epath.Path(tmp_path / "out")) == CONFIG


def test_too_little_memory_is_told_with_each_models_share(folder, tmp_path, monkeypatch):
    convert_model(str(folder), str(tmp_path / "other"))
    need = weight_bytes(CONFIG, jnp.float32)
    models = [(str(folder), None), (str(folder), None), (str(tmp_path / "other"), "float32")]
    monkeypatch.setattr(memory, "free_memory", lambda: (2 * need, "here"))
    check_models(models)
    monkeypatch.setattr(memory, "free_memory", lambda: (2 * need - 1, "here"))
    with pytest.raises(OutOfMemoryError, match=r"other in float32\) and 0\.0 GB are free here: choose smaller models"):
        check_models(models)
    monkeypatch.setattr(memory, "free_memory", lambda: (None, "here"))
    check_models(models)


def test_this_machine_tells_its_memory():
    free, place = free_memory()
    assert 1e8 < free < 1e14
    assert place == "on this machine"


def test_a_container_bounds_the_memory(tmp_path, monkeypatch):
    group = {"/sys/fs/cgroup/memory.max": "1000", "/sys/fs/cgroup/memory.stat": "anon 300\nfile 600\n"}
    monkeypatch.setattr(memory, "_text", lambda path: group.get(str(path), ""))
    assert free_memory()[0] == 700


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, "licence at https://huggingface.co/org/name"),
        (errors.RepositoryNotFoundError, "no such repository"),
        (errors.LocalEntryNotFoundError, "cannot be reached"),
        (errors.RemoteEntryNotFoundError, "no config.json"),
    ],
)
def test_a_model_that_cannot_be_had_is_told_from_its_config_alone(kind, words, folder, monkeypatch, tmp_path):
    def download(name, file):
        assert file == "config.json"
        raise kind.__new__(kind)

    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("fetched whole"))
    with pytest.raises(FileNotFoundError, match=words):
        check_models([(str(folder), None), ("org/name", None)])


def test_a_hub_models_config_is_enough(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(folder / file))
    check_models([("org/name", None)])


def test_a_config_that_is_refused_names_its_file(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ValueError, match=r"config\.json: .*unheard-of"):
        check_models([(str(tmp_path), None)])
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        check_models([(str(tmp_path), None)])
