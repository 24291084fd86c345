"""A file of PyTorch (`pytorch_model.bin`), read without PyTorch and without running anything that it says.

It is a zip archive. Its member `data.pkl` is a pickle of a mapping from names to tensors, each a view (offset, shape,
strides) of a storage; each storage is a member of its own, not compressed. A pickle can name any function to be called,
so this one is read by an unpickler that knows a dozen names, none of which does anything, and refuses every other.
Tensors are views of the mapped file: only what is made of them takes memory.
"""

import functools
import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragjax.weights.keymap import TensorInfo
from ragjax.weights.shards import Format, WeightFile, some

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}

# Where files that hold more than the weights keep them.
_NESTED = ("state_dict", "model")

# Before 1.6 a file was a row of pickles, of which the first is this number.
_OLD = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)

_SAVE_AGAIN = (
    "is in the format of PyTorch before 1.6, which is not read: save it again with a newer one, "
    "torch.save(torch.load(FILE, weights_only=True), FILE)"
)

_ENCRYPTED = 1  # a flag of a member
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # its signature and, at the end, the lengths of its name and extra field

# All that unpickling nonsense can raise.
_BROKEN = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Storage(NamedTuple):
    """A run of elements: the member of the archive that holds them, and how many they are."""

    dtype: str
    key: str
    size: int


class _View(NamedTuple):
    """A tensor: offset and strides in elements of its storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _RefusedError(ValueError):
    """Why a file is not taken, in words that follow its name."""


class _Unpickler(pickle.Unpickler):
    """Reads mappings, plain values and views of storages."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="utf-8")
        self._known = _known_names()

    def find_class(self, module: str, name: str) -> Any:
        known = self._known.get(f"{module}.{name}")
        if known is None:
            raise _RefusedError(f"asks for {module}.{name}, which is no part of weights; nothing of it was run")
        return known

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, size = pid
        if kind != "storage" or dtype not in _STORAGES.values() or not isinstance(key, str) or not _is_count(size):
            raise pickle.UnpicklingError(f"{pid!r} is no storage")
        return _Storage(dtype, key, size)


def open_torch(path: Path) -> WeightFile:
    """Open one file.

    Raises:
        ValueError: if it is not whole, is of PyTorch before 1.6, holds anything but names and tensors, or asks for
            anything else to be run, naming what it is.
    """
    with path.open("rb") as file:
        if file.read(len(_OLD)) == _OLD:
            raise _RefusedError(_SAVE_AGAIN)
    try:
        with zipfile.ZipFile(path) as archive:
            views, starts = _contents(archive, path.stat().st_size)
    except _RefusedError:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, struct.error):
        raise _RefusedError("is no whole file of PyTorch") from None
    mapped = functools.cache(lambda: np.memmap(path, np.uint8, "r"))
    tensors = {name: TensorInfo(view.shape, view.storage.dtype) for name, view in views.items()}
    return WeightFile(tensors, lambda name: _array(mapped(), starts[views[name].storage], views[name]))


TORCH = Format("pytorch_model.bin", "pytorch_model.bin.index.json", open_torch)


def _known_names() -> Mapping[str, Any]:
    """What a file may name. Made anew for each, as a pickle may set attributes of what it names."""
    return {
        "collections.OrderedDict": OrderedDict,
        "torch._utils._rebuild_tensor_v2": lambda *args: _View(*args[:4]),
        "torch._utils._rebuild_parameter": lambda data, *_: data,
        **{f"torch.{name}": dtype for name, dtype in _STORAGES.items()},
    }


def _contents(archive: zipfile.ZipFile, total: int) -> tuple[dict[str, _View], dict[_Storage, int]]:
    """The tensors by name, and where in the file of `total` bytes each storage starts."""
    if not all(0 <= member.header_offset < total for member in archive.infolist()):
        raise zipfile.BadZipFile("members that lie beyond the file")
    root = _root(archive)
    if f"{root}/byteorder" in archive.namelist() and archive.read(_stored(archive, f"{root}/byteorder")) != b"little":
        raise _RefusedError("was written on a big-endian machine, which is not read")
    views = _named_views(_unpickled(archive.read(_stored(archive, f"{root}/data.pkl"))))
    for name, view in views.items():
        _check(name, view)
    return views, {storage: _start(archive, root, storage, total) for storage in {v.storage for v in views.values()}}


def _root(archive: zipfile.ZipFile) -> str:
    """The one folder of the archive."""
    found = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(found) != 1:
        raise _RefusedError("is a zip archive, but none of PyTorch's: it has no data.pkl")
    return found[0].removesuffix("/data.pkl")


def _stored(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """A member whose bytes lie in the file as they are."""
    try:
        member = archive.getinfo(name)
    except KeyError:
        raise _RefusedError(f"is not whole: it has no {name}") from None
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
        raise _RefusedError(f"is compressed or encrypted at {name}, which PyTorch never does")
    return member


def _unpickled(data: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except _RefusedError:
        raise
    except _BROKEN as error:
        raise _RefusedError(f"has a broken data.pkl ({error})") from None


def _named_views(found: Any) -> dict[str, _View]:
    """The tensors by name, be they the whole of a file or under one of its keys."""
    nested = [key for key in _NESTED if isinstance(found, dict) and isinstance(found.get(key), dict)]
    if len(nested) == 1 and all(_is_plain(value) for key, value in found.items() if key != nested[0]):
        found = found[nested[0]]
    if not isinstance(found, dict):
        raise _RefusedError(f"holds one {_kind(found)}, where names with tensors are read")
    others = [f"{key!r} ({_kind(v)})" for key, v in found.items() if not _is_named_view(key, v)]
    if others:
        raise _RefusedError(f"holds {some(others)}, where only names with tensors are read: save the weights alone")
    return dict(found)


def _is_named_view(key: Any, value: Any) -> bool:
    return isinstance(key, str) and isinstance(value, _View)


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, _View) else type(value).__name__


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _start(archive: zipfile.ZipFile, root: str, storage: _Storage, total: int) -> int:
    """Where in the file the bytes of a storage start."""
    member = _stored(archive, f"{root}/data/{storage.key}")
    size = storage.size * np.dtype(storage.dtype).itemsize
    archive.fp.seek(member.header_offset)
    _, name_length, extra_length = _LOCAL_HEADER.unpack(archive.fp.read(_LOCAL_HEADER.size))
    start = member.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    if member.file_size != size or start + size > total:
        raise _RefusedError(f"is not whole: {member.filename} should be {size} bytes")
    return start


def _check(name: str, view: _View) -> None:
    """Refuse a tensor that does not lie within its storage."""
    storage, offset, shape, strides = view
    counts = isinstance(shape, tuple) and isinstance(strides, tuple) and all(map(_is_count, (offset, *shape, *strides)))
    if not isinstance(storage, _Storage) or not counts or len(shape) != len(strides):
        raise _RefusedError(f"has a broken data.pkl ({name} is no view of a storage)")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 not in shape and last >= storage.size:
        raise _RefusedError(f"has a broken data.pkl ({name} goes beyond its storage)")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _array(mapped: np.ndarray, start: int, view: _View) -> np.ndarray:
    """The tensor as a view of the mapped file, in the dtype and with the strides it is stored in."""
    dtype = np.dtype(view.storage.dtype)
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    strides = [stride * dtype.itemsize for stride in view.strides]
    return np.ndarray(view.shape, dtype, mapped, start + view.offset * dtype.itemsize, strides)
