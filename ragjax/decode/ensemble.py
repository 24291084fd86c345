"""Several models, one text: how their distributions mix, and which vocabularies may."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ragjax.typing import Array, Bool, Float

MIXES = ("geometric", "arithmetic")


class VocabularyMismatch(ValueError):
    """Two models do not share a vocabulary; the message names the first differing token."""


@dataclass(frozen=True)
class SharedVocabulary:
    """The ids an ensemble may emit: the first `width`, less those in `masked` (they differ between the members)."""

    width: int
    masked: tuple[int, ...]

    @property
    def allowed(self) -> np.ndarray:
        """Bool [V]: True where an id may be emitted."""
        allowed = np.ones(self.width, bool)
        allowed[list(self.masked)] = False
        return allowed


def mix_log_probs(
    log_probs: Float[Array, "M R V"],
    weights: Float[Array, "M R"],
    allowed: Bool[Array, " V"],
    kind: str,
) -> Float[Array, "R V"]:
    """Mix the members' float32 log-probabilities; scores up to a constant a row.

    `geometric` is FaviComp's sum of weighted log-probabilities (section 3.2); `arithmetic` the log of the weighted
    sum of probabilities. Ids that may not be emitted are masked after mixing: 0 * -inf would be NaN.
    """
    share = weights[..., None]
    if kind == "geometric":
        # A member of weight 0 takes no part, even where it gives an id no probability at all.
        mixed = jnp.sum(jnp.where(share > 0, share * log_probs, 0.0), axis=0)
    else:
        mixed = jax.nn.logsumexp(log_probs, axis=0, b=share)
    return jnp.where(allowed, mixed, -jnp.inf)


def share_vocabulary(models: Sequence[Any], *, admit_added: bool = False) -> SharedVocabulary:
    """Check that the models' tokenizers give every id the same string, and the same special roles.

    Sizes are not compared: models of one family pad their tables differently. `admit_added=True` admits pairs that
    differ in added tokens or in their special roles (base and instruct); the differing ids are then masked.

    Raises:
      VocabularyMismatch: naming the first differing ids and their strings.
    """
    first, *others = models
    width = min(model.vocab_width for model in models)
    masked: set[int] = set()
    for other in others:
        if other.tokenizer is not first.tokenizer:
            masked |= set(_differences(first, other, width, admit_added))
    return SharedVocabulary(width, tuple(sorted(masked)))


def _differences(first: Any, other: Any, width: int, admit_added: bool) -> list[int]:
    mine, theirs = _strings(first.tokenizer), _strings(other.tokenizer)
    size = max(first.vocab_width, other.vocab_width)
    ids = [i for i in range(size) if mine.get(i) != theirs.get(i)]
    added = set(first.tokenizer.added_tokens_decoder) | set(other.tokenizer.added_tokens_decoder)
    refused = [i for i in ids if not (admit_added and i in added)]
    if refused:
        shown = "; ".join(f"id {i} is {mine.get(i)!r} and {theirs.get(i)!r}" for i in refused[:3])
        raise VocabularyMismatch(
            f"{first.name} and {other.name} do not share a vocabulary: {len(refused)} ids differ, first {shown}"
        )
    roles = [r for r in ("bos_token_id", "eos_token_id", "unk_token_id") if _role(first, r) != _role(other, r)]
    if roles and not admit_added:
        r = roles[0]
        raise VocabularyMismatch(
            f"{first.name} and {other.name} give their special tokens different ids: {r} is {_role(first, r)} "
            f"and {_role(other, r)} (admit_added=True admits such a pair)"
        )
    return [i for i in ids if i < width]


def _role(model: Any, role: str) -> int | None:
    return getattr(model.tokenizer, role)


@lru_cache(maxsize=8)
def _strings(tokenizer: Any) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items()}
