"""Which tensor on disk fills which leaf of a parameter tree, kept as a ledger.

A family's key table is a list of rules, each a pair of name templates and a layout. The ledger pairs every tensor of a
checkpoint with one leaf before anything is read: a tensor nobody asked for, a leaf nobody fills, a leaf that two rules
claim and a shape that does not fit are gathered into one error. The same rules run backwards to write a checkpoint.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from ragjax.models.decoder import ParamSpec
from ragjax.typing import PyTree

FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Rule:
    """One kind of tensor: `{i}` in both templates stands for the same layer number.

    `layout` reads from disk to leaf, in letters of axes: `(n h) d -> d n h` splits the first axis of a stored
    [N*H, D] matrix and puts the input axis first. Where the name alone has an `{e}`, there is one tensor for each
    index of the leaf's first axis, and the layout is that of one of them.
    """

    name: str
    path: str
    layout: str


@dataclass(frozen=True)
class KeyTable:
    """The rules of a family; `buffers` (regular expressions) are stored tensors that hold no parameter;
    `copies` are tensors that a tied model may store again, with the tensor they must equal."""

    rules: tuple[Rule, ...]
    buffers: tuple[str, ...]
    copies: Mapping[str, str]


@dataclass(frozen=True)
class TensorInfo:
    """What a checkpoint says of a tensor before it is read."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: tensor `name` fills leaf `path`, or index `part` of the leaf's first axis."""

    name: str
    path: str
    layout: str
    spec: ParamSpec
    part: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what the tensor fills."""
        return tuple(self.spec.shape) if self.part is None else tuple(self.spec.shape[1:])


@dataclass(frozen=True)
class Ledger:
    """The whole pairing: entries in the order of the leaves, buffers left alone, copies to compare."""

    entries: tuple[Entry, ...]
    skipped: tuple[str, ...]
    copies: tuple[tuple[str, str], ...]


def leaf_specs(tree: PyTree) -> dict[str, ParamSpec]:
    """The leaves of a tree by dotted path (`layers.3.attention.q`), in tree order."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def pair(table: KeyTable, tensors: Mapping[str, TensorInfo], leaves: Mapping[str, ParamSpec]) -> Ledger:
    """Pair every tensor with one leaf, or one part of a leaf.

    Raises:
        ValueError: one error that names every tensor and leaf that is over, missing, claimed twice or misshapen.
    """
    problems: list[str] = []
    entries = [entry for path, spec in leaves.items() for entry in claims(table, path, spec, problems)]
    problems += [f"two leaves claim {name}" for name in _repeated([entry.name for entry in entries])]
    for entry in entries:
        problems += _mismatch(entry, tensors.get(entry.name))
    wanted = {entry.name for entry in entries}
    rest = [name for name in tensors if name not in wanted]
    skipped = tuple(name for name in rest if any(re.fullmatch(buffer, name) for buffer in table.buffers))
    copies = tuple((name, table.copies[name]) for name in rest if name in table.copies)
    known = {*skipped, *(name for name, _ in copies)}
    problems += [f"tensor {name} {list(tensors[name].shape)} fills no leaf" for name in rest if name not in known]
    if problems:
        raise ValueError("weights refused: " + "; ".join(problems))
    return Ledger(tuple(entries), skipped, copies)


def to_leaf(stored: np.ndarray, layout: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A stored tensor in the leaf's layout and dtype; one new array, contiguous."""
    disk, leaf, sizes = _axes(layout, shape)
    expanded = stored.reshape([sizes[axis] for group in disk for axis in group])
    flat = [axis for group in disk for axis in group]
    return np.array(expanded.transpose([flat.index(axis) for axis in leaf]), dtype=dtype, order="C")


def to_disk(value: np.ndarray, layout: str) -> np.ndarray:
    """The inverse of `to_leaf`, in the value's own dtype."""
    disk, leaf, sizes = _axes(layout, value.shape)
    flat = [axis for group in disk for axis in group]
    moved = np.asarray(value).transpose([leaf.index(axis) for axis in flat])
    return np.ascontiguousarray(moved.reshape([_product(sizes, group) for group in disk]))


def claims(table: KeyTable, path: str, spec: ParamSpec, problems: list[str]) -> list[Entry]:
    """The tensors that fill the leaf at `path`; unless exactly one rule claims it, that goes to `problems`."""
    matches = []
    for rule in table.rules:
        pattern = re.escape(rule.path).replace(r"\{i\}", r"(?P<i>\d+)")
        if match := re.fullmatch(pattern, path):
            matches.append((rule, match.groupdict()))
    entries = [entry for rule, layer in matches for entry in _entries(rule, layer, path, spec)]
    if len(matches) != 1:
        names = ", ".join(entry.name for entry in entries)
        problems.append(f"leaf {path} is claimed by {names}" if entries else f"no rule fills leaf {path}")
    return entries


def _entries(rule: Rule, layer: Mapping[str, str], path: str, spec: ParamSpec) -> list[Entry]:
    """One entry for a rule, or one for each part of the leaf."""
    if "{e}" not in rule.name:
        return [Entry(rule.name.format(**layer), path, rule.layout, spec)]
    parts = range(spec.shape[0])
    return [Entry(rule.name.format(**layer, e=part), path, rule.layout, spec, part) for part in parts]


def _mismatch(entry: Entry, info: TensorInfo | None) -> list[str]:
    """What keeps a stored tensor from filling its leaf."""
    if info is None:
        return [f"tensor {entry.name} is missing (leaf {entry.path})"]
    disk, _, sizes = _axes(entry.layout, entry.shape)
    expected = [_product(sizes, group) for group in disk]
    problems = []
    if list(info.shape) != expected:
        problems.append(f"tensor {entry.name} has shape {list(info.shape)}, not {expected} (leaf {entry.path})")
    if info.dtype not in FLOATS:
        problems.append(f"tensor {entry.name} is stored as {info.dtype}; only {', '.join(FLOATS)} are read")
    return problems


def _axes(layout: str, shape: tuple[int, ...]) -> tuple[list[list[str]], list[str], dict[str, int]]:
    """A layout parsed: groups of axes on disk, axes of the leaf, and the size of each axis."""
    disk, leaf = layout.split("->")
    groups = [group.strip("() ").split() for group in re.findall(r"\([^)]*\)|\w+", disk)]
    axes = leaf.split()
    return groups, axes, dict(zip(axes, shape, strict=True))


def _product(sizes: Mapping[str, int], group: list[str]) -> int:
    return int(np.prod([sizes[axis] for axis in group]))


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
