"""The published studies: every shipped config builds, with the paper's models, splits and numbers beside ours."""

import io
import json
from pathlib import Path

import pytest
from fake_sweep import LIBRARY
from rich.console import Console

import experiments.configs
from experiments.combine import label_points, override
from experiments.config_file import config_path, load_config
from experiments.experiment import MODEL_FIELDS
from experiments.published import FIGURE_3, SPLITS, TABLE_1_LLAMA, TABLE_1_MIXTRAL, TABLE_7, Published, row_of
from experiments.sweep import main
from experiments.table import label_published, make_published_table
from ragjax.data.catalog import find_split

CONFIGS = sorted(
    path.stem for path in Path(experiments.configs.__path__[0]).glob("*.py") if path.stem.startswith("favicomp")
)
POINTS = {
    "favicomp_alphas": 35,
    "favicomp_case_study": 3,
    "favicomp_hits": 9,
    "favicomp_hits_alphas": 21,
    "favicomp_table1_llama": 53,
    "favicomp_table1_mixtral": 53,
    "favicomp_table2": 20,
    "favicomp_table3": 25,
    "favicomp_table7": 4,
    "favicomp_table8_llama": 10,
    "favicomp_table8_mistral": 53,
}


def test_every_study_of_the_paper_has_a_config():
    assert list(POINTS) == CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_builds_distinct_points_of_the_paper(name):
    config = load_config(config_path(name))
    points = override(config.points, {})
    assert len(points) == len(set(label_points(points))) == POINTS[name]
    assert all(point.shots == 5 and point.reader_temperature == 1.0 and point.top_k == 5 for point in points)
    assert all(point.normalizer == "squad" and point.reader_max_new == 32 for point in points)
    own = ("compact", "recomp_abstractive")
    assert {point.max_new for point in points if point.method not in own} <= {128, None}
    rows = {(row_of(point), point.dataset) for point in points}
    published = {(row, dataset) for row, values in config.published.rows.items() for dataset in values}
    assert published <= rows
    assert rows <= published or config.published.findings  # A figure states no numbers.
    assert {row for row, _ in rows} == set(config.published.rows)
    used = {getattr(point, field) for point in points for field in MODEL_FIELDS} - {None}
    assert used == set(config.published.models)


@pytest.mark.parametrize("name", ["quickstart", "families", "families_quickstart", *CONFIGS])
def test_every_shipped_config_lists_its_points(name, capsys):
    assert main([name, "--dry-run"], LIBRARY) == 0
    printed = capsys.readouterr().out.splitlines()
    config = load_config(config_path(name))
    points = override(config.points, {})
    assert [line.split(":")[0] for line in printed[: len(points)]] == label_points(points)
    listed = [line for line in printed if line.startswith("rows: ")]
    assert listed == [f"rows: {', '.join(dict.fromkeys(map(row_of, points)))}"]
    waiting = [line for line in printed if line.startswith("not run: ")]
    assert waiting == [f"not run: {row} ({words})" for row, words in config.pending.items()]


def test_the_splits_have_the_sizes_of_table_6():
    sizes = [find_split(dataset, split)[1].questions for dataset, split in SPLITS.items()]
    assert sizes == [3610, 11313, 7405, 12576, 4834]


def test_some_published_numbers():
    assert TABLE_1_LLAMA.rows["FaviComp"]["2wikimultihopqa"] == (29.6, 35.2)
    assert TABLE_1_MIXTRAL.rows["CompAct"]["nq"] == (44.1, 43.4)
    assert "nq" not in TABLE_1_LLAMA.rows["gold documents"]
    assert TABLE_7.rows["FaviComp"]["nq"] == (6.43, 42.8, 46.8)


def test_ours_stands_above_the_published_numbers():
    rows = {"raw documents": {"nq": (40.0, 1.87)}, "CompAct": {"nq": (1, 2)}}
    points = load_config(config_path("favicomp_table1_llama")).points
    raw = next(point for point in points if point.method == "raw" and point.dataset == "nq")
    measured = {"all": {"acc": {"value": 0.256}, "compression_rate": {"value": None}}}
    console = Console(width=80, file=io.StringIO())
    console.print(make_published_table([(raw, measured)], Published("A table", ("acc", "rate"), rows)))
    shown = [line.strip("│ ").split("│") for line in console.file.getvalue().splitlines() if "│" in line]
    assert [cell[-1].strip() for cell in shown] == ["25.6 / -", "40 / 1.87", "- / -", "1 / 2"]


def test_a_run_prints_both(workplace, capsys):
    Path("study.py").write_text(
        "from experiments.experiment import Experiment\nfrom experiments.published import TABLE_2\n"
        "MODELS = dict.fromkeys(('compressor', 'target', 'reader'), 'model.txt')\n"
        "POINTS = [Experiment(**MODELS, dataset='nq', data='data.jsonl')]\n"
        "PUBLISHED = TABLE_2\n"
    )
    assert main(["study.py"], LIBRARY) == 0
    printed = capsys.readouterr().out
    assert "FaviComp, table 2: F1; ours above, below it published, other models/hardware" in printed
    assert "46.8" in printed
    assert json.loads(Path("results/study/summary.json").read_text())["points"]


@pytest.mark.parametrize(
    ("figure", "stated"),
    [("FIGURE_2", "39.4 / 43.2 / -"), ("FIGURE_3", "- / -"), ("FIGURE_4", "- / -")],
)
def test_a_figures_findings_stand_beside_ours(workplace, capsys, figure, stated):
    Path("study.py").write_text(
        "from experiments.combine import prod\nfrom experiments.experiment import Experiment\n"
        f"from experiments.published import {figure}\n"
        "MODELS = dict.fromkeys(('compressor', 'target', 'reader'), 'model.txt')\n"
        "POINTS = prod(Experiment(**MODELS, dataset='nq', data='data.jsonl'), alpha=[0.0, 0.3, 0.5])\n"
        f"PUBLISHED = {figure}\n"
    )
    assert main(["study.py", "--dataset", "nq"], LIBRARY) == 0
    printed = capsys.readouterr().out
    published = load_config(Path("study.py")).published
    assert f"{published.source}: " in printed
    for finding in published.findings:
        assert f"published, other models/hardware: {finding}" in printed
    table = printed[printed.index(published.source) :]
    assert f" {stated} " in table
    summary = json.loads(Path("results/study/summary.json").read_text())["points"].values()
    zero_shot = next(point for point in summary if point["label"].startswith("zero-shot"))
    parts = ("hits_0", "hits_1") if "hits" in published.metrics[0] else ("all",)
    for part in parts:
        value = zero_shot[part]["acc"]["value"]
        assert ("-" if value is None else f"{100 * value:.1f}") in table


def test_the_label_says_what_differs():
    points = override(load_config(config_path("favicomp_hits")).points, {})
    assert label_published(points, FIGURE_3) == "published, other hardware"
    others = override(points, {"target": "somebody/else"})
    assert label_published(others, FIGURE_3) == "published, other models/hardware"
