"""One encoder on many rows: batches of similar length, one compiled program for each shape, results in their order.

Rows are sorted by length and padded on the right to a few lengths, as prompts are for decoding. What is read off the
states (a pooled vector, logits) is computed in the same program, so that nothing larger leaves the device. Device work
is queued before the first result is fetched.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ragjax.decode.buckets import plan_batches
from ragjax.decode.engine import check_ids
from ragjax.decode.loop import PREFILL_TOKENS, in_micro_batches
from ragjax.encode.tokens import Row
from ragjax.models import bert, deberta
from ragjax.models.encoder import sequence_logits, token_logits
from ragjax.models.encoder_config import BertConfig, DebertaConfig, EncoderConfig
from ragjax.runtime import note_padding, note_program
from ragjax.sharding import data_shards, mesh_of, on_mesh
from ragjax.typing import Array, Bool, Float, PyTree


class NonFinite(ArithmeticError):
    """A model's result for a text, or for a pair of them, is no number; `text` is which of those given."""

    def __init__(self, text: int, message: str | None = None) -> None:
        super().__init__(message or f"text {text}: the model's output is not finite")
        self.text = text


_FORWARD: Mapping[type, Callable[..., Array]] = {BertConfig: bert.forward, DebertaConfig: deberta.forward}


def _mean(states: Float[Array, "B T D"], valid: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    kept = jnp.where(valid[..., None], states.astype(jnp.float32), 0)
    return jnp.sum(kept, axis=1) / jnp.maximum(jnp.sum(valid, axis=1), 1)[:, None]


def _max(states: Float[Array, "B T D"], valid: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    return jnp.max(jnp.where(valid[..., None], states.astype(jnp.float32), jnp.finfo(jnp.float32).min), axis=1)


def _first(states: Float[Array, "B T D"], valid: Bool[Array, "B T"]) -> Float[Array, "B D"]:
    return states[:, 0].astype(jnp.float32)


POOLINGS = {"mean": _mean, "cls": _first, "max": _max}
"""From the states of a text's real tokens, special ones included, to its vector."""


def _classes(params: PyTree, cfg: EncoderConfig, states: Array, valid: Array) -> Float[Array, "B C"]:
    return sequence_logits(params.head, cfg, states)


def _labels(params: PyTree, cfg: EncoderConfig, states: Array, valid: Array) -> Float[Array, "B T C"]:
    return jax.nn.softmax(token_logits(params.head, states), axis=-1)


def _pooled(pooling: Callable[..., Array], params: PyTree, cfg: EncoderConfig, states: Array, valid: Array) -> Array:
    return pooling(states, valid)


READINGS: Mapping[str, Callable[..., Array]] = {
    "classes": _classes,
    "labels": _labels,
    **{name: partial(_pooled, pooling) for name, pooling in POOLINGS.items()},
}
"""What is read off the states: logits of a text's classes, probabilities of each token's labels, a pooled vector."""


def read_rows(model: Any, rows: Sequence[Row], reading: str, batch: int) -> list[np.ndarray]:
    """One of `READINGS` of each row, in float32, in the order of the rows; of a token-wise one, the row's own tokens.

    Raises:
        ValueError: naming the text with an id outside the model's table.
        NonFinite: naming the text whose result is no number.
    """
    for row in rows:
        check_ids(model, row.ids, 0, f"text {row.text}")
    found: list[np.ndarray] = [np.zeros(0, np.float32)] * len(rows)
    mesh = mesh_of([model])
    layout = plan_batches([[len(row.ids)] for row in rows], batch, data_shards(mesh))
    note_padding(layout.padded_tokens, layout.real_tokens)
    with on_mesh(mesh):
        queued = [
            (b, _read(model.params, model.config, *_padded([rows[i] for i in b.indices], b.rows, *b.lengths), reading))
            for b in layout.batches
        ]
        for planned, values in queued:
            for index, value in zip(planned.indices, np.asarray(values), strict=False):
                found[index] = _finite(rows[index], value[: len(rows[index].ids)] if value.ndim > 1 else value)
    return found


def _padded(rows: Sequence[Row], count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, the mask of real ones and types, each [count, length], left-aligned; missing rows are padding."""
    tokens, types = np.zeros((count, length), np.int32), np.zeros((count, length), np.int32)
    valid = np.zeros((count, length), bool)
    for place, row in enumerate(rows):
        size = len(row.ids)
        tokens[place, :size], types[place, :size], valid[place, :size] = row.ids, row.types, True
    return tokens, valid, types


def _finite(row: Row, value: np.ndarray) -> np.ndarray:
    if not np.isfinite(value).all():
        raise NonFinite(row.text)
    return value


@partial(jax.jit, static_argnames=("cfg", "reading"))
def _read(params, cfg, tokens, valid, types, reading) -> Array:
    note_program("encode", cfg, *tokens.shape, reading)

    def read(rows: tuple) -> Array:
        tokens, valid, types = rows
        return READINGS[reading](params, cfg, _FORWARD[type(cfg)](params, cfg, tokens, valid, types), valid)

    micro = max(1, PREFILL_TOKENS // tokens.shape[1]) * data_shards()
    return in_micro_batches(read, (tokens, valid, types), micro)
