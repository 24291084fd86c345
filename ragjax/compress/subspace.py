"""The principal subspace of a matrix, and how much of a vector lies outside it. Pure linear algebra, no model.

A matrix W [rows, D] is read in blocks of rows. The SVD of the triangular factor of W = Q R, D x D, has the singular
values and right singular vectors of W; neither Q nor the left singular vectors, which for a vocabulary of 262,144 rows
would be the large part, are ever made. All this runs on the host, in float64.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import experimental, lax

from ragjax.typing import Array, Float

BLOCK_BYTES = 1 << 24
"""Size of a block of rows in float64, about: what exists of the matrix beside itself."""


@struct.dataclass
class Subspace:
    """The first `rank` right singular directions of a matrix, or what is orthogonal to them.

    `vectors` are orthonormal columns: [D, R] of the subspace, or with `complement` [D, D - R] of the rest, whichever
    are fewer. `mean` is subtracted from a vector first, where the rows were centred. `energy` is the share asked for;
    `note` says how the vectors were found, where that is not the usual way.
    """

    vectors: Float[Array, "D n"]
    mean: Float[Array, " D"] | None
    complement: bool = struct.field(pytree_node=False)
    rank: int = struct.field(pytree_node=False)
    energy: float = struct.field(pytree_node=False)
    note: str = struct.field(pytree_node=False, default="")


def principal_subspace(
    matrix: Float[Array, "rows D"], *, energy: float = 0.95, squared: bool = False, centred: bool = False
) -> Subspace:
    """The smallest subspace whose singular values sum to `energy` of their total (SPS, arXiv 2508.05909).

    The singular values are summed as they are, or `squared` (a share of variance, as in PCA). `centred` subtracts the
    mean of the rows first. bfloat16 and float16 rows are widened block by block. A matrix of zeros has rank 0.

    Raises:
      ValueError: for an energy outside (0, 1], no rows, or a row with a value that is not finite.
    """
    if not 0 < energy <= 1:
        raise ValueError(f"energy is a share in (0, 1], got {energy}")
    if matrix.ndim != 2 or not matrix.shape[0]:
        raise ValueError(f"a subspace needs a matrix with rows, got shape {list(matrix.shape)}")
    mean = sum(block.sum(axis=0) for block in _blocks(matrix)) / matrix.shape[0] if centred else None
    values, directions, note = _directions(matrix, mean)
    sums = np.cumsum(values**2 if squared else values)
    rank = int(np.searchsorted(sums, energy * sums[-1]) + 1) if sums[-1] > 0 else 0
    complement = 2 * rank > len(values)
    return Subspace(
        vectors=(directions[:, rank:] if complement else directions[:, :rank]).astype(np.float32),
        mean=None if mean is None else mean.astype(np.float32),
        complement=complement,
        rank=rank,
        energy=energy,
        note=note,
    )


def projection_residual(subspace: Subspace, x: Float[Array, "... D"]) -> Float[Array, "..."]:
    """The length of what P leaves of x: ||(I - P)(x - mean)||_2 in float32, P the projector onto the subspace."""
    vectors = jnp.asarray(subspace.vectors)
    x = jnp.asarray(x, jnp.float32)
    if subspace.mean is not None:
        x = x - subspace.mean
    inside = jnp.matmul(x, vectors, precision=lax.Precision.HIGHEST)
    if not subspace.complement:
        x = x - jnp.matmul(inside, vectors.T, precision=lax.Precision.HIGHEST)
    return jnp.linalg.norm(inside if subspace.complement else x, axis=-1)


def _blocks(
    matrix: Float[Array, "rows D"], mean: Float[np.ndarray, " D"] | None = None
) -> Iterator[Float[np.ndarray, "block D"]]:
    """The rows less their mean in float64, some at a time; of an array on a device only those are fetched."""
    count, width = matrix.shape
    size = min(count, max(1, BLOCK_BYTES // (8 * width)))
    for start in range(0, count, size):
        if isinstance(matrix, jax.Array):
            rows = lax.dynamic_slice_in_dim(matrix, start, min(size, count - start))
        else:
            rows = matrix[start : start + size]
        block = np.asarray(rows).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            raise ValueError(f"row {start + bad[0]} of the matrix has a value that is not finite")
        yield block if mean is None else block - mean


def _directions(
    matrix: Float[Array, "rows D"], mean: Float[np.ndarray, " D"] | None
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"], str]:
    """Singular values and right singular vectors, descending, in float64, and a note.

    The SVD runs on the CPU backend: an accelerator's is slow, and bfloat16 has none. Where there is no such backend, or
    where the SVD fails, which for rare matrices it does by returning NaN, the eigenvectors of the Gram matrix take its
    place.
    """
    gram = sum(block.T @ block for block in _blocks(matrix, mean))
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return _eigenvectors(gram, "no CPU backend is visible")
    with jax.default_device(cpu), _float64():
        factor = _triangle(gram, matrix, mean)
        _, values, rows = map(np.asarray, jnp.linalg.svd(factor, full_matrices=False))
    if np.isfinite(values).all() and np.isfinite(rows).all():
        return values, rows.T, ""
    return _eigenvectors(gram, "the SVD returned NaN")


def _float64() -> AbstractContextManager:
    """JAX with float64, in this thread and while it is open.

    Neighbouring singular values may be close: Gemma 3 270M has 11.8891 and 11.8868 (of up to 248) on either side of the
    rank, and an SVD in float32 moves its scores by up to 1e-4.
    """
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else experimental.enable_x64(True)


def _triangle(
    gram: Float[np.ndarray, "D D"], matrix: Float[Array, "rows D"], mean: Float[np.ndarray, " D"] | None
) -> Float[np.ndarray, "D D"]:
    """The R of the QR decomposition: the Cholesky factor of the Gram matrix, in float64.

    Of 40,960 x 640 that takes 2 s, and 3 to 190 by reflections, as they share the cores with others. Only a matrix
    whose columns are dependent (few rows, or square and centred) has no such factor, and is reduced block by block.
    """
    try:
        return np.linalg.cholesky(gram).T
    except np.linalg.LinAlgError:
        factor = np.zeros_like(gram)
        for block in _blocks(matrix, mean):
            factor = np.linalg.qr(np.concatenate([factor, block]), mode="r")
        return factor


def _eigenvectors(
    gram: Float[np.ndarray, "D D"], reason: str
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"], str]:
    squares, vectors = np.linalg.eigh(gram)
    values = np.sqrt(np.maximum(squares[::-1], 0))
    return values, vectors[:, ::-1], f"{reason}: eigenvectors of the Gram matrix in float64"
