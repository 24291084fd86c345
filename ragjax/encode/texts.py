"""A text becomes a vector, a text or a pair becomes the logits of its classes.

A text that is longer than the model reads loses its end, and how many sub-words it lost is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragjax.encode.batches import POOLINGS, read_rows
from ragjax.encode.tokens import frame_of, room_of, tokenize
from ragjax.typing import Float, Int

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors [n, D] of n texts in float32, and how many sub-words each text lost [n]."""

    vectors: Float[np.ndarray, "n D"]
    truncated: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Classes:
    """Logits [n, C] of n texts or pairs in float32, C the labels of the model, and how many sub-words each lost [n]."""

    logits: Float[np.ndarray, "n C"]
    truncated: Int[np.ndarray, " n"]


def embed(
    model: Any,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    prompt: str | None = None,
    batch: int = 32,
) -> Embeddings:
    """The vector of each text: its tokens' last states, special tokens' included, pooled.

    What is None is as the model's own files state it for sentence-transformers (`Encoder.embedding`).

    Args:
      model: a `ragjax.Encoder`; a head that it has is not used.
      pooling: "mean", "max", or "cls", the state of the first token (nothing stated: "mean").
      normalize: give vectors of length 1, whose product is the cosine (nothing stated: yes).
      max_length: the most tokens of a text that are read, special ones included (nothing stated: as many as the
        tokenizer gives a text and the model has positions for).
      prompt: what stands before each text (nothing stated: nothing).

    Raises:
        ValueError: for a setting that cannot be, given or stated, or naming the text that is none.
        NonFinite: naming the text whose vector is no number.
    """
    stated, given = model.embedding, {"pooling": pooling, "max_length": max_length}
    stated.require(model.name, {"similarity", *(name for name, value in given.items() if value is not None)})
    pooling = stated.pooling if pooling is None else pooling
    normalize = stated.normalize is not False if normalize is None else normalize
    if pooling not in POOLINGS:
        raise ValueError(f"pooling is one of {', '.join(POOLINGS)}, got {pooling!r}")
    frame = frame_of(model, 1)
    room = room_of(model, frame, _stated_length(model) if max_length is None else max_length)
    found = tokenize(model, texts, prompt=stated.prompt if prompt is None else prompt)
    rows = [frame.row(number, ids[:room]) for number, ids in enumerate(found)]
    vectors = _stacked(read_rows(model, rows, pooling, batch), model.config.hidden_size)
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _TINY)
    return Embeddings(vectors, np.array([max(len(ids) - room, 0) for ids in found], np.int32))


def _stated_length(model: Any) -> int:
    """The most tokens of a text by the model's files; a limit beyond its positions is none."""
    return min(model.embedding.max_length or model.tokenizer.model_max_length, model.config.max_positions)


def classify(
    model: Any,
    firsts: Sequence[str],
    seconds: Sequence[str] | None = None,
    *,
    truncate: str = "second",
    max_length: int | None = None,
    batch: int = 32,
) -> Classes:
    """The logits of a sequence head for each text, or for each pair (`firsts[i]`, `seconds[i]`).

    Of a pair that is too long the text that `truncate` names loses its end, down to nothing; the other never does.
    `firsts` are the premises of a natural-language inference model and the questions of a cross-encoder.

    Raises:
        ValueError: for a model without such a head, a setting that cannot be, unequal numbers of texts, or naming the
            text that is none, or that is too long though it must not be cut.
        NonFinite: naming the pair whose logits are no numbers.
    """
    require_head(model, "sequence")
    if truncate not in ("first", "second"):
        raise ValueError(f'truncate is "first" or "second", got {truncate!r}')
    if seconds is not None and len(seconds) != len(firsts):
        raise ValueError(f"there are {len(firsts)} first texts and {len(seconds)} second ones")
    frame = frame_of(model, 1 if seconds is None else 2)
    room = room_of(model, frame, max_length)
    found = [tokenize(model, firsts)] if seconds is None else [tokenize(model, firsts), tokenize(model, seconds)]
    cut = 1 if seconds is not None and truncate == "second" else 0
    rows, lost = [], []
    for number, texts in enumerate(zip(*found, strict=True)):
        kept, over = _cut(number, texts, cut, room)
        rows.append(frame.row(number, *kept))
        lost.append(over)
    logits = _stacked(read_rows(model, rows, "classes", batch), len(model.labels))
    return Classes(logits, np.array(lost, np.int32))


def require_head(model: Any, head: str) -> None:
    """Raise ValueError for a model that has not the head that is asked for."""
    if model.config.head != head:
        has = f"a {model.config.head} head" if model.config.head else "no head"
        raise ValueError(f"{model.name} has {has}; this asks for a {head} classification head")


def _cut(
    number: int, texts: tuple[tuple[int, ...], ...], cut: int, room: int
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """The texts with the one that is cut as long as there is room for, and how much it lost."""
    whole = sum(len(ids) for place, ids in enumerate(texts) if place != cut)
    if whole > room:
        raise ValueError(
            f"text {number}: {whole} sub-words of the text that is never cut do not fit {room}; truncate the other one"
        )
    kept = tuple(ids[: room - whole] if place == cut else ids for place, ids in enumerate(texts))
    return kept, max(whole + len(texts[cut]) - room, 0)


def _stacked(rows: list[np.ndarray], width: int) -> np.ndarray:
    return np.stack(rows) if rows else np.zeros((0, width), np.float32)
