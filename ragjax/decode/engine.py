"""From many prompts to many decoded rows: the host's side of every decode.

`decode_prompts` sorts the prompts into batches, prefills each member's, decodes all candidates of a batch over one
prompt cache, and puts the results back in order. `score_prompts` is the same without the decode. Everything above
(generation, FaviComp, the reader) is a few lines over these two.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import xxhash

from ragjax.decode import loop
from ragjax.decode.buckets import Batch, left_pad, plan_batches
from ragjax.decode.ensemble import MIXES, SharedVocabulary, share_vocabulary
from ragjax.decode.likelihood import Score, score_span
from ragjax.decode.prompt import FORMATS, Prompt
from ragjax.decode.sampling import check_knobs
from ragjax.decode.state import Decoded, Knobs, Member, Plan
from ragjax.models.config import DecoderConfig
from ragjax.runtime import note_padding
from ragjax.sharding import data_shards, mesh_of, on_mesh

COMPACT_FROM = 32
"""Rows from which on a decode step on a CPU is bound by arithmetic, not by reading the weights."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. Temperature 0 is greedy, top_k 0 and top_p 1 are off, penalty 1 is off.

    `seed=None` draws a seed from the system. `penalty_scope` says what the repetition penalty applies to: "prompt",
    the prompt and what was generated (as transformers), or "generated" alone.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = 0
    penalty_scope: str = "prompt"

    def __post_init__(self) -> None:
        check_knobs(self.temperature, self.top_k, self.top_p, self.repetition_penalty)
        if self.penalty_scope not in ("prompt", "generated"):
            raise ValueError(f'penalty_scope is "prompt" or "generated", got {self.penalty_scope!r}')
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise ValueError(f"a seed lies in [0, 2**32), got {self.seed}")

    def seeded(self) -> "Sampling":
        """With the seed settled: None becomes one drawn from the system."""
        return self if self.seed is not None else replace(self, seed=int.from_bytes(os.urandom(4), "little"))


GREEDY = Sampling()


@dataclass(frozen=True)
class Execution:
    """How a decode runs; nothing here changes its result (in float32).

    `compaction=None` is on for one CPU device and off elsewhere, and leaves small batches alone: there a step costs the
    reading of the weights, whatever the rows. On a mesh it is always off. `share_weights=False` runs members with the
    same weights one by one, to check the stacked forward against.
    """

    batch: int = 8
    compaction: bool | None = None
    share_weights: bool = True

    @property
    def compact_from(self) -> int | None:
        """The rows of all members from which on finished examples leave the batch; None for never.

        A fixed rule: what a batch computes must not depend on what ran before it.
        """
        if self.compaction is not None:
            return 1 if self.compaction else None
        return COMPACT_FROM if jax.default_backend() == "cpu" and jax.device_count() == 1 else None


DEFAULT_EXECUTION = Execution()


@dataclass
class DecodeStats:
    """What a decode cost: steps of the loop (all batches), and prompt tokens with padding over real ones."""

    steps: int = 0
    padded_tokens: int = 0
    real_tokens: int = 0

    @property
    def padding_ratio(self) -> float:
        """Padded over real prompt tokens."""
        return self.padded_tokens / max(self.real_tokens, 1)


@dataclass(frozen=True, eq=False)
class DecodeResult:
    """`rows[example][candidate]`; `scores[example]` of the span asked for, else None; the seed really used.

    `masked` lists the ids that no row could emit because the members' tokenizers differ in them.
    """

    rows: list[list[Decoded]]
    scores: list[Score | None]
    seed: int
    masked: tuple[int, ...]
    stats: DecodeStats = field(default_factory=DecodeStats)


@dataclass(frozen=True, eq=False)
class Voice:
    """A member of a decode before it runs: a model and its prompt for each example."""

    model: Any
    prompts: Sequence[Prompt]


def row_ids(names: Sequence[str]) -> np.ndarray:
    """The 32-bit hash of each example's id, [B] uint32: what its random stream is keyed by."""
    return np.array([xxhash.xxh32_intdigest(name.encode("utf-8", "surrogatepass")) for name in names], np.uint32)


def content_ids(contents: Sequence[str]) -> list[str]:
    """Ids for examples that have none: the content, and which of the equal contents this is."""
    seen: dict[str, int] = {}
    ids = []
    for content in contents:
        seen[content] = seen.get(content, -1) + 1
        ids.append(f"{seen[content]}:{content}")
    return ids


def decode_prompts(
    voices: Sequence[Voice],
    *,
    max_new: int,
    weights: Sequence[Sequence[float]] = ((1.0,),),
    ids: Sequence[str] | None = None,
    draws: Sequence[int] | None = None,
    sampling: Sampling = GREEDY,
    mix: str = "geometric",
    score: str | None = None,
    admit_added: bool = False,
    execution: Execution = DEFAULT_EXECUTION,
) -> DecodeResult:
    """Decode every example's prompts with all members in lock-step.

    Args:
      voices: the members; prompt i of each belongs to example i.
      max_new: the most tokens a row may have.
      weights: [C][M], each candidate's shares of the members; each sums to 1. Candidates share the prompts' caches.
      ids: the examples' ids, for their random streams; default: the first member's prompt and its occurrence.
      draws: [C], the number that each candidate's random stream is keyed by; default 0, 1, ... Candidates that stand
        for runs of their own all take 0.
      mix: "geometric" or "arithmetic".
      score: the name of a data piece of the first member's prompts whose NLL is read off the prefill.
      admit_added: see `share_vocabulary`.

    Raises:
      ValueError: for a token outside a model's vocabulary, a prompt too long for its model, or bad settings.
      VocabularyMismatch: for members that do not share a vocabulary.
    """
    job = open_job(
        voices,
        max_new=max_new,
        weights=weights,
        ids=ids,
        draws=draws,
        sampling=sampling,
        mix=mix,
        score=score,
        admit_added=admit_added,
        execution=execution,
    )
    return run_job(job, loop.decode_rows)


@dataclass(frozen=True, eq=False)
class Job:
    """A decode that was found to make sense: what `open_job` was given, with ids, draws and the seed settled."""

    voices: Sequence[Voice]
    max_new: int
    weights: Sequence[Sequence[float]]
    ids: np.ndarray
    draws: Sequence[int]
    sampling: Sampling
    mix: str
    score: str | None
    vocabulary: SharedVocabulary
    execution: Execution

    @property
    def stops(self) -> np.ndarray:
        """Each candidate's stop ids [C, stops]: those of every member that has a share in it, filled up with -1."""
        members = [set(voice.model.stop_ids) for voice in self.voices]
        found = [
            sorted(set().union(*(ids for ids, share in zip(members, shares, strict=True) if share > 0)))
            for shares in self.weights
        ]
        width = max(1, len(set().union(*members)))
        return np.array([ids + [-1] * (width - len(ids)) for ids in found], np.int32)


def open_job(
    voices: Sequence[Voice],
    *,
    max_new: int,
    weights: Sequence[Sequence[float]],
    ids: Sequence[str] | None,
    draws: Sequence[int] | None = None,
    sampling: Sampling,
    mix: str,
    score: str | None = None,
    admit_added: bool,
    execution: Execution,
) -> Job:
    """Check what `decode_prompts` was given, before any model runs; arguments and errors are its own."""
    check_settings(max_new, mix)
    names = content_ids([p.text for p in voices[0].prompts]) if ids is None else ids
    streams = range(len(weights)) if draws is None else draws
    if len(names) != len(voices[0].prompts) or len(streams) != len(weights):
        raise ValueError(
            f"{len(voices[0].prompts)} examples of {len(weights)} candidates need as many ids and draws, got "
            f"{len(names)} and {len(streams)}"
        )
    _check_job(voices, max_new, weights, ids)
    if score is not None:
        require_causal("scoring a prompt", voices[0].model)
    vocabulary = share_vocabulary([v.model for v in voices], admit_added=admit_added)
    settled = sampling.seeded()
    return Job(voices, max_new, weights, row_ids(names), streams, settled, mix, score, vocabulary, execution)


def run_job(job: Job, decode: Callable[..., tuple[list[Decoded], int]]) -> DecodeResult:
    """Batch the examples, prefill each batch's members, decode it, and put the rows back in the examples' order.

    `decode` has the arguments and results of `loop.decode_rows`.
    """
    count, mesh = len(job.ids), mesh_of([voice.model for voice in job.voices])
    if mesh is not None:
        job = replace(job, execution=replace(job.execution, compaction=False))
    lengths = [[len(voice.prompts[i].ids) for voice in job.voices] for i in range(count)]
    layout = plan_batches(lengths, job.execution.batch, data_shards(mesh))
    empty: list[list[Decoded]] = [[] for _ in range(count)]
    result = DecodeResult(empty, [None] * count, job.sampling.seed, job.vocabulary.masked)
    result.stats.padded_tokens, result.stats.real_tokens = layout.padded_tokens, layout.real_tokens
    note_padding(layout.padded_tokens, layout.real_tokens)
    with on_mesh(mesh):
        for batch in layout.batches:
            _decode_batch(job, batch, decode, result)
    return result


def score_prompts(
    model: Any, prompts: Sequence[Prompt], piece: str, *, execution: Execution = DEFAULT_EXECUTION
) -> list[Score]:
    """The `Score` of one data piece of each prompt under the model, given everything before it in the prompt."""
    found = token_nlls(model, prompts, piece, execution=execution)
    return [_score(prompt, piece, nll) for prompt, nll in zip(prompts, found, strict=True)]


def token_nlls(
    model: Any, prompts: Sequence[Prompt], piece: str, *, execution: Execution = DEFAULT_EXECUTION
) -> list[np.ndarray]:
    """NLL in nats of each token [T] of each prompt, given all before it; 0 outside the piece and at the very start."""
    require_causal("scoring a text", model)
    found: list[np.ndarray] = [np.zeros(0)] * len(prompts)
    for batch, _, nlls in _prefill_each(Voice(model, prompts), piece, execution):
        for index, nll in zip(batch.indices, nlls, strict=True):
            found[index] = nll
    return found


def next_log_probs(
    model: Any, prompts: Sequence[Prompt], ids: Sequence[int], *, execution: Execution = DEFAULT_EXECUTION
) -> np.ndarray:
    """The log-probability [n, ids] of each of some ids as the token that follows each of n prompts, in float32.

    Of an encoder-decoder the prompts are sources, and the token is the first that it writes. A row is not finite
    where the model's logits are not.

    Raises:
      ValueError: for a model that writes no text, or naming the row whose prompt the model cannot read.
    """
    voice = Voice(model, prompts)
    _check_writes(voice)
    found = np.zeros((len(prompts), len(ids)), np.float32)
    for batch, filled, _ in _prefill_each(voice, None, execution):
        chosen = jax.nn.log_softmax(filled.logits)[:, np.asarray(ids)]
        found[list(batch.indices)] = np.asarray(chosen)[: len(batch.indices)]
    return found


def _prefill_each(
    voice: Voice, piece: str | None, execution: Execution
) -> Iterator[tuple[Batch, loop.Prefilled, list[np.ndarray]]]:
    """Every batch of a voice's prompts with what it leaves; the NLL of each prompt's tokens where a piece is named."""
    _check_prompts(voice, 0, None)
    mesh = mesh_of([voice.model])
    layout = plan_batches([[len(p.ids)] for p in voice.prompts], execution.batch, data_shards(mesh))
    note_padding(layout.padded_tokens, layout.real_tokens)
    with on_mesh(mesh):
        for batch in layout.batches:
            yield batch, *_prefill(voice, batch, batch.lengths[0], voice.model.vocab_width, piece)


def _score(prompt: Prompt, piece: str, nll: np.ndarray) -> Score:
    return score_span(nll, *prompt.spans[piece], prompt.pieces[piece])


def require_causal(role: str, *models: Any) -> None:
    """Refuse, by name, a model that is no causal language model; None stands for a model that is not used."""
    for model in models:
        if model is not None and not isinstance(model.config, DecoderConfig):
            kind = type(model).__name__
            raise ValueError(f"{role} needs a causal language model, and {model.name} is of the kind {kind}")


def check_settings(max_new: int, mix: str = "geometric", prompt_format: str = "chat") -> None:
    """Refuse, by name, a setting of a decode that cannot be: before any model runs."""
    if max_new < 1:
        raise ValueError(f"max_new counts new tokens and is at least 1, got {max_new}")
    if prompt_format not in FORMATS:
        raise ValueError(f"prompt_format is one of {FORMATS}, got {prompt_format!r}")
    if mix not in MIXES:
        raise ValueError(f"mix is one of {MIXES}, got {mix!r}")


def _check_job(
    voices: Sequence[Voice], max_new: int, weights: Sequence[Sequence[float]], ids: Sequence[str] | None
) -> None:
    for shares in weights:
        if len(shares) != len(voices) or min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise ValueError(f"a candidate has one share a member, not negative and summing to 1, got {shares}")
    for voice in voices:
        _check_writes(voice)
        if len(voice.prompts) != len(voices[0].prompts):
            raise ValueError("every member has one prompt an example")
        _check_prompts(voice, max_new, ids)


def _check_writes(voice: Voice) -> None:
    if type(voice.model.config) not in loop.STEPS:
        raise ValueError(f"{voice.model.name} writes no text: it is of the kind {type(voice.model).__name__}")


def _check_prompts(voice: Voice, max_new: int, ids: Sequence[str] | None) -> None:
    for index, prompt in enumerate(voice.prompts):
        where = f"row {index}" if ids is None else f"row {index} ({ids[index]})"
        if not prompt.ids:
            raise ValueError(f"{where}: the prompt has no tokens")
        check_ids(voice.model, prompt.ids, max_new, where)


def check_ids(model: Any, ids: Sequence[int], max_new: int, where: str) -> None:
    """Raise ValueError, naming `where`, for ids that are outside the model's table or too many for its positions."""
    rows, limit = model.config.vocab_size, model.config.max_positions
    # An id outside the table would read another row in JAX, not fail.
    bad = [i for i in ids if not 0 <= i < rows]
    if bad:
        raise ValueError(f"{where}: token id {bad[0]} is outside {model.name}'s {rows} embeddings")
    if limit is not None and len(ids) + max_new > limit:
        raise ValueError(
            f"{where}: {len(ids)} prompt tokens and {max_new} new ones exceed the {limit} positions of {model.name}"
        )


def _decode_batch(job: Job, batch: Batch, decode: Callable, result: DecodeResult) -> None:
    prefilled = []
    for number, (voice, length) in enumerate(zip(job.voices, batch.lengths, strict=True)):
        piece = job.score if number == 0 else None
        filled, nlls = _prefill(voice, batch, length, job.vocabulary.width, piece)
        prefilled.append(filled)
        if piece:
            for index, nll in zip(batch.indices, nlls, strict=True):
                result.scores[index] = _score(voice.prompts[index], piece, nll)
    plan, params = make_plan(job)
    knobs = _knobs(job, batch)
    members = tuple(Member(p.cache, _penalized_ids(p, job.sampling)) for p in prefilled)
    state = loop.start(plan, prefilled, len(knobs.budget), knobs.budget)
    rows, steps = decode(plan, params, members, knobs, state, compact_from=job.execution.compact_from)
    result.stats.steps += steps
    candidates = len(job.weights)
    for place, index in enumerate(batch.indices):
        result.rows[index] = rows[place * candidates : (place + 1) * candidates]


def _penalized_ids(prefilled: loop.Prefilled, sampling: Sampling) -> Any:
    return prefilled.seen if sampling.penalty_scope == "prompt" else np.zeros(prefilled.seen.shape, bool)


def _prefill(voice: Voice, batch: Batch, length: int, width: int, piece: str | None) -> tuple[loop.Prefilled, list]:
    prompts = [voice.prompts[i] for i in batch.indices]
    tokens, valid = left_pad([p.ids for p in prompts], batch.rows, length)
    span = None
    if piece:
        span = np.zeros_like(valid)
        for row, prompt in enumerate(prompts):
            begin, end = prompt.spans[piece]
            offset = length - len(prompt.ids)
            span[row, offset + begin : offset + end] = True
    filled = loop.prefill(voice.model.params, voice.model.config, tokens, valid, span, width=width)
    if not piece:
        return filled, []
    nll = np.asarray(filled.nll)
    return filled, [nll[row, length - len(p.ids) :] for row, p in enumerate(prompts)]


def make_plan(job: Job) -> tuple[Plan, tuple]:
    """The static part of a job's decode, and the parameters of each group of members that share them."""
    groups: list[list[int]] = []
    for number, voice in enumerate(job.voices):
        same = [g for g in groups if job.voices[g[0]].model.params is voice.model.params]
        if same and job.execution.share_weights:
            same[0].append(number)
        else:
            groups.append([number])
    leaders = [job.voices[g[0]].model for g in groups]
    plan = Plan(
        groups=tuple(map(tuple, groups)),
        configs=tuple(model.config for model in leaders),
        steps=tuple(loop.STEPS[type(model.config)] for model in leaders),
        mix=job.mix,
        width=job.vocabulary.width,
        chunk=min(32, max(4, job.max_new // 4)),
        max_new=job.max_new,
    )
    return plan, tuple(model.params for model in leaders)


def _knobs(job: Job, batch: Batch) -> Knobs:
    candidates, real = len(job.weights), len(batch.indices)
    rows = batch.rows * candidates
    examples = np.zeros(batch.rows, np.uint32)
    examples[:real] = job.ids[list(batch.indices)]
    settings = job.sampling

    def every(value: float, kind: type) -> np.ndarray:
        return np.full(rows, value, kind)

    return Knobs(
        weights=np.tile(np.asarray(job.weights, np.float32), (batch.rows, 1)).T,
        temperature=every(settings.temperature, np.float32),
        top_k=every(settings.top_k, np.int32),
        top_p=every(settings.top_p, np.float32),
        penalty=every(settings.repetition_penalty, np.float32),
        budget=np.repeat(np.where(np.arange(batch.rows) < real, job.max_new, 0), candidates).astype(np.int32),
        example=np.repeat(examples, candidates),
        candidate=np.tile(np.asarray(job.draws, np.int32), batch.rows),
        seed=np.uint32(settings.seed),
        stops=np.tile(job.stops, (batch.rows, 1)),
        allowed=job.vocabulary.allowed,
    )
