"""`python -m experiments.sweep NAME_OR_FILE`: run a study, print its table, leave its results in a folder.

The order is: the study's points, the models' places, the data, the results' folder, the tokenizers, the models, the
rows, the summary. What a user can get wrong is told in one line, with exit code 2, before a model's weights are read.
Exit code 1 means that rows failed, 130 that the run was interrupted; the same command then goes on where it stopped.
"""

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

from etils import epath
from rich.console import Console

from experiments.combine import label_points, override
from experiments.config_file import Config, config_path, load_config
from experiments.correlation import report_correlation
from experiments.experiment import Experiment, nearest, parse_assignment
from experiments.frontier import choose_pairs, few_citations, summarize_frontier
from experiments.frontier_table import describe_frontier, make_frontier_table
from experiments.groups import make_groups
from experiments.pipeline import rules_of
from experiments.presets import settle
from experiments.results import read_summary
from experiments.show import show_texts
from experiments.sources import write_sources
from experiments.study import (
    Library,
    Source,
    check_hub,
    check_models,
    check_vocabularies,
    library,
    load_data,
    load_models,
    model_names,
    settings_of,
    source_of,
)
from experiments.summary import choose_references, summarize
from experiments.table import (
    describe_choices,
    describe_counts,
    describe_data,
    describe_findings,
    describe_pending,
    describe_statuses,
    make_published_table,
    make_table,
)
from ragjax.data.files import LoadedExamples
from ragjax.data.sources import HUB
from ragjax.evals.parts import write_json
from ragjax.evals.run import Finished, MixedSettingsError, Point, Row, check_folder, run
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
    config: Config

    @property
    def cites(self) -> bool:
        """Whether its answers cite their evidence."""
        return self.points[0].task == "cite"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.sweep", description="Run a study and print its table.")
    parser.add_argument("study", metavar="NAME_OR_FILE", help="a study in experiments/configs, or a Python file")
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="set fields of every point"
    )
    parser.add_argument("--dataset", metavar="NAME", help="a public dataset; of a study over several, that one alone")
    parser.add_argument("--method", metavar="NAME", help="the points of one method alone")
    parser.add_argument("--split", metavar="SPLIT", help="its split, as config/split or split (default: validation)")
    parser.add_argument("--data", metavar="FILE", help='questions with documents, the name of shipped ones, or "hub"')
    parser.add_argument("--top-k", metavar="K", help="documents used of each question")
    parser.add_argument("--limit", metavar="N", help="the first N questions only")
    parser.add_argument("--lenient", action="store_true", help="leave out rows that cannot be read, and list them")
    parser.add_argument("--out", metavar="DIR", help="where results go (default results/NAME)")
    parser.add_argument("--dry-run", action="store_true", help="list the points and stop")
    parser.add_argument("--force", action="store_true", help="start a new folder; an old one is renamed and kept")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N compressed texts, coloured by winner")
    return parser.parse_args(argv)


def overrides(arguments: argparse.Namespace, selected: bool) -> dict[str, Any]:
    """The fields set on the command line; the options with a name of their own come last.

    A dataset that is named without data is the hub's. `selected`: its points were chosen, and nothing is to be set.
    """
    named = {name: getattr(arguments, name) for name in ("dataset", "split", "data", "top_k", "limit", "out")}
    if selected:
        del named["dataset"]
    elif named["dataset"] is not None and named["data"] is None:
        named["data"] = HUB
    named["lenient"] = "true" if arguments.lenient else None
    texts = [*arguments.set, *(f"{name}={value}" for name, value in named.items() if value is not None)]
    assigned = [parse_assignment(text) for text in texts]
    twice = [name for name, times in Counter(name for name, _ in assigned).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]} is set twice")
    return dict(assigned)


def choose_points(points: list[Experiment], dataset: str | None) -> tuple[list[Experiment], bool]:
    """The points of one dataset, where the study names datasets and the user one of them; and whether it is so.

    Raises:
      ValueError: the study has no point of that dataset.
    """
    there = dict.fromkeys(point.dataset for point in points if point.dataset is not None)
    if dataset is None or not there:
        return points, False
    if dataset not in there:
        raise ValueError(f"this study has no dataset {dataset!r}; it has {', '.join(there)}{nearest(dataset, there)}")
    return [point for point in points if point.dataset == dataset], True


def of_method(points: list[Experiment], method: str | None) -> list[Experiment]:
    """The points of one method, or all. Raises ValueError where the study has none of it."""
    there = dict.fromkeys(point.method for point in points)
    if method is not None and method not in there:
        raise ValueError(f"this study has no method {method!r}; it has {', '.join(there)}{nearest(method, there)}")
    return [point for point in points if method in (None, point.method)]


def prepare(arguments: argparse.Namespace) -> Study:
    """The study that the command line asks for.

    Raises:
      ValueError, FileNotFoundError: about the study, a field or a value.
    """
    path = config_path(arguments.study)
    config = load_config(path)
    chosen, selected = choose_points(of_method(config.points, arguments.method), arguments.dataset)
    points = override(chosen, overrides(arguments, selected))
    folders = {point.out or f"results/{path.stem}" for point in points}
    if len({point.task for point in points}) > 1:
        raise ValueError("the points of a study have one task: answer or cite")
    if len(folders) > 1:
        raise ValueError(f"the points of a study share one folder, got {', '.join(sorted(folders))}")
    return Study(path.stem, points, label_points(points), epath.Path(folders.pop()), config)


def list_points(study: Study, console: Console) -> None:
    """Print each point with the fields it reads."""
    for label, point in zip(study.labels, study.points, strict=True):
        fields = [f"{name}={value}" for name, value in vars(point).items() if value is not None]
        console.print(f"{label}: {' '.join(fields)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(study.points)} points, results in {study.folder}", markup=False, soft_wrap=True)
    rows = ", ".join(dict.fromkeys(map(study.config.row, study.points)))
    console.print(f"rows: {rows}", markup=False, highlight=False, soft_wrap=True)
    for line in describe_pending(study.config.pending):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def set_aside(folder: epath.Path) -> epath.Path | None:
    """Rename a folder of old results, if there is one, and give its new name."""
    if not folder.exists():
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (folder.parent / f"{folder.name}.{stamp}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 100))))
    kept = next(path for path in names if not path.exists())
    return folder.rename(kept)


def settle_presets(study: Study) -> Study:
    """The study with values in the place of its presets. Raises as `presets.settle` does."""
    points = settle(study.points)
    return replace(study, points=points, labels=label_points(points))


def check_inputs(study: Study, data: Mapping[Source, LoadedExamples], parts: Library, force: bool) -> None:
    """See that rules, folder and models are as the study needs them.

    Raises:
      ValueError, OSError: about a dataset without rules, a folder that holds rows made with other settings, or a
        model's place.
    """
    for point in study.points:
        for example in data[source_of(point)].examples:
            rules_of(point, example)
    if not force:
        settings = [settings_of(point, data, None) for point in study.points]
        check_folder(
            study.folder, [Point(label, of) for label, of in zip(study.labels, settings, strict=True)], twins=True
        )
    for name, _ in model_names(study.points):
        parts.resolve(name)


def execution_settings(
    study: Study, data: Mapping[Source, LoadedExamples], models: Mapping[Any, Any]
) -> dict[str, Any]:
    """What is recorded with the rows and defines none of them."""
    return {
        "study": study.name,
        "limit": sorted({point.limit for point in study.points}, key=str),
        "lenient": sorted({point.lenient for point in study.points}),
        "data": [describe_source(loaded) for loaded in data.values()],
        "models": {
            f"{name} {dtype}": {
                "fingerprint": model.fingerprint,
                "tokenizer": model.tokenizer_class,
                "stop_ids": list(getattr(model, "stop_ids", ())),
            }
            for (name, dtype), model in models.items()
        },
        "versions": {name: version_of(name) for name in PACKAGES},
    }


def describe_source(loaded: LoadedExamples) -> dict[str, Any]:
    """Where questions came from, for the record; the summary lists the skipped rows that are counted here."""
    named = {name: getattr(loaded, name) for name in ("path", "dataset", "split")}
    lists = {name: list(getattr(loaded, name)) for name in ("layouts", "warnings")}
    return {**named, **lists, "counts": dict(loaded.counts)}


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def make_rows(
    study: Study, arguments: argparse.Namespace, parts: Library, console: Console
) -> tuple[Study, dict[Source, LoadedExamples], Finished]:
    """Check, load and run: the study with its presets settled, its data, and what came of it.

    Raises:
      InputError: what the user gave cannot be run.
    """
    try:
        check_hub(study.points)
        check_models(study.points, parts.check)
        data = load_data(study.points)
        study = settle_presets(study)
        check_inputs(study, data, parts, arguments.force)
        check_vocabularies(study.points, parts.vocabulary)
        for loaded in data.values():
            console.print(*describe_data(loaded), sep="\n", markup=False, highlight=False, soft_wrap=True)
        if arguments.force and (kept := set_aside(study.folder)):
            console.print(f"the old results are kept in {kept}", soft_wrap=True)
        models = load_models(study.points, parts.load)
        groups = make_groups(study.points, study.labels, data, models, parts)
        check_folder(study.folder, [point for group in groups for point in group.points])
    except MixedSettingsError as error:
        raise InputError(f"{error}. --force starts a new folder and keeps this one; --out names another") from error
    except (ValueError, OSError, ImportError) as error:
        raise InputError(str(error)) from error
    return study, data, run(study.folder, groups, execution_settings(study, data, models))


def report(
    study: Study, data: Mapping[Source, LoadedExamples], finished: Finished, show: int, console: Console
) -> None:
    """Write the summary, print it, and say where everything lies."""
    hashes = {row["point"]: row["settings"] for row in finished.rows}
    summary = summarize_study(study, finished, hashes)
    if study.cites:
        write_sources(study.folder, dict(zip(study.labels, study.points, strict=True)), data, finished.rows)
    summary["skipped_rows"] = [asdict(row) for loaded in data.values() for row in loaded.skipped]
    write_json(study.folder / "summary.json", summary)
    if show:
        show_texts(finished.rows, show, console)
    in_order = {hashes[label]: summary["points"][hashes[label]] for label in study.labels}
    if study.cites:
        for name, of in by_sample(study, in_order).items():
            console.print(make_frontier_table({"points": of}, f"{study.name}, {name}"))
    else:
        console.print(make_table({"points": in_order}, study.name))
    if study.config.published is not None:
        measured = [
            (point, summary["points"][hashes[label]]) for point, label in zip(study.points, study.labels, strict=True)
        ]
        console.print(make_published_table(measured, study.config.published, study.config.row))
        for line in describe_findings(study.points, study.config.published):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    report_correlation(study.folder, console)
    lines = [line for loaded in data.values() for line in describe_data(loaded)]
    lines += [*describe_statuses(summary), *describe_pending(study.config.pending), *describe_frontier(summary)]
    lines += [*describe_counts(summary), *describe_choices(summary)]
    if finished.damaged:
        lines.append(f"parts that were not whole, made again: {', '.join(finished.damaged)}")
    if finished.outside:
        lines.append(f"rows in the folder beyond this limit, not shown: {finished.outside}")
    if len({point.target for point in study.points} - {None}) > 1:
        lines.append("perplexities of several models may count different tokens: compare bits per byte (summary.json)")
    lines += [f"programs: {describe_programs()}", f"results in {study.folder}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def by_sample(study: Study, summaries: Mapping[str, Row]) -> dict[str, dict[str, Row]]:
    """The summaries of the points over each data set, by its name; they are in the points' order."""
    found: dict[str, dict[str, Row]] = {}
    for point, (hash_, summary) in zip(study.points, summaries.items(), strict=True):
        found.setdefault(point.dataset or point.data, {})[hash_] = summary
    return found


def summarize_study(study: Study, finished: Finished, hashes: Mapping[str, str]) -> Row:
    """The summary of a run by its task; `hashes` are those of the points by label."""
    own = [hashes[label] for label in study.labels]
    if study.cites:
        pairs = [(own[a], own[b]) for a, b in choose_pairs(study.points)]
        return summarize_frontier(finished.rows, finished.timings, pairs)
    references = {own[n]: own[i] for n, i in enumerate(choose_references(study.points))}
    return summarize(finished.rows, finished.timings, references)


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
    study, data, finished = make_rows(study, arguments, parts or library(), console)
    report(study, data, finished, arguments.show, console)
    few = study.cites and few_citations(read_summary(study.folder))
    return 1 if finished.failed or few else 0


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
