"""Studies of citations: rows, summary, pairs, exit code, and that report and sensitivity read what a run has left."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_sweep import LIBRARY, FakeModel

from experiments.citing import Answered, CitingPipeline
from experiments.combine import override
from experiments.config_file import config_path, load_config
from experiments.evidence import Evidence
from experiments.experiment import MODEL_FIELDS, Experiment
from experiments.frontier import choose_pairs, compare, measure_cited, verification
from experiments.report import write_report
from experiments.sensitivity import as_cited
from experiments.sensitivity import main as sensitivity
from experiments.sources import as_source
from experiments.study import models_of
from experiments.sweep import main
from ragjax.cite.entailment import Judged
from ragjax.cite.verifying import CHECKS
from ragjax.compress.base import Compressed, Unit
from ragjax.compress.prompts import number_documents
from ragjax.data.records import Document, Example
from ragjax.evals.quality import answer_quality
from ragjax.evals.reader import Reading
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer

ROWS = [
    {
        "sample_id": "a",
        "question": "Which ALPHA?",
        "qa_pairs": [{"question": "Which one?", "short_answers": ["BETA"]}],
        "docs": [{"title": "T", "text": "The ALPHA is BETA. A GAMMA."}, {"title": "U", "text": "A DELTA."}],
    },
    {
        "sample_id": "b",
        "question": "Which DELTA?",
        "qa_pairs": [{"question": "Which one?", "short_answers": ["none"]}],
        "docs": [{"title": "T", "text": "The DELTA is old."}],
    },
]
STUDY = """
from experiments.combine import chain, prod
from experiments.experiment import Experiment

BASE = Experiment(
    task="cite", compressor="model.txt", target="model.txt", reader="model.txt", data="asqa.jsonl", batch=5
)
POINTS = chain(
    prod(BASE, method=["raw"]),
    prod(BASE, method=["extract", "ecr"], budget=[0.5], scorer=["bm25"]),
    prod(BASE, method=["zero_shot"], max_new=[64]),
)
"""


class Keywords:
    """Entailed where all upper-case words of the hypothesis occur in the premise."""

    name = "keywords"

    def describe(self):
        return {"name": self.name}

    def probabilities(self, pairs):
        words = [[set(re.findall(r"\b[A-Z]{2,}\b", text)) for text in pair] for pair in pairs]
        values = [float(claim <= premise) for premise, claim in words]
        counts = [len(" ".join(pair).split()) for pair in pairs]
        return Judged(np.array(values), np.array(counts), np.zeros(len(pairs), int))


class Citer:
    """Says the first two units after each other and cites each; what "MUTE" is in the environment cites nothing."""

    cites = True

    def __init__(self, lm, role="read", **settings):
        self.lm, self.role = lm, role

    def read(self, questions, contexts, *, ids, score):
        assert not score
        return [self.one(context) for context in contexts]

    def one(self, context):
        texts = [document.text.rstrip(".") for document in context or ()][:2]
        marks = [f" [{n}]" if self.cites and self.role == "cite" else "" for n in (1, 2)]
        text = " ".join(f"{text}{mark}." for text, mark in zip(texts, marks, strict=False))
        tokens = len(number_documents(context or ()).split())
        return Reading(text, text, "stop", 9 + tokens, tokens, len(text.split()), None)


class Copy:
    """The first sentence of each document, declared."""

    def __init__(self, **settings):
        self.settings = settings

    def compress_budgets(self, examples, budgets):
        return [[self.one(example) for example in examples] for _ in budgets]

    def one(self, example):
        ends = [document.text.index(".") + 1 for document in example.documents]
        units = tuple(
            Unit(document.text[:end], (f"{n}.0",), ((n, 0, end),))
            for n, (document, end) in enumerate(zip(example.documents, ends, strict=True))
        )
        return Compressed(units, 20, 9, 12, 40, "ok")


@pytest.fixture
def library(workplace):
    (workplace / "asqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (workplace / "study.py").write_text(STUDY)
    model = FakeModel("model.txt", "1", byte_tokenizer())
    return replace(
        LIBRARY,
        load=lambda name, dtype: model,
        reader=Citer,
        fitted=lambda method, tokenizer, models, scorer, **settings: Copy(**settings),
        scorer=lambda kind, encoder: SimpleNamespace(kind=kind),
        judge=lambda name, **settings: Keywords(),
        quality=answer_quality,
    )


@pytest.fixture
def results(library):
    assert main(["study.py"], library) == 0
    return Path("results/study")


def rows_of(results, point):
    rows = [json.loads(line) for line in (results / "items.jsonl").read_text().splitlines()]
    return {row["id"]: row for row in rows if row["point"].startswith(point)}


def test_a_row_has_units_statements_and_every_verdict(results):
    row = rows_of(results, "extracted")["a"]
    assert [unit["sources"] for unit in row["units"]] == [["0.0"], ["1.0"]]
    assert row["answer"]["text"] == "The ALPHA is BETA [1]. A DELTA [2]."
    first, second = row["answer"]["statements"]
    assert (first["text"], first["cited"], first["invalid"]) == ("The ALPHA is BETA.", [0], [])
    assert first["generated"] == first["grounded"] == {"recalled": True, "precise": [0]}
    assert second["verified"] == {"summary": True, "span": True, "recovered": True}
    assert row["citation"]["generated"] == row["citation"]["grounded"] == {"precision": 1.0, "recall": 1.0}
    assert (row["citation"]["judge"], row["citation"]["cites"], row["citation"]["undeclared"]) == ("keywords", True, 0)
    assert row["quality"]["str_em"] == 1.0
    assert row["citation"]["verification"]["span"]["verifier_tokens"] > 0


def test_a_text_that_declares_nothing_is_structurally_refused_and_may_be_recovered(results):
    row = rows_of(results, "zero-shot")["a"]
    assert [unit["sources"] for unit in row["units"]] == [None]
    (statement,) = row["answer"]["statements"]
    assert statement["structural"]
    assert not statement["verified"]["span"]
    assert row["citation"]["undeclared"] == 1
    assert row["citation"]["verification"]["span"]["structural"] == 1
    assert row["citation"]["sources"] == {"0": ["0.0", "0.1", "1.0"]}  # "The", without a keyword, is entailed by all.


def test_F13_rows_and_summary_tell_what_defines_the_judge(results):
    row = rows_of(results, "extracted")["a"]
    assert row["citation"]["judge_settings"] == {"name": "keywords"}
    summary = json.loads((results / "summary.json").read_text())
    assert summary["judge_settings"] == [{"name": "keywords", "tau": 0.5}]


def test_F13_another_judge_is_refused_a_folder_that_has_rows(results, library, capsys):
    before = (results / "items.jsonl").read_bytes()
    assert main(["study.py", "--set", "judge=model.txt"], library) == 2
    assert "judge was 'lexical' and is now '1'" in capsys.readouterr().err
    assert main(["study.py", "--set", "tau=0.7"], library) == 2
    assert "tau was 0.5 and is now 0.7" in capsys.readouterr().err
    assert (results / "items.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("method", "units", "declared"),
    [
        ("zero_shot", (), None),
        ("longllmlingua", (), None),
        ("extract", (), []),
        ("raw", (), []),
        ("zero_shot", (Unit("x"),), None),
        ("extract", (Unit("x", ("0.1",)), Unit("y", ("0.0", "0.1"))), ["0.0", "0.1"]),
    ],
)
def test_no_units_declare_nothing_only_where_the_method_declares(method, units, declared):
    answered = answered_with("No.", units, method=method)
    (heard,), _ = columns_of(answered)
    assert heard[1] == declared


def answered_with(text, units, dropped=0, **settings):
    """A reader's text on one document, shown some units of which it lost the last `dropped`."""
    named = {"method": "extract", "scorer": "bm25", "compressor": "c", **settings}
    point = Experiment(task="cite", reader="r", **named).canonical()
    example = Example("a", "Which?", documents=(Document("The ALPHA. The BETA."),))
    reading = Reading(text, text, "stop", 9, 4, 1, None, dropped_documents=dropped)
    return Answered(point, example, Evidence(None, {"status": "ok"}, units=units), reading)


def columns_of(answered, judge=None):
    """What the quality was asked about, and the row's columns."""
    heard = []
    pipeline = CitingPipeline((), (), None, None, judge or Keywords(), lambda _, *asked: heard.append(asked))
    (scored,), verified = pipeline.judged(answered.point, [answered.cited])
    return heard, pipeline.columns(answered, (scored, {mode: of[0] for mode, of in verified.items()}))


def test_quality_is_that_of_the_answer_without_its_markers():
    heard, _ = columns_of(answered_with("The ALPHA [1]. It is 2 [2].", (Unit("The ALPHA.", ("0.0",)),)))
    assert heard == [("The ALPHA. It is 2.", ["0.0"])]


def test_units_that_the_reader_lost_cannot_be_cited():
    units = (Unit("The ALPHA.", ("0.0",)), Unit("The BETA.", ("0.1",)))
    heard, row = columns_of(answered_with("The ALPHA [1]. The BETA [2].", units, dropped=1))
    assert [unit["text"] for unit in row["units"]] == ["The ALPHA."]
    assert (row["citation"]["citations"], row["citation"]["invalid"], row["dropped_units"]) == (1, 1, 1)
    assert row["citation"]["generated"] == {"precision": 0.5, "recall": 0.5}
    assert heard[0][1] == ["0.0"]


class Unsure(Keywords):
    """Says 0.6 where it would say 1, and cuts every premise."""

    def probabilities(self, pairs):
        judged = super().probabilities(pairs)
        return replace(judged, values=0.6 * judged.values, truncated=np.ones(len(pairs), int))


@pytest.mark.parametrize(("tau", "expected"), [(0.5, 1.0), (0.6, 1.0), (0.7, 0.0)])
def test_the_threshold_of_a_point_is_that_of_scores_and_checks(tau, expected):
    _, row = columns_of(answered_with("The ALPHA [1].", (Unit("The ALPHA.", ("0.0",)),), tau=tau), Unsure())
    found = row["citation"]
    assert found["generated"] == found["grounded"] == {"precision": expected, "recall": expected}
    assert {of["unsupported"] for of in found["verification"].values()} == {1 - expected}
    assert found["truncated_pairs"] == found["pairs"] > 0


def rows_with(precisions, point="x", papers=None):
    """Rows of a point with these generated precisions, that are 0.25 in the source, and of these papers."""
    mode = {"claims": 1, "unsupported": 0, "structural": 0, "verifier_tokens": 1}
    return [
        {
            "point": point,
            "item": str(n),
            **({"paper": papers[n]} if papers else {}),
            "generator_tokens": 1,
            "quality": None,
            "citation": {
                "generated": {"precision": value, "recall": 1.0},
                "grounded": {"precision": 0.25, "recall": 0.0},
                "undeclared": 0,
                "reattributed": 0,
                "cites": True,
                "invalid": 0,
                "verification": dict.fromkeys(CHECKS, mode),
            },
        }
        for n, value in enumerate(precisions)
    ]


def test_laundering_is_the_gap_of_precision():
    found = measure_cited(rows_with([0.75, 0.25]))
    assert found["laundering"]["value"] == 0.25
    assert (found["reattribution_rate"], found["left_out"]) == (None, 2)


def test_questions_on_one_paper_are_resampled_and_flipped_together():
    values, papers = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], ["p", "p", "p", "q", "q", "q"]
    one, apart = (measure_cited(rows_with(values, papers=of))["generated_precision"] for of in (papers, None))
    assert (one["low"], one["high"], one["n"]) == (0, 1, 6)
    assert 0 < apart["low"] < apart["high"] < 1
    points = {"a": rows_with([1.0] * 6, papers=papers), "b": rows_with([0.5] * 6, "y", papers)}
    (compared,) = compare(points, [("a", "b")], "generated_precision")
    # Two papers of one sign: both ways to have it, of four.
    assert (compared["difference"], compared["p_permutation"]) == (0.5, 0.5)


def test_comparisons_on_one_score_are_corrected_together():
    points = {"a": rows_with([1.0] * 8), "b": rows_with([0.5] * 8, "y"), "c": rows_with([0.0] * 8, "z")}
    found = compare(points, [("a", "b"), ("a", "c")], "generated_precision")
    assert [row["against"] for row in found] == ["y", "z"]
    assert [row["p_permutation"] for row in found] == [2 / 256] * 2
    assert [row["p_permutation_holm"] for row in found] == [4 / 256] * 2


def test_shares_of_claims_are_means_over_questions_that_have_some():
    counts = [(9, 9, 9), (1, 0, 0), (0, 0, 0)]
    rows = [
        {
            "item": str(n),
            "generator_tokens": 10,
            "citation": {
                "verification": {
                    "span": {"claims": c, "unsupported": u, "structural": s, "verifier_tokens": 3 * n},
                }
            },
        }
        for n, (c, u, s) in enumerate(counts)
    ]
    found = verification(rows, "span")
    assert (found["unsupported"]["value"], found["unsupported"]["n"]) == (0.5, 2)
    assert found["structural"] == 0.5
    assert (found["verifier_tokens"], found["generator_tokens"]) == (3.0, 10.0)


def test_other_judgements_may_hold_the_source_map_fixed(results):
    class Doubter(Keywords):
        """Believes nothing, so that it recovers nothing by itself."""

        name = "doubter"

        def probabilities(self, pairs):
            judged = super().probabilities(pairs)
            return replace(judged, values=np.zeros_like(judged.values))

    rates = {}
    for sources in ("own", "primary"):
        made = [str(results), "--tau", "0.5", "--sources", sources]
        assert sensitivity(made, lambda name, **settings: Doubter()) == 0
    for one in json.loads((results / "sensitivity.json").read_text())["evaluations"]:
        assert one["judge_settings"] == {"name": "doubter"}
        rates[one["sources"]] = [point["reattribution_rate"]["value"] for point in one["points"].values()]
    summary = json.loads((results / "summary.json").read_text())["points"].values()
    found = [(point["frontier"]["reattribution_rate"] or {"value": None})["value"] for point in summary]
    assert rates["primary"] == found
    assert rates["own"] != found


def test_what_is_judged_again_has_the_sentences_that_its_documents_brought():
    document = Document("One two. Three", "T", sentences=("One", "two. Three"))
    example = Example("a", "Which?", documents=(document,))
    source = as_source(example, Experiment(task="cite", reader="r"))
    row = {"item": "i", "answer": {"text": "x"}, "units": [{"text": "One", "sources": ["0.0"], "spans": []}]}
    again = as_cited(row, source)
    assert [(one.sid, one.text) for one in again.sentences] == [("0.0", "One"), ("0.1", "two. Three")]
    assert again.sentences == split_sentences((document,))


@pytest.mark.parametrize("method", ["xcompress", "candidate", "favicomp", "zero_shot"])
def test_a_text_that_is_written_can_be_cited_however_it_was_chosen(workplace, library, method):
    made = STUDY[: STUDY.index("POINTS")] + f"POINTS = [replace(BASE, method={method!r}, candidates=3)]\n"
    (workplace / "study.py").write_text("from dataclasses import replace\n" + made)
    main(["study.py"], library)
    rows = rows_of(Path("results/study"), "").values()
    assert rows
    for row in rows:
        assert [unit["text"] for unit in row["units"]] == [row["text"]]
        assert row["citation"]["undeclared"] == 1


def test_the_summary_has_the_frontier_and_the_pairs(results):
    summary = json.loads((results / "summary.json").read_text())
    assert (summary["judges"], summary["citers"], summary["excluded"]) == (["keywords"], ["model"], {})
    points = {point["label"].split(" budget")[0]: point for point in summary["points"].values()}
    extract = points["extracted sentences (BM25)"]["frontier"]
    assert extract["generated_precision"]["value"] == extract["grounded_precision"]["value"] == 1.0
    assert extract["laundering"]["value"] == 0.0
    assert extract["reattribution_rate"] is None
    assert extract["str_em"]["value"] == 0.5
    written = points["zero-shot summary"]["frontier"]
    assert (written["verification"]["span"]["unsupported"]["value"], written["verification"]["span"]["structural"]) == (
        1,
        1,
    )
    assert (written["reattribution_rate"]["value"], written["left_out"]) == (1.0, 0)
    pairs = {
        (row["point"].split(" budget")[0], row["against"].split(" budget")[0]) for row in summary["paired"]["str_em"]
    }
    assert ("ECR (BM25)", "extracted sentences (BM25)") in pairs
    assert ("ECR (BM25)", "raw documents") in pairs
    sources = [json.loads(line) for line in (results / "sources.jsonl").read_text().splitlines()]
    assert [source["id"] for source in sources] == ["a", "b"]
    first = sources[0]["sentences"][0]
    assert sources[0]["documents"][0]["text"][first["start"] : first["end"]] == "The ALPHA is BETA."


def test_a_question_that_fails_at_one_point_is_left_out_of_all(library, monkeypatch):
    one = Copy.one

    def fails(self, example):
        if example.id == "b":
            raise RuntimeError("no text")
        return one(self, example)

    monkeypatch.setattr(Copy, "one", fails)
    assert main(["study.py"], library) == 1
    summary = json.loads(Path("results/study/summary.json").read_text())
    (excluded,) = summary["excluded"].values()
    assert excluded["id"] == "b"
    assert [reason.split(":")[0] for reason in excluded["reasons"]] == ["extracted sentences (BM25)", "ECR (BM25)"]
    assert all(point["frontier"]["share_citing"]["n"] == 1 for point in summary["points"].values())


def test_answers_that_cite_nothing_end_in_an_error_after_the_results(library, monkeypatch, capsys):
    monkeypatch.setattr(Citer, "cites", False)
    assert main(["study.py"], library) == 1
    assert (Path("results/study") / "summary.json").exists()
    assert "under 10 % of the answers cite anything" in capsys.readouterr().out


def test_posthoc_citations_are_said_to_be_so(library, capsys):
    assert main(["study.py", "--set", "citer=posthoc"], library) == 0
    assert "citations by posthoc" in capsys.readouterr().out
    row = rows_of(Path("results/study"), "extracted")["a"]
    assert row["answer"]["text"] == "The ALPHA is BETA. [1] A DELTA. [2]"
    assert [one["cited"] for one in row["answer"]["statements"]] == [[0], [1]]


def test_the_report_and_the_sensitivity_read_a_run(results, capsys):
    judged = sensitivity([str(results), "--tau", "0.5", "--limit", "2"], lambda name, **settings: Keywords())
    assert judged == 0
    (evaluation,) = json.loads((results / "sensitivity.json").read_text())["evaluations"]
    summary = json.loads((results / "summary.json").read_text())["points"]
    for hash_, point in summary.items():
        for key in ("generated_precision", "grounded_recall", "laundering"):
            assert evaluation["points"][hash_][key]["value"] == point["frontier"][key]["value"]
    written = {path.name for path in write_report(results)}
    assert {"report.html", "frontier.csv"} <= written
    assert "keywords" in (results / "report.html").read_text()


def test_the_published_frontier_names_its_models():
    points = override(load_config(config_path("frontier")).points, {})
    assert {point.dataset for point in points} == {"asqa", "qasper"}
    assert len(points) == 2 * (1 + 5 * 4)
    assert {name for point in points for name in models_of(point).values()} >= {
        "Qwen/Qwen2.5-7B-Instruct",
        "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli",
    }
    recovered = override(load_config(config_path("frontier_recovered")).points, {})
    assert {(point.method, point.budget) for point in recovered} == {("recomp_abstractive", 0.25), ("llmlingua2", 0.25)}
    (audit,) = override(load_config(config_path("frontier_true")).points, {})
    assert (audit.judge, audit.limit) == ("google/t5_xxl_true_nli_mixture", 200)
    quick = override(load_config(config_path("frontier_quickstart")).points, {})
    assert {name for point in quick for name in models_of(point).values()} == {
        "smollm2-135m-instruct",
        "all-minilm-l6-v2",
    }
    assert {point.method for point in quick} > {"rerank", "extract", "ecr", "longllmlingua", "compact", "xcompress"}
    papers = override(load_config(config_path("frontier_papers")).points, {})
    assert {(point.dataset, point.budget) for point in papers} == {("qasper", None), ("qasper", 0.25), ("qasper", 0.1)}
    assert len(papers) == 1 + 8 * 2
    assert "judge" in MODEL_FIELDS


def test_ecr_is_compared_with_extraction_at_its_own_budget():
    base = Experiment(task="cite", reader="r", scorer="bm25")
    made = [("raw", None), ("extract", 0.5), ("extract", 0.25), ("ecr", 0.25)]
    points = [replace(base, method=method, budget=budget).canonical() for method, budget in made]
    assert choose_pairs(points) == [(1, 0), (2, 0), (3, 0), (3, 2)]
