"""Tensors on their way from a checkpoint to the leaves of a parameter tree, one at a time.

A source tells names and shapes first; the ledger is closed before the first tensor is read, so a checkpoint that does
not fit is refused before it takes any device memory. Then one tensor after the other is read, laid out, cast and put
on its device or shards: the host holds about two tensors beside the finished leaves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401  (numpy learns the name bfloat16 from it)
import numpy as np
from jax import lax
from tqdm import tqdm

from ragjax.typing import PyTree
from ragjax.weights.keymap import Entry, KeyTable, Ledger, TensorInfo, leaf_specs, pair, to_leaf

_ROWS = 4096


@dataclass(frozen=True)
class TensorSource:
    """An opened checkpoint: what it holds, and a function that reads one tensor as a numpy array.

    Plain tensors come as stored; quantised ones are decoded straight into the dtype that is asked for.
    """

    path: str
    tensors: Mapping[str, TensorInfo]
    read: Callable[[str, np.dtype], np.ndarray]


def fill(source: TensorSource, table: KeyTable, target: PyTree, progress: bool = False) -> tuple[PyTree, Ledger]:
    """Read every leaf of `target` from `source`, each in the dtype that the target asks for, norms included.

    The target's leaves are `ParamSpec`, or `jax.ShapeDtypeStruct` whose sharding says where each part goes.
    Returns the parameters and the ledger that they were read by.

    Raises:
        ValueError: naming the file and everything that does not fit, before any tensor is read.
    """
    specs = leaf_specs(target)
    try:
        ledger = pair(table, source.tensors, specs)
        _compare_copies(source, ledger)
    except ValueError as error:
        raise ValueError(f"{source.path}: {error}") from None
    leaves: dict[str, jax.Array] = {}
    for entry in tqdm(ledger.entries, unit="tensor", disable=not progress):
        leaves[entry.path] = _read_leaf(source, entry, leaves.get(entry.path))
    return jax.tree.unflatten(jax.tree.structure(target), list(leaves.values())), ledger


def _read_leaf(source: TensorSource, entry: Entry, begun: jax.Array | None) -> jax.Array:
    """One leaf on its device, or each device's part on that device; of a leaf in parts, `begun` with one more."""
    spec, dtype = entry.spec, np.dtype(entry.spec.dtype)
    value = to_leaf(source.read(entry.name, dtype), entry.layout, entry.shape, dtype)
    sharding = getattr(spec, "sharding", None)
    if entry.part is not None:
        whole = jnp.zeros(spec.shape, dtype, device=sharding) if begun is None else begun
        return jax.device_put(_with_part(whole, value, entry.part), sharding)
    if sharding is None:
        return jax.device_put(value)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])


@partial(jax.jit, donate_argnums=0)
def _with_part(whole: jax.Array, value: np.ndarray, part: int) -> jax.Array:
    """`whole` with one index of its first axis filled, in place."""
    return lax.dynamic_update_index_in_dim(whole, value, part, 0)


def _compare_copies(source: TensorSource, ledger: Ledger) -> None:
    """A tied model that stores its head too is taken only if the two tensors agree."""
    for name, original in ledger.copies:
        same = source.tensors[name].shape == source.tensors[original].shape
        dtype = np.dtype(source.tensors[original].dtype)
        if not same or not _equal(source.read(name, dtype), source.read(original, dtype)):
            raise ValueError(f"weights refused: the config ties {name} to {original}, but the file stores other values")


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Equality in blocks of rows, so that no second array of their size is made."""
    return all(np.array_equal(a[i : i + _ROWS], b[i : i + _ROWS]) for i in range(0, len(a), _ROWS))
