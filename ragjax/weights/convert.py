"""`python -m ragjax.weights.convert SRC`: a published model becomes a checkpoint that says where it is from.

SRC is a folder of safetensors or of PyTorch's files (read without PyTorch), a .gguf file, or a hub name that is fetched
first. Tensors stream one by one; the ledger of what was read and what was left alone is printed.
"""

import argparse
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from etils import epath

from ragjax.runtime import setup
from ragjax.weights import checkpoint
from ragjax.weights.download import fetch
from ragjax.weights.fingerprint import fingerprint_cast
from ragjax.weights.keymap import Ledger
from ragjax.weights.opening import Published, open_published


def convert_model(
    source: str, out: str | None = None, dtype: Any = jnp.float32, force: bool = False, progress: bool = False
) -> tuple[epath.Path, Ledger]:
    """Convert `source` into the checkpoint folder `out` (default: its name under `RAGJAX_HOME`).

    Returns the folder and the ledger. Peak memory over the baseline stays within the converted bytes, 2.5 times the
    largest tensor, and 100 MiB.

    Raises:
        FileExistsError: if `out` exists and `force` is not given.
        OutOfMemoryError: if the weights are more than the memory that is free; none were read.
        ValueError: naming what in the source is refused.
    """
    folder = epath.Path(out) if out else checkpoint.home() / default_name(source)
    checkpoint.check_free(folder, force)
    published = open_published(Path(source) if Path(source).exists() else fetch(source))
    tokenizer = published.load_tokenizer()
    params, ledger = published.load_params(jnp.dtype(dtype), progress)
    checkpoint.save(folder, params, tokenizer, _provenance(source, published, dtype), force)
    return folder, ledger


def default_name(source: str) -> str:
    """The folder name of a source: `org--name` for a hub name, the last part of a path without `.gguf`."""
    path = Path(source)
    return path.name.removesuffix(".gguf") if path.exists() else source.replace("/", "--")


def main(argv: list[str] | None = None) -> None:
    """Command line of the conversion."""
    parser = argparse.ArgumentParser(prog="python -m ragjax.weights.convert", description="Convert a published model.")
    parser.add_argument("source", help="folder of safetensors or pytorch_model.bin, .gguf file or hub name")
    parser.add_argument("--out", help="checkpoint folder (default: the source's name under RAGJAX_HOME)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--force", action="store_true", help="replace an existing checkpoint")
    args = parser.parse_args(argv)
    setup(cache="")
    try:
        folder, ledger = convert_model(args.source, args.out, args.dtype, args.force, progress=True)
    except (OSError, ValueError, ImportError) as error:
        parser.exit(1, f"{error}\n")
    print(summary(folder, ledger))


def summary(folder: epath.Path, ledger: Ledger) -> str:
    """What a conversion did, in a few lines."""
    manifest = checkpoint.read_manifest(folder)
    size = f"{manifest['parameters']:,} parameters, {manifest['bytes'] / 1e6:,.0f} MB in {manifest['dtype']}"
    skipped = [*ledger.skipped, *(f"{name} (equal to {original})" for name, original in ledger.copies)]
    return "\n".join(
        [
            f"{folder}: {size}",
            f"read: {len(ledger.entries)} tensors, each into one leaf",
            f"left alone: {', '.join(skipped) or 'nothing'}",
        ]
    )


def _provenance(source: str, published: Published, dtype: Any) -> dict[str, Any]:
    fingerprint = published.fingerprint()
    return {
        "source": source,
        "source_fingerprint": fingerprint,
        "fingerprint": fingerprint_cast(fingerprint, dtype),
        "config": dict(published.raw_config),
        "generation_config": dict(published.generation_config),
        checkpoint.SENTENCE_FILES: dict(published.sentence_files),
    }


if __name__ == "__main__":
    main()
