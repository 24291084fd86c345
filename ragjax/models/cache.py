"""Where keys and values live between prefill and decode: head-major, one array a layer.

A prompt's cache is written once by prefill, stays at B rows, and is only read afterwards. What a row generates goes
to its suffix cache, B * C rows, at one scalar cursor shared by all rows:

    prompt  [B, K, P, H]   . . . p p p p p     left-padded, `valid` marks the p
    suffix  [R, K, S, H]   g g g . . . . .     slot n holds the n-th generated token of every row

A layer with a window keeps of its prompt only what a later token can still see, the last `window - 1` slots.
"""

import jax.numpy as jnp
from flax import struct
from jax import lax

from ragjax.models.config import DecoderConfig
from ragjax.typing import Array, Bool, Float, Int


@struct.dataclass
class PromptCache:
    """Keys and values of a left-padded prompt, each [B, K, P, H] and one a layer (in a layer with a window, P may be
    less); `valid` marks the real tokens of the whole prompt, `lengths` counts them."""

    keys: tuple[Float[Array, "B K P H"], ...]
    values: tuple[Float[Array, "B K P H"], ...]
    valid: Bool[Array, "B P"]
    lengths: Int[Array, " B"]


@struct.dataclass
class SuffixCache:
    """Keys and values of the generated tokens, each [R, K, S, H] and one a layer."""

    keys: tuple[Float[Array, "R K S H"], ...]
    values: tuple[Float[Array, "R K S H"], ...]


def suffix_shape(cfg: DecoderConfig, rows: int, length: int) -> tuple[int, int, int, int]:
    """The shape [R, K, S, H] of each array of a suffix cache."""
    return rows, cfg.num_kv_heads, length, cfg.head_dim


def within_reach(array: Float[Array, "B K P H"], window: int | None) -> Array:
    """The slots that tokens after the prompt can see: all, or the last `window - 1`, but never fewer than one."""
    return array if window is None else array[:, :, -max(1, window - 1) :]


def write(array: Float[Array, "R K S H"], new: Float[Array, "R K H"], cursor: Int[Array, ""]) -> Array:
    """Put one token a row at slot `cursor`: a slice update, never a scatter."""
    zero = jnp.zeros_like(cursor)
    return lax.dynamic_update_slice(array, new[:, :, None].astype(array.dtype), (zero, zero, cursor, zero))
