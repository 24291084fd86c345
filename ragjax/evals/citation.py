"""`python -m ragjax.evals.citation FILE`: citation precision and recall of answers in ALCE's output format.

FILE is `{"data": [...]}`, a JSON array or JSON Lines. A row has a `question`, the `output` of a system, and `docs`,
the documents it was shown: `[1]` cites the first. A document is read as ALCE's script reads it, its title, then its
`sent` where there is one, else its `text`. It declares all its sentences, so that the grounded scores differ from the
generated ones by the titles alone.

The table goes to the screen, everything to FILE.score.json, which is never overwritten. Exit code 1 means that fewer
than a tenth of the answers cite anything, 2 that something is to be put right.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from operator import add
from typing import Any

from etils import epath
from rich.console import Console
from rich.table import Table

from ragjax.cite.averages import Averages, average
from ragjax.cite.entailment import Judge
from ragjax.cite.judges import LEXICAL, MODES, make_judge
from ragjax.cite.records import Cited, Scored, Tally, View
from ragjax.cite.scoring import score
from ragjax.compress.base import Unit, as_document
from ragjax.data.identity import with_ids
from ragjax.data.nested import id_of
from ragjax.data.qa import FIELDS, as_list, question_of
from ragjax.data.records import DataError, Document, Example
from ragjax.data.rows import Row, iter_rows
from ragjax.evals.parts import write_json
from ragjax.retrieve.sentences import split_sentences
from ragjax.runtime import setup

PROGRAM = "python -m ragjax.evals.citation"
FEW = 0.1
"""The share of answers that cite below which a run has failed."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Score the citations of answers in ALCE's format.")
    parser.add_argument("file", metavar="FILE", help="rows with question, output and docs")
    parser.add_argument(
        "--judge",
        default=LEXICAL,
        metavar="NAME",
        help="lexical (default: word overlap, no entailment model), or an entailment model's name or folder",
    )
    parser.add_argument(
        "--mode", choices=("strict", "alce"), default="strict", help="alce counts as ALCE's script does"
    )
    parser.add_argument("--tau", type=float, default=0.5, metavar="P", help="probability that is entailment (0.5)")
    parser.add_argument("--premises", choices=tuple(MODES), help="how a classifier reads premises beyond its reach")
    parser.add_argument("--label", type=int, metavar="N", help="a classifier's label that is entailment")
    parser.add_argument("--dtype", metavar="NAME", help="of the judge's weights")
    parser.add_argument("--batch", type=int, metavar="N", help="pairs that are read at a time")
    parser.add_argument("--memory", metavar="FOLDER", help="keep judgements there, for runs to come")
    parser.add_argument("--language", default="en", metavar="CODE", help="of the answers' abbreviations (en)")
    return parser.parse_args(argv)


def read_answers(path: str, language: str = "en") -> list[Cited]:
    """The answers of a file in ALCE's output format.

    Raises:
      DataError: for a row that cannot be read, naming file, line and field, and for a file without rows.
      FileNotFoundError: where there is no file.
    """
    examples, outputs = [], []
    for row in iter_rows(epath.Path(path).read_bytes(), path):
        try:
            example, output = _read_row(row)
        except DataError as error:
            raise DataError(f"{path}, {row.place}: {error}") from None
        examples.append(example)
        outputs.append(output)
    if not examples:
        raise DataError(f"{path}: there are no rows")
    return [_cited(one, output, language) for one, output in zip(with_ids(examples), outputs, strict=True)]


def _read_row(row: Row) -> tuple[Example, str]:
    if row.value is None:
        raise DataError(row.problem)
    value = row.value
    for field in ("question", "output", "docs"):
        if field not in value:
            raise DataError(f"no field {field}; found {', '.join(sorted(value)) or 'none'}")
    if not isinstance(value["output"], str):
        raise DataError(f"the field output is a text, got {value['output']!r:.80}")
    named = next((name for name in FIELDS["id"] if value.get(name) not in (None, "")), None)
    documents = tuple(_read_document(item, n) for n, item in enumerate(as_list(value["docs"], "docs"), 1))
    id = (id_of(value[named], f"the field {named}") or "") if named else ""
    return Example(id, question_of(value["question"]), documents=documents), value["output"]


def _read_document(value: Any, number: int) -> Document:
    """A document as its reader saw it; one without a text keeps its number."""
    if isinstance(value, Mapping) and value.get("sent"):
        value = {**value, "text": value["sent"]}
    try:
        return as_document(value)
    except DataError as error:
        raise DataError(f"the field docs, document {number}: {error}") from None


def _cited(example: Example, output: str, language: str) -> Cited:
    sids: list[list[str]] = [[] for _ in example.documents]
    for sentence in split_sentences(example.documents, language):
        sids[sentence.document].append(sentence.sid)
    units = tuple(Unit(_shown(d), tuple(own)) for d, own in zip(example.documents, sids, strict=True))
    return Cited(example.id, example.question, output, units, example.documents, language)


def _shown(document: Document) -> str:
    return f"Title: {document.title}\n{document.text}" if document.title else document.text


def describe_scores(scored: Sequence[Scored], judge: Judge, arguments: argparse.Namespace) -> dict[str, Any]:
    """What is written: the settings that define the numbers, the means, and each answer."""
    return {
        "file": arguments.file,
        "judge": judge.name,
        "judge_settings": judge.describe(),
        "tau": arguments.tau,
        "mode": arguments.mode,
        "language": arguments.language,
        "means": asdict(average(scored)),
        "asked": asdict(reduce(add, (one.asked for one in scored), Tally())),
        "answers": list(map(_describe_answer, scored)),
    }


def _describe_answer(one: Scored) -> dict[str, Any]:
    statements = [
        {**asdict(statement), **{name: part for name, part in _parts(one, number)}}
        for number, statement in enumerate(one.answer.statements)
    ]
    views = {name: {"precision": view.precision, "recall": view.recall} for name, view in _views(one)}
    return {"id": one.id, **views, "statements": statements}


def _views(one: Scored) -> tuple[tuple[str, View], ...]:
    return ("generated", one.generated), ("grounded", one.grounded)


def _parts(one: Scored, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, view in _views(one):
        found = view.statements[number]
        yield name, {"recalled": found.recalled, "precise": list(found.precise)}


def make_table(means: Averages) -> Table:
    """Means over answers, from 0 to 100; a dash where there is no answer."""
    table = Table("Citations against", "Precision", "Recall")
    for name, view in (("what was shown", means.generated), ("the sources alone", means.grounded)):
        table.add_row(name, *((_percent(view.precision), _percent(view.recall)) if view else "--"))
    return table


def describe_run(means: Averages, judge: Judge, arguments: argparse.Namespace) -> str:
    """The lines over the table: who judged, how it was counted, and what there was to count."""
    alce = arguments.mode == "alce"
    counted = "counted as ALCE does, sentences by this library" if alce else "strict counts"
    empties = "left out" if alce else "with scores of 0"
    return (
        f"{arguments.file}: {means.n} answers, {counted}; judge: {judge.name}, tau {arguments.tau:g}\n"
        f"{means.statements} statements, {means.citations} valid citations, {means.invalid} invalid; {means.empties} "
        f"answers without a statement ({empties}); {_percent(means.share_citing)} % of answers cite"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def run(arguments: argparse.Namespace) -> int:
    """The command; its exit code."""
    answers = read_answers(arguments.file, arguments.language)
    target = epath.Path(f"{arguments.file}.score.json")
    if target.exists():
        raise FileExistsError(f"{target} is there already: move it away to score again")
    if not 0 <= arguments.tau <= 1:
        raise ValueError(f"--tau is a probability, got {arguments.tau}")
    setup()
    judge = make_judge(
        arguments.judge,
        mode=arguments.premises,
        label=arguments.label,
        dtype=arguments.dtype,
        batch=arguments.batch,
        folder=arguments.memory,
    )
    scored = score(answers, judge, tau=arguments.tau, mode=arguments.mode)
    write_json(target, describe_scores(scored, judge, arguments))
    means = average(scored)
    print(describe_run(means, judge, arguments))
    Console().print(make_table(means))
    citing = means.share_citing or 0.0
    if citing < FEW:
        print(f"error: {_percent(citing)} % of the answers cite anything: nothing was measured", file=sys.stderr)
    return int(citing < FEW)


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    try:
        return run(parse_arguments(argv))
    except (DataError, ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
