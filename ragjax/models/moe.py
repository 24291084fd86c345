"""Sparse experts: a router sends each token to a few of E feed-forward layers and mixes what they return (Mixtral).

Nothing is dropped and no expert has a capacity: tokens are sorted by expert and each expert multiplies its own run, so
what one token gets does not depend on the others, padding included.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from ragjax.models.layers import product
from ragjax.typing import Array, Float, Int


@struct.dataclass
class Experts:
    """The feed-forward layers of E experts, and the router that chooses among them."""

    router: Float[Array, "D E"]
    gate: Float[Array, "E D F"]
    up: Float[Array, "E D F"]
    down: Float[Array, "E F D"]


def route(
    logits: Float[Array, "T E"], used: int, *, renormalize: bool
) -> tuple[Float[Array, "T k"], Int[Array, "T k"]]:
    """The weights and numbers of the `used` (k) most probable experts of each token.

    The softmax runs over all experts, in float32; `renormalize` then makes the chosen weights add up to 1.
    """
    weights, chosen = lax.top_k(jax.nn.softmax(logits.astype(jnp.float32), axis=-1), used)
    return weights / jnp.sum(weights, axis=-1, keepdims=True) if renormalize else weights, chosen


def mix_experts(
    experts: Experts, x: Float[Array, "... D"], used: int, activation: Callable[[Array], Array]
) -> Float[Array, "... D"]:
    """The mixture of each token's `used` experts, their weights adding up to 1 (arXiv:2401.04088, section 2.1)."""
    tokens = x.reshape(-1, x.shape[-1])
    logits = product("td,de->te", tokens, experts.router, accumulate=True)
    weights, chosen = route(logits, used, renormalize=True)
    flat = chosen.reshape(-1)
    order = jnp.argsort(flat)
    counts = jnp.bincount(flat, length=experts.router.shape[-1])
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else lax.Precision.DEFAULT

    def each(rows: Float[Array, "S D"], weight: Float[Array, "E D F"]) -> Float[Array, "S F"]:
        return lax.ragged_dot(rows, weight, counts, precision=precision)

    rows = tokens[order // used]
    found = each(activation(each(rows, experts.gate)) * each(rows, experts.up), experts.down)
    found = found[jnp.argsort(order)].reshape(*chosen.shape, -1)
    return product("tk,tkd->td", weights, found.astype(jnp.float32)).astype(x.dtype).reshape(x.shape)
