"""A safetensors file: a header that says what it holds and where, then the bytes of the tensors.

The header is read and checked here, so that a file that was cut short is known before any tensor is asked for.
bfloat16 arrives bit for bit through ml_dtypes.
"""

import functools
import json
import struct
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ragjax.weights.keymap import TensorInfo
from ragjax.weights.shards import Format, WeightFile, some

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def open_safetensors(path: Path) -> WeightFile:
    """Open one file. Raises ValueError, naming tensors, if it is not whole."""
    header = _header(path)
    if header is None:
        raise ValueError("is no whole safetensors file")
    start, entries = header
    size = path.stat().st_size
    cut = [name for name, entry in entries.items() if start + entry["data_offsets"][1] > size]
    if cut:
        raise ValueError(f"is cut short ({size} bytes), so that {some(cut)} are incomplete")
    tensors = {name: TensorInfo(tuple(e["shape"]), _DTYPES.get(e["dtype"], e["dtype"])) for name, e in entries.items()}
    handle = functools.cache(lambda: safe_open(path, framework="numpy"))
    return WeightFile(tensors, lambda name: handle().get_tensor(name))


SAFETENSORS = Format("model.safetensors", "model.safetensors.index.json", open_safetensors)


def _header(path: Path) -> tuple[int, dict[str, Any]] | None:
    """Where the data starts and the entry of each tensor, or None if the header is not whole."""
    with path.open("rb") as file:
        length = file.read(8)
        if len(length) < 8:
            return None
        (count,) = struct.unpack("<Q", length)
        if count > path.stat().st_size - 8:
            return None
        try:
            entries = json.loads(file.read(count))
        except ValueError:
            return None
    if not isinstance(entries, dict):
        return None
    entries.pop("__metadata__", None)
    whole = all(isinstance(e, dict) and {"dtype", "shape", "data_offsets"} <= set(e) for e in entries.values())
    return (8 + count, entries) if whole else None
