"""The arithmetic of one transformer layer, as pure functions. Nothing here has a default for theta, eps, a scale, a
window or a width.

Products of float32 arrays run at the highest matmul precision, so that a result does not depend on the accelerator's
default; bfloat16 products accumulate in float32 where the result is a score or a logit.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from ragjax.models.rope import Rope
from ragjax.typing import Array, Bool, Float, Int

QUERY_BLOCK = 128
"""Queries per attention block: on a CPU, blocks of 128 are 3 to 4 times faster than one product over all queries."""


ACTIVATIONS = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


def product(subscripts: str, *operands: Array, accumulate: bool = False) -> Array:
    """`jnp.einsum` at the precision of its operands; `accumulate=True` returns float32 whatever they are."""
    if operands[0].dtype == jnp.float32:
        return jnp.einsum(subscripts, *operands, precision=lax.Precision.HIGHEST)
    if not accumulate:
        return jnp.einsum(subscripts, *operands)
    wide = partial(jnp.einsum, subscripts, preferred_element_type=jnp.float32)

    def on_cpu(*narrow: Array) -> Array:
        # Not every XLA has this product for the CPU; widening its operands gives the same numbers.
        return wide(*(x.astype(jnp.float32) for x in narrow), precision=lax.Precision.HIGHEST)

    return lax.platform_dependent(*operands, cpu=on_cpu, default=wide)


def plus(x: Array, bias: Array | None) -> Array:
    """`x + bias`, or x where there is none."""
    return x if bias is None else x + bias


def to_heads(x: Float[Array, "... D"], weight: Float[Array, "D N H"]) -> Float[Array, "... N H"]:
    """Project onto heads, as one product of two flat matrices: XLA on a CPU runs that 3 times faster."""
    flat = product("...d,df->...f", x, weight.reshape(weight.shape[0], -1))
    return flat.reshape(*x.shape[:-1], *weight.shape[1:])


def from_heads(x: Float[Array, "... N H"], weight: Float[Array, "N H D"]) -> Float[Array, "... D"]:
    """Project heads back onto the model's width, flat as in `to_heads`."""
    return product("...f,fd->...d", x.reshape(*x.shape[:-2], -1), weight.reshape(-1, weight.shape[-1]))


def rms_norm(x: Float[Array, "... D"], scale: Float[Array, " D"], eps: float) -> Float[Array, "... D"]:
    """Root-mean-square norm in float32, cast back before the scale (the order of Llama)."""
    return _normalized(x, eps).astype(x.dtype) * scale


def offset_rms_norm(x: Float[Array, "... D"], scale: Float[Array, " D"], eps: float) -> Float[Array, "... D"]:
    """Root-mean-square norm times 1 + scale, all in float32 and cast back at the end (the order of Gemma)."""
    return (_normalized(x, eps) * (1 + scale.astype(jnp.float32))).astype(x.dtype)


def layer_norm(
    x: Float[Array, "... D"], scale: Float[Array, " D"], bias: Float[Array, " D"], eps: float
) -> Float[Array, "... D"]:
    """Mean and variance taken out, scale and bias put in, all in float32 and cast back at the end."""
    wide = x.astype(jnp.float32)
    normed = _normalized(wide - jnp.mean(wide, axis=-1, keepdims=True), eps)
    return (normed * scale.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def _normalized(x: Array, eps: float) -> Array:
    wide = x.astype(jnp.float32)
    return wide * lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)


def inverse_frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """Angles per position, [H/2] float32, on the host.

    `linear` divides all of them by the factor. `llama3` (Llama 3.1) leaves wavelengths under
    original/high_freq_factor alone, divides those over original/low_freq_factor, and interpolates between.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    # The power in float64: numpy's float32 power is up to 2 ulp off, which at position 10000 turns an angle by 1e-3.
    plain = np.float32(1) / np.power(np.float64(rope.theta), exponents).astype(np.float32)
    if rope.kind == "default":
        return plain
    scaled = plain / np.float32(rope.factor)
    if rope.kind == "linear":
        return scaled
    turns = rope.original_max_positions * plain / np.float32(2 * np.pi)
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    smooth = np.clip(smooth, 0.0, 1.0).astype(np.float32)
    return ((1 - smooth) * scaled + smooth * plain).astype(np.float32)


def rotary(rope: Rope, head_dim: int, positions: Int[Array, "*rows"], dtype: DTypeLike) -> tuple[Array, Array]:
    """Cosines and sines [*rows, H/2] of each position: angles in float32, cast after."""
    angles = positions[..., None].astype(jnp.float32) * inverse_frequencies(rope, head_dim)
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def rotate(x: Float[Array, "... H"], cos: Float[Array, "... H/2"], sin: Float[Array, "... H/2"]) -> Array:
    """Rotary embedding in the half-split layout: element i turns with element i + H/2."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def masked_softmax(scores: Float[Array, "... S"], mask: Bool[Array, "... S"]) -> Float[Array, "... S"]:
    """Softmax in float32 over the allowed keys. A row without any is uniform, never NaN."""
    return jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min), axis=-1)


def causal_attention(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B K T H"],
    v: Float[Array, "B K T H"],
    valid: Bool[Array, "B T"],
    *,
    scale: float,
    window: int | None,
) -> Float[Array, "B N T H"]:
    """Attention of a left-padded prompt to itself, in blocks of queries that read only the keys they may see.

    Those are the keys up to the block's end and, with a window, from `window - 1` slots before its start. Real tokens
    of a row are contiguous, so that a difference of slots is one of positions.
    """
    blocks = range(0, q.shape[2], QUERY_BLOCK)
    return jnp.concatenate([_attention_block(q, k, v, valid, start, scale, window) for start in blocks], axis=2)


def _attention_block(q: Array, k: Array, v: Array, valid: Array, start: int, scale: float, window: int | None) -> Array:
    batch, heads, length, width = q.shape
    groups = k.shape[1]
    stop = min(start + QUERY_BLOCK, length)
    first = 0 if window is None else max(0, start - window + 1)
    rows, keys = stop - start, slice(first, stop)
    block = q[:, :, start:stop].reshape(batch, groups, heads // groups * rows, width)
    scores = product("bkmh,bksh->bkms", block, k[:, :, keys], accumulate=True) * scale
    distance = jnp.arange(start, stop)[:, None] - jnp.arange(first, stop)
    mask = (in_window(distance, window)[None] & valid[:, None, keys])[:, None, None]
    weights = masked_softmax(scores.reshape(batch, groups, heads // groups, rows, -1), mask).astype(v.dtype)
    mixed = product("bkms,bksh->bkmh", weights.reshape(batch, groups, heads // groups * rows, -1), v[:, :, keys])
    return mixed.reshape(batch, heads, rows, width)


def in_window(distance: Int[Array, "*shape"], window: int | None) -> Bool[Array, "*shape"]:
    """Which keys a query may see, `distance` tokens back: none ahead, and with a window only `window` in all."""
    behind = distance >= 0
    return behind if window is None else behind & (distance < window)


def step_attention(
    q: Float[Array, "R N H"],
    prompt_k: Float[Array, "B K P H"],
    prompt_v: Float[Array, "B K P H"],
    prompt_valid: Bool[Array, "B P"],
    suffix_k: Float[Array, "R K S H"],
    suffix_v: Float[Array, "R K S H"],
    cursor: Int[Array, ""],
    *,
    scale: float,
    window: int | None,
    bias: Float[Array, "N P+S"] | None = None,
) -> Float[Array, "R N H"]:
    """Attention of one new token a row to its example's prompt and to its own suffix up to `cursor`.

    A prompt ends at its last slot, in every row, and the suffix goes on from there. The R / B candidates of an example
    share the prompt's cache, which is read once and never repeated. A `bias` is added to the scaled scores.
    """
    rows, heads, width = q.shape
    batch, groups, length = prompt_k.shape[:3]
    candidates, each = rows // batch, heads // groups
    to_prompt = product("bkmh,bksh->bkms", _fold(q, batch, groups), prompt_k, accumulate=True)
    to_prompt = _unfold(to_prompt, candidates)
    own = q.reshape(rows, groups, each, width)
    to_suffix = product("rkgh,rksh->rkgs", own, suffix_k, accumulate=True)
    to_suffix = to_suffix.reshape(batch, candidates, groups, each, -1)

    slots = jnp.arange(length + to_suffix.shape[-1])
    real = jnp.pad(prompt_valid, ((0, 0), (0, to_suffix.shape[-1])), constant_values=True)
    mask = (real & in_window(length + cursor - slots, window))[:, None, None, None]
    scores = jnp.concatenate([to_prompt, to_suffix], axis=-1) * scale
    scores = plus(scores, None if bias is None else bias.reshape(groups, each, -1))
    weights = masked_softmax(scores, mask).astype(prompt_v.dtype)

    from_prompt = weights[..., :length].swapaxes(1, 2).reshape(batch, groups, candidates * each, length)
    from_prompt = _unfold(product("bkms,bksh->bkmh", from_prompt, prompt_v), candidates)
    from_suffix = weights[..., length:].reshape(rows, groups, each, -1)
    from_suffix = product("rkgs,rksh->rkgh", from_suffix, suffix_v)
    return from_prompt.reshape(rows, heads, width) + from_suffix.reshape(rows, heads, width)


def prompt_attention(
    q: Float[Array, "R N H"],
    k: Float[Array, "B K P H"],
    v: Float[Array, "B K P H"],
    valid: Bool[Array, "B P"],
    *,
    scale: float,
) -> Float[Array, "R N H"]:
    """Attention of one new token a row to what its example's candidates share, and to nothing else."""
    batch, groups = k.shape[:2]
    scores = product("bkmh,bksh->bkms", _fold(q, batch, groups), k, accumulate=True) * scale
    weights = masked_softmax(scores, valid[:, None, None]).astype(v.dtype)
    mixed = product("bkms,bksh->bkmh", weights, v)
    return _unfold(mixed, q.shape[0] // batch).reshape(q.shape)


def _fold(q: Float[Array, "R N H"], batch: int, groups: int) -> Float[Array, "B K m H"]:
    """The candidates of an example in its query groups, so that products read what they share once: m = C * G."""
    rows, heads, width = q.shape
    folded = q.reshape(batch, rows // batch, groups, heads // groups, width).swapaxes(1, 2)
    return folded.reshape(batch, groups, -1, width)


def _unfold(x: Float[Array, "B K m n"], candidates: int) -> Float[Array, "B C K G n"]:
    batch, groups, _, width = x.shape
    return x.reshape(batch, groups, candidates, -1, width).swapaxes(1, 2)
