"""Numbers of a run and the table that shows them: right columns, one scale, everything counted."""

import math
from dataclasses import replace

import pytest
from rich.console import Console

from experiments.evidence import decoding_shares, severity
from experiments.experiment import Experiment
from experiments.summary import choose_references, perplexity, speed, summarize
from experiments.table import COLUMNS, describe_counts, describe_notes, describe_statuses, make_table


def make_row(item, em=0.0, f1=0.0, point="p", hits=1.0, retrieved=10, compressed=5, nll=1.0, count=2, **changes):
    measured = {"perplexity": math.exp(nll / count), "bits_per_byte": nll / math.log(2) / 8} if count else None
    measured = measured and {**measured, "nll": nll, "count": count, "reason": None}
    return {
        "point": point,
        "settings": point,
        "item": item,
        "status": "ok",
        "text": "text",
        "requested": None,
        "achieved": 5,
        "source_tokens": 10,
        "finish_reason": "stop",
        "reading": {"finish_reason": "stop"},
        "dropped_documents": 0,
        "notes": [],
        "generated_tokens": 6,
        "hits": hits,
        "scores": {"em": em, "f1": f1, "acc": em, "acc_tokens": em, "unscored": None, "dropped_golds": 0},
        "rate": {"retrieved": retrieved, "compressed": compressed, "ratio": 2.0},
        "perplexity": measured,
        **changes,
    }


def test_a_budget_is_told_beside_what_was_achieved_and_each_status():
    rows = [make_row("a", requested=5, achieved=2), make_row("b", requested=10, achieved=4, source_tokens=20)]
    rows += [make_row("c", requested=5, achieved=0, status="too_small")]
    summary = summarize(rows, [], {"p": "p"})
    found = summary["points"]["p"]["budget"]
    assert (found["requested"]["value"], found["achieved"]["value"]) == (0.5, 0.15)
    assert describe_statuses(summary) == ["statuses: ok 67%, too_small 33%: p"]
    console = Console(width=160, record=True)
    console.print(make_table(summary, "study"))
    heading, values = (
        next(line for line in console.export_text(clear=False).splitlines() if w in line) for w in ("Budget", " p ")
    )
    cells = dict(zip((c.strip() for c in heading.split("┃")), (c.strip() for c in values.split("│")), strict=True))
    assert (cells["Budget"], cells["Achieved"]) == ("50.0", "15.0")
    free = summarize([make_row("a")], [], {"p": "p"})
    assert free["points"]["p"]["budget"]["requested"]["value"] is None
    assert describe_statuses(free) == []


def test_E11_columns_and_scale_come_back_from_summary_and_table():
    summary = summarize([make_row("a", em=1.0, f1=1.0), make_row("b", em=0.0, f1=0.5)], [], {"p": "p"})
    measured = summary["points"]["p"]["all"]
    assert (measured["em"]["value"], measured["f1"]["value"]) == (0.5, 0.75)
    console = Console(width=140, record=True)
    console.print(make_table(summary, "study"))
    lines = console.export_text().splitlines()
    heading = next(line for line in lines if "Method" in line)
    values = next(line for line in lines if "50.0" in line)
    cells = dict(zip((c.strip() for c in heading.split("┃")), (c.strip() for c in values.split("│")), strict=True))
    assert (cells["EM"], cells["F1"]) == ("50.0", "75.0")
    assert lines[0].strip() == "study: Acc, EM and F1 from 0 to 100 on 2 scored questions"


def test_metrics_are_split_by_hits_and_failed_rows_are_in_none():
    rows = [make_row("a", em=1.0), make_row("b", hits=0.0), make_row("c", em=1.0, hits=None)]
    rows.append({"point": "p", "settings": "p", "item": "d", "status": "failed(x)"})
    point = summarize(rows, [], {"p": "p"})["points"]["p"]
    values = {split: (point[split]["em"]["value"], point[split]["em"]["n"]) for split in ("all", "hits_0", "hits_1")}
    assert values == {"all": (2 / 3, 3), "hits_0": (0.0, 1), "hits_1": (1.0, 1)}
    assert (point["counts"]["rows"], point["counts"]["failed"]) == (4, 1)


def test_compression_rate_is_a_ratio_of_sums_and_counts_empties():
    rows = [make_row("a", compressed=5), make_row("b", retrieved=20, compressed=0), make_row("c", compressed=10)]
    rate = summarize(rows, [], {"p": "p"})["points"]["p"]["all"]["compression_rate"]
    assert (rate["value"], rate["empty"]) == (40 / 15, 1)
    nothing = summarize([make_row("a", compressed=0)], [], {"p": "p"})["points"]["p"]["all"]["compression_rate"]
    assert (nothing["value"], nothing["empty"]) == (None, 1)


def test_D02_pooled_and_per_text_perplexity_are_both_named():
    rows = [make_row("a", nll=0.4, count=3), make_row("b", nll=1.5, count=5), make_row("c", count=0)]
    measured = perplexity(rows)
    assert measured["pooled_over_tokens"] == pytest.approx(1.2681, abs=5e-5)
    assert measured["mean"]["value"] == pytest.approx(1.2462, abs=5e-5)
    assert measured["median"]["value"] == measured["mean"]["value"]
    assert measured["without"] == {"no evidence": 1}


def test_speed_leaves_measuring_out():
    timings = [
        {"part": "1", "stage": "compress", "seconds": 2.0, "compile_seconds": 1.0, "items": 2, "tokens": 8},
        {"part": "1", "stage": "read", "seconds": 1.0, "compile_seconds": 0.5, "items": 2, "tokens": 4},
        {"part": "1", "stage": "score", "seconds": 8.0, "compile_seconds": 0.0, "items": 2, "tokens": 0},
        {"part": "1", "stage": "measure", "seconds": 4.0, "compile_seconds": 0.0, "items": 2, "tokens": 0},
    ]
    measured = speed(timings)
    assert measured["tokens_per_second"]["value"] == pytest.approx(12 / 3)
    assert (measured["seconds_per_question"], measured["compile_seconds"]) == (1.5, 1.5)


def test_speed_has_an_interval_over_batches_only():
    one = {"part": "1", "stage": "read", "seconds": 1.0, "compile_seconds": 0.0, "items": 2, "tokens": 10}
    alone = speed([one])["tokens_per_second"]
    assert (alone["value"], alone["low"], alone["high"]) == (10, None, None)
    both = speed([one, {**one, "part": "2", "tokens": 30}])["tokens_per_second"]
    assert both["value"] == 20
    assert both["low"] < 20 < both["high"]


def test_a_text_that_serves_two_points_is_charged_to_both():
    base = Experiment(compressor="m", target="m", reader="m")
    points = [replace(base, method=method).canonical() for method in ("zero_shot", "generated", "concat")]
    assert decoding_shares(points, {0.0: 30, 1.0: 10}) == [0.75, 0.25, 1.0]
    assert decoding_shares(points, {0.0: 0, 1.0: 0}) == [1 / 3] * 3


def test_the_worst_status_stands_for_joined_texts():
    assert sorted(["ok", "failed(x)", "too_small", "empty", "length", "short_input"], key=severity) == [
        *("empty", "short_input", "ok", "length", "too_small", "failed(x)"),
    ]


def test_cuts_and_budgets_too_small_are_counted_and_told():
    rows = [make_row("a", status="length"), make_row("b", status="too_small"), make_row("c", notes=["merged"])]
    summary = summarize(rows, [], {"p": "p"})
    assert (summary["points"]["p"]["counts"]["cut_evidence"], summary["points"]["p"]["counts"]["too_small"]) == (1, 1)
    told = describe_counts(summary)
    assert "rows with evidence cut at its limit: p 1" in told
    assert "rows with a budget that nothing fits: p 1" in told
    assert "note: merged (rows: 1)" in told


def test_comparisons_are_paired_with_the_raw_documents():
    base = Experiment(compressor="m", target="m", reader="m")
    points = [Experiment(method="no_context", reader="m"), Experiment(method="raw", reader="m"), base]
    assert choose_references(points) == [1, 1, 1]
    assert choose_references(points[:1] + points[2:]) == [0, 0]
    rows = [make_row(i, em=float(i < 3), point="new") for i in range(8)] + [make_row(i, point="raw") for i in range(8)]
    rows += [{**make_row(0), "point": "broken", "settings": "broken", "status": "failed(x)"}]
    (new, _) = summarize(rows, [], {"new": "raw", "raw": "raw", "broken": "raw"})["paired"]["em"]
    assert (new["point"], new["against"], new["n"], new["left_out"]) == ("new", "raw", 7, 1)
    assert new["difference"] == pytest.approx(2 / 7)
    assert new["p_permutation_holm"] >= new["p_permutation"]


def test_every_column_finds_its_interval():
    point = summarize([make_row("a")], [], {"p": "p"})["points"]["p"]
    for column in COLUMNS:
        assert {"value", "low", "high", "n"} <= set(column.find(point))


def test_notes_that_differ_in_numbers_are_one_line():
    notes = {
        "left out 4 of 10 documents": 2,
        "left out 12 of 10 documents": 1,
        "cut at 0.5": 1,
        "cut at 0.25": 3,
        "b": 1,
    }
    assert describe_notes(notes) == [
        "note: b (rows: 1)",
        "note: cut at 0.25 to 0.5 (rows: 4)",
        "note: left out 4 to 12 of 10 documents (rows: 3)",
    ]
    assert describe_notes({"1,024 tokens": 1, "9 tokens": 1}) == ["note: 9 to 1,024 tokens (rows: 2)"]
