"""BERT, RoBERTa and XLM-R: positions and types are added to the embeddings, attention sees content alone."""

from typing import Any

import jax.numpy as jnp
from flax import struct

from ragjax.models.encoder import (
    Head,
    Layer,
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
)
from ragjax.models.encoder_config import BertConfig
from ragjax.models.layers import product
from ragjax.sharding import constrain
from ragjax.typing import Array, Bool, Float, Int


@struct.dataclass
class Bert:
    """All parameters. P are the rows of the table of positions, U the types of tokens."""

    embedding: Float[Array, "V D"]
    positions: Float[Array, "P D"]
    types: Float[Array, "U D"]
    norm: Norm
    layers: tuple[Layer, ...]
    head: Head | None


def abstract(cfg: BertConfig, dtype: Any) -> Bert:
    """The tree of parameters with a `ParamSpec` at each leaf: initialisation, loading and checks derive from it."""
    leaf = leaf_maker(cfg, dtype, P=cfg.position_rows, U=cfg.type_vocab_size)
    return Bert(
        embedding=leaf("VD"),
        positions=leaf("PD"),
        types=leaf("UD"),
        norm=norm_specs(leaf),
        layers=(layer_specs(leaf),) * cfg.num_layers,
        head=head_specs(cfg, leaf),
    )


def forward(
    params: Bert,
    cfg: BertConfig,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    types: Int[Array, "B T"] | None = None,
) -> Float[Array, "B T D"]:
    """The last states of texts that are padded on the right; those of padding are finite and mean nothing.

    `types` tells the two texts of a pair apart, all 0 by default.
    """
    kinds = jnp.zeros_like(tokens) if types is None else types
    # There may be more padding than positions.
    places = jnp.minimum(jnp.arange(tokens.shape[1]) + cfg.position_offset, cfg.position_rows - 1)
    x = params.embedding[tokens] + params.positions[places] + params.types[kinds]
    x = constrain(normalize(cfg, x, params.norm), "BTD")
    for block in params.layers:
        q, k, v = project(block.attention, x)
        x = finish(block, cfg, x, _attend(q, k, v, valid, cfg.head_dim**-0.5))
    return x


def _attend(q: Array, k: Array, v: Array, valid: Bool[Array, "B T"], scale: float) -> Float[Array, "B N T H"]:
    """Every token to every real token, in blocks of queries."""
    mixed = []
    for block in query_blocks(q.shape[2]):
        scores = product("bnmh,bnsh->bnms", q[:, :, block], k, accumulate=True) * scale
        mixed.append(mix(scores, valid[:, None], v))
    return jnp.concatenate(mixed, axis=2)
