"""`python -m experiments.report RESULTS`: the page, the figures and the table of a study of citations, in its folder.

`report.html` needs no network and no other file; `frontier-DATASET-NUMBER.png` are its figures, `frontier.csv` has all
numbers, and `report.json` says which files are the report's. A report of the same run is replaced; a file of one of
these names that is not the report's is never touched.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence

from etils import epath

from experiments.figures_frontier import Drawn, draw_frontier, render
from experiments.report_data import VIEWS, FrontierStudy, read_study
from experiments.report_page import make_csv, make_page
from ragjax.evals.parts import write_json, write_whole

RECORD = "report.json"
DRAWN = (*VIEWS, "laundering", "verification_recovered_unsupported")
"""What is drawn of every dataset, beside its answer quality."""

INSPECT = 50
NAMES = re.compile(r"report\.html|frontier\.csv|frontier-[a-z0-9-]+\.png")


def write_report(folder: str | os.PathLike, inspect: int = INSPECT) -> list[epath.Path]:
    """Write the report of a finished study into its folder, `inspect` questions in the inspector; the files written.

    Raises:
      FileNotFoundError: the folder holds no finished study.
      ValueError: its files are not those of a study of citations.
      FileExistsError: a file of the report's name is not a report of this run.
      ModuleNotFoundError: matplotlib is missing.
    """
    folder = epath.Path(folder)
    study = read_study(folder, inspect)
    figures = draw_figures(study)
    files = {
        "report.html": make_page(study, figures, inspect).encode("utf-8", "xmlcharrefreplace"),
        "frontier.csv": make_csv(study.points),
        **{name_file(*place): drawn.whole for place, drawn in figures.items()},
    }
    replace_files(folder, study.run, files)
    return [folder / name for name in files]


def draw_figures(study: FrontierStudy) -> dict[tuple[str, str], Drawn]:
    """The figures by dataset and number; none of a number that no point has a place for."""
    wanted = [(name, key) for name in study.datasets for key in (*DRAWN, *study.quality(name))]
    drawn = {place: draw_frontier(study.of(place[0]), place[1]) for place in wanted}
    return {place: render(figure) for place, figure in drawn.items() if figure is not None}


def name_file(dataset: str, key: str) -> str:
    """The file of a figure."""
    return f"frontier-{re.sub(r'[^a-z0-9]+', '-', f'{dataset}-{key}'.lower()).strip('-')}.png"


def replace_files(folder: epath.Path, run: str, files: Mapping[str, bytes]) -> None:
    """Write the files, and remove those of this run's older report that are no more.

    Raises:
      FileExistsError: a file is there that no report of this run wrote.
    """
    own = recorded(folder, run)
    for name in files:
        if name not in own and (folder / name).exists():
            raise FileExistsError(f"{folder / name} is not a report of this run: move it away")
    # The record comes first: a killed report can be written again.
    write_json(folder / RECORD, {"run": run, "files": sorted({*own, *files})})
    for name, content in files.items():
        write_whole(folder / name, content)
    for name in own - files.keys():
        (folder / name).unlink(missing_ok=True)
    write_json(folder / RECORD, {"run": run, "files": sorted(files)})


def recorded(folder: epath.Path, run: str) -> Collection[str]:
    """The files of this run's older report. Raises FileExistsError where the record is of something else."""
    path = folder / RECORD
    if not path.exists():
        return frozenset()
    try:
        found = json.loads(path.read_bytes())
        names = frozenset(map(str, found["files"])) if found["run"] == run else None
    except (ValueError, KeyError, TypeError):
        names = None
    if names is None:
        raise FileExistsError(f"{path} is not the record of a report of this run: move it away")
    return frozenset(filter(NAMES.fullmatch, names))


def main(argv: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report", description="Write the report of a study of citations."
    )
    parser.add_argument("results", help="a folder of results")
    told = f"questions that the page's inspector holds (default {INSPECT})"
    parser.add_argument("--inspect", type=int, default=INSPECT, metavar="N", help=told)
    arguments = parser.parse_args(argv)
    if arguments.inspect < 0:
        parser.error("--inspect: a number of questions, 0 or more")
    try:
        written = write_report(arguments.results, arguments.inspect)
    except ModuleNotFoundError as error:
        print(f"error: {error}; figures need the extra: pip install ragjax[plots]", file=sys.stderr)
        return 2
    except (FileNotFoundError, FileExistsError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
