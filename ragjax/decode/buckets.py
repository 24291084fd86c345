"""Which prompts go together: batches of similar length, padded to a few lengths, so that few programs compile.

Rows are sorted by length and cut into batches; a batch is padded to a length of the ladder 32, 48, 64, 96, 128, ...
(powers of two and the halves between), of which at most `MAX_BUCKETS` are used. The last batch is filled with dummy
rows; a single small batch is padded to the next power of two. Rows are a multiple of the parts a mesh cuts them into.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

MAX_BUCKETS = 8
SHORTEST = 32


@dataclass(frozen=True)
class Batch:
    """Indices of the examples in it, the number of rows it is padded to, and each member's padded prompt length."""

    indices: tuple[int, ...]
    rows: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class BatchPlan:
    """All batches of a job, and what the padding costs: prompt tokens with padding over real ones."""

    batches: tuple[Batch, ...]
    padded_tokens: int
    real_tokens: int

    @property
    def padding_ratio(self) -> float:
        """Padded over real prompt tokens; dummy rows count as padding."""
        return self.padded_tokens / max(self.real_tokens, 1)


def bucket(length: int) -> int:
    """The ladder's first length that holds `length` tokens: at most 1.5 times as long, from 32 on."""
    size = SHORTEST
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def plan_batches(lengths: Sequence[Sequence[int]], batch: int, shards: int = 1) -> BatchPlan:
    """Sort the examples by length and cut them into batches.

    Args:
      lengths: real prompt tokens, one row an example, one column a member.
      batch: the most examples a batch holds.
      shards: what the rows of a batch are a multiple of.
    """
    if batch < 1:
        raise ValueError(f"a batch has at least 1 row, got {batch}")
    table = np.asarray(lengths, int)
    if not table.size:
        return BatchPlan((), 0, 0)
    # By the longest member, then by each: the batches do not depend on the order in which the examples came.
    order = np.lexsort((*table.T, table.max(axis=1)))
    groups = [order[i : i + batch] for i in range(0, len(order), batch)]
    rows = batch if len(groups) > 1 else min(batch, 1 << (len(order) - 1).bit_length())
    rows = -(-rows // shards) * shards
    padded = [_merge([bucket(int(table[g, m].max())) for g in groups]) for m in range(table.shape[1])]
    batches = tuple(
        Batch(tuple(int(i) for i in g), rows, tuple(column[n] for column in padded)) for n, g in enumerate(groups)
    )
    return BatchPlan(batches, sum(b.rows * sum(b.lengths) for b in batches), int(table.sum()))


def _merge(lengths: list[int]) -> list[int]:
    """Raise lengths to longer ones until at most `MAX_BUCKETS` differ, each time where that pads the least."""
    while len(used := sorted(set(lengths))) > MAX_BUCKETS:
        costs = [(after - size) * lengths.count(size) for size, after in pairwise(used)]
        drop = int(np.argmin(costs))
        lengths = [used[drop + 1] if size == used[drop] else size for size in lengths]
    return lengths


def left_pad(prompts: Sequence[Sequence[int]], rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [rows, length] with the prompts right-aligned, and the mask of real tokens; missing rows are padding."""
    tokens, valid = np.zeros((rows, length), np.int32), np.zeros((rows, length), bool)
    for row, ids in enumerate(prompts):
        if len(ids):
            tokens[row, -len(ids) :] = ids
            valid[row, -len(ids) :] = True
    return tokens, valid
