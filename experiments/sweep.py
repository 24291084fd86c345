"""`python -m experiments.sweep NAME_OR_FILE`: run a study, print its table, leave its results in a folder.

The order is: the study's points, the data, the models' places, the results' folder, the models, the rows, the summary.
Whatever a user can get wrong is told in one line, with exit code 2, before a model is loaded. Exit code 1 means that
rows failed, 130 that the run was interrupted; the same command then goes on where it stopped.
"""

import argparse
import importlib.util
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from etils import epath
from rich.console import Console

from experiments.combine import label_points, override
from experiments.experiment import Experiment, check_field, nearest, parse_assignment
from experiments.show import show_texts
from experiments.study import Library, library, load_data, load_models, make_groups, model_names, settings_of
from experiments.summary import choose_references, summarize
from experiments.table import describe_counts, make_table
from ragjax.data.files import LoadedExamples
from ragjax.evals.parts import write_json
from ragjax.evals.run import Finished, MixedSettingsError, Point, check_folder, run
from ragjax.runtime import describe_programs, setup

PACKAGES = ("ragjax", "jax", "flax", "transformers", "numpy")


class InputError(Exception):
    """Something that the user can put right; the message says what."""


@dataclass(frozen=True)
class Study:
    """A study ready to run, no model loaded yet."""

    name: str
    points: list[Experiment]
    labels: list[str]
    folder: epath.Path


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sweep", description="Run a study and print its table.")
    parser.add_argument("study", metavar="NAME_OR_FILE", help="a study in experiments/configs, or a Python file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a field of every point")
    parser.add_argument("--data", metavar="FILE.jsonl", help="questions with documents, or the name of shipped ones")
    parser.add_argument("--top-k", metavar="K", help="documents used of each question")
    parser.add_argument("--limit", metavar="N", help="the first N questions only")
    parser.add_argument("--out", metavar="DIR", help="where results go (default results/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="list the points and stop")
    parser.add_argument("--force", action="store_true", help="start a new folder; an old one is renamed and kept")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N compressed texts, coloured by winner")
    return parser.parse_args(argv)


def config_path(name: str) -> Path:
    """Where a study's file lies: a path that ends in .py, or the name of a shipped one.

    Raises:
      FileNotFoundError: there is neither; names what is shipped.
    """
    folder = Path(str(resources.files("experiments"))) / "configs"
    path = Path(name) if name.endswith(".py") else folder / f"{name}.py"
    if path.is_file():
        return path
    shipped = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    raise FileNotFoundError(f"no study {name!r} (shipped: {', '.join(shipped)}{nearest(name, shipped)})")


def load_config(path: Path) -> list[Experiment]:
    """The list `POINTS` that a study's file builds.

    Raises:
      ValueError: the file sets a field that does not exist, or builds no such list.
    """
    spec = importlib.util.spec_from_file_location(f"study_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except TypeError as error:
        unknown = re.search(r"Experiment.*unexpected keyword argument '(\w+)'", str(error))
        if unknown is None:
            raise
        check_field(unknown[1])
    points = getattr(module, "POINTS", None)
    if not isinstance(points, list) or not points or not all(isinstance(point, Experiment) for point in points):
        raise ValueError(f"{path} builds no list POINTS of experiments")
    return points


def overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields set on the command line; the options with a name of their own come last."""
    named = {name: getattr(arguments, name) for name in ("data", "top_k", "limit", "out")}
    texts = [*arguments.set, *(f"{name}={value}" for name, value in named.items() if value is not None)]
    return dict(map(parse_assignment, texts))


def prepare(arguments: argparse.Namespace) -> Study:
    """The study that the command line asks for.

    Raises:
      ValueError, FileNotFoundError: about the study, a field or a value.
    """
    path = config_path(arguments.study)
    points = override(load_config(path), overrides(arguments))
    folders = {point.out or f"results/{path.stem}" for point in points}
    if len(folders) > 1:
        raise ValueError(f"the points of a study share one folder, got {', '.join(sorted(folders))}")
    return Study(path.stem, points, label_points(points), epath.Path(folders.pop()))


def list_points(study: Study, console: Console) -> None:
    """Print each point with the fields it reads."""
    for label, point in zip(study.labels, study.points, strict=True):
        fields = [f"{name}={value}" for name, value in vars(point).items() if value is not None]
        console.print(f"{label}: {' '.join(fields)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(study.points)} points, results in {study.folder}", markup=False, soft_wrap=True)


def set_aside(folder: epath.Path) -> epath.Path | None:
    """Rename a folder of old results, if there is one, and give its new name."""
    if not folder.exists():
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (folder.parent / f"{folder.name}.{stamp}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 100))))
    kept = next(path for path in names if not path.exists())
    return folder.rename(kept)


def check_inputs(study: Study, parts: Library, force: bool) -> dict[str, LoadedExamples]:
    """The data, once it is known that data, models and folder are as the study needs them.

    Raises:
      ValueError, OSError: about a data file, a model's place, or a folder that holds rows made with other settings.
    """
    data = load_data(study.points)
    for name, _ in model_names(study.points):
        parts.resolve(name)
    if not force:
        settings = [settings_of(point, data, None) for point in study.points]
        check_folder(study.folder, [Point(label, of) for label, of in zip(study.labels, settings, strict=True)])
    return data


def execution_settings(study: Study, data: Mapping[str, LoadedExamples], models: Mapping[Any, Any]) -> dict[str, Any]:
    """What is recorded with the rows and defines none of them."""
    return {
        "study": study.name,
        "limit": sorted({point.limit for point in study.points}, key=str),
        "data": {name: {"path": str(loaded.path), "counts": dict(loaded.counts)} for name, loaded in data.items()},
        "models": {f"{name} {dtype}": model.fingerprint for (name, dtype), model in models.items()},
        "versions": {name: version_of(name) for name in PACKAGES},
    }


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def make_rows(study: Study, arguments: argparse.Namespace, parts: Library, console: Console) -> Finished:
    """Check, load and run.

    Raises:
      InputError: what the user gave cannot be run.
    """
    try:
        data = check_inputs(study, parts, arguments.force)
        if arguments.force and (kept := set_aside(study.folder)):
            console.print(f"the old results are kept in {kept}", soft_wrap=True)
        models = load_models(study.points, parts.load)
        groups = make_groups(study.points, study.labels, data, models, parts)
        check_folder(study.folder, [point for group in groups for point in group.points])
    except MixedSettingsError as error:
        raise InputError(f"{error}. --force starts a new folder and keeps this one; --out names another") from error
    except (ValueError, OSError) as error:
        raise InputError(str(error)) from error
    return run(study.folder, groups, execution_settings(study, data, models))


def report(study: Study, finished: Finished, show: int, console: Console) -> None:
    """Write the summary, print it, and say where everything lies."""
    hashes = {row["point"]: row["settings"] for row in finished.rows}
    against = choose_references(study.points)
    references = {hashes[label]: hashes[study.labels[i]] for label, i in zip(study.labels, against, strict=True)}
    summary = summarize(finished.rows, finished.timings, references)
    write_json(study.folder / "summary.json", summary)
    if show:
        show_texts(finished.rows, show, console)
    in_order = {hashes[label]: summary["points"][hashes[label]] for label in study.labels}
    console.print(make_table({"points": in_order}, study.name))
    lines = describe_counts(summary)
    if finished.damaged:
        lines.append(f"parts that were not whole, made again: {', '.join(finished.damaged)}")
    if finished.outside:
        lines.append(f"rows in the folder beyond this limit, not shown: {finished.outside}")
    if len({point.target for point in study.points}) > 1:
        lines.append("perplexities of several models may count different tokens: compare bits per byte (summary.json)")
    lines += [f"programs: {describe_programs()}", f"results in {study.folder}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def sweep(arguments: argparse.Namespace, parts: Library | None, console: Console) -> int:
    """Run the command; the exit code."""
    try:
        study = prepare(arguments)
    except (ValueError, OSError) as error:
        raise InputError(str(error)) from error
    if arguments.dry_run:
        list_points(study, console)
        return 0
    setup()
    finished = make_rows(study, arguments, parts or library(), console)
    report(study, finished, arguments.show, console)
    return 1 if finished.failed else 0


def main(argv: Sequence[str] | None = None, parts: Library | None = None) -> int:
    """The program. `parts` stands in for the library's models in tests."""
    argv = sys.argv[1:] if argv is None else list(argv)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    try:
        return sweep(parse_arguments(argv), parts, console)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = shlex.join(["python", "-m", "experiments.sweep", *(word for word in argv if word != "--force")])
        print(f"\nstopped; the finished rows are kept. To go on: {again}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
