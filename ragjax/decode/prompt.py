"""From texts to prompt ids: chat templates, spans, and the rule that data is never read as special tokens.

A prompt is a template of ours with pieces of data in it (question, documents, context). The chat template is rendered
with a marker in place of each piece; then the pieces are put in and the whole is tokenised at once, so the ids equal
those of the rendered text. Only where a piece spells a special token is the text tokenised part by part, with that
spelling kept as plain text.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import jinja2
import numpy as np

FORMATS = ("chat", "plain")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_MARK = "\ue000{}\ue001"
_MARKED = re.compile("\ue000(\\d+)\ue001")


class PromptError(ValueError):
    """A prompt that cannot be built: no chat template, an unknown placeholder, or too long a text."""


@dataclass(frozen=True)
class Prompt:
    """Token ids, the text they spell, and for each named piece of data its text and its token span [start, stop)."""

    ids: tuple[int, ...]
    text: str
    pieces: Mapping[str, str] = field(default_factory=dict)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Piece:
    text: str
    name: str | None


def encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Ids of a plain text, exactly one BOS in front where the family has one; nothing in it is a special token."""
    return (*_bos(tokenizer), *encode_alone(tokenizer, text))


def encode_source(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Ids of a text for an encoder: what the tokenizer puts at its end, such as T5's `</s>`, is put there."""
    last = tokenizer("", verbose=False)["input_ids"][-1:]
    end = tuple(last) if last and last[0] == tokenizer.eos_token_id else ()
    return (*encode_alone(tokenizer, text), *end)


def encode_alone(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Ids of a text as it stands: no special token is added, and nothing in it is one."""
    return _text_ids(tokenizer, text)[0] if text else ()


def encode_with_offsets(tokenizer: Any, text: str) -> tuple[tuple[int, ...], np.ndarray]:
    """As `encode_alone`, with the character offsets [T, 2] of each token."""
    return encode_each_with_offsets(tokenizer, [text])[0]


def encode_each_with_offsets(tokenizer: Any, texts: Sequence[str]) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Ids and offsets [T, 2] of each text, as `encode_with_offsets`; in one call, which may use all cores."""
    return [
        (ids, np.fromiter(chain.from_iterable(offsets), int, 2 * len(ids)).reshape(-1, 2))
        for ids, offsets in (
            _as_text(tokenizer, text, *one) for text, one in zip(texts, _read(tokenizer, texts), strict=True)
        )
    ]


def encode_after(tokenizer: Any, before: str, text: str, limit: int) -> Prompt:
    """A text after another, tokenised together, as one prompt whose piece "text" is the second.

    A token that straddles the boundary belongs to the second. Beyond `limit` tokens the first text loses its
    beginning, never the second; the notes count the loss.
    """
    ids, offsets = _text_ids(tokenizer, before + text)
    first = next((i for i, (_, end) in enumerate(offsets) if end > len(before)), len(ids))
    bos = _bos(tokenizer)
    lost = min(max(len(bos) + len(ids) - limit, 0), first)
    notes = (f"{lost} tokens of the given text did not fit",) if lost else ()
    kept = (*bos, *ids[lost:])
    span = (len(kept) - (len(ids) - first), len(kept))
    return Prompt(kept, before + text, {"text": text}, {"text": span}, notes)


def count_tokens(tokenizer: Any, text: str) -> int:
    """Tokens of a text as it stands, without special tokens."""
    return count_each(tokenizer, [text])[0]


def count_each(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """The tokens of each text, as `count_tokens` counts them, in one call."""
    if not texts:
        return []
    specials = _special_ids(tokenizer)
    return [
        len(ids) if text and specials.isdisjoint(ids) else len(encode_alone(tokenizer, text))
        for ids, text in zip(_ids_only(tokenizer, list(texts)), texts, strict=True)
    ]


def _ids_only(tokenizer: Any, texts: list[str]) -> Sequence[Sequence[int]]:
    """The ids of each text. Straight from the backend, which then keeps no offsets, they cost a quarter less."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.truncation or backend.padding:
        return tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
    backend.encode_special_tokens = True  # Nothing in a text is special; transformers sets it anew before each call.
    return [found.ids for found in backend.encode_batch_fast(texts, add_special_tokens=False)]


def count_prefixes(tokenizer: Any, text: str, ends: Sequence[int]) -> list[int]:
    """About the tokens of each prefix `text[:end]`, from one tokenisation: those of the whole that end within it."""
    stops = [stop for _, stop in _text_ids(tokenizer, text)[1]]
    return [bisect_right(stops, end) for end in ends]


def build_prompt(
    tokenizer: Any, system: str, user: str, data: Mapping[str, str], *, prompt_format: str = "chat"
) -> Prompt:
    """One prompt from a system text and a user template with `{name}` for each piece of data.

    `chat` uses the tokenizer's own chat template, up to and with the header of the answer. A template without a
    system role gets the system text in front of the user's, and the prompt says so in its notes. `plain` writes both
    as paragraphs.

    Raises:
      PromptError: without a chat template in `chat` format, or for a placeholder without data.
    """
    pieces = _pieces(user, data)
    marked = "".join(p.text if p.name is None else _MARK.format(i) for i, p in enumerate(pieces))
    if prompt_format == "plain":
        paragraphs = [text for text in (system, marked) if text]
        rendered, notes = "\n\n".join(paragraphs), ()
    elif prompt_format == "chat":
        turn = {"role": "user", "content": marked}
        rendered, notes = _render(tokenizer, [{"role": "system", "content": system}, turn] if system else [turn])
    else:
        raise PromptError(f"prompt_format is one of {FORMATS}, got {prompt_format!r}")
    return _assemble(tokenizer, rendered, pieces, notes, template=prompt_format == "chat")


def build_chat(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> Prompt:
    """A prompt from chat messages of the user's own, each `{role, content}`; contents are data.

    The ids are those of the rendered chat, unless a content spells a special token: that stays text.
    """
    pieces = [_Piece(m["content"], f"{m['role']}_{i}") for i, m in enumerate(messages)]
    specials = _special_tokens(tokenizer)
    if specials is None or not any(specials.search(p.text) for p in pieces):
        rendered, notes = _render(tokenizer, messages)
        return _assemble(tokenizer, rendered, [], notes, template=True)
    marked = [{"role": m["role"], "content": _MARK.format(i)} for i, m in enumerate(messages)]
    rendered, notes = _render(tokenizer, marked)
    return _assemble(tokenizer, rendered, pieces, notes, template=True)


def _pieces(template: str, data: Mapping[str, str]) -> list[_Piece]:
    pieces, end = [], 0
    for match in _PLACEHOLDER.finditer(template):
        if match[1] not in data:
            raise PromptError(f"the template asks for {{{match[1]}}}, there is {sorted(data)}")
        pieces += [_Piece(template[end : match.start()], None), _Piece(data[match[1]], match[1])]
        end = match.end()
    return [*pieces, _Piece(template[end:], None)]


def _render(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> tuple[str, tuple[str, ...]]:
    """The rendered chat. A system text that the template has no place for goes in front of the first user turn."""
    first, *rest = messages
    if first["role"] != "system":
        return _apply(tokenizer, messages), ()
    try:
        rendered = _apply(tokenizer, messages)
        if first["content"].strip() in rendered:
            return rendered, ()
    except jinja2.TemplateError:
        pass  # This family has no system role: its template says so by raising.
    if not rest or rest[0]["role"] != "user":
        raise PromptError("this family has no system role, and no user turn follows to put the system text into")
    merged = {"role": "user", "content": f"{first['content']}\n\n{rest[0]['content']}"}
    return _apply(tokenizer, [merged, *rest[1:]]), ("the system text was merged into the user's turn",)


def _apply(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    if not tokenizer.chat_template:
        raise PromptError(
            f"the tokenizer of {tokenizer.name_or_path or 'this model'} has no chat template: "
            'choose prompt_format="plain"'
        )
    return tokenizer.apply_chat_template([dict(m) for m in messages], tokenize=False, add_generation_prompt=True)


def _assemble(tokenizer: Any, rendered: str, pieces: list[_Piece], notes: tuple[str, ...], *, template: bool) -> Prompt:
    specials = _special_tokens(tokenizer)
    spelled = specials is not None and any(p.name and specials.search(p.text) for p in pieces)
    text, ranges = _substitute(rendered, pieces)
    if not template or specials is None:
        ids, offsets = _text_ids(tokenizer, text)
    elif not spelled:
        ids, offsets = _read(tokenizer, [text], as_text=False)[0]
    else:
        ids, offsets = _part_by_part(tokenizer, rendered, pieces, specials)
        notes = (*notes, "the data spells a special token: kept as text")
    bos = _bos(tokenizer)
    if bos and ids[:1] == bos:
        bos = ()  # The template wrote it.
    spans = {name: _span(text, offsets, *place, shift=len(bos)) for name, place in ranges.items()}
    return Prompt((*bos, *ids), text, {p.name: p.text for p in pieces if p.name}, spans, notes)


def _substitute(rendered: str, pieces: list[_Piece]) -> tuple[str, dict[str, tuple[int, int]]]:
    """Put the data in the markers' places; character ranges of each named piece in the result."""
    text, end, ranges = "", 0, {}
    for match in _MARKED.finditer(rendered):
        text += rendered[end : match.start()]
        piece = pieces[int(match[1])]
        ranges[piece.name] = (len(text), len(text) + len(piece.text))
        text += piece.text
        end = match.end()
    return text + rendered[end:], ranges


def _part_by_part(
    tokenizer: Any, rendered: str, pieces: list[_Piece], specials: re.Pattern
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Tokenise the template's special tokens as such and everything between them as text."""
    ids, offsets, base = [], [], 0
    for part in re.split(f"({specials.pattern})", rendered):
        text = _substitute(part, pieces)[0]
        if specials.fullmatch(part):
            found, places = (tokenizer.convert_tokens_to_ids(part),), [(0, len(part))]
        else:
            found, places = _text_ids(tokenizer, text)
        ids += found
        offsets += [(base + a, base + b) for a, b in places]
        base += len(text)
    return tuple(ids), offsets


def _span(text: str, offsets: list[tuple[int, int]], start: int, stop: int, *, shift: int) -> tuple[int, int]:
    """Tokens that share at least one character other than white space with text[start:stop]."""
    inside = [
        i for i, (a, b) in enumerate(offsets) if text[max(a, start) : min(b, stop)].strip() and a < stop and b > start
    ]
    return (inside[0] + shift, inside[-1] + 1 + shift) if inside else (0, 0)


def _special_tokens(tokenizer: Any) -> re.Pattern | None:
    found = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    ordered = sorted(found, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


_Read = tuple[tuple[int, ...], list[tuple[int, int]]]


def _text_ids(tokenizer: Any, text: str) -> _Read:
    return _as_text(tokenizer, text, *_read(tokenizer, [text])[0])


def _as_text(tokenizer: Any, text: str, ids: tuple[int, ...], offsets: list[tuple[int, int]]) -> _Read:
    """What was read of a text, without special tokens."""
    if _special_ids(tokenizer).isdisjoint(ids):
        return ids, offsets
    # A unigram vocabulary holds its special tokens as pieces too, and finds them in a text that spells them: such a
    # piece is read one character at a time.
    pairs = []
    for index, (start, stop) in zip(ids, offsets, strict=True):
        if index in _special_ids(tokenizer):
            letters = tokenizer.convert_tokens_to_ids(list(text[start:stop]))
            pairs += [(letter, (start + n, start + n + 1)) for n, letter in enumerate(letters)]
        else:
            pairs.append((index, (start, stop)))
    return tuple(index for index, _ in pairs), [place for _, place in pairs]


@lru_cache(maxsize=8)
def _special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids that no text may become; unknown text is text."""
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(index for index, token in added if token.special and index != tokenizer.unk_token_id)


def _read(tokenizer: Any, texts: Sequence[str], *, as_text: bool = True) -> list[_Read]:
    """Ids and offsets of each text; special tokens are found where it is not read as text."""
    if not texts:
        return []
    found = tokenizer(
        list(texts), add_special_tokens=False, split_special_tokens=as_text, return_offsets_mapping=True, verbose=False
    )
    return [(tuple(ids), offsets) for ids, offsets in zip(found["input_ids"], found["offset_mapping"], strict=True)]


def _bos(tokenizer: Any) -> tuple[int, ...]:
    """The BOS that this family puts before a text, if it does."""
    start = tokenizer("", verbose=False)["input_ids"][:1]
    return tuple(start) if start and start[0] == tokenizer.bos_token_id else ()


def decode_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of generated ids. A character cut in its middle at the end is left out, never shown as U+FFFD."""
    text = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.rstrip("\ufffd")


def decode_pieces(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """One string a token, which join to `decode_text`; a token that only begins a character is the empty string."""
    texts = [""] + [decode_text(tokenizer, ids[: n + 1]) for n in range(len(ids))]
    longest, pieces = "", []
    for text in texts[1:]:
        pieces.append(text[len(longest) :] if text.startswith(longest) else "")
        longest = longest + pieces[-1]
    return tuple(pieces)
