"""Folders of weight files, whatever their format: one file, or shards under an index.

What the files say of their tensors is read and checked first (every shard there, whole, and holding what the index
says, no key twice); tensors come later, one by one, as numpy arrays in their stored dtype.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragjax.weights.keymap import TensorInfo
from ragjax.weights.stream import TensorSource


@dataclass(frozen=True)
class WeightFile:
    """One file, opened: what it holds, and a function that reads one tensor."""

    tensors: Mapping[str, TensorInfo]
    read: Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Format:
    """The names that a format's files have in a folder, alone and as shards, and how one of them is opened.

    `open` raises ValueError for a file that cannot be taken, in words that follow the file's name.
    """

    single: str
    index: str
    open: Callable[[Path], WeightFile]

    def is_in(self, folder: Path) -> bool:
        """Whether a folder holds such weights."""
        return (folder / self.single).exists() or (folder / self.index).exists()


def open_weights(folder: str | Path, form: Format) -> TensorSource:
    """Check a folder's weight files of one format and open them.

    Raises:
        ValueError: naming each shard that is missing or refused, with the keys it should hold, and each key that is
            missing, stored twice or absent from the index.
    """
    folder = Path(folder)
    problems: list[str] = []
    owner: dict[str, str] = {}
    files: dict[str, WeightFile] = {}
    for name, keys in weight_files(folder, form).items():
        file = _opened(folder / name, keys, form, problems)
        if file is None:
            continue
        problems += [f"{key} is stored in both {owner[key]} and {name}" for key in file.tensors if key in owner]
        owner |= dict.fromkeys(file.tensors, name)
        files[name] = file
    if problems:
        raise ValueError(f"{folder}: " + "; ".join(problems))
    tensors = {key: info for file in files.values() for key, info in file.tensors.items()}
    return TensorSource(str(folder), tensors, lambda key, _: files[owner[key]].read(key))


def weight_files(folder: Path, form: Format) -> dict[str, tuple[str, ...] | None]:
    """The weight files of a folder, each with the keys that an index gives to it (None without an index)."""
    index, single = folder / form.index, folder / form.single
    if not index.exists():
        return {form.single: None}
    weight_map = _weight_map(index)
    shards = {file: tuple(k for k, f in weight_map.items() if f == file) for file in sorted(set(weight_map.values()))}
    if single.exists() and form.single not in shards:
        raise ValueError(f"{folder}: both {form.single} and {form.index}, which does not list it: keep one of them")
    return shards


def some(names: Sequence[str]) -> str:
    """Up to three names and a count of the rest."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


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


def _opened(path: Path, keys: tuple[str, ...] | None, form: Format, problems: list[str]) -> WeightFile | None:
    """One file; whatever is wrong with it goes to `problems`."""
    expected = some(keys or ())
    if not path.exists():
        problems.append(f"{path.name} is missing; the index puts {expected} in it")
        return None
    try:
        file = form.open(path)
    except ValueError as error:
        problems.append(f"{path.name} {error}; it should hold {expected or 'the weights'}")
        return None
    if keys is not None:
        held, listed = file.tensors, set(keys)
        problems += [f"{key} is not in {path.name}, where the index puts it" for key in keys if key not in held]
        problems += [f"{key} is in {path.name}, but the index does not say so" for key in held if key not in listed]
    return file
