"""Who an example is: the user's id where the source has one, else its content.

Ids name rows in results, seed their samples and decide what a resumed run may keep, so they must not depend on batch,
order of work, `limit` or on rows that were skipped.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import xxhash

from ragjax.data.records import Document, Example


def content_hash(example: Example, *, golds: bool = True, answers: bool = True) -> str:
    """32 hex digits of the question, the documents (title, text and the sentences that they bring), answers and golds.

    `golds` = False leaves out gold documents and gold sentences, which few methods see, `answers` = False the answers,
    which none sees.
    """
    parts: list[Any] = [example.question, _contents(example.documents)]
    parts.append(list(example.answers) if answers else None)
    if golds and (example.gold_documents or example.gold_sentences):
        parts.append([_contents(example.gold_documents), list(example.gold_sentences)])
    return json_hash(parts)


def _contents(documents: Iterable[Document]) -> list[list[Any]]:
    return [[one.title, one.text, *([] if one.sentences is None else [list(one.sentences)])] for one in documents]


def json_hash(value: Any) -> str:
    """32 hex digits that depend on the value of any JSON value, and not on the order of its keys."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())


def example_ids(examples: Iterable[Example]) -> list[str]:
    """A distinct id for each example."""
    return [example.id for example in with_ids(examples)]


def with_ids(examples: Iterable[Example]) -> Iterator[Example]:
    """The examples, each with a distinct id, as they come."""
    names = Names()
    return (replace(example, id=names.of(example)) for example in examples)


class Names:
    """Gives ids to examples one after the other.

    The base of an id is the example's own or, where that is empty, the hash of what a model sees of it (question and
    documents; a corrected gold keeps the id). The first example with a base takes it as it is, the n-th appends `#n`
    (MuSiQue's full files hold every id twice). An id depends on the examples before it alone.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._taken: set[str] = set()

    def of(self, example: Example) -> str:
        """The id of the next example."""
        base = example.id or content_hash(example, golds=False, answers=False)
        self._seen[base] = self._seen.get(base, 0) + 1
        name = base if self._seen[base] == 1 else f"{base}#{self._seen[base]}"
        while name in self._taken:  # a user's own "a#2" beside two rows called "a"
            self._seen[base] += 1
            name = f"{base}#{self._seen[base]}"
        self._taken.add(name)
        return name
