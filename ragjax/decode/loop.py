"""The life of a decode: prefill each member's prompt, then step all members on one shared token.

1. `prefill` reads a batch of left-padded prompts and leaves, for each member, the prompt's cache, the logits of the
   coming token, and, when asked, the NLL of one span a row. For an encoder-decoder the prompt is its source: the
   encoder reads it, and the decoder has read its start token.
2. `start` spreads the B examples over their R = B * C rows.
3. `decode_chunk` runs a jitted `lax.scan` of `plan.chunk` steps with the state donated: choose a token from the mixed
   logits, end the rows that are done, feed the token to every member.
4. `decode_rows`, on the host, looks at the finish flags between chunks, stops early, and on a CPU moves the unfinished
   examples into a smaller batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from ragjax.decode import sampling
from ragjax.decode.ensemble import mix_log_probs
from ragjax.decode.state import (
    FAILED,
    LENGTH,
    RUNNING,
    STOP,
    Decoded,
    DecodeState,
    Knobs,
    Member,
    Plan,
    StepOutput,
    finish_reason,
)
from ragjax.models import decoder, t5
from ragjax.models.architectures import Config
from ragjax.models.cache import PromptCache, SuffixCache, suffix_shape
from ragjax.models.config import DecoderConfig
from ragjax.models.t5_config import T5Config
from ragjax.runtime import note_program
from ragjax.sharding import constrain, data_shards, zeros
from ragjax.typing import Array, Bool, Float, Int, PyTree

PREFILL_TOKENS = 8192
"""Tokens of one micro-batch of a prefill: its temporaries, not the weights, are what overflows a small chip."""

SCORE_BLOCK = 128
"""Positions whose logits exist at the same time while a span is scored."""


@struct.dataclass
class Prefilled:
    """What a prompt leaves: logits [B, V] of the coming token, the cache, the ids seen, and the span's NLL [B, T].

    Seen are the ids that come before the first one generated: a source is read by another half of the model.

    `nll[b, t]` is -log p(token t | tokens before t) inside row b's span and 0 outside, in nats.
    """

    logits: Float[Array, "B V"]
    cache: PromptCache | t5.SourceCache
    seen: Bool[Array, "B V"]
    nll: Float[Array, "B T"] | None


def prefill(
    params: PyTree,
    cfg: Config,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    span: Bool[Array, "B T"] | None = None,
    *,
    width: int,
) -> Prefilled:
    """Read a batch of left-padded prompts, in micro-batches of at most `PREFILL_TOKENS` tokens a device.

    `span` marks the tokens whose NLL is wanted. Only the last position gets logits otherwise. A first real token has
    nothing before it: its NLL is 0 and the caller counts it out.
    """
    micro = max(1, PREFILL_TOKENS // tokens.shape[1]) * data_shards()
    rows = [None if x is None else constrain(x, "BT") for x in (tokens, valid, span)]
    return _prefill(params, cfg, *rows, width, micro)


@partial(jax.jit, static_argnames=("cfg", "width", "micro"))
def _prefill(params, cfg, tokens, valid, span, width, micro) -> Prefilled:
    batch, length = tokens.shape
    note_program("prefill", cfg, batch, length, span is not None)

    def read(rows: tuple) -> Prefilled:
        return _READERS[type(cfg)](params, cfg, *rows, width=width)

    return in_micro_batches(read, (tokens, valid, span), micro)


def in_micro_batches(read: Callable[[PyTree], PyTree], rows: PyTree, micro: int) -> PyTree:
    """`read` applied to a batch of rows, in equal parts of at most `micro` rows, one after the other.

    On a mesh each part takes its rows from every device, so that no row moves to another.
    """
    batch = jax.tree.leaves(rows)[0].shape[0]
    if batch <= micro:
        return read(rows)
    size = max(n for n in range(1, micro + 1) if batch % n == 0)
    shards = math.gcd(size, data_shards())

    def split(x: Array) -> Array:
        x = x.reshape(shards, batch // size, size // shards, *x.shape[1:])
        return x.swapaxes(0, 1).reshape(batch // size, size, *x.shape[3:])

    def join(x: Array) -> Array:
        x = x.reshape(batch // size, shards, size // shards, *x.shape[2:])
        return x.swapaxes(0, 1).reshape(batch, *x.shape[3:])

    return jax.tree.map(join, lax.map(read, jax.tree.map(split, rows)))


def _read_prompt(params, cfg, tokens, valid, span, *, width: int) -> Prefilled:
    hidden, cache = decoder.forward(params, cfg, tokens, valid)
    rows = jnp.arange(tokens.shape[0])[:, None]
    seen = jnp.zeros((tokens.shape[0], width), bool).at[rows, jnp.where(valid, tokens, width)].set(True, mode="drop")
    nll = None if span is None else span_nll(params, hidden, tokens, valid, span, width=width)
    logits = constrain(decoder.logits(params, hidden[:, -1], width), "BV")
    return Prefilled(logits, cache, constrain(seen, "BV"), nll)


def _read_source(params, cfg, tokens, valid, span, *, width: int) -> Prefilled:
    hidden, cache = t5.read(params, cfg, tokens, valid)
    seen = jnp.broadcast_to(jnp.arange(width) == cfg.start_id, (tokens.shape[0], width))
    logits = constrain(decoder.logits(params, hidden, width), "BV")
    return Prefilled(logits, cache, constrain(seen, "BV"), None)


_READERS: Mapping[type, Callable[..., Prefilled]] = {DecoderConfig: _read_prompt, T5Config: _read_source}

STEPS: Mapping[type, tuple[Callable, Callable]] = {
    DecoderConfig: (decoder.step, decoder.logits),
    T5Config: (t5.step, decoder.logits),
}
"""The step and the logits function of every architecture that writes, by the type of its config."""


def span_nll(
    params: PyTree,
    hidden: Float[Array, "B T D"],
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    span: Bool[Array, "B T"],
    *,
    width: int,
) -> Float[Array, "B T"]:
    """NLL in nats of each token inside the span given all before it, 0 elsewhere, over the first `width` ids.

    Blocks of positions without a token of the span are skipped at run time.
    """
    batch, length = tokens.shape
    wanted = span & valid & jnp.pad(valid[:, :-1], ((0, 0), (1, 0)))
    padded = -(-length // SCORE_BLOCK) * SCORE_BLOCK
    before = jnp.pad(hidden[:, :-1], ((0, 0), (1, padded - length), (0, 0)))
    targets, wanted = (jnp.pad(x, ((0, 0), (0, padded - length))) for x in (tokens, wanted))

    def block(start: Array) -> Array:
        h, y, w = (lax.dynamic_slice_in_dim(x, start, SCORE_BLOCK, axis=1) for x in (before, targets, wanted))

        def score() -> Array:
            scores = decoder.logits(params, h, width)
            chosen = jnp.take_along_axis(scores, y[..., None], axis=-1)[..., 0]
            return jnp.where(w, jax.nn.logsumexp(scores, axis=-1) - chosen, 0.0)

        return lax.cond(jnp.any(w), score, lambda: jnp.zeros(y.shape, jnp.float32))

    blocks = lax.map(block, jnp.arange(0, padded, SCORE_BLOCK))
    return blocks.swapaxes(0, 1).reshape(batch, padded)[:, :length]


def start(plan: Plan, prefilled: Sequence[Prefilled], rows: int, budget: np.ndarray) -> DecodeState:
    """The state before the first token: the members' logits spread over R rows, empty suffixes.

    A row whose budget is 0 (a dummy that fills the batch) is finished from the start.
    """
    logits = jnp.stack([p.logits for p in prefilled])
    each = rows // logits.shape[1]
    suffixes: list[SuffixCache | None] = [None] * len(prefilled)
    for cfg, group in zip(plan.configs, plan.groups, strict=True):
        shape = suffix_shape(cfg, rows, plan.max_new)
        for member in group:
            dtype = prefilled[member].cache.keys[0].dtype
            empty = [tuple(zeros(shape, dtype, "RKSH") for _ in range(cfg.num_layers)) for _ in range(2)]
            suffixes[member] = SuffixCache(*empty)
    state = DecodeState(
        logits=jnp.repeat(logits, each, axis=1) if each > 1 else logits,
        suffixes=tuple(suffixes),
        generated=np.zeros((rows, plan.width), bool),
        count=np.zeros(rows, np.int32),
        finish=np.where(budget > 0, RUNNING, LENGTH).astype(np.int32),
        cursor=np.int32(0),
    )
    return _placed(state)


def _placed(state: DecodeState) -> DecodeState:
    """The state where every step leaves it: a chunk then meets the placement that it was compiled for."""
    axes = {"logits": "MRV", "generated": "RV", "count": "R", "finish": "R", "cursor": ""}
    return state.replace(**{name: constrain(getattr(state, name), letters) for name, letters in axes.items()})


def choose(
    plan: Plan, knobs: Knobs, logits: Float[Array, "M R V"], seen: Bool[Array, "M R V"], count: Int[Array, " R"]
) -> tuple[StepOutput, Bool[Array, " R"]]:
    """One token a row from the members' raw logits, and which rows have only finite distributions.

    The repetition penalty applies to each member's raw float32 logits, before log-softmax; then mix, temperature,
    top-k, top-p. Filters and draws run only when some row samples.
    """
    penalized = lax.cond(
        jnp.any(knobs.penalty != 1), lambda: sampling.penalize(logits, seen, knobs.penalty), lambda: logits
    )
    mixed = mix_logits(plan, knobs, penalized)

    def draw() -> Array:
        keys = sampling.row_keys(knobs.seed, knobs.example, knobs.candidate, count)
        return sampling.sample(mixed.scores, keys, knobs.temperature, knobs.top_k, knobs.top_p)

    def best() -> Array:
        return jnp.argmax(mixed.scores, axis=-1).astype(jnp.int32)

    token = lax.cond(jnp.any(knobs.temperature > 0), draw, best)
    picked = partial(jnp.take_along_axis, indices=token[:, None], axis=-1)
    own = jnp.take_along_axis(mixed.own, jnp.broadcast_to(token, mixed.own.shape[:2])[..., None], axis=-1)
    output = StepOutput(
        emitted=mixed.finite,
        token=token,
        log_prob=picked(mixed.scores)[:, 0] - mixed.total,
        member_log_probs=own[..., 0],
        member_argmax=mixed.argmax,
    )
    return output, mixed.finite


@struct.dataclass
class Mixed:
    """The members' log-probabilities `own`, their mix `scores` up to a constant a row, and that constant, `total`.

    `finite` marks the rows whose distributions are; `argmax` is each member's own best id among those allowed.
    """

    own: Float[Array, "M R V"]
    scores: Float[Array, "R V"]
    total: Float[Array, " R"]
    finite: Bool[Array, " R"]
    argmax: Int[Array, "M R"]


def mix_logits(plan: Plan, knobs: Knobs, logits: Float[Array, "M R V"]) -> Mixed:
    """Mix the members' raw float32 logits: log-softmax each, weigh, mask what may not be emitted."""
    normalizer = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    own = logits - normalizer
    scores = mix_log_probs(own, knobs.weights, knobs.allowed, plan.mix)
    total = jax.nn.logsumexp(scores, axis=-1)
    # Both must be finite: a member may be all -inf, or hold NaN or +inf; the mix may allow nothing. A member without a
    # share has no say, not even this one: its candidate is that of the other member alone.
    finite = jnp.all(jnp.isfinite(normalizer[..., 0]) | (knobs.weights == 0), axis=0) & jnp.isfinite(total)
    argmax = jnp.argmax(jnp.where(knobs.allowed, own, -jnp.inf), axis=-1).astype(jnp.int32)
    return Mixed(own, scores, total, finite, argmax)


def seen_ids(members: tuple[Member, ...], generated: Bool[Array, "R V"]) -> Bool[Array, "M R V"]:
    """The ids that each member's penalty applies to: those of its prompt, and what the row generated."""
    prompts = jnp.stack([m.seen for m in members])
    return jnp.repeat(prompts, generated.shape[0] // prompts.shape[1], axis=1) | generated


def _step(plan: Plan, params: tuple, members: tuple[Member, ...], knobs: Knobs, state: DecodeState, _):
    rows = state.count.shape[0]
    output, finite = choose(plan, knobs, state.logits, seen_ids(members, state.generated), state.count)
    running = state.finish == RUNNING
    stopped = jnp.any(output.token[:, None] == knobs.stops, axis=1)
    emitted = running & finite & ~stopped
    count = state.count + emitted
    ended = jnp.where(~finite, FAILED, jnp.where(stopped, STOP, jnp.where(count >= knobs.budget, LENGTH, RUNNING)))
    token = jnp.where(emitted, output.token, 0)
    logits, suffixes = feed(plan, params, members, state.suffixes, token, state.cursor)
    following = DecodeState(
        logits=logits,
        suffixes=suffixes,
        generated=state.generated.at[jnp.arange(rows), jnp.where(emitted, token, plan.width)].set(True, mode="drop"),
        count=count,
        finish=jnp.where(running, ended, state.finish),
        cursor=state.cursor + 1,
    )
    return _placed(following), output.replace(emitted=emitted, token=token)


def feed(
    plan: Plan,
    params: tuple,
    members: tuple[Member, ...],
    suffixes: tuple[SuffixCache, ...],
    token: Int[Array, " R"],
    cursor: Int[Array, ""],
) -> tuple[Float[Array, "M R V"], tuple[SuffixCache, ...]]:
    """Give a token a row to every member, one stacked forward for each group that shares its weights.

    Returns the members' logits of the coming token, and their suffixes with this one at slot `cursor`.
    """
    logits: list = [None] * len(members)
    following: list = [None] * len(members)
    for weights, cfg, (step, head), group in zip(params, plan.configs, plan.steps, plan.groups, strict=True):
        prompts = tuple(members[m].prompt for m in group)
        hidden, written = step(weights, cfg, token, prompts, tuple(suffixes[m] for m in group), cursor)
        scores = head(weights, hidden, plan.width)
        for index, member in enumerate(group):
            logits[member], following[member] = scores[index], written[index]
    return jnp.stack(logits), tuple(following)


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("state",))
def decode_chunk(
    plan: Plan, params: tuple, members: tuple[Member, ...], knobs: Knobs, state: DecodeState
) -> tuple[DecodeState, StepOutput]:
    """`plan.chunk` steps of every row. Outputs have a leading axis of steps. The state is donated."""
    shapes = tuple(m.prompt.valid.shape[1] for m in members)
    note_program("decode", plan, shapes, state.count.shape[0])
    return lax.scan(partial(_step, plan, params, members, knobs), state, None, length=plan.chunk)


def decode_rows(
    plan: Plan,
    params: tuple,
    members: tuple[Member, ...],
    knobs: Knobs,
    state: DecodeState,
    *,
    compact_from: int | None,
) -> tuple[list[Decoded], int]:
    """Decode every row to its end; the rows in order, and the number of steps executed.

    The examples still running move into half the rows whenever they fit, as long as the members have at least
    `compact_from` rows together; None keeps the batch as it is.
    """
    rows = state.count.shape[0]
    candidates = rows // members[0].seen.shape[0]
    home = np.arange(rows)
    finish, pieces = np.zeros(rows, np.int32), [[] for _ in range(rows)]
    steps = 0
    while True:
        state, output = decode_chunk(plan, params, members, knobs, state)
        steps += plan.chunk
        output, flags = jax.device_get((output, state.finish))
        _collect(output, home, pieces)
        finish[home] = flags
        if np.all(flags != RUNNING) or steps >= plan.max_new:
            break
        running = np.any(flags.reshape(-1, candidates) == RUNNING, axis=1)
        keep = kept(running, len(members) * len(home), compact_from)
        if keep is not None:
            members, knobs, state, home = take(keep, candidates, members, knobs, state, home)
    return [_decoded(piece, flag) for piece, flag in zip(pieces, finish, strict=True)], steps


def _collect(output: StepOutput, home: np.ndarray, pieces: list[list]) -> None:
    for row, target in enumerate(home):
        mask = output.emitted[:, row]
        pieces[target].append(jax.tree.map(lambda x, row=row, mask=mask: x[..., row][mask], output))


def _decoded(pieces: list[StepOutput], flag: int) -> Decoded:
    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(p, name) for p in pieces])

    return Decoded(
        tokens=join("token"),
        log_probs=join("log_prob"),
        member_log_probs=join("member_log_probs").T,
        member_argmax=join("member_argmax").T,
        finish_reason=finish_reason(flag, sum(len(p.token) for p in pieces)),
    )


def kept(running: np.ndarray, rows: int, compact_from: int | None) -> np.ndarray | None:
    """The examples that go on where a smaller batch pays, else None.

    They are the running ones, filled up with finished ones to a power-of-two part of the batch. `rows` counts those of
    all members together.
    """
    size = len(running)
    if compact_from is None or rows < compact_from or 2 * np.sum(running) > size:
        return None
    while size % 2 == 0 and 2 * np.sum(running) <= size:
        size //= 2
    return np.sort(np.argsort(~running, kind="stable")[:size])


def take(
    keep: np.ndarray,
    candidates: int,
    members: tuple[Member, ...],
    knobs: Knobs,
    state: DecodeState,
    home: np.ndarray,
) -> tuple[tuple[Member, ...], Knobs, DecodeState, np.ndarray]:
    """Gather the kept examples' rows. In numpy: on a CPU device that copies once and compiles nothing."""
    rows = (keep[:, None] * candidates + np.arange(candidates)).reshape(-1)

    def at(tree, index, axis=0):
        return jax.tree.map(lambda x: np.take(np.asarray(x), index, axis=axis), tree)

    knobs = knobs.replace(
        weights=at(knobs.weights, rows, 1),
        **{name: at(getattr(knobs, name), rows) for name in _ROW_KNOBS},
    )
    state = state.replace(
        logits=at(state.logits, rows, 1),
        suffixes=at(state.suffixes, rows),
        generated=at(state.generated, rows),
        count=at(state.count, rows),
        finish=at(state.finish, rows),
    )
    return at(members, keep), knobs, state, home[rows]


_ROW_KNOBS = ("temperature", "top_k", "top_p", "penalty", "budget", "example", "candidate", "stops")
