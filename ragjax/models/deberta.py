"""DeBERTa-v2 and v3: attention sees content and distance apart (disentangled attention, arXiv 2006.03654 section 3).

A table has a row for each distance from -span to span - 1. A score is the sum of content to content, of content to
position (the query with the row of query - key) and of position to content (the key with the same row), the sum being
scaled as one. Distances depend on nothing but the length, so which rows are read is settled when a shape is compiled;
a shift of rows then puts each score in its place, without a gather.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct

from ragjax.models.encoder import (
    Head,
    Layer,
    Leaf,
    Norm,
    finish,
    head_specs,
    layer_specs,
    leaf_maker,
    mix,
    norm_specs,
    normalize,
    project,
    query_blocks,
    to_head_rows,
)
from ragjax.models.encoder_config import DebertaConfig
from ragjax.models.layers import product
from ragjax.sharding import constrain
from ragjax.typing import Array, Bool, Float, Int


@struct.dataclass
class PositionProjections:
    """A block's own projections of the table, None where it has not that score: keys of c2p, queries of p2c."""

    k: Float[Array, "D N H"] | None
    k_bias: Float[Array, "N H"] | None
    q: Float[Array, "D N H"] | None
    q_bias: Float[Array, "N H"] | None


@struct.dataclass
class Deberta:
    """All parameters. S are the rows of the table of distances. `projections` has one entry a block, or none where
    the table passes through those of the content."""

    embedding: Float[Array, "V D"]
    norm: Norm
    distances: Float[Array, "S D"]
    distances_norm: Norm | None
    layers: tuple[Layer, ...]
    projections: tuple[PositionProjections, ...]
    head: Head | None


def abstract(cfg: DebertaConfig, dtype: Any) -> Deberta:
    """The tree of parameters with a `ParamSpec` at each leaf: initialisation, loading and checks derive from it."""
    leaf = leaf_maker(cfg, dtype, S=2 * cfg.span)
    own = () if cfg.shared_projections else (_projection_specs(cfg, leaf),) * cfg.num_layers
    return Deberta(
        embedding=leaf("VD"),
        norm=norm_specs(leaf),
        distances=leaf("SD"),
        distances_norm=norm_specs(leaf) if cfg.normed_distances else None,
        layers=(layer_specs(leaf),) * cfg.num_layers,
        projections=own,
        head=head_specs(cfg, leaf),
    )


def _projection_specs(cfg: DebertaConfig, leaf: Leaf) -> PositionProjections:
    keys, queries = cfg.content_to_position, cfg.position_to_content
    return PositionProjections(
        k=leaf("DNH", keys), k_bias=leaf("NH", keys), q=leaf("DNH", queries), q_bias=leaf("NH", queries)
    )


def forward(
    params: Deberta,
    cfg: DebertaConfig,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    types: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T D"]:
    """The last states of texts that are padded on the right; those of padding are finite and mean nothing.

    The model has no types of tokens: `types` changes nothing.
    """
    x = normalize(cfg, params.embedding[tokens], params.norm) * valid[..., None]
    x = constrain(x, "BTD")
    table = params.distances
    if params.distances_norm is not None:
        table = normalize(cfg, table, params.distances_norm)
    for layer, block in enumerate(params.layers):
        position_k, position_q = _project_table(params, cfg, layer, table)
        x = finish(block, cfg, x, _attend(cfg, *project(block.attention, x), position_k, position_q, valid))
    return x


def log_bucket(distance: Int[np.ndarray, "..."], buckets: int, max_distance: int) -> Int[np.ndarray, "..."]:
    """The bucket of each distance, odd-symmetric: itself up to half of `buckets`, then growing with its logarithm.

    The distance `max_distance` - 1 is in bucket `buckets` - 1.
    """
    half = buckets // 2
    size = np.maximum(np.abs(distance), half)
    grown = np.log(size / half) / np.log((max_distance - 1) / half) * (half - 1)
    return np.where(np.abs(distance) <= half, distance, np.sign(distance) * (np.ceil(grown) + half)).astype(int)


def table_rows(cfg: DebertaConfig, distance: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """The table's row for each distance of a query from a key."""
    found = distance if cfg.buckets is None else log_bucket(distance, cfg.buckets, cfg.max_distance)
    return np.clip(found + cfg.span, 0, 2 * cfg.span - 1)


def _project_table(
    params: Deberta, cfg: DebertaConfig, layer: int, table: Float[Array, "S D"]
) -> tuple[Array | None, Array | None]:
    """The table as keys and as queries of each head, [N, S, H]; None for a score that the model has not."""
    own = params.layers[layer].attention if cfg.shared_projections else params.projections[layer]
    keys = to_head_rows(table, own.k, own.k_bias) if cfg.content_to_position else None
    queries = to_head_rows(table, own.q, own.q_bias) if cfg.position_to_content else None
    return keys, queries


def _attend(
    cfg: DebertaConfig,
    q: Float[Array, "B N T H"],
    k: Float[Array, "B N T H"],
    v: Float[Array, "B N T H"],
    position_k: Float[Array, "N S H"] | None,
    position_q: Float[Array, "N S H"] | None,
    valid: Bool[Array, "B T"],
) -> Float[Array, "B N T H"]:
    """Every real token to every real token, in blocks of queries."""
    scale = (cfg.head_dim * (1 + cfg.content_to_position + cfg.position_to_content)) ** -0.5
    length = q.shape[2]
    to_content = None
    if position_q is not None:
        keys = [_by_distance(cfg, k, position_q, block, sign=-1) for block in query_blocks(length)]
        to_content = jnp.concatenate(keys, axis=2).swapaxes(2, 3)
    mixed = []
    for block in query_blocks(length):
        scores = product("bnmh,bnsh->bnms", q[:, :, block], k, accumulate=True)
        if position_k is not None:
            scores += _by_distance(cfg, q, position_k, block, sign=1)
        if to_content is not None:
            scores += to_content[:, :, block]
        mask = valid[:, block, None] & valid[:, None]
        mixed.append(mix(scores * scale, mask, v))
    return jnp.concatenate(mixed, axis=2)


def _by_distance(
    cfg: DebertaConfig, x: Float[Array, "B N T H"], table: Float[Array, "N S H"], block: slice, sign: int
) -> Float[Array, "B N M T"]:
    """Each row i of a block with the table's row for the distance `sign` * (i - j), for all tokens j.

    Row i needs the distances i - T + 1 to i. All rows are multiplied with the distances of the whole block, in
    descending order; those of the next row begin one column to the left, so one reshape by a width that is one
    shorter lines the rows up.
    """
    batch, heads, length, _ = x.shape
    rows = block.stop - block.start
    distances = np.arange(block.stop - 1, block.start - length - 1, -1)
    near = table[:, table_rows(cfg, sign * distances)]
    wide = product("bnmh,nwh->bnmw", x[:, :, block], near, accumulate=True)
    flat = wide.reshape(batch, heads, -1)[:, :, rows - 1 : rows - 1 + rows * (rows + length - 1)]
    return flat.reshape(batch, heads, rows, rows + length - 1)[..., :length]
