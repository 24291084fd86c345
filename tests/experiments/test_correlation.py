"""The table of a study of candidates, and the figures of candidates and ablations, from rows without a model."""

import csv
import json

import pytest
from candidate_rows import SETTINGS, candidate_row, summary_of, write_ablation, write_candidates, write_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from experiments.correlation import main, read_candidates, report_correlation
from experiments.figures import main as figures
from experiments.figures import to_compare
from experiments.figures_xcompress import draw_ablation, draw_correlation, list_panels
from experiments.results import Result, by_dataset, read_results
from ragjax.evals.correlation import correlate


def words_of(folder):
    """What the report prints, and whether it found rows."""
    console = Console(record=True, width=120)
    return report_correlation(folder, console), console.export_text()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Three questions of three candidates: one with equal texts, one without a gold, one with a failed row."""
    points = [(f"candidate draw {d}", {**SETTINGS, "draw": d}, summary_of()) for d in (0, 1, 2)]
    scores = [{"sps": 3.0, "ppl": None}, {"sps": 1.0, "ppl": None}, {"sps": 2.0, "ppl": 5.0}]
    rows = [(d, candidate_row("a", d, scores[d], em, em, text="same")) for d, em in enumerate((0, 1, 0))]
    rows += [(d, candidate_row("b", d, scores[d], None, None)) for d in range(3)]
    rows += [(d, candidate_row("c", d, scores[d], 1, 1)) for d in range(2)]
    failed = {"item": "c", "status": "failed: OSError", "notes": []}
    return write_run(tmp_path_factory.mktemp("small") / "run", points, [*rows, (2, failed)])


def test_the_files_hold_what_the_rows_give(small):
    found, words = words_of(small)
    assert found
    study = json.loads((small / "correlation.json").read_text())["studies"][0]
    scores = [[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [3.0, 1.0, None]]
    em = [[0, 1, 0], [None] * 3, [1, 1, None]]
    expected = correlate(scores, em, em)
    assert study["scorers"]["sps"]["auroc"]["value"] == expected.auroc.value
    assert [one["value"] for one in study["scorers"]["sps"]["bins"]["em"]] == [0.5, 0.5, 1.0]
    assert (study["questions"], study["candidates"], study["set"]) == (3, 3, None)
    assert study["rows"] == {"done": 8, "failed": 1}
    assert study["distinct"]["value"] == pytest.approx((1 + 3 + 2) / 3)
    assert study["scorers"]["ppl"]["left_out"] == {"no answer to compare with a gold": 1, "no candidate has a score": 1}
    assert "questions: candidate rows failed: 1" in words
    left = "candidates without this score: 1; questions left out (no answer to compare with a gold): 1"
    assert f"questions, SPS: {left}" in words
    assert "questions: 3 questions, on average 2.0 of 3 candidates distinct" in words


def test_the_sheet_has_one_line_a_number(small):
    words_of(small)
    with (small / "correlation.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * (8 + 2 * 3)
    (auroc,) = [line for line in lines if (line["scorer"], line["statistic"]) == ("sps", "auroc")]
    study = json.loads((small / "correlation.json").read_text())["studies"][0]
    assert float(auroc["value"]) == study["scorers"]["sps"]["auroc"]["value"]
    assert (auroc["quality"], auroc["n"], auroc["left_out"], auroc["published"]) == ("em", "2", "1", "")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return write_candidates(tmp_path_factory.mktemp("many") / "run", questions=20)


def test_published_numbers_stand_beside_ours_where_there_are_some(many, capsys):
    assert main([str(many)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "hotpotqa: 20 questions, on average 10.0 of 10 candidates distinct" in words
    assert "Published: xCompress, table 1, Llama-3.1-8B" in words
    assert "another model" in words
    assert "AUROC 0.553" in words  # SPS on HotpotQA
    first, second = json.loads((many / "correlation.json").read_text())["studies"]
    assert (first["dataset"], second["dataset"]) == ("hotpotqa", "nq")
    assert first["scorers"]["sps"]["published"] == {"pearson_em": 0.643, "pearson_f1": 0.753, "auroc": 0.553}
    assert second["scorers"]["sps_drop"]["published"] is None


def test_sets_that_differ_in_more_than_the_draw_are_kept_apart(tmp_path):
    points = [
        (f"candidate reader {name} draw {d}", {**SETTINGS, "reader": name, "draw": d}, summary_of())
        for name in "xy"
        for d in (0, 1)
    ]
    rows = [(p, candidate_row("a", p % 2, {"sps": float(p)}, p % 2, p % 2)) for p in range(4)]
    found = read_candidates(write_run(tmp_path / "run", points, rows))
    assert [one.label for one in found] == ["candidate reader x", "candidate reader y"]
    assert [one.column("candidate", "scores", "sps") for one in found] == [[[0.0, 1.0]], [[2.0, 3.0]]]


def test_what_holds_no_candidates_is_said(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no finished run: there is no manifest.json" in capsys.readouterr().err
    folder = write_ablation(tmp_path / "run")
    assert main([str(folder)]) == 2
    assert "has no rows of the method 'candidate'" in capsys.readouterr().err
    assert not (folder / "correlation.json").exists()


def test_the_figures_that_apply_are_drawn(many, tmp_path, capsys):
    ablation = write_ablation(tmp_path / "run", ("nq",))
    for folder, names in ((many, ["correlation.png"]), (ablation, ["hits.png", "ablation.png"])):
        assert figures([str(folder)]) == 0
        assert capsys.readouterr().out.split() == [str(folder / name) for name in names]
        assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_the_lines_are_the_means_of_the_ranks_and_say_their_r(many):
    report_correlation(many, Console(quiet=True))
    studies = json.loads((many / "correlation.json").read_text())["studies"]
    figure = draw_correlation(studies)
    assert [axis.get_title() for axis in figure.axes[:4]] == ["SPS", "SPS, no first token", "PPL", "LongPPL"]
    found, axis = studies[0]["scorers"]["sps"], figure.axes[0]
    em, _ = axis.get_lines()
    assert list(em.get_ydata()) == [100 * one["value"] for one in found["bins"]["em"]]
    r = found["pearson"]["em"]
    shown = axis.get_legend().get_texts()[0].get_text()
    assert shown == f"EM: r = {r['value']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"
    assert axis.get_xlabel() == "rank (10 = best score), n = 20"
    FigureCanvasAgg(figure).draw()
    boxes = [of.get_legend().get_window_extent() for of in figure.axes]
    assert not any(box.overlaps(of.get_window_extent()) for box in boxes for of in figure.axes)
    assert draw_correlation([]) is None


def test_each_varied_setting_has_a_panel(tmp_path):
    results = read_results(write_ablation(tmp_path / "run", ("nq",)))
    grid = list_panels(by_dataset(results)["nq"])
    values = {field: [one.settings[field] for one in of] for field, _, of in grid}
    assert values == {
        "pooling": ["max", "mean", "last"],
        "layer": [-4, -3, -2, -1],
        "first_token": ["keep", "drop", "bos"],
        "energy": [0.5, 0.8, 0.9, 0.95, 0.99],
        "candidates": [1, 2, 5, 10],
    }
    assert {held for _, held, _ in grid} == {""}
    figure = draw_ablation(results)
    em = figure.axes[1].get_lines()[0]
    assert list(em.get_ydata()) == [100 * one.summary["all"]["em"]["value"] for one in grid[1][2]]
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["-4", "-3", "-2", "-1"]
    assert figure.axes[1].get_xlabel() == "layer (index of hidden states), n = 60"
    assert to_compare(results) == results[:1]


def test_panels_of_one_setting_say_what_tells_them_apart():
    def point(**settings):
        quality = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 9}
        return Result({"method": "xcompress", **settings}, {"all": dict.fromkeys(("em", "f1", "acc"), quality)})

    two = [point(selector=name, candidates=n) for name in ("ppl", "sps") for n in (5, 1)]
    assert [(field, held) for field, held, _ in list_panels(two)] == [
        ("candidates", "selector ppl"),
        ("candidates", "selector sps"),
    ]
    layers = [point(layer=layer) for layer in (-2, -1, 0, 8)]
    assert [one.settings["layer"] for one in list_panels(layers)[0][2]] == [0, 8, -2, -1]
    assert list_panels([point(pooling="max", layer=-1), point(pooling="mean", layer=-2)]) == []
