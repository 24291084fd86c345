"""Fingerprints: 128-bit content hashes by which results tell which model made them, wherever its files lie."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ragjax.typing import PyTree
from ragjax.weights.keymap import leaf_specs

_BLOCK = 1 << 24


def fingerprint_files(files: Mapping[str, Path]) -> str:
    """Hash of the names (the keys) and the contents of files, in the order of the names."""
    digest = xxhash.xxh3_128()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def fingerprint_cast(fingerprint: str, dtype: Any) -> str:
    """Fingerprint of a checkpoint that was converted to `dtype` from the files behind `fingerprint`."""
    return xxhash.xxh3_128_hexdigest(f"{fingerprint}\0{np.dtype(dtype).name}".encode())


def fingerprint_params(config: Any, params: PyTree) -> str:
    """Hash of a config's text and of every leaf's path, dtype and bytes: for parameters that came from no file."""
    digest = xxhash.xxh3_128(repr(config).encode())
    for path, leaf in leaf_specs(params).items():
        value = np.asarray(leaf)
        digest.update(f"{path}\0{value.dtype.name}\0".encode())
        digest.update(np.ascontiguousarray(value).view(np.uint8))
    return digest.hexdigest()
