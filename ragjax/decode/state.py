"""The structs of decoding: what is static, what is traced, what is carried, what comes out.

`Plan` is the whole static part: two calls with equal plans and shapes share one compiled program. Everything that a
study varies (alpha, temperature, seeds, budgets, penalties) is in `Knobs`, traced.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flax import struct

from ragjax.models.cache import PromptCache, SuffixCache
from ragjax.typing import Array, Bool, Float, Int, Integer

RUNNING, STOP, LENGTH, FAILED = range(4)
"""Values of `DecodeState.finish`."""


def finish_reason(flag: int, count: int) -> str:
    """How `Decoded` says that a row of `count` tokens ended."""
    return {STOP: "stop", LENGTH: "length"}.get(int(flag), f"failed(non-finite at step {count})")


@dataclass(frozen=True)
class Plan:
    """The static part of a decode.

    `groups` partitions the members: those of one group share their weights and run as one stacked forward. `configs`
    and `steps` have one entry a group (the config, and the model's step and logits functions). `mix` is "geometric"
    or "arithmetic"; `width` the number of ids that may be emitted; `chunk` the steps between two looks of the host;
    `max_new` the suffix slots.
    """

    groups: tuple[tuple[int, ...], ...]
    configs: tuple[Any, ...]
    steps: tuple[tuple[Callable, Callable], ...]
    mix: str
    width: int
    chunk: int
    max_new: int


@struct.dataclass
class Member:
    """What one member brings to a decode: its prompt's cache and the ids its penalty applies to from the start."""

    prompt: PromptCache
    seen: Bool[Array, "B V"]


@struct.dataclass
class Knobs:
    """The traced settings, one entry a row unless shaped otherwise.

    `weights` are the members' shares in the mix; `stops` the ids that end a row, filled up with -1.
    """

    weights: Float[Array, "M R"]
    temperature: Float[Array, " R"]
    top_k: Int[Array, " R"]
    top_p: Float[Array, " R"]
    penalty: Float[Array, " R"]
    budget: Int[Array, " R"]
    example: Integer[Array, " R"]
    candidate: Int[Array, " R"]
    stops: Int[Array, "R stops"]
    seed: Integer[Array, ""]
    allowed: Bool[Array, " V"]


@struct.dataclass
class DecodeState:
    """What a step hands to the next: each member's logits for the coming token, the suffixes, and who is finished."""

    logits: Float[Array, "M R V"]
    suffixes: tuple[SuffixCache, ...]
    generated: Bool[Array, "R V"]
    count: Int[Array, " R"]
    finish: Int[Array, " R"]
    cursor: Int[Array, ""]


@struct.dataclass
class StepOutput:
    """One step of every row; `emitted` says where the rest means anything."""

    emitted: Bool[Array, " R"]
    token: Int[Array, " R"]
    log_prob: Float[Array, " R"]
    member_log_probs: Float[Array, "M R"]
    member_argmax: Int[Array, "M R"]


@dataclass(frozen=True, eq=False)
class Decoded:
    """One decoded row on the host. Arrays have one entry a token ([T], or [M, T] for the members').

    `finish_reason` is "stop", "length" or "failed(non-finite at step n)". `log_probs` are the mixture's, in nats,
    before temperature and truncation. Stop ids are not among the tokens.
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    member_log_probs: np.ndarray
    member_argmax: np.ndarray
    finish_reason: str

    @property
    def failed(self) -> bool:
        """Whether the row met non-finite logits: what it holds is no text."""
        return self.finish_reason.startswith("failed")
