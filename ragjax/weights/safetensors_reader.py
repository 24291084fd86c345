"""Folders of safetensors files: one file, or shards under an index.

Headers are read and checked first (every shard there, whole, and holding what the index says, no key twice); tensors
come later, one by one, as numpy arrays in their stored dtype. bfloat16 arrives bit for bit through ml_dtypes.
"""

import functools
import json
import struct
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ragjax.weights.keymap import TensorInfo
from ragjax.weights.stream import TensorSource

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def open_safetensors(folder: str | Path) -> TensorSource:
    """Check a folder's safetensors files and open them.

    Raises:
        FileNotFoundError: if the folder holds none (naming the other weight files it does hold).
        ValueError: naming each shard that is missing or cut short, with the keys it should hold, and each key that is
            missing, stored twice or absent from the index.
    """
    folder = Path(folder)
    listed = weight_files(folder)
    problems: list[str] = []
    owner: dict[str, str] = {}
    tensors: dict[str, TensorInfo] = {}
    for file, keys in listed.items():
        header = _checked_header(folder / file, keys, problems)
        for name in header:
            if name in owner:
                problems.append(f"{name} is stored in both {owner[name]} and {file}")
        owner |= dict.fromkeys(header, file)
        tensors |= header
    if problems:
        raise ValueError(f"{folder}: " + "; ".join(problems))
    handle = functools.cache(lambda file: safe_open(folder / file, framework="numpy"))
    return TensorSource(str(folder), tensors, lambda name, _: handle(owner[name]).get_tensor(name))


def weight_files(folder: Path) -> dict[str, tuple[str, ...] | None]:
    """The safetensors files of a folder, each with the keys that an index gives to it (None without an index)."""
    index, single = folder / INDEX, folder / SINGLE
    if not index.exists():
        if single.exists():
            return {SINGLE: None}
        others = sorted(p.name for p in folder.glob("*") if p.suffix in {".bin", ".pth", ".safetensors", ".gguf"})
        hint = f" (it holds {', '.join(others)})" if others else ""
        raise FileNotFoundError(f"{folder}: neither {SINGLE} nor {INDEX}{hint}")
    weight_map = _weight_map(index)
    shards = {file: tuple(k for k, f in weight_map.items() if f == file) for file in sorted(set(weight_map.values()))}
    if single.exists() and SINGLE not in shards:
        raise ValueError(f"{folder}: both {SINGLE} and {INDEX}, which does not list it: keep one of them")
    return shards


def _weight_map(index: Path) -> dict[str, str]:
    """The shard of each key. Raises ValueError, naming file and key, where the index does not say it."""
    try:
        stated = json.loads(index.read_text())
    except ValueError as error:
        raise ValueError(f"{index}: not JSON ({error})") from None
    weight_map = stated.get("weight_map") if isinstance(stated, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index}: no weight_map, from keys to files, in it")
    for key, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(f"{index}: {key} lies in {file!r}, which is no file of this folder")
    return weight_map


def _checked_header(path: Path, keys: tuple[str, ...] | None, problems: list[str]) -> dict[str, TensorInfo]:
    """The tensors of one file; whatever is wrong with it goes to `problems`."""
    expected = _some(keys or ())
    if not path.exists():
        problems.append(f"{path.name} is missing; the index puts {expected} in it")
        return {}
    header = _header(path)
    if header is None:
        problems.append(f"{path.name} is no whole safetensors file; it should hold {expected or 'the weights'}")
        return {}
    start, entries = header
    size = path.stat().st_size
    cut = [name for name, entry in entries.items() if start + entry["data_offsets"][1] > size]
    if cut:
        problems.append(f"{path.name} is cut short ({size} bytes); incomplete: {_some(cut)}")
    if keys is not None:
        problems += [f"{name} is not in {path.name}, where the index puts it" for name in keys if name not in entries]
        problems += [f"{name} is in {path.name}, but the index does not say so" for name in entries if name not in keys]
    return {name: TensorInfo(tuple(e["shape"]), _DTYPES.get(e["dtype"], e["dtype"])) for name, e in entries.items()}


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


def _some(names: tuple[str, ...] | list[str]) -> str:
    """Up to three names and a count of the rest."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
