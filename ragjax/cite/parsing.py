"""From an answer as a model wrote it to its claims, each with the units that it cites.

Markers are found first and taken out, with the blanks before them. What is left is split into sentences as documents
are (`ragjax.retrieve.sentences`), so a claim holds no residue and no marker moves a boundary; then each marker goes to
the sentence that it stood in or behind. A sentence without a letter or digit is no claim.

What a marker is:

* One or more numbers in square brackets, plain or wide: `[1]`, `[1, 2]`, `[1;3]`, `[1 and 2]`, `[1-3]` with any dash,
  `[1 to 3]`, `[ 2 ]`, `【1】`. A number may be a footnote's (`[^1]`) or named (`[Doc 1]`, `[Passage 2]`, `[Source 3]`).
  `[1]-[3]` is `[1-3]`. Parentheses around markers alone go with them.
* Numbers count the units from 1. `[0]`, a number above the units' and a range that runs backwards, ends above them or
  covers more than 20 numbers are invalid: one invalid citation each, never expanded.
* Anything else in brackets is text (`[sic]`, `[2019 survey]`), and so is `(1)`. Nothing is read inside a URL, a
  Markdown link (`[1](u)` is one), code between backticks, or an index: brackets that touch a lone lower-case letter or
  a name with an underscore (`x[3]`, `a_i[1]`).

Whose it is: a marker after a full stop belongs to the sentence before it, unless it opens a line that goes on, or the
answer puts its markers first (it opens with one): then to the sentence that it opens. Where a marker touches a full
stop, on either side, and no small letter follows, a sentence ends, even after an abbreviation. A line of a list
begins a sentence.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ragjax.cite.records import Answer, Statement
from ragjax.data.records import Document
from ragjax.retrieve.sentences import split_sentences

_LONGEST_RANGE = 20

_BLANKS = r"[^\S\n]*"
_DASH = r"[-\u2010-\u2015\u2212~～]"
_NAME = r"(?:(?:doc|document|passage|source|ref|reference|unit)s?\.?\s*\#?\s*|\^)?"
_AND = r"(?:[,;，、；&]\s*(?:and\b\s*)?|and\b\s*)"
_PART = rf"{_NAME}\d+(?:\s*(?:{_DASH}|to\b)\s*{_NAME}\d+)?"
_MARKER = rf"[\[【［]\s*{_PART}(?:\s*{_AND}{_PART})*\s*[\]】］]"
_MARKERS = rf"{_MARKER}(?:(?:{_DASH}|{_BLANKS}(?:{_AND})?){_MARKER})*"
_TOKEN = re.compile(
    r"(?:https?://|www\.)[^\s()]*"
    r"|!?\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]\((?:[^()\s]|\([^()\s]*\))*\)"
    r"|`[^`\n]*`"
    r"|(?<![\w'’.-])(?:[a-z]|(?=\w*_)\w++)(?:\[[^\[\]\n]*\])+"
    rf"|(?P<markers>(?i:\({_BLANKS}{_MARKERS}{_BLANKS}\)|\[{_MARKERS}\]|{_MARKERS}))"
)
_DASHED = re.compile(rf"[\]】］]({_DASH})[\[【［]")
_NUMBERS = re.compile(rf"(\d+)(?:\s*(?:{_DASH}|to\b)\s*{_NAME}(\d+))?", re.IGNORECASE)

_STOP = r"[.!?…。！？｡]+[\"'”’»)）」』]*"
_STOP_BEFORE = re.compile(rf"{_STOP}\s*\Z")
_STOP_AFTER = re.compile(rf"{_BLANKS}{_STOP}")
_TEXT_AFTER = re.compile(rf"{_BLANKS}\S")
_LIST_NUMBER = re.compile(r"\d{1,3}[.)]")
_LIST_LINE = re.compile(rf"\n(?=[^\S\n]*(?:[-*•]|{_LIST_NUMBER.pattern})\s)")
_LINE_BEFORE = re.compile(rf"\s*(?:[-*•]|{_LIST_NUMBER.pattern})?\s*")
_PUNCTUATION_AFTER = re.compile(rf"{_BLANKS}(?=[.,;:!?])")
_CONTINUING = ",;:.!?…)]}”’»"
# Enough for a full stop with quotes and blanks after it.
_REACH = 12

# As ALCE's eval.py finds citations and takes them out; of a sentence it looks at the first three.
_ALCE_CITATION = re.compile(r"\[(\d+)")
_ALCE_MARKER = re.compile(r"\[\d+\]?")
_ALCE_REMOVED = (r"<\|im_end\|>", r" \[\d+", r"\[\d+", r" \|", r"\]")
_ALCE_MOST = 3


def parse(answer: str, units: int, *, mode: str = "strict", language: str = "en") -> Answer:
    """The statements of an answer whose markers count `units` units from 1.

    Args:
      answer: as written.
      units: how many the generator saw.
      mode: "strict" by the rules above; "alce" as ALCE's published script counts. It reads the first line alone. A
        bracket before digits is a citation of that number, `[0]` one of the last unit, duplicates stay, and a marker
        after a full stop opens the next sentence. A number above the units' leaves its sentence without citations; of
        others the first three count. Sentences are this library's, which are NLTK's but for abbreviations.
      language: of the answer, for abbreviations.

    Raises:
      ValueError: for an unknown mode or a negative number of units.
    """
    if mode not in _READERS:
        raise ValueError(f"mode is one of {', '.join(_READERS)}, got {mode!r}")
    if units < 0:
        raise ValueError(f"units counts units and is not negative, got {units}")
    return Answer(answer, tuple(_READERS[mode](answer, units, language)), mode)


@dataclass(frozen=True)
class _Group:
    """Markers side by side, `answer[start:end]` with a full stop of their own where they stand between two.

    `opens`: they belong to what follows. `ends`: the place at which they say that a sentence ends.
    """

    text: str
    start: int
    end: int
    opens: bool
    ends: int | None


def _strict(answer: str, units: int, language: str) -> Iterator[Statement]:
    groups = _find_groups(answer)
    bare, origins = _without(answer, groups)
    claims = _claims(bare, language)
    spans = [(origins[start], origins[end - 1] + 1) for start, end in claims]
    owners = [_owner(group, spans) for group in groups]
    for number, ((first, last), (start, end)) in enumerate(zip(claims, spans, strict=True)):
        own = [group for group, owner in zip(groups, owners, strict=True) if owner == number]
        start, end = min([start, *(g.start for g in own)]), max([end, *(g.end for g in own)])
        yield Statement(bare[first:last], start, end, *_read("".join(g.text for g in own), units))


def _claims(text: str, language: str) -> list[tuple[int, int]]:
    """Where the sentences of a text stand; a list's number by itself is part of what it numbers."""
    spans: list[tuple[int, int]] = []
    for sentence in split_sentences((Document(text),), language):
        start = sentence.start
        if spans and _LIST_NUMBER.fullmatch(text, *spans[-1]) and "\n" not in text[spans[-1][1] : start]:
            start = spans.pop()[0]
        spans.append((start, sentence.end))
    return [(start, end) for start, end in spans if any(map(str.isalnum, text[start:end]))]


def _find_groups(answer: str) -> list[_Group]:
    found = [match.span() for match in _TOKEN.finditer(answer) if match["markers"]]
    leading = bool(found) and not answer[: found[0][0]].strip()
    return [_group(answer, start, end, leading) for start, end in found]


def _group(answer: str, start: int, end: int, leading: bool) -> _Group:
    """The markers at a place; `leading` says that the answer opens with some."""
    line = answer[answer.rfind("\n", 0, start) + 1 : start]
    behind = _STOP_BEFORE.search(answer, max(0, start - _REACH), start) is not None
    stop = _STOP_AFTER.match(answer, end)
    last = stop.end() if stop else end
    in_front = _LINE_BEFORE.fullmatch(line) is not None or (leading and behind)
    return _Group(
        answer[start:end],
        start,
        last if behind else end,
        opens=in_front and not stop and _TEXT_AFTER.match(answer, end) is not None,
        ends=last if (behind or stop or answer[end : end + 1] == "\n") and _begins_anew(answer[last:]) else None,
    )


def _begins_anew(rest: str) -> bool:
    """Whether what follows a full stop reads as the beginning of a sentence."""
    first = rest.lstrip()[:1]
    return not first.islower() and (first.isalnum() or (rest[:1].isspace() and first not in _CONTINUING))


def _without(answer: str, groups: Sequence[_Group]) -> tuple[str, list[int]]:
    """The answer without some markers, and where in it each of the remaining characters stands.

    Blanks before markers go, and blanks between them and punctuation. An empty line stands where they end a sentence,
    and before each line of a list.
    """
    gone: set[int] = set()
    for group in groups:
        blanks = _PUNCTUATION_AFTER.match(answer, group.end)
        before = len(answer[: group.start].rstrip(" \t\xa0\u3000"))
        gone.update(range(before, blanks.end() if blanks else group.end))
    ends = {group.ends for group in groups}.union(line.start() for line in _LIST_LINE.finditer(answer))
    kept = []
    for place, character in enumerate(answer):
        kept += [("\n", place)] * (2 if place in ends else 0)
        kept += [(character, place)] if place not in gone else []
    return "".join(character for character, _ in kept), [place for _, place in kept]


def _owner(group: _Group, spans: Sequence[tuple[int, int]]) -> int | None:
    """The number of the claim, of those at `spans`, that markers belong to; None where there is no claim."""
    before = [number for number, (start, _) in enumerate(spans) if start < group.start]
    after = [number for number, (_, end) in enumerate(spans) if end > group.end]
    first, second = (after[:1], before[-1:]) if group.opens else (before[-1:], after[:1])
    return next(iter([*first, *second]), None)


def _read(markers: str, units: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The units that markers name, and the numbers and ranges that name none, each once."""
    cited: dict[int, None] = {}
    invalid: dict[str, None] = {}
    for part in _NUMBERS.finditer(_DASHED.sub(r"\1", markers)):
        # No number of units has ten digits; Python refuses to read thousands.
        first, last = (int(digits[:10]) for digits in (part[1], part[2] or part[1]))
        if 1 <= first <= last <= units and last - first < _LONGEST_RANGE:
            cited.update(dict.fromkeys(range(first - 1, last)))
        else:
            invalid[f"[{part[0]}]"] = None
    return tuple(cited), tuple(invalid)


def _alce(answer: str, units: int, language: str) -> Iterator[Statement]:
    line = answer.strip().split("\n")[0]
    offset = len(answer) - len(answer.lstrip())
    # To NLTK a bracket behind a blank is a word like any other, and one that touches a word is part of it.
    words = _ALCE_MARKER.sub(lambda match: _as_word(match, line), line)
    for sentence in split_sentences((Document(words),), language):
        written = line[sentence.start : sentence.end]
        numbers = [int(digits[:10]) for digits in _ALCE_CITATION.findall(written)]
        invalid = [number for number in numbers if number > units or not units]
        cited = () if invalid else tuple((number or units) - 1 for number in numbers[:_ALCE_MOST])
        claim = written
        for pattern in _ALCE_REMOVED:
            claim = re.sub(pattern, "", claim)
        marks = tuple(f"[{number}]" for number in dict.fromkeys(invalid))
        yield Statement(claim.strip(), offset + sentence.start, offset + sentence.end, cited, marks)


def _as_word(match: re.Match, line: str) -> str:
    alone = not line[: match.start()].strip() or line[match.start() - 1].isspace()
    return ("X" if alone else "x") * len(match[0])


_READERS: Mapping[str, Callable[[str, int, str], Iterator[Statement]]] = {"strict": _strict, "alce": _alce}
