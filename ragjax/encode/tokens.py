"""From texts to the rows that an encoder reads: sub-words, framed by special tokens that the tokenizer itself puts.

Texts are tokenised as they stand, all in one call, and cut and framed afterwards. Nothing in a text is ever a special
token. What a tokenizer puts around a text and around a pair is seen by giving it one: never told by a model's name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ragjax.models.encoder_config import BertConfig
from ragjax.typing import Int

_PROBE = "a"
_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])  # No character behind these is white space.


@dataclass(frozen=True)
class Row:
    """Ids and types of one input of the model, and the number of the text that it is from."""

    text: int
    ids: tuple[int, ...]
    types: tuple[int, ...]


@dataclass(frozen=True)
class Frame:
    """What stands around texts: special ids and their types before the first, between them and after the last, and
    the type of each text."""

    specials: tuple[tuple[int, ...], ...]
    special_types: tuple[tuple[int, ...], ...]
    text_types: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.specials))

    def row(self, number: int, *texts: Sequence[int]) -> Row:
        """The sub-words of one text, or of two, in their frame."""
        ids, types = list(self.specials[0]), list(self.special_types[0])
        for text, kind, after, kinds in zip(
            texts, self.text_types, self.specials[1:], self.special_types[1:], strict=True
        ):
            ids += [*text, *after]
            types += [*(kind,) * len(text), *kinds]
        return Row(number, tuple(ids), tuple(types))


@dataclass(frozen=True, eq=False)
class Tokens:
    """The sub-words of a text: ids, places in the text [T, 2], and the number of the word that each is in [T]."""

    ids: tuple[int, ...]
    places: Int[np.ndarray, "T 2"]
    words: Int[np.ndarray, " T"]


def frame_of(model: Any, count: int) -> Frame:
    """The frame of a single text, or of a pair with `count` = 2.

    Raises:
        ValueError: the tokenizer does not say which of its tokens are special, or numbers types that the model lacks.
    """
    found = model.tokenizer(
        *(_PROBE,) * count, return_special_tokens_mask=True, return_token_type_ids=True, verbose=False
    )
    special, ids = found["special_tokens_mask"], found["input_ids"]
    kinds = found["token_type_ids"] if "token_type_ids" in model.tokenizer.model_input_names else [0] * len(ids)
    if isinstance(model.config, BertConfig) and max(kinds) >= model.config.type_vocab_size:
        known = model.config.type_vocab_size
        raise ValueError(f"the tokenizer of {model.name} has a type {max(kinds)} of tokens, the model knows {known}")
    parts = [list(group) for _, group in groupby(zip(special, ids, kinds, strict=True), key=lambda part: part[0])]
    parts = [[]] * (not special[0]) + parts + [[]] * (not special[-1])
    if len(parts) != 2 * count + 1:
        raise ValueError(f"the tokenizer of {model.name} does not tell the texts of a pair apart by special tokens")
    return Frame(
        specials=tuple(tuple(token for _, token, _ in part) for part in parts[::2]),
        special_types=tuple(tuple(kind for _, _, kind in part) for part in parts[::2]),
        text_types=tuple(part[0][2] for part in parts[1::2]),
    )


def room_of(model: Any, frame: Frame, max_length: int | None) -> int:
    """How many sub-words a row has room for, beside the special tokens.

    Raises:
        ValueError: if `max_length` is more than the model's positions, or leaves no room.
    """
    most = model.config.max_positions
    length = most if max_length is None else max_length
    if not frame.size < length <= most:
        raise ValueError(
            f"max_length lies over the {frame.size} special tokens and up to the {most} positions of {model.name}, "
            f"got {max_length}"
        )
    return length - frame.size


def tokenize(model: Any, texts: Sequence[str], what: str = "text", prompt: str = "") -> list[tuple[int, ...]]:
    """The ids of each text, the prompt before it, without special tokens.

    A spelling that the vocabulary knows as a special token alone (SentencePiece has such pieces) is the unknown
    token.

    Raises:
        ValueError: naming the text that is none, or for one text in the place of several.
    """
    if not len(texts):
        return []
    found = _encode(model, texts, what, prompt)
    return list(_as_text(model.tokenizer, found["input_ids"], what))


def tokenize_with_places(model: Any, texts: Sequence[str]) -> list[Tokens]:
    """The sub-words of each text with their places and words. Raises as `tokenize` does."""
    if not len(texts):
        return []
    found = _encode(model, texts, "text", "", return_offsets_mapping=True)
    rows = []
    for number, ids in enumerate(_as_text(model.tokenizer, found["input_ids"], "text")):
        words = np.array([-1 if word is None else word for word in found.word_ids(number)], int)
        offsets = np.array(found["offset_mapping"][number], np.int32).reshape(-1, 2)
        rows.append(Tokens(ids, trim(texts[number], offsets), words))
    return rows


def trim(text: str, places: Int[np.ndarray, "T 2"]) -> Int[np.ndarray, "T 2"]:
    """Places without white space at their ends, and with the characters that a tokenizer drops after a sub-word.

    Normalising takes combining marks, joiners and the like away: they belong to the sub-word before them. A sub-word
    that stands for white space alone has an empty place.
    """
    if not len(places):
        return places
    size = len(text)
    space = _SPACE[np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), len(_SPACE) - 1)]
    at = np.arange(size)
    next_solid = np.append(np.minimum.accumulate(np.where(space, size, at)[::-1])[::-1], size)
    next_space = np.append(np.minimum.accumulate(np.where(space, at, size)[::-1])[::-1], size)
    last_solid = np.append(0, np.maximum.accumulate(np.where(space, 0, at + 1)))
    start = np.minimum(next_solid[places[:, 0]], places[:, 1])
    end = np.maximum(last_solid[places[:, 1]], start)
    following = np.append(places[1:, 0], size)
    grown = np.minimum(following, next_space[end])
    end = np.where((following > end) & (end > start), np.maximum(end, grown), end)
    return np.stack([start, end], axis=1).astype(np.int32)


def _encode(model: Any, texts: Sequence[str], what: str, prompt: str, **asked: bool) -> Any:
    if isinstance(texts, str):
        raise ValueError(f"{what}s are a list of strings, got the one string {texts!r}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{what} {number} is {text!r}, not a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{what} {number} is no Unicode text: {error}") from None
    return model.tokenizer(
        [prompt + text for text in texts],
        add_special_tokens=False,
        split_special_tokens=True,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
        **asked,
    )


def _as_text(tokenizer: Any, rows: Sequence[Sequence[int]], what: str) -> Iterator[tuple[int, ...]]:
    """The ids of each text, none of them special but for the unknown token, which stands for a spelling of one."""
    unknown = tokenizer.unk_token_id
    specials = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special} - {unknown}
    for number, ids in enumerate(rows):
        if specials.isdisjoint(ids):
            yield tuple(ids)
        elif unknown is None:
            raise ValueError(f"{what} {number} spells a special token, which its tokenizer cannot read as text")
        else:
            yield tuple(unknown if token in specials else token for token in ids)
