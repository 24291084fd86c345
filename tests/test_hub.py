"""From a name to a model: where it is looked for, loaded once, and which ids end its texts."""

import errno
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import jax
import jax.numpy as jnp
import pytest
from huggingface_hub import errors

from ragjax import hub
from ragjax.memory import check_models
from ragjax.models.embedding_config import EmbeddingConfig
from ragjax.testing import (
    byte_tokenizer,
    encoder_tokenizer,
    random_encoder_params,
    random_params,
    tiny_config,
    tiny_encoder_config,
    tiny_model,
    write_checkpoint,
)
from ragjax.weights.convert import convert_model
from ragjax.weights.download import fetch_small
from tests.weights.gguf_files import write_gguf

CONFIG = tiny_config()
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_checkpoint(
        tmp_path_factory.mktemp("hub") / "tiny", CONFIG, random_params(CONFIG, seed=417), byte_tokenizer()
    )


def parameter_bytes() -> int:
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def test_C09_the_same_model_is_held_once_while_in_use(folder):
    before = parameter_bytes()
    compressor = hub.load(folder)
    once = parameter_bytes() - before
    reader = hub.load(str(folder))
    assert reader.params is compressor.params
    assert parameter_bytes() - before == once == sum(leaf.nbytes for leaf in jax.tree.leaves(compressor.params))
    other = hub.load(folder, dtype=jnp.bfloat16)
    assert other.params is not compressor.params
    del compressor, reader, other
    assert parameter_bytes() == before


def test_C09_a_changed_folder_is_loaded_anew(tmp_path):
    first = hub.load(write_checkpoint(tmp_path, CONFIG, random_params(CONFIG, seed=1), byte_tokenizer()))
    second = hub.load(write_checkpoint(tmp_path, CONFIG, random_params(CONFIG, seed=2), byte_tokenizer()))
    assert first.fingerprint != second.fingerprint
    assert first.params is not second.params


def test_a_cpu_gets_float32_unless_asked(folder):
    assert hub.load(folder).dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(hub.load(folder, dtype="bfloat16").params)} == {
        jnp.dtype("bfloat16")
    }


def test_vocab_width_is_what_the_tokenizer_can_emit(folder):
    model = hub.load(folder)
    assert (model.config.vocab_size, model.vocab_width, len(model.tokenizer)) == (272, 261, 261)
    assert tiny_model(vocab_size=200).vocab_width == 200


def test_a_vocabulary_is_that_of_the_model_without_its_weights(folder, tmp_path, monkeypatch):
    convert_model(str(folder), str(tmp_path / "converted"))
    written = write_gguf(tmp_path / "tiny.gguf", CONFIG, random_params(CONFIG))
    monkeypatch.setattr("ragjax.weights.checkpoint.restore", None)
    monkeypatch.setattr("ragjax.weights.opening.fill", None)
    letters = {(text, id) for text, id in byte_tokenizer().get_vocab().items() if id < 256}
    for source in (folder, tmp_path / "converted", written):
        found = hub.load_vocabulary(source)
        assert (found.name, found.vocab_width) == (str(source), 261)
        assert letters <= found.tokenizer.get_vocab().items()
        assert found.tokenizer.chat_template


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (7, 8, (7, 8, 257)),
        ([128001, 128009], 128009, (128001, 128009, 257)),
        ([1, 106], None, (1, 106, 257)),
        (None, [5, 257], (5, 257)),
        (None, None, (257,)),
        ([], 0, (0, 257)),
    ],
)
def test_B05_stop_ids_are_the_union_of_all_sources_in_order(generation, config, expected):
    tokenizer = byte_tokenizer()
    assert hub.stop_ids({"eos_token_id": config}, {"eos_token_id": generation}, tokenizer) == expected
    tokenizer.eos_token = None
    assert hub.stop_ids({}, {}, tokenizer) == ()


@pytest.mark.parametrize("wrong", ["2", -1, True, [1, None, 2.0]])
def test_B05_what_is_no_id_is_refused_naming_its_source(wrong):
    with pytest.raises(ValueError, match=r"eos_token_id of generation_config\.json"):
        hub.stop_ids({}, {"eos_token_id": wrong}, byte_tokenizer())


def test_B05_a_loaded_model_stops_at_every_id(tmp_path):
    write_checkpoint(tmp_path, CONFIG, random_params(CONFIG, seed=417), byte_tokenizer())
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | {"eos_token_id": [3, 260]}))
    assert hub.load(tmp_path).stop_ids == (257, 260, 3)
    convert_model(str(tmp_path), str(tmp_path / "out"))
    assert hub.load(tmp_path / "out").stop_ids == (257, 260, 3)


@pytest.mark.shared
def test_B05_real_instruct_models_stop_at_the_end_of_a_turn(shared):
    configs, tokenizer = shared / "models" / "configs", byte_tokenizer()
    tokenizer.eos_token = None
    found = {}
    for name in ("meta-llama__Meta-Llama-3-8B-Instruct", "meta-llama__Llama-3.1-8B-Instruct"):
        both = [json.loads((configs / f"{name}{end}").read_text()) for end in (".json", ".generation.json")]
        found[name] = hub.stop_ids(*both, tokenizer)
    assert set(found["meta-llama__Meta-Llama-3-8B-Instruct"]) == {128001, 128009}
    assert set(found["meta-llama__Llama-3.1-8B-Instruct"]) == {128001, 128008, 128009}


def test_a_hub_name_is_found_among_converted_checkpoints_first(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    convert_model(str(folder), str(tmp_path / "some-org--some-model"))
    assert hub.load("some-org/some-model").name == "some-org/some-model"
    assert hub.load("some-org--some-model").config == CONFIG


def test_a_hub_name_is_fetched_with_only_the_files_it_needs(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    asked = {}

    def snapshot(name, **patterns):
        asked.update(patterns, name=name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert hub.load("some-org/some-model").config == CONFIG
    assert asked["name"] == "some-org/some-model"
    assert not any(pattern.endswith((".bin", ".pth", ".gguf", "*")) for pattern in asked["allow_patterns"])


def test_the_config_of_a_sentence_encoders_pooling_is_fetched_too(tmp_path, monkeypatch):
    cfg = tiny_encoder_config(num_layers=1)
    write_checkpoint(tmp_path, cfg, random_encoder_params(cfg), encoder_tokenizer())
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    calls = []

    def snapshot(name, allow_patterns, ignore_patterns):
        calls.append(allow_patterns)
        if filter_repo_objects(["1_Pooling/config.json"], allow_patterns, ignore_patterns):
            (tmp_path / "1_Pooling").mkdir(exist_ok=True)
            (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
        return str(tmp_path)

    def filter_repo_objects(items, allowed, ignored):
        return list(huggingface_hub.utils.filter_repo_objects(items, allow_patterns=allowed, ignore_patterns=ignored))

    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert hub.load("some-org/some-model").embedding == EmbeddingConfig("cls", normalize=True)
    assert calls[1:] == [["1_Pooling/config.json"]]
    hub.load("some-org/some-model")
    assert len(calls) == 3


def answer(kind, status=None, cause=None):
    """An error of the hub's library, whose constructors want an HTTP response."""
    error = kind.__new__(kind)
    error.response, error.__cause__ = SimpleNamespace(status_code=status), cause
    return error


REFUSED, FORBIDDEN = (answer(errors.HfHubHTTPError, status) for status in (401, 403))
SETTINGS = "https://huggingface.co/settings/tokens"
ANSWERS = [
    (answer(errors.GatedRepoError, 401), None, ["licence at https://huggingface.co/org/name", "HF_TOKEN"]),
    (answer(errors.GatedRepoError, 403), "hf_x", ["licence at https://huggingface.co/org/name", "with that account"]),
    (answer(errors.RepositoryNotFoundError, 401), None, ["no such repository", "private", "HF_TOKEN"]),
    (answer(errors.RepositoryNotFoundError, 404), "hf_x", ["no such repository", "your token", SETTINGS]),
    (REFUSED, "hf_x", ["wrong or has expired", "hf auth login", "unset HF_TOKEN", SETTINGS]),
    (FORBIDDEN, "hf_x", ["forbids", SETTINGS]),
    (answer(errors.LocalEntryNotFoundError, cause=FORBIDDEN), "hf_x", ["forbids", SETTINGS]),
    (answer(errors.HfHubHTTPError, 500), None, ["cannot be reached", "load that folder"]),
    (answer(errors.LocalEntryNotFoundError), None, ["cannot be reached", "load that folder"]),
    (answer(errors.OfflineModeIsEnabled), "hf_x", ["cannot be reached", "load that folder"]),
]


@pytest.mark.parametrize(("error", "token", "words"), ANSWERS)
def test_a_model_that_cannot_be_had_says_what_to_do(error, token, words, tmp_path, monkeypatch):
    def ask(*_, **__):
        raise error

    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.get_token", lambda: token)
    monkeypatch.setattr("huggingface_hub.snapshot_download", ask)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", ask)
    for want in (lambda: hub.load("org/name"), lambda: check_models([("org/name", None, "causal")])):
        with pytest.raises(FileNotFoundError) as raised:
            want()
        assert all(word in str(raised.value) for word in [*words, "org/name"])
        assert "\n" not in str(raised.value)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of that name under .*home"):
        hub.load("org/name")


def test_a_full_disk_is_not_blamed_on_the_network(tmp_path, monkeypatch):
    def ask(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", ask)
    with pytest.raises(OSError, match="No space left"):
        hub.load("org/name")


@pytest.mark.parametrize("had", [["config.json"], ["config.json", "tf_model.h5"], []])
def test_a_config_that_an_earlier_check_left_in_the_cache_is_no_model(had, tmp_path, monkeypatch):
    for name in had:
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"org/name: .* no weights came of it") as raised:
        hub.load("org/name")
    words = ["load that folder", f"only {', '.join(had)}" if had else "no file at all"]
    assert all(word in str(raised.value) for word in words)


def test_a_small_file_that_a_model_in_the_cache_lacks_is_no_error_without_a_network(folder, monkeypatch):
    def ask(*_, **__):
        raise answer(errors.LocalEntryNotFoundError)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", ask)
    with pytest.raises(FileNotFoundError, match="cannot be reached"):
        fetch_small("org/name", "generation_config.json")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(folder / "config.json"))
    assert fetch_small("org/name", "generation_config.json") is None


@pytest.mark.parametrize("source", ["./nowhere", "/no/such/folder", "missing.gguf", "a/b/c"])
def test_a_path_that_is_not_there_is_said_to_be_so(source):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        hub.load(source)


IMPORTS = """
import sys
if sys.argv[1] == "absent":
    import no_torch
import ragjax, ragjax.hub, ragjax.testing, ragjax.weights.convert, ragjax.models.decoder
from jax._src import xla_bridge
assert "torch" not in sys.modules and "transformers" not in sys.modules
assert not xla_bridge.backends_are_initialized()
if sys.argv[1] == "absent":
    model = ragjax.hub.load(sys.argv[2])
    ragjax.weights.convert.main([sys.argv[2], "--out", sys.argv[3]])
    again = ragjax.hub.load(sys.argv[3])
    assert again.tokenizer.encode("x") == model.tokenizer.encode("x")
    assert "torch" not in sys.modules
    print(float(abs(again.params.embedding - model.params.embedding).max()))
"""


@pytest.mark.parametrize("torch", ["present", "absent"])
def test_A21_imports_touch_no_torch_and_no_device(folder, tmp_path, torch):
    paths = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'weights'}"
    command = [sys.executable, "-c", IMPORTS, torch, str(folder), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert torch == "present" or done.stdout.splitlines()[-1] == "0.0"
