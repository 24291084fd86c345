"""Families at budgets in a study: the compressor of a point, shared work, the kinds of models, the figure."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fake_sweep import LIBRARY, TOKENIZER, FakeModel
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.combine import override
from experiments.config_file import config_path, load_config
from experiments.evidence import copied_evidence
from experiments.experiment import MODEL_FIELDS, Experiment
from experiments.figures_budgets import draw_budgets, find_families
from experiments.fitting import make_fitting
from experiments.groups import group_points
from experiments.methods import METHODS, SCORERS, kind_of
from experiments.results import read_results
from experiments.study import check_models
from experiments.sweep import main
from ragjax.compress.base import Compressed, Unit
from ragjax.compress.catalog import check_settings
from ragjax.data.records import Document, Example
from ragjax.testing import byte_tokenizer

PLACES = {"reader": "model.txt", "target": "model.txt", "compressor": "model.txt", "encoder": "other.txt"}
STUDY = """
from experiments.combine import chain, prod
from experiments.experiment import Experiment

BASE = Experiment(compressor="model.txt", target="model.txt", reader="model.txt", data="data.jsonl", batch=5)
POINTS = chain(
    prod(BASE, method=["no_context", "raw"]),
    prod(BASE, method=["prefix"], budget=[0.5, 0.25]),
    prod(BASE, method=["rerank"], budget=[0.5, 0.25], scorer=["bm25"]),
    prod(BASE, method=["rerank"], budget=[0.5, 0.25], scorer=["bi_encoder"], encoder=["other.txt"]),
    prod(BASE, method=["zero_shot"], budget=[3, 2]),
)
"""


class Named:
    """Stands for the compressor or scorer of a name; keeps the first words that a budget allows."""

    made: ClassVar[list] = []
    runs: ClassVar[list] = []

    def __init__(self, name, **settings):
        self.name, self.settings = name, settings
        Named.made.append(self)

    def compress_budgets(self, examples, budgets):
        Named.runs.append((self.name, len(examples), len(budgets)))
        return [[self.one(example, budget) for example in examples] for budget in budgets]

    def one(self, example, budget):
        words = " ".join(document.text for document in example.documents).split()
        requested = budget.resolve(len(words))
        kept = " ".join(words[:requested])
        status = "ok" if kept else "too_small"
        return Compressed((Unit(kept),) if kept else (), requested, requested, requested, len(words), status)


@pytest.fixture
def library():
    Named.made, Named.runs = [], []
    bytes_ = byte_tokenizer()
    models = {"model.txt": FakeModel("model.txt", "1", bytes_), "other.txt": FakeModel("other.txt", "2", bytes_)}

    def fitted(method, tokenizer, models, scorer, **settings):
        return Named(method, **settings)

    scorer = lambda kind, encoder, **settings: kind  # noqa: E731
    return replace(LIBRARY, fitted=fitted, scorer=scorer, load=lambda name, dtype: models[name])


@pytest.fixture
def results(workplace, library):
    (workplace / "study.py").write_text(STUDY)
    assert main(["study.py"], library) == 0
    return Path("results/study")


def test_budgets_share_one_run_and_each_has_its_length(results):
    assert Named.runs == [("prefix", 5, 2), ("rerank", 5, 2), ("rerank", 5, 2)]
    rows = [json.loads(line) for line in (results / "items.jsonl").read_text().splitlines()]
    lengths = {(row["point"], row["item"]): row["achieved"] for row in rows if row["point"].startswith("prefix")}
    points = {point for point, _ in lengths}
    assert points == {"prefix truncation budget 0.5", "prefix truncation budget 0.25"}
    for row in rows:
        if row["point"] in points:
            assert row["achieved"] == row["requested"] == int(float(row["point"].split()[-1]) * row["source_tokens"])
    written = {(row["point"], row["item"]): row for row in rows if row["point"].startswith("zero-shot")}
    told = {key: (row["text"], row["status"], row["requested"]) for key, row in written.items()}
    first = next(item for point, item in told if written[point, item]["text"] == "Ada")
    assert told["zero-shot summary budget 3", first] == ("Ada", "ok", 3)
    assert told["zero-shot summary budget 2", first] == ("", "too_small", 2)


def test_the_report_has_requested_beside_achieved_and_the_statuses(results, library, capsys):
    capsys.readouterr()
    assert main(["study.py"], library) == 0
    told = capsys.readouterr().out
    assert "Budget" in told
    assert "Achieved" in told
    summary = json.loads((results / "summary.json").read_text())["points"].values()
    found = {point["label"]: point["budget"] for point in summary}
    assert found["raw documents"]["requested"]["value"] is None
    assert 0.4 < found["prefix truncation budget 0.5"]["requested"]["value"] < 0.5
    assert "statuses: too_small" in told or "statuses: ok" in told


def test_each_method_that_copies_has_its_compressor():
    copying = [name for name, method in METHODS.items() if method.family == "budgets" and not method.decodes]
    models = {(name, "auto"): FakeModel(name, name, TOKENIZER) for name in ("m", "r", "e")}
    parts = SimpleNamespace(
        fitted=lambda method, tokenizer, models, scorer, **settings: (method, tokenizer, models, scorer, settings),
        scorer=lambda kind, encoder, **settings: (kind, encoder, settings),
    )
    made = {}
    for name in copying:
        for scorer in SCORERS:
            stated = {"compressor": "m", "reader": "r", "encoder": "e", "scorer": scorer, "most": 2, "near": 0.7}
            point = Experiment(method=name, **stated).canonical()
            made[name, point.scorer] = make_fitting(point, models, parts)
    assert all(of[1] is TOKENIZER for of in made.values())
    encoder = models["e", "auto"]
    assert made["extract", "bm25"] == ("extract", TOKENIZER, {}, ("bm25", None, {}), {"most": 2})
    assert made["rerank", "cross_encoder"][3:] == (("cross_encoder", encoder, {}), {"last": "cut"})
    assert made["rerank", "bi_encoder"][3] == ("bi_encoder", encoder, {"similarity": "cosine"})
    for name, similarity in (("sentence_bert", "cosine"), ("recomp_extractive", "dot")):
        method, *_, scored, settings = made[name, None]
        assert (method, scored, settings) == (
            "extract",
            ("bi_encoder", encoder, {"similarity": similarity}),
            {"most": 2},
        )
    assert made["ecr", "bm25"][4] == {"similarity": 0.7}
    assert made["llmlingua2", None][2:4] == ({"model": models["m", "auto"]}, None)
    assert made["longllmlingua", None][4] == {"dynamic_ratio": 0.3}
    assert made["random_sentences", None][4] == {"seed": 0}
    for method, _, _, _, settings in made.values():
        assert check_settings(method, settings) == settings


def test_models_are_asked_for_by_their_kinds():
    base = Experiment(compressor="m", reader="r", encoder="e")
    points = [
        replace(base, method="recomp_abstractive").canonical(),
        replace(base, method="llmlingua2").canonical(),
        replace(base, method="extract", scorer="bi_encoder").canonical(),
        replace(base, method="extract", scorer="bm25").canonical(),
    ]
    kinds = [
        {field: kind_of(vars(point), field) for field in MODEL_FIELDS if getattr(point, field)} for point in points
    ]
    assert [kind.get("compressor") for kind in kinds] == ["encoder-decoder", "encoder", None, None]
    assert [kind.get("encoder") for kind in kinds] == [None, None, "encoder", None]
    assert {kind["reader"] for kind in kinds} == {"causal"}
    asked = []
    check_models(points, asked.extend)
    assert set(asked) == {
        ("m", None, "encoder-decoder"),
        ("m", None, "encoder"),
        ("e", None, "encoder"),
        ("r", None, "causal"),
    }


def test_the_quickstart_runs_what_has_models_and_lists_the_rest():
    config = load_config(config_path("families_quickstart"))
    points = override(config.points, {})
    named = {getattr(point, field) for point in points for field in MODEL_FIELDS} - {None}
    assert named == {"smollm2-135m-instruct", "all-minilm-l6-v2"}
    assert {point.budget for point in points} == {None, 0.5, 0.25, 0.1, 0.05}
    every = {point.title for point in override(load_config(config_path("families")).points, {})}
    assert every == {point.title for point in points} | set(config.pending)
    for command in config.pending.values():
        method = command.split()[-1]
        assert method in METHODS, command


def test_points_of_one_method_alone(workplace, library, capsys):
    (workplace / "study.py").write_text(STUDY)
    assert main(["study.py", "--method", "rerank", "--dry-run"], library) == 0
    assert "4 points" in capsys.readouterr().out
    assert main(["study.py", "--method", "rernk"], library) == 2
    assert "this study has no method 'rernk'" in capsys.readouterr().err


def test_points_over_budgets_are_one_group():
    base = Experiment(compressor="m", target="m", reader="m")
    for method in ("extract", "favicomp", "compact"):
        points = [replace(base, method=method, budget=budget).canonical() for budget in (0.5, 0.25)]
        assert group_points(points) == [[0, 1]], method
    apart = [replace(base, method="xcompress", budget=budget).canonical() for budget in (0.5, 0.25)]
    assert group_points(apart) == [[0], [1]]


def test_quality_is_drawn_over_the_achieved_length(results):
    found = read_results(results)
    assert list(find_families(found)) == ["floor baselines", "reranking", "abstractive"]
    assert list(find_families(found)["reranking"]) == ["reranked passages (BM25)", "reranked passages (bi-encoder)"]
    figure = draw_budgets(found)
    FigureCanvasAgg(figure).draw()
    floor, reranking, abstractive = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["floor baselines", "reranking", "abstractive"]
    assert floor.get_ylabel() == "questions\nF1, 0 to 100"
    assert "achieved" in reranking.get_xlabel()
    prefix = [result for result in found if result.settings["method"] == "prefix"]
    drawn = next(line for line in floor.containers if line.get_label() == "prefix truncation")
    values = {100 * result.summary["budget"]["achieved"]["value"] for result in prefix}
    assert set(drawn.lines[0].get_xdata()) == values
    assert "zero-shot summary" in [text.get_text() for text in abstractive.get_legend().get_texts()]


def test_without_budgets_nothing_is_drawn(results):
    assert draw_budgets([one for one in read_results(results) if one.budget is None]) is None


def test_copied_units_are_shown_under_their_titles_and_written_texts_bare():
    documents = (Document("One. Two.", "T"), Document("Three."))
    example = Example("a", "q", documents=documents)
    copied = Compressed((Unit("Two.", ("0.1",), ((0, 5, 9),)),), None, 2, 4, 9, "ok")
    written = Compressed((Unit("A summary."),), None, 2, 2, 9, "ok")
    assert copied_evidence(example, copied, len).context == (Document("Two.", "T"),)
    assert copied_evidence(example, copied, len).columns["text"] == "Two."
    assert copied_evidence(example, written, len).context == "A summary."
    assert copied_evidence(example, replace(copied, units=()), len).context is None
