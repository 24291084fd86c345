"""Part files: the rows of one batch, written whole or not at all.

A part is UTF-8 JSON lines: a header, one line a row, and a closing line with the number of rows and the hash of
everything before it. It is written under a temporary name and renamed (on gs://, where an object appears whole or not
at all, it is put once), and never changed afterwards. So a part either proves itself whole or counts as absent: a
file cut anywhere, a temporary left by a killed run, or damaged bytes cost the rows of that part and nothing else.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etils import epath

FORMAT = 1


@dataclass(frozen=True)
class Part:
    """A whole part: its file's name, its header and its rows."""

    name: str
    header: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]


def digest(value: Any) -> str:
    """16 hexadecimal digits that depend on the value of any JSON value, and not on the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def encode_line(value: Mapping[str, Any]) -> bytes:
    """One JSON line in UTF-8. A text that UTF-8 cannot hold (a lone surrogate) is escaped.

    Raises:
      ValueError: a number is not finite, which JSON cannot hold.
    """
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return line.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode() + b"\n"


def decode_lines(content: bytes) -> list[dict[str, Any]]:
    """The JSON values of a file's lines. Only a line feed ends a line: texts may hold other separators."""
    return [json.loads(line) for line in content.split(b"\n") if line]


def write_whole(path: epath.Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, replacing an older one."""
    if str(path).startswith("gs://"):
        path.write_bytes(content)
        return
    temporary = path.parent / f"{path.name}.{os.getpid()}.tmp"  # Two processes must not share one.
    temporary.write_bytes(content)
    temporary.replace(path)


def remove_orphans(folder: epath.Path) -> None:
    """Remove the temporary files that killed processes left; those of processes alive on this machine stay."""
    for path in folder.glob("*.tmp"):
        owner = path.name.split(".")[-2]
        if not (owner.isdigit() and Path("/proc", owner).exists()):
            path.unlink(missing_ok=True)


def write_lines(path: epath.Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines as one whole file."""
    write_whole(path, b"".join(map(encode_line, values)))


def write_json(path: epath.Path, value: Mapping[str, Any]) -> None:
    """Write one JSON value, indented for people, as one whole file."""
    write_whole(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2).encode() + b"\n")


def write_part(path: epath.Path, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one part: header, rows, closing line."""
    body = b"".join(map(encode_line, [{"format": FORMAT, **header}, *rows]))
    closing = {"rows": len(rows), "sha256": hashlib.sha256(body).hexdigest()}
    write_whole(path, body + encode_line(closing))


def read_part(path: epath.Path) -> Part | None:
    """The part in a file; None if the file is not whole."""
    body, separator, closing = path.read_bytes().rstrip(b"\n").rpartition(b"\n")
    body += separator
    try:
        end = json.loads(closing)
        if end["sha256"] != hashlib.sha256(body).hexdigest():
            return None
        header, *rows = decode_lines(body)
    except (ValueError, KeyError, TypeError):
        return None
    return Part(path.name, header, tuple(rows)) if end["rows"] == len(rows) else None


def read_parts(folder: epath.Path) -> tuple[list[Part], list[str]]:
    """The whole parts of a folder in the order of their names, and the names of the files that are not whole.

    Raises:
      ValueError: a part was written in a format that this version does not know.
    """
    paths = sorted(folder.glob("*.jsonl")) if folder.exists() else []
    read = [(path.name, read_part(path)) for path in paths]
    for name, part in read:
        if part is not None and part.header["format"] != FORMAT:
            raise ValueError(f"{folder / name} has format {part.header['format']}, this version reads {FORMAT}")
    return [part for _, part in read if part is not None], [name for name, part in read if part is None]
