"""From logits to one token a row: penalty, temperature, top-k, top-p, and a draw that depends on the row alone.

Every knob is a traced array with one entry a row, so that changing it compiles nothing. Greedy is temperature 0.
"""

import math
from typing import SupportsFloat, SupportsInt

import jax
import jax.numpy as jnp

from ragjax.typing import Array, Bool, Float, Int, Integer, Key


def check_knobs(
    temperature: SupportsFloat,
    top_k: SupportsInt,
    top_p: SupportsFloat,
    repetition_penalty: SupportsFloat,
    alpha: SupportsFloat = 0.0,
) -> None:
    """Refuse, by name, a knob outside its range. Zero is a value: temperature 0 is greedy, top_k 0 is off."""
    for name, value in (("temperature", temperature), ("top_p", top_p), ("repetition_penalty", repetition_penalty)):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} must be finite and not negative, got {value}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p lies in (0, 1], got {top_p}")
    if repetition_penalty == 0:
        raise ValueError("repetition_penalty must be positive, got 0 (1 is off)")
    if top_k < 0:
        raise ValueError(f"top_k counts tokens (0 is off), got {top_k}")
    if not (math.isfinite(alpha) and 0 <= alpha <= 1):
        raise ValueError(f"alpha lies in [0, 1], got {alpha}")


def penalize(
    logits: Float[Array, "... R V"], seen: Bool[Array, "... R V"], penalty: Float[Array, " R"]
) -> Float[Array, "... R V"]:
    """Repetition penalty by the sign rule of transformers: a seen id's logit is divided by it when positive,
    multiplied when negative."""
    strength = penalty[:, None]
    return jnp.where(seen, jnp.where(logits > 0, logits / strength, logits * strength), logits)


def restrict(scores: Float[Array, "R V"], top_k: Int[Array, " R"], top_p: Float[Array, " R"]) -> Float[Array, "R V"]:
    """Set to -inf what top-k, then top-p, leave out. The best token always stays; equal scores stay together."""
    ordered = jnp.sort(scores, axis=-1, descending=True)
    width = scores.shape[-1]
    kept = jnp.where(top_k > 0, jnp.minimum(top_k, width), width)[:, None]
    ranked = jnp.where(jnp.arange(width) < kept, ordered, -jnp.inf)
    mass = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(mass, axis=-1) - mass
    inside = (before < top_p[:, None]) | (top_p[:, None] >= 1)
    lowest = jnp.min(jnp.where(inside & jnp.isfinite(ranked), ranked, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(scores >= lowest, scores, -jnp.inf)


def row_keys(
    seed: Integer[Array, ""], ids: Integer[Array, " R"], candidates: Int[Array, " R"], counts: Int[Array, " R"]
) -> Key[Array, " R"]:
    """One typed key a row: `fold_in(fold_in(fold_in(seed, id), candidate), count)`, count its own tokens so far.

    Nothing else enters: a sample does not depend on batch size, order, mesh or resume.
    """

    def one(example: Array, candidate: Array, count: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(seed), example)
        return jax.random.fold_in(jax.random.fold_in(key, candidate), count)

    return jax.vmap(one)(ids, candidates, counts)


def sample(
    scores: Float[Array, "R V"],
    keys: Key[Array, " R"],
    temperature: Float[Array, " R"],
    top_k: Int[Array, " R"],
    top_p: Float[Array, " R"],
) -> Int[Array, " R"]:
    """Draw one id a row from `scores` (log-probabilities up to a constant); rows at temperature 0 take the best."""
    greedy = temperature == 0
    scaled = scores / jnp.where(greedy, 1.0, temperature)[:, None]
    drawn = jax.vmap(jax.random.categorical)(keys, restrict(scaled, top_k, top_p))
    return jnp.where(greedy, jnp.argmax(scores, axis=-1), drawn).astype(jnp.int32)
