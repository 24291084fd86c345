"""Beam search on the shared step: the C best continuations of each prompt, for one model or an ensemble.

It is transformers' search (`num_beams=C, num_return_sequences=C, do_sample=False, early_stopping=False`), with the
members' normalised mix in the place of one model's distribution:

1. the prompts are prefilled once, at B rows; only beam 0 of an example starts alive, since all C are still equal;
2. a step adds the log-probability of every id to its beam's score, and ranks an example's C * V continuations;
3. what ends (a stop id, the last token allowed) among the C best enters the example's finished hypotheses, kept by
   score / length ** length_penalty; the C best that do not end are the next beams;
4. an example is frozen once C hypotheses are finished and its best beam scores no better than the worst of them.

transformers goes on until a whole batch is done; here an example ends alone, as in a batch of one, so that its result
does not depend on its company. A beam that moves takes its suffix cache along: the one gather of a cache there is.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from ragjax.decode import loop, sampling
from ragjax.decode.engine import DEFAULT_EXECUTION, DecodeResult, Execution, Sampling, Voice, open_job, run_job
from ragjax.decode.ensemble import mix_log_probs
from ragjax.decode.state import FAILED, LENGTH, RUNNING, STOP, Decoded, DecodeState, Knobs, Member, Plan, finish_reason
from ragjax.runtime import note_program
from ragjax.typing import Array, Bool, Float, Int, PyTree

NEVER = -1e9
"""The score of what must lose to everything real, as in transformers: finite, so that arithmetic on it is."""


def decode_beams(
    voices: Sequence[Voice],
    *,
    beams: int,
    max_new: int,
    weights: Sequence[float] = (1.0,),
    ids: Sequence[str] | None = None,
    repetition_penalty: float = 1.0,
    penalty_scope: str = "prompt",
    length_penalty: float = 1.0,
    mix: str = "geometric",
    admit_added: bool = False,
    execution: Execution = DEFAULT_EXECUTION,
) -> DecodeResult:
    """The C best hypotheses of every example's prompts, best first: `rows[example]` has C of them.

    Args:
      voices: the members; prompt i of each belongs to example i.
      beams: C, the beams of an example and the hypotheses returned.
      max_new: the most tokens a hypothesis may have.
      weights: [M], the members' shares of the mix; they sum to 1.
      ids: the examples' ids, named in errors.
      repetition_penalty: multiplies the log-probability of ids seen; see `score_next`.
      length_penalty: the power of the length (its stop id counted) that a hypothesis' score is divided by.
      mix, admit_added, penalty_scope, execution: as in `decode_prompts`.

    Returns:
      Of each token, `log_probs` has the mix's log-probability and `member_log_probs` the members', before the penalty.
      The hypotheses of a failed example are its beams as they were, all of them failed.

    Raises:
      ValueError, VocabularyMismatch: as `decode_prompts`; and for fewer ids than the search ranks.
    """
    if beams < 1:
        raise ValueError(f"beams counts hypotheses and is at least 1, got {beams}")
    if not math.isfinite(length_penalty):
        raise ValueError(f"length_penalty must be finite, got {length_penalty}")
    job = open_job(
        voices,
        max_new=max_new,
        weights=(tuple(weights),) * beams,
        ids=ids,
        sampling=Sampling(repetition_penalty=repetition_penalty, penalty_scope=penalty_scope),
        mix=mix,
        admit_added=admit_added,
        execution=execution,
    )
    ranked, choices = _ranked(beams, job.stops.shape[1]), int(job.vocabulary.allowed.sum())
    if ranked > choices:
        raise ValueError(f"{beams} beams rank {ranked} continuations, and the vocabulary allows only {choices} ids")
    return run_job(job, partial(decode_hypotheses, length_penalty=length_penalty))


@struct.dataclass
class Transcript:
    """What each hypothesis holds, by token: ids, log-probabilities of the mix and of the members, their best ids."""

    token: Int[Array, "B C S"]
    log_prob: Float[Array, "B C S"]
    member_log_probs: Float[Array, "B C M S"]
    member_argmax: Int[Array, "B C M S"]


@struct.dataclass
class Hypotheses:
    """The C beams, or the C finished hypotheses, of each example, best first.

    A beam's score is its sum of log-probabilities, a finished hypothesis' that sum over its length to the power of the
    penalty. `length` counts tokens without the stop id; `reason` is RUNNING for beams and for places not yet taken.
    """

    score: Float[Array, "B C"]
    length: Int[Array, "B C"]
    reason: Int[Array, "B C"]
    text: Transcript


@struct.dataclass
class BeamState:
    """What a step hands to the next: the decode's own state, whose row b * C + c is beam c of example b, and texts."""

    decode: DecodeState
    beams: Hypotheses
    finished: Hypotheses


def start_beams(plan: Plan, state: DecodeState, batch: int) -> BeamState:
    """The state before the first token, from that of a decode with R = B * C rows."""
    shape = batch, state.count.shape[0] // batch
    members = len(state.suffixes)

    def empty(score: np.ndarray) -> Hypotheses:
        blanks = {kind: np.zeros((*shape, plan.max_new), kind) for kind in (np.int32, np.float32)}
        of_members = {kind: np.zeros((*shape, members, plan.max_new), kind) for kind in blanks}
        text = Transcript(blanks[np.int32], blanks[np.float32], of_members[np.float32], of_members[np.int32])
        return Hypotheses(score, np.zeros(shape, np.int32), np.full(shape, RUNNING, np.int32), text)

    alive = np.where(np.arange(shape[1]) == 0, 0.0, NEVER)
    return BeamState(
        state,
        beams=empty(np.broadcast_to(alive, shape).astype(np.float32)),
        finished=empty(np.full(shape, NEVER, np.float32)),
    )


def _ranked(beams: int, stops: int) -> int:
    """How many continuations a step looks at: even if each beam could end in every way, C that go on are left."""
    return beams * (1 + stops)


def score_next(
    plan: Plan, knobs: Knobs, logits: Float[Array, "M R V"], seen: Bool[Array, "M R V"]
) -> tuple[Float[Array, "R V"], loop.Mixed]:
    """What each id adds to its beam's score, and the mix that this comes from.

    Where sampling penalises raw logits, transformers' beam search penalises log-probabilities: its processors run after
    log-softmax, because the scores of different beams are compared. The result is not normalised again, or the penalty
    of a beam full of repetitions would be taken back. A member's penalty is that of its own prompt, as elsewhere.
    """
    mixed = loop.mix_logits(plan, knobs, logits)

    def penalized() -> Array:
        own = sampling.penalize(mixed.own, seen, knobs.penalty)
        return mix_log_probs(own, knobs.weights, knobs.allowed, plan.mix)

    scores = lax.cond(jnp.any(knobs.penalty != 1), penalized, lambda: mixed.scores)
    return scores - mixed.total[:, None], mixed


def _step(plan: Plan, params: tuple, members: tuple[Member, ...], knobs: Knobs, divisors: Array, state: BeamState, _):
    decode, beams = state.decode, state.beams
    batch, count = beams.score.shape
    stops, budget, finish = (x.reshape(batch, count, -1)[:, 0] for x in (knobs.stops, knobs.budget, decode.finish))
    last = decode.cursor + 1 >= budget
    added, mixed = score_next(plan, knobs, decode.logits, loop.seen_ids(members, decode.generated))
    parent, ranked = _rank(beams, added, mixed, stops, last, decode.cursor)
    finished = _collect_finished(state.finished, ranked, divisors[decode.cursor])
    scores, order = lax.top_k(jnp.where(ranked.reason == RUNNING, ranked.score, -jnp.inf), count)
    moved, parent = _take(ranked, order), jnp.take_along_axis(parent, order, axis=1)

    # Where all that is possible are stop ids, an impossible one would have to go on: that is a failure too.
    chosen = jnp.where(last, ranked.score[:, :count], scores)
    finite = mixed.finite.reshape(batch, count) & jnp.isfinite(chosen)
    finite = jnp.all(finite, axis=1, keepdims=True)
    best, worst = scores[:, :1] / divisors[decode.cursor], jnp.min(finished.score, axis=1, keepdims=True)
    settled = jnp.all(finished.reason != RUNNING, axis=1, keepdims=True) & (best <= worst)
    ended = jnp.where(~finite, FAILED, jnp.where(last, LENGTH, jnp.where(settled, STOP, RUNNING)))
    running = finish == RUNNING
    advance = partial(_where, running & finite)
    following = BeamState(
        _feed_moved(plan, params, members, decode, parent, moved, jnp.where(running, ended, finish)),
        jax.tree.map(advance, moved, beams),
        jax.tree.map(advance, finished, state.finished),
    )
    return following, None


def _rank(
    beams: Hypotheses,
    added: Float[Array, "R V"],
    mixed: loop.Mixed,
    stops: Int[Array, "B stops"],
    last: Bool[Array, "B 1"],
    cursor: Int[Array, ""],
) -> tuple[Int[Array, "B n"], Hypotheses]:
    """The best continuations of each example's beams, best first: the beam each comes from, and what it becomes."""
    batch, count = beams.score.shape
    width = added.shape[1]

    def flat(x: Array) -> Array:
        return x.reshape(*x.shape[:-2], batch, count * width)

    total = flat(beams.score.reshape(-1, 1) + added)
    score, place = lax.top_k(total, _ranked(count, stops.shape[1]))
    parent, token = jnp.divmod(place, width)
    own, argmax = mixed.own.reshape(-1, batch, count * width), mixed.argmax.reshape(-1, batch, count)
    entries = Transcript(
        token,
        jnp.take_along_axis(flat(mixed.scores - mixed.total[:, None]), place, axis=1),
        jnp.take_along_axis(own, place[None], axis=2).transpose(1, 2, 0),
        jnp.take_along_axis(argmax, parent[None], axis=2).transpose(1, 2, 0),
    )

    def grow(text: Array, entry: Array) -> Array:
        return lax.dynamic_update_slice_in_dim(text, entry[..., None], cursor, axis=-1)

    stopped = jnp.any(token[..., None] == stops[:, None], axis=-1)
    text = jax.tree.map(grow, _take(beams.text, parent), entries)
    reason = jnp.where(stopped, STOP, jnp.where(last, LENGTH, RUNNING))
    return parent, Hypotheses(score, jnp.where(stopped, cursor, cursor + 1), reason, text)


def _collect_finished(finished: Hypotheses, ranked: Hypotheses, divisor: Float[Array, ""]) -> Hypotheses:
    """The C best finished hypotheses: those there were, and what ends among the C best continuations."""
    count = finished.score.shape[1]
    fresh = jax.tree.map(lambda x: x[:, :count], ranked)
    fresh = fresh.replace(score=jnp.where(fresh.reason == RUNNING, NEVER, fresh.score / divisor))
    both = jax.tree.map(lambda old, new: jnp.concatenate([old, new], axis=1), finished, fresh)
    return _take(both, lax.top_k(both.score, count)[1])


def _feed_moved(
    plan: Plan,
    params: tuple,
    members: tuple[Member, ...],
    decode: DecodeState,
    parent: Int[Array, "B C"],
    beams: Hypotheses,
    finish: Int[Array, "B 1"],
) -> DecodeState:
    """Bring each beam's suffix cache from the beam it continues, then feed the beams' newest tokens.

    Only the suffixes move: the beams of an example share its prompt's cache, which stays as it is.
    """
    batch, count = parent.shape
    rows = (jnp.arange(batch)[:, None] * count + parent).reshape(-1)
    # The rows exist; a gather that allows for others would select over the whole cache.
    suffixes, generated = jax.tree.map(
        lambda x: x.at[rows].get(mode="promise_in_bounds"), (decode.suffixes, decode.generated)
    )
    token = lax.dynamic_index_in_dim(beams.text.token, decode.cursor, axis=-1, keepdims=False).reshape(-1)
    logits, suffixes = loop.feed(plan, params, members, suffixes, token, decode.cursor)
    return DecodeState(
        logits=logits,
        suffixes=suffixes,
        generated=generated.at[jnp.arange(batch * count), token].set(True),
        count=decode.count + 1,
        finish=jnp.broadcast_to(finish, parent.shape).reshape(-1),
        cursor=decode.cursor + 1,
    )


def _take(tree: PyTree, index: Int[Array, "B n"]) -> PyTree:
    """Of every leaf [B, C, ...], each example's entries at `index`."""
    return jax.tree.map(lambda x: jnp.take_along_axis(x, index.reshape(*index.shape, *(1,) * (x.ndim - 2)), 1), tree)


def _where(mask: Bool[Array, "B 1"], new: Array, old: Array) -> Array:
    return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


@partial(jax.jit, static_argnames=("plan",), donate_argnames=("state",))
def beam_chunk(
    plan: Plan,
    params: tuple,
    members: tuple[Member, ...],
    knobs: Knobs,
    divisors: Float[Array, " S"],
    state: BeamState,
) -> BeamState:
    """`plan.chunk` steps of every example. `divisors[n]` divides the score of n + 1 tokens. The state is donated."""
    shapes = tuple(m.prompt.valid.shape[1] for m in members)
    note_program("decode", (plan, "beams"), shapes, state.decode.count.shape[0])
    return lax.scan(partial(_step, plan, params, members, knobs, divisors), state, None, length=plan.chunk)[0]


def decode_hypotheses(
    plan: Plan,
    params: tuple,
    members: tuple[Member, ...],
    knobs: Knobs,
    state: DecodeState,
    *,
    compact_from: int | None,
    length_penalty: float = 1.0,
) -> tuple[list[Decoded], int]:
    """Search every example to its end; the hypotheses of all in order, and the number of steps executed.

    Arguments are those of `loop.decode_rows`, and examples that go on move into a smaller batch by the same rule.
    """
    batch, rows = members[0].seen.shape[0], state.count.shape[0]
    count = rows // batch
    divisors = (np.arange(1, plan.max_new + 1) ** float(length_penalty)).astype(np.float32)
    search, home, steps = start_beams(plan, state, batch), np.arange(rows), 0
    found: list[list[Decoded]] = [[] for _ in range(batch)]
    while True:
        search = beam_chunk(plan, params, members, knobs, divisors, search)
        steps += plan.chunk
        finish = np.asarray(search.decode.finish)[::count]
        if np.all(finish != RUNNING) or steps >= plan.max_new:
            break
        keep = loop.kept(finish == RUNNING, len(members) * len(home), compact_from)
        if keep is not None:
            _read_out(search, home[::count] // count, found)
            members, knobs, decode, home = loop.take(keep, count, members, knobs, search.decode, home)
            search = BeamState(decode, _at(search.beams, keep), _at(search.finished, keep))
    _read_out(search, home[::count] // count, found)
    return [hypothesis for example in found for hypothesis in example], steps


def _read_out(search: BeamState, home: np.ndarray, found: list[list[Decoded]]) -> None:
    """Put the hypotheses of the examples that have ended where they belong: example n of the state is `home[n]`."""
    finish, beams, finished = jax.device_get((search.decode.finish, search.beams, search.finished))
    count = beams.score.shape[1]
    for row, (target, flag) in enumerate(zip(home, finish[::count], strict=True)):
        if flag != RUNNING:
            # A failed example has no result: its beams tell how far it came.
            source = beams.replace(reason=np.full_like(beams.reason, FAILED)) if flag == FAILED else finished
            found[target] = [_decoded(_at(source, (row, n))) for n in range(count)]


def _at(tree: PyTree, index: np.ndarray | tuple[int, ...]) -> PyTree:
    return jax.tree.map(lambda x: np.asarray(x)[index], tree)


def _decoded(one: Hypotheses) -> Decoded:
    length = int(one.length)
    text = jax.tree.map(lambda x: x[..., :length], one.text)
    return Decoded(
        text.token, text.log_prob, text.member_log_probs, text.member_argmax, finish_reason(one.reason, length)
    )
