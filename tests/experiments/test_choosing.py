"""xCompress in a study: points share their candidates, rows say how a text was chosen, and the report adds it up."""

import json
from pathlib import Path

import pytest
from fake_sweep import LIBRARY, FakeCompressor

from experiments.combine import override
from experiments.config_file import config_path, load_config
from experiments.experiment import Experiment
from experiments.groups import group_points, make_scorers
from experiments.sweep import main

MODEL = "compressor='model.txt', reader='model.txt', data='data.jsonl', batch=5"
STUDY = f"""
from experiments.combine import chain, prod
from experiments.experiment import Experiment

BASE = Experiment({MODEL}, method="xcompress", candidates=4)
POINTS = chain(
    prod(BASE, selector=["sps", "first"]),
    prod(BASE, candidates=[2]),
    prod(BASE, method=["candidate"], draw=[0, 3]),
    prod(BASE, writer=["compact"]),
)
"""


@pytest.fixture
def rows(workplace):
    (workplace / "study.py").write_text(STUDY)
    FakeCompressor.built.clear()
    assert main(["study.py"], LIBRARY) == 0
    items = [json.loads(line) for line in Path("results/study/items.jsonl").read_text().splitlines()]
    return {
        label: [row for row in items if row["point"] == label] for label in dict.fromkeys(row["point"] for row in items)
    }


def test_points_share_one_draw_and_look_at_its_first_candidates(rows):
    writer, compact = FakeCompressor.built
    assert [call[1] for call in writer.calls] == [[0.0], 4]
    assert [call[1] for call in compact.calls] == [[0.5], 4]
    chosen = {label: of for label, of in rows.items() if label.startswith("xCompress")}
    assert len(chosen) == 4
    for label, of in chosen.items():
        for row in of:
            choice = row["choice"]
            assert choice["candidates"] == len(choice["scores"]) == (2 if "candidates 2" in label else 4)
            assert choice["distinct"] == (1 if "candidates 2" in label else 2)
            assert choice["skipped"] is choice["rho"] is choice["subspace"] is choice["threshold"] is None
            assert choice["first_token"] == (None if choice["selector"] == "first" else "keep")
    by_label = {label: of[0]["choice"]["chosen"] for label, of in chosen.items()}
    assert sorted(by_label.values()) == [0, 0, 3, 3]


def test_a_fixed_candidate_carries_every_score(rows):
    fixed = {label: of for label, of in rows.items() if label.startswith("candidate")}
    assert [of[0]["candidate"]["draw"] for of in fixed.values()] == [0, 3]
    for of in fixed.values():
        scores = of[0]["candidate"]["scores"]
        assert set(scores) == {"ppl", "longppl", "sps", "sps_drop"}
        assert scores["sps"] == -len(of[0]["text"].split())
        assert of[0]["generated_tokens"] == len(of[0]["traces"][0]["tokens"]) + of[0]["reading"]["generated_tokens"]


def test_each_fixed_candidate_is_scored_by_its_own_points_settings():
    base = Experiment(method="candidate", compressor="m", reader="m", candidates=2)
    changes = [{}, {"draw": 1}, {"pooling": "mean"}, {"first_token": "drop"}, {"long_window": 8}]
    points = [Experiment(**{**vars(base), **fields}).canonical() for fields in changes]
    assert group_points(points) == [[0, 1, 2, 3, 4]]
    made = make_scorers(dict(enumerate(points)), None, LIBRARY)
    assert made[0] == made[1]
    assert [made[p]["sps"].settings["pooling"] for p in (0, 2)] == ["max", "mean"]
    assert made[3]["sps"] is made[0]["sps_drop"] is made[3]["sps_drop"]
    assert [made[p]["longppl"].settings["window"] for p in (0, 4)] == [32, 8]
    assert len({id(of["ppl"]) for of in made.values()}) == 1


def test_beams_of_another_number_are_another_search():
    base = Experiment(method="xcompress", compressor="m", reader="m")
    for sampler, groups in (("samples", 1), ("beams", 2)):
        points = [
            Experiment(**{**vars(base), "sampler": sampler, "candidates": n, "selector": kind}).canonical()
            for n in (3, 5)
            for kind in ("sps", "ppl")
        ]
        assert len(group_points(points)) == groups


def test_a_point_that_shows_one_candidate_is_charged_for_that_one(rows):
    timings = [json.loads(line) for line in Path("results/study/timings.jsonl").read_text().splitlines()]
    fixed = [label for label in rows if label.startswith("candidate")]
    for label in fixed:
        (drawing,) = [one for one in timings if one["point"] == label and one["stage"] == "draw"]
        assert drawing["tokens"] == sum(len(row["traces"][0]["tokens"]) for row in rows[label])


def test_the_report_says_what_was_drawn_and_what_it_took(workplace, capsys):
    (workplace / "study.py").write_text(STUDY)
    assert main(["study.py"], LIBRARY) == 0
    printed = capsys.readouterr().out
    assert "sampling skipped for 0% of 5 questions; 2.0 of 4 candidates distinct" in printed
    assert "; first token: keep; seconds a question: " in printed
    assert all(stage in printed for stage in ("seconds a question: select", "write", "draw", "select", "read"))
    summary = json.loads(Path("results/study/summary.json").read_text())
    points = {point["label"]: point for point in summary["points"].values()}
    assert sum(point["choices"] is not None for point in points.values()) == 4
    speeds = {label: point["speed"]["seconds_per_question_by_stage"] for label, point in points.items()}
    for label, stages in speeds.items():
        assert set(stages) == ({"select", "write", "draw", "read"} if "xC" in label else {"draw", "measure", "read"})


def test_a_filter_is_never_calibrated_on_the_questions_of_the_run(workplace, capsys):
    (workplace / "study.py").write_text(
        f"from experiments.experiment import Experiment\n"
        f"POINTS = [Experiment({MODEL}, method='xcompress', filter='calibrated', calibration=2, limit=4)]\n"
    )
    assert main(["study.py"], LIBRARY) == 2
    assert "calibrated on the last 2 of 5 questions, and limit is 4: set limit to at most 3" in capsys.readouterr().err
    lines = Path("data.jsonl").read_text().splitlines(keepends=True)
    Path("data.jsonl").write_text("".join([*lines, lines[0]]))
    assert main(["study.py"], LIBRARY) == 2
    assert "2 of the first 4 questions, 'a' for one, are also among the last 2" in capsys.readouterr().err


def test_what_a_selector_or_a_writer_does_not_read_defines_no_row():
    base = Experiment(method="xcompress", compressor="m", reader="m")
    same = [{"selector": "ppl", "energy": 0.5}, {"selector": "ppl", "pooling": "mean"}, {"selector": "ppl"}]
    assert len({Experiment(**{**vars(base), **fields}).canonical() for fields in same}) == 1
    told = [
        {"energy": 0.5},
        {"pooling": "mean"},
        {"layer": 3},
        {"first_token": "bos"},
        {"candidates": 3},
        {"share": 0.2},
    ]
    assert len({Experiment(**{**vars(base), **fields}).canonical() for fields in told}) == 6
    with pytest.raises(ValueError, match="draw is 5; the 5 candidates are counted from 0"):
        Experiment(method="candidate", draw=5)
    with pytest.raises(ValueError, match="needs target"):
        Experiment(**{**vars(base), "writer": "favicomp"}).canonical()


@pytest.mark.parametrize(
    ("name", "points", "groups"),
    [
        ("xcompress_quickstart", 10, 3),
        ("xcompress_table1", 50, 5),
        ("xcompress_table2_llama", 25, 15),
        ("xcompress_table2_qwen", 25, 15),
        ("xcompress_table2_gemma", 25, 15),
        ("xcompress_table3", 15, 5),
        ("xcompress_ablations", 38, 2),
    ],
)
def test_the_published_studies_build_and_share_their_drawing(name, points, groups):
    built = override(load_config(config_path(name)).points, {})
    assert (len(built), len(group_points(built))) == (points, groups)
