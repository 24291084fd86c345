"""NLL of many texts after few long ones: each long text is read once, whatever stands after it.

`tail_nlls` gives what `token_nlls` gives. Prompts that begin alike are one prefix: it is prefilled at B rows, and its
C tails are fed token by token to B * C rows over the shared cache, as in a decode whose tokens are known.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ragjax.decode.buckets import bucket, left_pad, plan_batches
from ragjax.decode.engine import DEFAULT_EXECUTION, Execution, check_ids, token_nlls
from ragjax.decode.loop import Prefilled, prefill
from ragjax.decode.prompt import Prompt
from ragjax.models import decoder
from ragjax.models.cache import SuffixCache, suffix_shape
from ragjax.models.config import DecoderConfig
from ragjax.runtime import note_padding, note_program
from ragjax.sharding import data_shards, mesh_of, on_mesh, zeros
from ragjax.typing import Array, Float, Int, PyTree


def tail_nlls(
    model: Any, prompts: Sequence[Prompt], piece: str, *, execution: Execution = DEFAULT_EXECUTION
) -> list[np.ndarray]:
    """NLL in nats of each token [T] of each prompt, given all before it; 0 outside the piece, which ends the prompt.

    Raises:
      ValueError: for a token outside the model's vocabulary, or a prompt too long for the model.
    """
    starts = [prompt.spans[piece][0] for prompt in prompts]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
        check_ids(model, prompt.ids, 0, f"row {i}")
        groups.setdefault(prompt.ids[:start], []).append(i)
    shared = {prefix: rows for prefix, rows in groups.items() if prefix and len(rows) > 1}
    alone = sorted({i for rows in groups.values() for i in rows} - {i for rows in shared.values() for i in rows})
    found: list[np.ndarray] = [np.zeros(len(prompt.ids), np.float32) for prompt in prompts]
    for i, nll in zip(alone, token_nlls(model, [prompts[i] for i in alone], piece, execution=execution), strict=True):
        found[i] = nll
    tails = {prefix: [prompts[i].ids[len(prefix) :] for i in rows] for prefix, rows in shared.items()}
    for prefix, nlls in _feed_tails(model, tails, execution).items():
        for i, nll in zip(shared[prefix], nlls, strict=True):
            found[i][len(prefix) :] = nll
    return found


def _feed_tails(
    model: Any, tails: dict[tuple[int, ...], list[tuple[int, ...]]], execution: Execution
) -> dict[tuple[int, ...], list[np.ndarray]]:
    """The NLL of each tail's tokens, by prefix."""
    prefixes, mesh, found = list(tails), mesh_of([model]), {}
    layout = plan_batches([[len(prefix)] for prefix in prefixes], execution.batch, data_shards(mesh))
    note_padding(layout.padded_tokens, layout.real_tokens)
    with on_mesh(mesh):
        for batch in layout.batches:
            chosen = [prefixes[i] for i in batch.indices]
            filled = prefill(
                model.params,
                model.config,
                *left_pad(chosen, batch.rows, batch.lengths[0]),
                width=model.vocab_width,
            )
            tokens = _stack_tails([tails[prefix] for prefix in chosen], batch.rows)
            nll = np.asarray(_feed(model.params, model.config, filled, tokens, model.vocab_width))
            nll = nll.reshape(batch.rows, -1, nll.shape[1])
            for row, prefix in enumerate(chosen):
                found[prefix] = [nll[row, c, : len(tail)] for c, tail in enumerate(tails[prefix])]
    return found


def _stack_tails(tails: Sequence[Sequence[tuple[int, ...]]], rows: int) -> Int[np.ndarray, "R T"]:
    """The tails right-padded, as many a prefix as the largest number of them, to a length of the ladder."""
    count = max(map(len, tails))
    length = bucket(max(len(tail) for of in tails for tail in of))
    tokens = np.zeros((rows, count, length), np.int32)
    for row, of in enumerate(tails):
        for place, tail in enumerate(of):
            tokens[row, place, : len(tail)] = tail
    return tokens.reshape(rows * count, length)


@partial(jax.jit, static_argnames=("cfg", "width"))
def _feed(
    params: PyTree, cfg: DecoderConfig, filled: Prefilled, tokens: Int[Array, "R T"], width: int
) -> Float[Array, "R T"]:
    rows, length = tokens.shape
    note_program("tails", cfg, filled.cache.valid.shape, rows, length)
    dtype = filled.cache.keys[0].dtype
    empty = [tuple(zeros(suffix_shape(cfg, rows, length), dtype, "RKSH") for _ in range(cfg.num_layers)) for _ in "kv"]

    def feed(carry: tuple, token: Int[Array, " R"]) -> tuple[tuple, Float[Array, " R"]]:
        suffix, logits, cursor = carry
        own = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
        hidden, (suffix,) = decoder.step(params, cfg, token, (filled.cache,), (suffix,), cursor)
        following = decoder.logits(params, hidden[0], width)
        return (suffix, following, cursor + 1), jax.nn.logsumexp(logits, axis=-1) - own

    logits = jnp.repeat(filled.logits, rows // filled.logits.shape[0], axis=0)
    _, nll = lax.scan(feed, (SuffixCache(*empty), logits, jnp.int32(0)), tokens.T)
    return nll.T
