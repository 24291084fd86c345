"""What the compiled programs hold: one prompt cache for all candidates, and suffixes written in place.

Each guard is also shown programs that do what it forbids, made by deliberately wrong functions.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from ragjax.decode import beams, loop
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Sampling, Voice, decode_prompts
from ragjax.models import decoder
from ragjax.testing import tiny_model
from tests.oracle import PLAIN, some_prompts

BATCH, CANDIDATES = 4, 5
ROWS = BATCH * CANDIDATES
PROMPT, SUFFIX = (BATCH, 2, 64, 16), (ROWS, 2, 12, 16)
"""The shapes of the caches' arrays."""

ONE_A_ROW = ROWS * math.prod(PROMPT[1:])
"""Elements of a prompt's keys repeated for every row: more than any other array here has."""

CACHES = {math.prod(PROMPT), math.prod(SUFFIX), ONE_A_ROW}
IN_PLACE = {("scan", SUFFIX), ("dynamic_update_slice", SUFFIX)}
"""What may make an array as large as a cache: to carry a suffix, and to write one slot of it."""


CHUNKS = {"decode_chunk": IN_PLACE, "beam_chunk": IN_PLACE | {("gather", SUFFIX)}}
"""The chunks, and all that they may do to a cache: the beams' alone move suffixes, once a step."""


class ReachedError(Exception):
    """A chunk was about to run: all that there is to know is known."""


class Recorder:
    """Stands for a jitted function and keeps the shapes of what it is called with."""

    def __init__(self, jitted):
        self.jitted, self.args = jitted, None

    def __call__(self, *args):
        self.args = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if hasattr(x, "shape") else x, args)
        if self.jitted.__name__ in CHUNKS:
            raise ReachedError
        return self.jitted(*args)

    def trace(self, step=None):
        """The traced program; `step` stands for the model's own."""
        plan, *rest = self.args
        if step is not None:
            plan = dataclasses.replace(plan, steps=((step, decoder.logits),))
        return self.jitted.trace(plan, *rest)


def operations(jaxpr) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every primitive of a program and of the programs inside it, with the shape of each output."""
    for equation in jaxpr.eqns:
        yield from ((equation.primitive.name, out.aval.shape) for out in equation.outvars)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from operations(inner)


def instructions(text: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The same of a compiled program, inside fusions too; of those with several outputs, there is each array."""
    for line in text.splitlines():
        name = re.search(r"[\]})] ([a-z][\w-]*)\(", line)
        for dims in re.findall(r"\b(?:f32|bf16|f16)\[([\d,]+)\]", line):
            yield name[1] if name else "", tuple(map(int, dims.split(",")))


def large(found) -> set:
    """The operations whose output is as large as a cache."""
    return {(name, shape) for name, shape in found if math.prod(shape) in CACHES}


@pytest.fixture(scope="module")
def programs():
    """The jitted functions of a sampled decode of K candidates and of a beam search, with what they are given."""
    lm = tiny_model(vocab_size=261, num_layers=1)
    voices = [Voice(lm, some_prompts(BATCH))]
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        for module, name in ((loop, "_prefill"), (loop, "decode_chunk"), (beams, "beam_chunk")):
            found[name] = Recorder(getattr(module, name))
            patch.setattr(module, name, found[name])
        sampling = Sampling(temperature=1.0, repetition_penalty=1.2)
        weights = ((1.0,),) * CANDIDATES
        with contextlib.suppress(ReachedError):
            decode_prompts(voices, max_new=SUFFIX[2], weights=weights, sampling=sampling, execution=PLAIN)
        with contextlib.suppress(ReachedError):
            decode_beams(voices, max_new=SUFFIX[2], beams=CANDIDATES, execution=PLAIN)
    return found


@pytest.mark.parametrize("name", CHUNKS)
def test_G09_a_chunk_neither_repeats_the_prompt_nor_selects_nor_scatters(programs, name):
    traced = programs[name].trace()
    assert large(operations(traced.jaxpr)) == CHUNKS[name]
    compiled = list(instructions(traced.lower().compile().as_text()))
    assert PROMPT in {shape for _, shape in compiled}
    assert SUFFIX in {shape for _, shape in compiled}
    assert max(math.prod(shape) for _, shape in compiled) < ONE_A_ROW
    assert not {kind for kind, _ in large(compiled)} & {"select", "scatter"}


def repeating_step(params, cfg, tokens, prompts, suffixes, cursor):
    """The textbook's way: every candidate has a prompt cache of its own."""
    prompts = jax.tree.map(lambda x: jnp.repeat(x, CANDIDATES, axis=0), prompts)
    return decoder.step(params, cfg, tokens, prompts, suffixes, cursor)


def scatter(array, new, cursor):
    return array.at[jnp.arange(array.shape[0]), :, cursor].set(new)


def select(array, new, cursor):
    slots = jnp.arange(array.shape[2])[:, None]
    return jnp.where(slots == cursor, new[:, :, None], array)


@pytest.mark.parametrize("name", CHUNKS)
def test_G09_the_guard_sees_a_repeated_prompt(programs, name):
    traced = programs[name].trace(repeating_step)
    assert ONE_A_ROW in {math.prod(shape) for _, shape in large(operations(traced.jaxpr)) - CHUNKS[name]}


def test_G09_the_guard_sees_a_repeated_prompt_once_compiled(programs):
    compiled = instructions(programs["decode_chunk"].trace(repeating_step).lower().compile().as_text())
    assert max(math.prod(shape) for _, shape in compiled) >= ONE_A_ROW


@pytest.mark.parametrize("name", CHUNKS)
@pytest.mark.parametrize(("write", "primitive"), [(scatter, "scatter"), (select, "select_n")])
def test_G09_the_guard_sees_scatters_and_selects(programs, name, write, primitive, monkeypatch):
    monkeypatch.setattr(decoder, "write", write)
    traced = programs[name].trace(lambda *args: decoder.step(*args))
    assert primitive in {kind for kind, _ in large(operations(traced.jaxpr)) - CHUNKS[name]}


def of_rows(found) -> set:
    """The operations that have an axis as long as there are rows or candidates."""
    return {(name, shape) for name, shape in found if {ROWS, CANDIDATES} & set(shape)}


def test_G09_prompts_are_read_once_for_all_candidates(programs):
    recorder = programs["_prefill"]
    traced = recorder.jitted.trace(*recorder.args)
    assert ("concatenate", PROMPT) in large(operations(traced.jaxpr))
    assert not of_rows(operations(traced.jaxpr))
    assert not of_rows(instructions(traced.lower().compile().as_text()))

    def repeated(*args):
        tokens, valid = (jnp.repeat(x, CANDIDATES, axis=0) for x in args[2:4])
        return recorder.jitted(*args[:2], tokens, valid, *args[4:])

    wrong = jax.jit(repeated, static_argnums=(1, 5, 6)).trace(*recorder.args)
    assert of_rows(operations(wrong.jaxpr))
