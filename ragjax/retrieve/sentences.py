"""Documents to sentences that keep their place: a stable id and character offsets.

The splitter is `sentencex`, which needs no model and no download. It knows abbreviations ("Dr.", "U.S.", "J. R. R."),
decimals, quotes and brackets, and ends sentences at the marks of every script ("。", "؟", "।") whatever the language.
The language chooses the abbreviations alone, so that Chinese documents, or those of several languages, split well
under "en". A line end by itself ends no sentence, an empty line does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sentencex

from ragjax.data.records import Document

_SPACES = re.compile(r"\s+")
_LINE_END = re.compile(r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]")


@dataclass(frozen=True)
class Sentence:
    """A sentence of an example: `documents[document].text[start:end]`, which is `text`, without white space around it.

    `sid` is "document.sentence", both counted from 0: "2.0" is the third document's first sentence.
    """

    sid: str
    document: int
    start: int
    end: int
    text: str


def split_sentences(documents: Sequence[Document], language: str = "en") -> tuple[Sentence, ...]:
    """All sentences of some documents, in their order. They hold every character that is no white space, once.

    Sentences that a document brings with it (`Document.sentences`) are taken as they are, where they join to its text
    up to white space; any other document is split.

    Args:
      documents: those of one example.
      language: a two-letter code; one that `sentencex` does not know reads as "en".
    """
    found = []
    for number, document in enumerate(documents):
        spans = _given(document) or _split(document.text, language)
        found += [
            Sentence(f"{number}.{place}", number, start, end, document.text[start:end])
            for place, (start, end) in enumerate(spans)
        ]
    return tuple(found)


def _given(document: Document) -> list[tuple[int, int]] | None:
    """Spans of the sentences that the document brings; None where there are none, or they do not join to its text."""
    if document.sentences is None:
        return None
    bare = ["".join(sentence.split()) for sentence in document.sentences]
    if "".join(bare) != "".join(document.text.split()):
        return None
    places = [place for place, character in enumerate(document.text) if not character.isspace()]
    spans, done = [], 0
    for length in filter(None, map(len, bare)):
        spans.append((places[done], places[done + length - 1] + 1))
        done += length
    return spans


def _split(text: str, language: str) -> Iterator[tuple[int, int]]:
    for found in sentencex.get_sentence_boundaries(language, _SPACES.sub(_plain_space, text)):
        start, end = found["start_index"], found["end_index"]
        inner = text[start:end].strip()
        if inner:
            start = text.index(inner, start, end)
            yield start, start + len(inner)


def _plain_space(space: re.Match) -> str:
    r"""White space of the same length in blanks and line ends alone.

    sentencex panics at an initial before a no-break space ("B\xa0."), and sees an empty line in two line ends that
    follow each other, not in "\r\n\r\n" or where a blank lies between.
    """
    lines = min(len(_LINE_END.findall(space[0])), 2)
    return " " * (len(space[0]) - lines) + "\n" * lines
