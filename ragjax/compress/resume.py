"""A file of compressed questions that can be gone on with.

Beside `FILE` lies `FILE.settings.json`, written first: what defines its lines. Lines are appended whole; one that was
cut by a kill is taken off, and made again. While a run has the file open, no other may write it.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ragjax.compress.stream import BadRow, Line, encode_line, has_failed
from ragjax.data.identity import content_hash
from ragjax.data.records import Example
from ragjax.runtime import LOG


class OutputRefused(ValueError):
    """A file that cannot be gone on with; the message says why."""


@dataclass(frozen=True)
class Output:
    """A file that is written to, and what it holds already.

    `done` are the contents of its examples by id, "" by line for rows that could not be read; `failed` counts its lines
    without a result.
    """

    path: Path
    done: Mapping[str | int, str]
    failed: int = 0

    def rest(self, rows: Iterator[Example | BadRow]) -> Iterator[Example]:
        """The rows that are still to be made; those that could not be read are not tried again.

        Raises:
          OutputRefused: an id of the file now stands for another question or other documents.
        """
        for row in rows:
            if isinstance(row, BadRow):
                if row.line not in self.done:
                    yield row
            elif row.id not in self.done:
                yield row
            elif self.done[row.id] != content_hash(row, answers=False):
                raise OutputRefused(f"{self.path}: {row.id!r} was another question, or had other documents")

    def append(self, lines: Sequence[Line]) -> None:
        """Write lines, on the disk when this returns."""
        with self.path.open("ab") as file:
            file.write(b"".join(map(encode_line, lines)))
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def open_output(path: Path, settings: Mapping[str, Any]) -> Iterator[Output]:
    """The file at `path`, new or gone on with; it belongs to this run until the block is left.

    Raises:
      OutputRefused: another run is writing the file, it was not made by this program, or with other settings; names
        the first that differs.
    """
    beside = path.with_name(f"{path.name}.settings.json")
    if path.exists() and not beside.exists():
        raise OutputRefused(f"{path} exists and has no {beside.name} beside it: choose another name")
    if not beside.exists():
        partial = beside.with_name(f".{beside.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(settings, indent=2))
        partial.replace(beside)
    with path.open("ab") as file:
        _lock(path, file)
        # Read again: of two runs that began at once, the other's may be what stands there.
        _check_settings(path, json.loads(beside.read_bytes()), json.loads(json.dumps(settings)))
        yield _read_output(path)


def _lock(path: Path, file: BinaryIO) -> None:
    """Keep other runs off the file until it is closed, where the system and its disk can."""
    try:
        import fcntl
    except ImportError:  # Not on Windows.
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputRefused(f"{path}: another run is writing it: wait for its end, or choose another file") from None
    except OSError as error:
        LOG.warning("%s: not locked against other runs (%s)", path, error)


def _check_settings(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name in (*new, *(name for name in old if name not in new)):
        if old.get(name) != new.get(name):
            raise OutputRefused(
                f"{path}: {name} was {old.get(name)!r} and is now {new.get(name)!r}: choose another file"
            )


def _read_output(path: Path) -> Output:
    """The file at `path` by its whole lines; what a kill left of a last line is taken off."""
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if whole != raw:
        os.truncate(path, len(whole))
    done, failed = {}, 0
    for number, text in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(text)
            done[line["line"] if line["id"] is None else line["id"]] = line.get("content", "")
            failed += has_failed(line)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise OutputRefused(f"{path}, line {number}: no line of this program ({error!r})") from error
    return Output(path, done, failed)
