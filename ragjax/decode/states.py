"""What a model makes of texts that it reads alone: hidden states of one layer, pooled over each text's own tokens.

The host tokenises, sorts the texts into length buckets and pads them on the left; one compiled program a bucket runs
the blocks below the layer and pools. Nothing but the pooled rows leaves the device. Which tokens count is a mask:
padding never does, and the first token only where the caller keeps it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ragjax.decode.buckets import left_pad, plan_batches
from ragjax.decode.engine import check_ids, require_causal
from ragjax.decode.loop import PREFILL_TOKENS, in_micro_batches
from ragjax.decode.prompt import encode_alone
from ragjax.models import decoder
from ragjax.runtime import note_padding, note_program
from ragjax.sharding import data_shards, mesh_of, on_mesh
from ragjax.typing import Array, Bool, Float

LAYER = -2
"""The input of the last block. Layers are counted as transformers counts `hidden_states`: L + 1 entries, 0 the
embeddings, -1 after the final norm."""

FIRST_TOKEN = ("keep", "drop", "bos")
"""What becomes of a text's first token, on which Llama-type models park attention (its state is then about 13 times as
long as the others'): pool it, leave it out, or put a BOS before it and leave that out."""

POOLINGS = ("max", "mean", "last")


@struct.dataclass
class Pooled:
    """States of a text pooled over its tokens, in float32; NaN for a text without one.

    `max`, `mean` and `last` are [B, D]; `token_l2` [B] is the mean over tokens of their states' L2 norms, `token_l1`
    [B] the largest of their L1 norms.
    """

    max: Float[Array, "B D"]
    mean: Float[Array, "B D"]
    last: Float[Array, "B D"]
    token_l2: Float[Array, " B"]
    token_l1: Float[Array, " B"]


def pool(hidden: Float[Array, "B T D"], mask: Bool[Array, "B T"]) -> Pooled:
    """Pool hidden states over the tokens that `mask` marks; the others cannot win, whatever they hold."""
    wide, kept = hidden.astype(jnp.float32), mask[..., None]
    count = jnp.sum(mask, axis=1)
    end = mask.shape[1] - 1 - jnp.argmax(mask[:, ::-1], axis=1)
    sizes = jnp.linalg.norm(wide, axis=-1), jnp.sum(jnp.abs(wide), axis=-1)
    found = Pooled(
        max=jnp.max(jnp.where(kept, wide, -jnp.inf), axis=1),
        mean=jnp.sum(jnp.where(kept, wide, 0), axis=1) / count[:, None],
        last=jnp.take_along_axis(wide, end[:, None, None], axis=1)[:, 0],
        token_l2=jnp.sum(jnp.where(mask, sizes[0], 0), axis=1) / count,
        token_l1=jnp.max(jnp.where(mask, sizes[1], -jnp.inf), axis=1),
    )
    return jax.tree.map(lambda x: jnp.where((count > 0).reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan), found)


def pooled_states(
    lm: Any, texts: Sequence[str], *, layer: int = LAYER, first_token: str = "keep", batch: int = 8
) -> Pooled:
    """The pooled states of each text, as numpy arrays in the texts' order (n for B).

    A text is read without a question and without special tokens. One without a character other than white space is
    not read: its row is NaN.

    Args:
      layer: index into `hidden_states`, see `LAYER`.
      first_token: one of `FIRST_TOKEN`; with "drop" a text of one token is a row of NaN too.

    Raises:
      ValueError: for a setting that cannot be, a family without BOS where one is asked for, or a text too long for
        the model, naming its row.
    """
    require_causal("pooling states", lm)
    block = block_of(lm.config, layer)
    rows = _tokenize(lm, texts, first_token)
    with on_mesh(mesh_of([lm])):
        runs = [
            (indices, _pooled(lm.params, lm.config, tokens, valid, _counted(valid, first_token), block))
            for indices, tokens, valid in _batches(rows, batch)
        ]
    wide, flat = (len(rows), lm.config.hidden_size), (len(rows),)
    result = Pooled(*(np.full(shape, np.nan, np.float32) for shape in (wide, wide, wide, flat, flat)))
    for indices, found in runs:
        for whole, part in zip(jax.tree.leaves(result), jax.tree.leaves(found), strict=True):
            whole[indices] = np.asarray(part)[: len(indices)]
    return result


def token_states(lm: Any, texts: Sequence[str], *, layer: int = LAYER, batch: int = 8) -> Float[np.ndarray, "n D"]:
    """The states of all tokens of all texts, one under the other; texts are read, and refused, as `pooled_states`."""
    block = block_of(lm.config, layer)
    rows = _tokenize(lm, texts, "keep")
    parts = [np.zeros((0, lm.config.hidden_size), np.float32)] * len(rows)
    with on_mesh(mesh_of([lm])):
        for indices, tokens, valid in _batches(rows, batch):
            hidden = np.asarray(_hidden(lm.params, lm.config, tokens, valid, block), np.float32)
            for place, index in enumerate(indices):
                parts[index] = hidden[place, valid[place]]
    return np.concatenate(parts) if parts else np.zeros((0, lm.config.hidden_size), np.float32)


def check_choices(first_token: str, pooling: str = "max") -> None:
    """Raise ValueError for a `first_token` or `pooling` that does not exist."""
    if first_token not in FIRST_TOKEN:
        raise ValueError(f"first_token is one of {FIRST_TOKEN}, got {first_token!r}")
    if pooling not in POOLINGS:
        raise ValueError(f"pooling is one of {POOLINGS}, got {pooling!r}")


def block_of(cfg: Any, layer: int) -> int | None:
    """The block that reads the states of `layer`, None after the final norm. Raises ValueError outside L + 1 layers."""
    count = cfg.num_layers + 1
    if not -count <= layer < count:
        raise ValueError(f"a model of {count - 1} blocks has the layers {-count} to {count - 1}, got {layer}")
    block = layer % count
    return None if block == count - 1 else block


def _tokenize(lm: Any, texts: Sequence[str], first_token: str) -> list[tuple[int, ...]]:
    check_choices(first_token)
    start: tuple[int, ...] = ()
    if first_token == "bos":
        if lm.tokenizer.bos_token_id is None:
            raise ValueError(f'{lm.name} has no BOS token: choose first_token="keep" or "drop"')
        start = (lm.tokenizer.bos_token_id,)
    rows = [(*start, *encode_alone(lm.tokenizer, text)) if text.strip() else () for text in texts]
    for number, ids in enumerate(rows):
        check_ids(lm, ids, 0, f"row {number}")
    return rows


def _batches(rows: Sequence[tuple[int, ...]], batch: int) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Batches of the rows that are not empty: their indices, and tokens and mask as `left_pad` gives them."""
    full = [i for i, ids in enumerate(rows) if ids]
    layout = plan_batches([[len(rows[i])] for i in full], batch, data_shards())
    note_padding(layout.padded_tokens, layout.real_tokens)
    for planned in layout.batches:
        indices = [full[i] for i in planned.indices]
        yield indices, *left_pad([rows[i] for i in indices], planned.rows, planned.lengths[0])


def _counted(valid: np.ndarray, first_token: str) -> np.ndarray:
    """The tokens that are pooled: all real ones, or all but each row's first."""
    return valid if first_token == "keep" else valid & (np.cumsum(valid, axis=1) > 1)


@partial(jax.jit, static_argnames=("cfg", "layer"))
def _pooled(params, cfg, tokens, valid, counted, layer) -> Pooled:
    note_program("states", cfg, *tokens.shape, layer)

    def read(rows: tuple) -> Pooled:
        return pool(decoder.forward(params, cfg, rows[0], rows[1], layer)[0], rows[2])

    return in_micro_batches(read, (tokens, valid, counted), max(1, PREFILL_TOKENS // tokens.shape[1]) * data_shards())


@partial(jax.jit, static_argnames=("cfg", "layer"))
def _hidden(params, cfg, tokens, valid, layer) -> Array:
    note_program("token states", cfg, *tokens.shape, layer)

    def read(rows: tuple) -> Array:
        return decoder.forward(params, cfg, *rows, layer)[0]

    return in_micro_batches(read, (tokens, valid), max(1, PREFILL_TOKENS // tokens.shape[1]) * data_shards())
