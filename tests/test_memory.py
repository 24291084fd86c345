"""What models need against what there is, before anything is loaded or fetched whole."""

import json

import jax.numpy as jnp
import pytest
from etils import epath
from huggingface_hub import errors

from ragjax import hub
from ragjax.memory import check_models, read_config
from ragjax.testing import byte_tokenizer, random_params, tiny_config, write_checkpoint
from ragjax.weights import convert, room
from ragjax.weights.convert import convert_model
from ragjax.weights.room import OutOfMemoryError, weight_bytes

CONFIG = tiny_config(num_layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("memory") / "tiny", CONFIG, random_params(CONFIG), byte_tokenizer())


def test_a_folder_and_its_checkpoint_have_one_config(folder, tmp_path):
    convert_model(str(folder), str(tmp_path / "out"))
    assert read_config(epath.Path(folder)) == read_config(epath.Path(tmp_path / "out")) == CONFIG


def test_too_little_memory_is_told_with_each_models_share(folder, tmp_path, monkeypatch):
    convert_model(str(folder), str(tmp_path / "other"))
    need = weight_bytes(CONFIG, jnp.float32)
    models = [
        (str(folder), None, "causal"),
        (str(folder), None, "causal"),
        (str(tmp_path / "other"), "float32", "causal"),
    ]
    monkeypatch.setattr(room, "free_memory", lambda: (2 * need, "here"))
    check_models(models)
    monkeypatch.setattr(room, "free_memory", lambda: (2 * need - 1, "here"))
    with pytest.raises(OutOfMemoryError, match=r"other in float32\) and \d+ MB are free here, .* choose smaller"):
        check_models(models)
    monkeypatch.setattr(room, "free_memory", lambda: (None, "here"))
    check_models(models)


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
        check_models([(str(folder), None, "causal"), ("org/name", None, "causal")])


def test_a_hub_models_config_is_enough(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(folder / file))
    check_models([("org/name", None, "causal")])


def no_folder(path):
    return f"{path}: no such file or folder"


def no_config(path):
    path.mkdir()
    return f"{path}: no config.json in it"


def no_json(path):
    path.mkdir()
    (path / "config.json").write_text("[1, 2]")
    return f"{path / 'config.json'}: not a JSON object"


def another_family(path):
    write_checkpoint(path, CONFIG, random_params(CONFIG), byte_tokenizer())
    (path / "config.json").write_text('{"model_type": "unheard-of"}')
    return f"{path / 'config.json'}: config refused: model_type 'unheard-of' is not supported"


def unknown_attribute(path):
    write_checkpoint(path, CONFIG, random_params(CONFIG), byte_tokenizer())
    raw = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(raw | {"mystery": 1}))
    return f"{path / 'config.json'}: config refused: mystery is 1; this attribute is not known"


def no_gguf(path):
    path.write_text("notes")
    return f"{path}: not a whole GGUF file"


def torn_manifest(path):
    path.mkdir()
    (path / "ragjax.json").write_text('{"format": 1, "con')
    return f"{path / 'ragjax.json'}: not a manifest"


def manifest_of_another_family(path):
    path.mkdir()
    (path / "ragjax.json").write_text('{"format": 1, "config": {"model_type": "unheard-of"}}')
    return f"{path / 'ragjax.json'}: config refused: model_type 'unheard-of'"


UNUSABLE = [no_folder, no_config, no_json, another_family, unknown_attribute, no_gguf]
UNUSABLE += [torn_manifest, manifest_of_another_family]


@pytest.mark.parametrize("make", UNUSABLE)
def test_a_local_path_that_cannot_be_used_is_told_before_anything_is_read(make, tmp_path, monkeypatch, capsys):
    source = str(tmp_path / "mine")
    words = make(tmp_path / "mine")
    for module, name in (("stream", "fill"), ("checkpoint", "restore"), ("fingerprint", "fingerprint_files")):
        monkeypatch.setattr(f"ragjax.weights.{module}.{name}", lambda *_: pytest.fail("weights were read"))
    for use in (lambda: check_models([(source, None, "causal")]), lambda: hub.load(source)):
        with pytest.raises((FileNotFoundError, ValueError)) as error:
            use()
        assert words in str(error.value)
    if "ragjax.json" not in words:
        with pytest.raises(SystemExit) as stop:
            convert.main([source, "--out", str(tmp_path / "out")])
        assert (stop.value.code, words in capsys.readouterr().err) == (1, True)
    assert not (tmp_path / "out").exists()
