"""`python -m ragjax.compress --method extract --budget 0.25 --generator NAME < questions.jsonl`: for pipelines.

Questions with their documents come in as JSON Lines, in any layout of `ragjax.data`, and leave as JSON Lines in the
same order, each with its status, as soon as their batch is done. `--out FILE` writes to a file instead, and goes on
where an earlier run stopped. Exit code 1 means that rows failed, 2 that something is to be put right, 130 that the
run was interrupted.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from ragjax.compress.base import Budget, Compressor, describe
from ragjax.compress.catalog import (
    FAMILIES,
    SCORERS,
    check_scorer_settings,
    check_settings,
    make_compressor,
    make_scorer,
)
from ragjax.compress.resume import Output, open_output
from ragjax.compress.stream import BadRow, compress_stream, encode_line, has_failed, read_stream
from ragjax.data.identity import json_hash
from ragjax.data.records import DataError, Example
from ragjax.hub import default_dtype, load, load_vocabulary
from ragjax.memory import check_models
from ragjax.runtime import setup

PROGRAM = "python -m ragjax.compress"
OF_SCORER = "scorer."
"""What the names of a scorer's settings begin with."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Compress the documents of questions, line by line.")
    parser.add_argument("--method", required=True, choices=FAMILIES, metavar="NAME", help=", ".join(FAMILIES))
    parser.add_argument(
        "--generator", required=True, metavar="MODEL", help="whose tokens are counted: it reads the result"
    )
    parser.add_argument("--budget", metavar="B", help="a fraction of the documents (0.25) or a number of tokens (200)")
    parser.add_argument("--model", metavar="MODEL", help="the model that compresses (default: the generator)")
    parser.add_argument("--scorer", choices=SCORERS, default="bm25", help="what scores passages and sentences")
    parser.add_argument(
        "--encoder", metavar="MODEL", help="the model of a bi_encoder or cross_encoder, and of recomp_extractive"
    )
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help=f"other settings of the method (most=2), and of its scorer ({OF_SCORER}k1=1.2)",
    )
    parser.add_argument("--data", metavar="FILE", help="the questions (default: standard input)")
    parser.add_argument("--out", metavar="FILE", help="write there, and go on where it ends (default: standard output)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="questions that are compressed together")
    parser.add_argument(
        "--lenient", action="store_true", help="write a status for lines that cannot be read, and go on"
    )
    return parser.parse_args(argv)


def parse_budget(text: str | None) -> Budget | None:
    """A typed budget: a whole number counts tokens, any other number is a fraction. Raises ValueError."""
    if text is None:
        return None
    try:
        return Budget(tokens=int(text)) if text.isdigit() else Budget(fraction=float(text))
    except ValueError as error:
        raise ValueError(f"--budget {text}: {error}") from None


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Settings from "key=value"; a value that is JSON (a number, true, null) is taken as such, any other as text."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"--set takes key=value, got {text!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def named_models(arguments: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """The models that are to be loaded, each a name and a kind, by role. Raises ValueError where one is not named."""
    method, family = arguments.method, FAMILIES[arguments.method]
    own = {
        "model": (arguments.model or arguments.generator, family.kind),
        "target": (arguments.generator, "causal"),
        "encoder": (arguments.encoder, "encoder"),
    }
    roles = set(family.models.values()) | ({"encoder"} if family.scored and arguments.scorer != "bm25" else set())
    if "model" in roles and arguments.model is None and family.kind != "causal":
        raise ValueError(f"{method} needs --model, an {family.kind} model's name or folder")
    if "model" not in roles and arguments.model is not None:
        raise ValueError(f"{method} has no model of its own: leave out --model")
    if not family.scored and arguments.scorer != "bm25":
        raise ValueError(f"{method} takes no scorer: leave out --scorer")
    if "encoder" in roles and arguments.encoder is None:
        by = f"--scorer {arguments.scorer}" if family.scored else method
        raise ValueError(f"{by} needs --encoder, a model's name or folder")
    if "encoder" not in roles and arguments.encoder is not None:
        wanted = "its --scorer is bm25" if family.scored else f"{method} scores nothing with it"
        raise ValueError(f"--encoder {arguments.encoder} is of no use: {wanted}")
    return {role: own[role] for role in ("model", "target", "encoder") if role in roles}


def split_settings(arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the method and those of its scorer. Raises ValueError, naming one that there is not."""
    settings = parse_settings(arguments.set)
    of_scorer = {name.removeprefix(OF_SCORER): settings.pop(name) for name in [*settings] if name.startswith(OF_SCORER)}
    if of_scorer and not FAMILIES[arguments.method].scored:
        raise ValueError(f"{arguments.method} takes no scorer: leave out {OF_SCORER}{next(iter(of_scorer))}")
    return check_settings(arguments.method, settings), check_scorer_settings(arguments.scorer, of_scorer)


def build(
    arguments: argparse.Namespace, settings: Mapping[str, Any], of_scorer: Mapping[str, Any], tokenizer: Any
) -> Compressor:
    """The compressor that the command line asks for; models are loaded once all of them are known to be there."""
    named = named_models(arguments)
    check_models([(name, None, kind) for name, kind in named.values()])
    models = {role: load(name) for role, (name, _) in named.items()}
    scored = FAMILIES[arguments.method].scored
    scorer = make_scorer(arguments.scorer, models.get("encoder"), **of_scorer) if scored else None
    return make_compressor(arguments.method, tokenizer, models, scorer, **settings)


def read_input(source: BinaryIO, name: str, lenient: bool) -> Iterable[Example | BadRow]:
    """The rows of a source; where it can be read twice, a line that cannot be used is told before any model loads."""
    if source.seekable():
        start = source.tell()
        for _ in read_stream(source, name, lenient=lenient):
            pass
        source.seek(start)
    return read_stream(source, name, lenient=lenient)


def run(arguments: argparse.Namespace, source: BinaryIO, sink: BinaryIO) -> int:
    """The command; its exit code."""
    if arguments.batch < 1:
        raise ValueError(f"--batch counts questions and is at least 1, got {arguments.batch}")
    budget, (settings, of_scorer) = parse_budget(arguments.budget), split_settings(arguments)
    named_models(arguments)
    rows = read_input(source, arguments.data or "standard input", arguments.lenient)
    setup()
    tokenizer = load_vocabulary(arguments.generator).tokenizer
    compressor = build(arguments, settings, of_scorer, tokenizer)
    output, failed = None, 0
    with ExitStack() as stack:
        if arguments.out is not None:
            counted = {"generator": json_hash(tokenizer.get_vocab()), "dtype": default_dtype().name}
            defining = {**describe(compressor), "budget": arguments.budget, **counted}
            output = stack.enter_context(open_output(Path(arguments.out), defining))
            rows, failed = output.rest(rows), output.failed
        bar = stack.enter_context(tqdm(unit="row", file=sys.stderr, disable=not sys.stderr.isatty()))
        for lines in compress_stream(compressor, rows, budget, arguments.batch):
            write(lines, output, sink)
            failed += sum(map(has_failed, lines))
            bar.update(len(lines))
    if failed:
        print(f"{failed} rows failed: see their status", file=sys.stderr)
    return 1 if failed else 0


def write(lines: Sequence[Mapping[str, Any]], output: Output | None, sink: BinaryIO) -> None:
    """Write the lines of a batch."""
    if output is not None:
        output.append(lines)
        return
    sink.write(b"".join(map(encode_line, lines)))
    sink.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    arguments = parse_arguments(argv)
    try:
        with ExitStack() as stack:
            source = stack.enter_context(open(arguments.data, "rb")) if arguments.data else sys.stdin.buffer
            return run(arguments, source, sys.stdout.buffer)
    except BrokenPipeError:
        # Whoever reads the output has enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DataError, ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        hint = f"; the same command goes on with {arguments.out}" if arguments.out else ""
        print(f"\nstopped{hint}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
