"""Who an example is: the user's id where the source has one, else its content.

Ids name rows in results, seed their samples and decide what a resumed run may keep, so they must not depend on batch,
order of work, `limit` or on rows that were skipped.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import xxhash

from ragjax.data.records import Example


def content_hash(example: Example, *, golds: bool = True) -> str:
    """32 hex digits of the question, the documents (title and text) and, unless `golds` is False, the answers."""
    documents = [[document.title, document.text] for document in example.documents]
    return json_hash([example.question, documents, list(example.answers) if golds else None])


def json_hash(value: Any) -> str:
    """32 hex digits that depend on the value of any JSON value, and not on the order of its keys."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True).encode())


def example_ids(examples: Iterable[Example]) -> list[str]:
    """A distinct id for each example."""
    return [example.id for example in with_ids(examples)]


def with_ids(examples: Iterable[Example]) -> Iterator[Example]:
    """The examples, each with a distinct id, as they come.

    The base is the example's own id or, where that is empty, the hash of what a model sees of it (question and
    documents; a corrected gold keeps the id). The first example with a base takes it as it is, the n-th appends
    `#n` (MuSiQue's full files hold every id twice). An id depends on the examples before it alone.
    """
    seen: dict[str, int] = {}
    taken: set[str] = set()
    for example in examples:
        base = example.id or content_hash(example, golds=False)
        seen[base] = seen.get(base, 0) + 1
        name = base if seen[base] == 1 else f"{base}#{seen[base]}"
        while name in taken:  # a user's own "a#2" beside two rows called "a"
            seen[base] += 1
            name = f"{base}#{seen[base]}"
        taken.add(name)
        yield replace(example, id=name)
