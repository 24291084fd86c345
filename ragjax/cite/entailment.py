"""Does a premise entail a hypothesis? The protocol of those who say so, and a memory around any of them.

A judge gets (premise, hypothesis) pairs by the hundred, so that a model runs in full batches; how they are batched is
its own business. `Remembered` asks it about each distinct pair once: the others are looked up, in memory or on the
disk, under the judge's description and the pair's content. What a judge said before a run was killed is kept.
"""

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from ragjax.data.identity import json_hash
from ragjax.typing import Float, Int

Pair = tuple[str, str]
"""A premise and a hypothesis."""

CHUNK = 256
"""Pairs that a judge is asked about at a time: what a kill can cost."""


class ClaimTooLong(ValueError):
    """Hypotheses that leave a model no room for a premise; `hypotheses` are their texts. A claim is never cut."""

    def __init__(self, message: str, hypotheses: Sequence[str]) -> None:
        super().__init__(message)
        self.hypotheses = tuple(hypotheses)


@dataclass(frozen=True, eq=False)
class Judged:
    """What a judge says of n pairs, in their order.

    `values` [n] are the probabilities of entailment; `tokens` [n] count premise and hypothesis by the judge's own
    tokenizer, whole and without special tokens or template; `truncated` [n] of the premise's were cut off.
    """

    values: Float[np.ndarray, " n"]
    tokens: Int[np.ndarray, " n"]
    truncated: Int[np.ndarray, " n"]


class Judge(Protocol):
    """What every judge of entailment offers. `name` says what it is, and stands in every result."""

    name: str

    def probabilities(self, pairs: Sequence[Pair]) -> Judged:
        """The probability of entailment of each (premise, hypothesis).

        Raises:
          ClaimTooLong: for hypotheses that leave no room for a premise, before any model runs.
          NonFinite: a model's result is no number; names the pair.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What defines its numbers, as JSON values: a model by content, its dtype, modes; no threshold."""
        ...


class Remembered:
    """A judge that is asked about each distinct pair once, ever if there is a folder.

    Several processes may use a folder at the same time, and judges of any description share it. What is there is
    never overwritten.

    Args:
      judge: who is asked.
      folder: where judgements are kept, on a local disk (default: in memory alone).
      chunk: pairs that it is asked about at a time; after each chunk they are on the disk.

    `calls` counts how often the judge was called, `asked` the pairs that it was asked about.
    """

    def __init__(self, judge: Judge, folder: str | PathLike | None = None, *, chunk: int = CHUNK) -> None:
        if chunk < 1:
            raise ValueError(f"a chunk has at least 1 pair, got {chunk}")
        self.name = judge.name
        self.calls = self.asked = 0
        self._judge, self._chunk = judge, chunk
        self._known: dict[str, _Row] = {}
        self._disk = None if folder is None else _Disk(folder, judge.describe())

    def describe(self) -> dict[str, Any]:
        """That of the judge."""
        return self._judge.describe()

    def probabilities(self, pairs: Sequence[Pair]) -> Judged:
        """As `Judge.probabilities`; pairs that were judged before an error are kept."""
        keys = [json_hash(list(pair)) for pair in pairs]
        wanted = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in self._known}
        if self._disk and wanted:
            self._known.update(self._disk.read(wanted))
        self._ask({key: pair for key, pair in wanted.items() if key not in self._known})
        values, tokens, truncated = zip(*(self._known[key] for key in keys), strict=True) if keys else ((), (), ())
        return Judged(np.array(values, np.float64), np.array(tokens, int), np.array(truncated, int))

    def _ask(self, missing: Mapping[str, Pair]) -> None:
        """Ask the judge, longest pairs first: pairs of one length are read together, and what cannot be held fails
        early."""
        ordered = sorted(missing, key=lambda key: sum(map(len, missing[key])), reverse=True)
        hidden = len(ordered) <= self._chunk or not sys.stderr.isatty()
        with tqdm(total=len(ordered), unit="pair", disable=hidden) as bar:
            for start in range(0, len(ordered), self._chunk):
                keys = ordered[start : start + self._chunk]
                rows = self._judged([missing[key] for key in keys])
                found = dict(zip(keys, rows, strict=True))
                self._known.update(self._disk.keep(found) if self._disk else found)
                bar.update(len(keys))

    def _judged(self, pairs: Sequence[Pair]) -> "list[_Row]":
        self.calls += 1
        self.asked += len(pairs)
        judged = self._judge.probabilities(pairs)
        for (_, hypothesis), value in zip(pairs, judged.values, strict=True):
            if not 0 <= value <= 1:
                raise ValueError(f"{self.name} gives {hypothesis!r} the probability {value}")
        return list(zip(*(a.tolist() for a in (judged.values, judged.tokens, judged.truncated)), strict=True))


_Row = tuple[float, int, int]

_TABLES = (
    "CREATE TABLE IF NOT EXISTS judges (judge TEXT PRIMARY KEY, description TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS pairs (judge TEXT, pair TEXT, value REAL NOT NULL, tokens INTEGER NOT NULL, "
    "truncated INTEGER NOT NULL, PRIMARY KEY (judge, pair)) WITHOUT ROWID",
)


class _Disk:
    """A judge's rows in the database of a folder. A connection lives for one call, so that threads may share this."""

    def __init__(self, folder: str | PathLike, description: Mapping[str, Any]) -> None:
        if "://" in str(folder):
            raise ValueError(f"judgements are kept in a folder of a local disk, got {folder}")
        self._path = Path(folder).expanduser() / "entailment.sqlite3"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._judge = json_hash(dict(description))
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                database.execute(table)
            told = self._judge, json.dumps(description, sort_keys=True)
            database.execute("INSERT OR IGNORE INTO judges VALUES (?, ?)", told)

    def read(self, keys: Iterable[str]) -> dict[str, _Row]:
        """The rows of those pairs that have one."""
        with self._open() as database:
            return self._read(database, keys)

    def keep(self, rows: Mapping[str, _Row]) -> dict[str, _Row]:
        """Write rows, all or none of them; what another process wrote before stands, and is returned."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            named = [(self._judge, key, *row) for key, row in rows.items()]
            database.executemany("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?, ?)", named)
            return self._read(database, rows)

    def _read(self, database: sqlite3.Connection, keys: Iterable[str]) -> dict[str, _Row]:
        query = "SELECT value, tokens, truncated FROM pairs WHERE judge = ? AND pair = ?"
        rows = {key: database.execute(query, (self._judge, key)).fetchone() for key in keys}
        return {key: row for key, row in rows.items() if row is not None}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as database, database:
                yield database
        except sqlite3.Error as error:
            raise OSError(f"{self._path}: {error}") from error
