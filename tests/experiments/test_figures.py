"""Figures from a finished run: which are drawn, from which numbers, and what is said where nothing can be."""

import json
from dataclasses import replace

import pytest
from fake_sweep import LIBRARY
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.figures import by_dataset, draw_alphas, draw_hits, main, over_alpha, read_results
from experiments.sweep import main as sweep

STUDY = """
from experiments.combine import chain, prod
from experiments.experiment import Experiment

BASE = Experiment(compressor="model.txt", target="model.txt", reader="model.txt", data="data.jsonl", batch=5)
POINTS = chain(prod(BASE, method=["raw", "concat"]), prod(BASE, alpha=[1.0, 0.0, 0.3, 0.7]))
"""


def legend_of(figure):
    """The words of a figure's one legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.fixture
def results(workplace):
    (workplace / "study.py").write_text(STUDY)
    assert sweep(["study.py"], LIBRARY) == 0
    return workplace / "results" / "study"


def test_both_figures_are_written_beside_the_results(results, capsys):
    capsys.readouterr()
    assert main([str(results)]) == 0
    assert capsys.readouterr().out.split() == [str(results / name) for name in ("alphas.png", "hits.png")]
    for name in ("alphas.png", "hits.png"):
        assert (results / name).read_bytes().startswith(b"\x89PNG")


def test_the_lines_are_the_summarys_numbers(results):
    found = read_results(results)
    swept = over_alpha(found)
    assert [result.alpha for result in swept] == [0.0, 0.3, 0.7, 1.0]
    assert list(by_dataset(found)) == ["questions"]
    quality, perplexity = draw_alphas(found).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in quality.get_lines()}
    assert lines["Acc"] == [100 * result.summary["all"]["acc"]["value"] for result in swept]
    assert set(lines) == {"Acc", "F1"}
    (line,) = perplexity.get_lines()
    assert list(line.get_xdata()) == [0.0, 0.3, 0.7, 1.0]
    assert quality.get_ylabel() == "quality, 0 to 100"
    figure = draw_hits(found)
    assert legend_of(figure) == ["Hits 0", "Hits 1"]
    counts = [swept[0].summary[f"hits_{side}"]["acc"]["n"] for side in (0, 1)]
    assert figure.axes[0].get_title() == "questions\nHits 0: n = {}, Hits 1: n = {}".format(*counts)


def test_without_a_sweep_the_methods_stand_side_by_side(results):
    few = [result for result in read_results(results) if result.alpha in (None, 0.3)]
    assert draw_alphas(few) is None
    figure = draw_hits(few)
    (axis,) = figure.axes
    assert legend_of(figure) == ["raw documents", "concatenation", "FaviComp"]
    heights = [bar.get_height() for bar in axis.patches[2:4]]
    assert heights[1] == 100 * few[1].summary["hits_1"]["acc"]["value"]


def test_the_two_ends_and_one_weight_are_methods_beside_the_others(results):
    table = [result for result in read_results(results) if result.alpha in (None, 0.0, 0.3, 1.0)]
    assert len(draw_alphas(table).axes) == 2
    assert len(legend_of(draw_hits(table))) == len(table) == 5


def test_two_weights_alone_are_no_sweep(results):
    two = [result for result in read_results(results) if result.alpha in (0.3, 0.7)]
    assert draw_alphas(two) is None
    assert len(draw_hits(two).axes[0].patches) == 2 * 2


def test_a_method_keeps_its_colour_where_a_dataset_lacks_another(results):
    first = [result for result in read_results(results) if result.alpha in (None, 0.3)]
    second = [replace(result, settings={**result.settings, "dataset": "nq"}) for result in first[1:]]
    axes = draw_hits([*first, *second]).axes
    colours = [{bars.get_label(): bars.patches[0].get_facecolor() for bars in axis.containers[1::2]} for axis in axes]
    assert [len(found) for found in colours] == [3, 2]
    assert colours[1].items() <= colours[0].items()


@pytest.mark.parametrize("draw", [draw_alphas, draw_hits])
def test_a_legend_covers_no_panel_and_the_intervals_are_named(results, draw):
    figure = draw(read_results(results))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert not any(legend.get_window_extent().overlaps(axis.get_window_extent()) for axis in figure.axes)
    assert "95 % bootstrap intervals over questions" in figure.get_supxlabel()
    assert all(axis.get_ylabel() for axis in figure.axes)


def test_what_cannot_be_drawn_is_said(results, capsys, tmp_path):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "holds no finished run: there is no manifest.json" in capsys.readouterr().err
    manifest = json.loads((results / "manifest.json").read_text())
    manifest["points"][-1]["settings"]["alpha"] = 0.3
    (results / "manifest.json").write_text(json.dumps(manifest))
    assert main([str(results)]) == 2
    assert "several points at one alpha" in capsys.readouterr().err
