"""The report of a finished study of citations, on files written by the contract: no model is run here."""

import base64
import csv
import hashlib
import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import frontier_results
import pytest
from frontier_results import LEXICAL, add_sensitivity, write_study

from experiments.figures_frontier import SHARES, draw_frontier, render, ticks_around
from experiments.report import NAMES, RECORD, main, write_report
from experiments.report_data import TOTAL, VIEWS, Number, by_family, read_study
from experiments.report_inspector import cut, inspector_data, verdict_of
from experiments.report_page import make_csv, make_page, pivot, show, show_budget, show_p

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028& \"quotes\" 'single' \ud800"
TINY = {"datasets": ("asqa",), "methods": (("raw", None), ("extract", "bm25")), "budgets": (0.5, 0.1)}


class Page(HTMLParser):
    """What a test asks of a page: its held numbers with the text shown, its scripts, its attributes, its text."""

    def __init__(self, text):
        super().__init__()
        self.numbers, self.scripts, self.attributes, self.words = [], [], [], []
        self.open = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag in ("data", "script"):
            self.open = (tag, dict(attrs), [])

    def handle_data(self, data):
        (self.open[2] if self.open else self.words).append(data)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            _, attrs, words = self.open
            {"data": self.numbers, "script": self.scripts}[tag].append((attrs, "".join(words)))
            self.words += words if tag == "data" else []
            self.open = None

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def page_of(folder, inspect=50):
    """The page of a study, without its figures."""
    return make_page(read_study(folder, inspect), {}, inspect)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study") / "frontier")


@pytest.fixture(scope="module")
def study(folder):
    return read_study(folder)


@pytest.fixture(scope="module")
def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def find(summary, hash_, key):
    """A key's number in summary.json, looked up by hand: the whole interval, or the bare number."""
    point = summary["points"][hash_]
    frontier = point["frontier"]
    if key.startswith("verification_"):
        _, mode, *name = key.split("_")
        of = frontier["verification"][mode]
        if key == TOTAL:
            return of["generator_tokens"] + of["verifier_tokens"]
        return of["_".join(name)]
    return point["budget"][key] if key in point["budget"] else frontier[key]


def test_every_number_on_the_page_is_the_summarys(folder, summary):
    held = [(attrs, text) for attrs, text in Page(page_of(folder)).numbers if "data-key" in attrs]
    assert len(held) > 200
    from_rows = {"judged_pairs", "truncated_pairs"}
    for attrs, text in held:
        key = attrs["data-key"]
        if key not in from_rows:
            found = find(summary, attrs["data-point"], key)
            value = found["value"] if isinstance(found, dict) else found
            assert float(attrs["value"]) == value
            scale = 1 if key.endswith("tokens") or key == "left_out" else 100
            assert float(text.replace(",", "")) == pytest.approx(
                value * scale, abs=0.0501 if value * scale < 1000 else 0.5
            )


def test_every_point_shows_its_frontier_verification_and_quality(folder, summary):
    shown = {(a["data-point"], a["data-key"]) for a, _ in Page(page_of(folder)).numbers if "data-key" in a}
    modes = [f"verification_{mode}_unsupported" for mode in ("summary", "span", "recovered")]
    keys = ["achieved", *VIEWS, "laundering", "share_citing", *modes, TOTAL, "verification_span_generator_tokens"]
    for hash_, point in summary["points"].items():
        quality = frontier_results.QUALITY[point["settings"]["dataset"]]
        rate = ["reattribution_rate"] if point["frontier"]["reattribution_rate"] else []
        assert {(hash_, key) for key in [*keys, *quality, *rate]} <= shown


def test_the_table_has_a_row_a_point_and_every_number_whole(study, summary):
    rows = list(csv.DictReader(io.StringIO(make_csv(study.points).decode())))
    assert [row["settings"] for row in rows] == list(summary["points"])
    for row in rows:
        for key in ("achieved", *VIEWS, "laundering", "share_citing", "verification_span_unsupported"):
            found = find(summary, row["settings"], key)
            assert [float(row[key]), float(row[f"{key}_low"]), int(row[f"{key}_n"])] == [
                found[part] for part in ("value", "low", "n")
            ]
        assert float(row[TOTAL]) == find(summary, row["settings"], TOTAL)
        assert "left_out_low" not in row
    declared = next(row for row in rows if row["title"] == "prefix truncation")
    assert declared["reattribution_rate"] == declared["reattribution_rate_low"] == ""
    assert declared["str_em"] != "" == declared["answer_f1"]  # Of the other dataset.
    assert {row["budget"] for row in rows} == {"", "0.5", "0.1"}


def test_pairs_that_the_judge_cut_are_counted_from_the_rows(study):
    by_label = {point.label: point for point in study.points}
    numbers = by_label["asqa raw documents"].numbers
    assert (numbers["judged_pairs"], numbers["truncated_pairs"]) == (Number(20), Number(2))
    assert by_label["asqa prefix truncation 0.5"].numbers["judged_pairs"] == Number(10)  # Its other row failed.


def test_the_paired_tests_are_the_summarys(folder, study, summary):
    assert [test.p_holm for test in study.tests] == [
        row["p_permutation_holm"] for rows in summary["paired"].values() for row in rows
    ]
    page = Page(page_of(folder))
    values = [attrs["value"] for attrs, _ in page.numbers if "data-key" not in attrs]
    for rows in summary["paired"].values():
        for row in rows:
            assert {str(row["difference"]), str(row["p_permutation"]), str(row["p_permutation_holm"])} <= set(values)
    assert "against the identity" in page.text
    assert "ECR (BM25) against extracted sentences (BM25), at the same budget" in page.text
    assert "0.125 4 : 0" in page.text


def test_a_corrected_p_of_zero_is_significant(folder, study):
    tests = [replace(test, p_holm=0.0) for test in study.tests if test.point.dataset == "asqa"]
    page = Page(make_page(replace(study, tests=tuple(tests)), {}, 50))
    assert page.text.count("★") == len(tests) + 1  # And its legend.
    alone = [replace(test, p=None, p_holm=None) for test in tests]
    assert Page(make_page(replace(study, tests=tuple(alone)), {}, 50)).text.count("★") == 1


def test_a_judge_that_is_no_model_and_an_added_citation_stand_in_a_banner(folder, study):
    text = page_of(folder)
    banner = text.split('<div class="banner warning"')[1].split("</div>")[0]
    assert f'<b class="judge">{LEXICAL}</b>' in banner
    assert "No model judged" in banner
    assert "<b>posthoc</b>" in banner
    other = make_page(replace(study, judges=(("DeBERTa", 0.5),), citers=("model",)), {}, 50)
    assert '<div class="banner warning"' not in other
    assert '<b class="judge">DeBERTa</b>' in other
    mixed = make_page(replace(study, judges=(("DeBERTa", 0.5), ("DeBERTa", 0.7))), {}, 50)
    assert "not comparable" in mixed


def test_excluded_questions_are_named_with_the_reason(folder, study):
    (one,) = study.excluded
    assert (one.id, one.dataset) == ("q2", "asqa")
    assert one.reasons == (("asqa prefix truncation 0.5", "failed(out of memory)"),)
    text = Page(page_of(folder)).text
    assert "q2 (asqa): When did the mill burn?" in text
    assert "asqa prefix truncation 0.5: failed(out of memory)" in text
    assert "2 questions, 1 in every number, 1 excluded" in text
    assert "2 questions, 2 in every number, 0 excluded" in text


def test_points_that_hardly_cite_are_warned_of(study):
    points = list(study.points)
    for n, share in ((0, 0.0999), (1, 0.1)):
        points[n] = replace(points[n], numbers={**points[n].numbers, "share_citing": Number(share, 0, 0.2, 2)})
    text = Page(make_page(replace(study, points=tuple(points)), {}, 50)).text
    assert f"1 of {len(points)} points cite in fewer than one answer in ten" in text
    assert f"Fewer than one answer in ten cites at: {points[0].label}: 10.0" in text


def test_hostile_texts_stay_texts(tmp_path):
    sources = {"asqa": [("h", HOSTILE, [[HOSTILE, "Second."], [HOSTILE]])]}
    write_study(tmp_path, **TINY, sources=sources, judge=HOSTILE, failed=())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    summary = json.loads((tmp_path / "summary.json").read_text())
    manifest["execution"]["study"] = manifest["execution"]["data"][0]["path"] = HOSTILE
    for point in summary["points"].values():
        point["label"] = point["title"] = HOSTILE
    for name, value in (("manifest", manifest), ("summary", summary)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    text = page_of(tmp_path).encode("utf-8", "xmlcharrefreplace").decode()
    page = Page(text)
    assert len(page.scripts) == 2
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "<img" not in text
    data = json.loads(page.scripts[0][1])
    assert data["questions"][0]["question"] == HOSTILE
    assert data["questions"][0]["documents"][0]["pieces"][0] == [HOSTILE, "0.0"]


def test_the_page_needs_nothing_else_and_runs_one_script_alone(folder):
    page = Page(page_of(folder))
    places = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert all(value.startswith(("data:", "#")) for value in places)
    (policy,) = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    script = page.scripts[1][1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    anchors = {value for _, name, value in page.attributes if name == "id"}
    assert {place[1:] for place in places if place.startswith("#")} <= anchors


def test_sections_without_their_data_say_so_or_are_absent(tmp_path):
    write_study(tmp_path, **TINY, failed=())
    summary = json.loads((tmp_path / "summary.json").read_text())
    del summary["paired"]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    text = Page(page_of(tmp_path)).text
    assert "The summary has no paired test of this dataset." in text
    assert "None: no question failed at any point." in text
    assert "Sensitivity" not in text
    assert "No point has a value." in text  # Nothing was to be re-attributed.


def test_the_sensitivity_file_has_a_section(tmp_path):
    write_study(tmp_path, **TINY)
    added = add_sensitivity(tmp_path)
    page = Page(page_of(tmp_path))
    assert f"{LEXICAL}, τ 0.3, sources own, 2 questions" in page.text
    assert "TRUE T5, τ 0.5, sources primary, 2 questions" in page.text
    values = {attrs["value"] for attrs, _ in page.numbers}
    for evaluation in added["evaluations"]:
        for point in evaluation["points"].values():
            assert {str(number["value"]) for number in point.values()} <= values


def test_the_figures_lines_are_the_summarys_numbers(study):
    points = study.of("asqa")
    figure = draw_frontier(points, "grounded_precision")
    axes = {axis.get_title(): axis for axis in figure.axes if axis.axison}
    assert list(axes) == ["floor baselines", "extractive", "clustering", "abstractive"]
    identity = points[0]
    for family, methods in by_family(points).items():
        lines = {line.get_label(): line for line in axes[family].get_lines()}
        ((title, of),) = methods.items()
        drawn = [container.lines[0] for container in axes[family].containers]
        of = sorted(of, key=lambda point: point.number("achieved").value)
        (line,) = drawn
        assert list(line.get_xdata()) == pytest.approx([100 * point.number("achieved").value for point in of])
        assert list(line.get_ydata()) == pytest.approx([100 * point.number("grounded_precision").value for point in of])
        level = lines["raw documents"].get_ydata()
        assert set(level) == {100 * identity.number("grounded_precision").value}
        assert [text.get_text() for text in axes[family].get_legend().get_texts()] == ["raw documents", title]
        assert axes[family].get_ylim() == (-4, 104)
    assert "95 % bootstrap intervals over questions" in figure.get_supxlabel()
    assert figure.get_supylabel() == "grounded precision, 0 to 100"


def test_a_figure_without_a_place_for_any_point_is_none(study):
    points = [replace(one, numbers={**one.numbers, "achieved": Number(0.0)}) for one in study.of("asqa")]
    assert draw_frontier(points, "grounded_precision") is None
    assert draw_frontier(study.of("asqa"), "answer_f1") is None
    assert draw_frontier(study.of("asqa")[:1], "laundering") is None


def test_quality_is_drawn_from_zero_and_the_gap_on_both_sides_of_it(study):
    points = study.of("qasper")
    assert "answer_f1" not in SHARES
    assert draw_frontier(points, "answer_f1").axes[0].get_ylim()[0] <= 0
    low, high = draw_frontier(points, "laundering").axes[0].get_ylim()
    assert low <= -5
    assert high > 50


def test_the_axis_holds_every_achieved_length(study):
    (lengths,) = [[100 * point.number("achieved").value for point in study.of("asqa")]]
    ticks = ticks_around(study.of("asqa"))
    assert ticks == [2, 5, 10, 25, 50, 100]
    assert ticks[0] <= min(lengths) < max(lengths) <= ticks[-1]


def test_a_drawn_figure_is_cut_into_panels_of_one_width(study):
    drawn = render(draw_frontier(study.of("asqa"), "laundering"))
    assert [title for title, _ in drawn.panels] == ["floor baselines", "extractive", "clustering", "abstractive"]
    images = [image for _, image in drawn.panels]
    assert all(image.startswith(b"\x89PNG") for image in (drawn.whole, *images))
    sizes = [tuple(int.from_bytes(image[at : at + 4]) for at in (16, 20)) for image in images]
    assert max(w for w, _ in sizes) - min(w for w, _ in sizes) <= 2
    assert all(w > 400 and h > 300 for w, h in sizes)


def test_a_text_is_cut_by_characters_whatever_they_are():
    assert cut("a🜁b. C.", [(5, 7, "1"), (0, 4, "0")]) == [("a🜁b.", "0"), (" ", None), ("C.", "1")]
    assert cut("abc", []) == [("abc", None)]
    assert cut("", []) == []
    for spans in ([(0, 4, "x")], [(0, 2, "x"), (1, 3, "y")], [(2, 1, "x")]):
        with pytest.raises(ValueError, match="overlaps another or lies outside"):
            cut("abc", spans)


def test_the_inspector_holds_documents_answers_and_verdicts(study):
    data = json.loads(json.dumps(inspector_data(study)))
    assert [one["id"] for one in data["questions"]] == ["q1", "p1", "q2", "p2"]  # The datasets in turn.
    corpus = data["questions"][1]
    assert corpus["documents"][0]["pieces"] == [
        ["We use the Norfell 🜁 corpus.", "0.0"],
        [" ", None],
        ["It has 40 texts.", "0.1"],
    ]
    points = {point.label: point.hash for point in study.points}
    row = corpus["rows"][points["qasper zero-shot summary 0.5"]]
    assert [one["verdict"] for one in row["statements"]] == ["source", "summary", "unsupported", "uncited"]
    assert row["resolved"] == {"0": ["0.0", "1.0"]}
    assert "".join(text for text, _ in row["answer"]).endswith("No more is told [7].")
    assert corpus["units"][row["units"][0]]["sources"] is None
    extracted = corpus["rows"][points["qasper extracted sentences (BM25) 0.5"]]
    assert [corpus["units"][n]["sources"] for n in extracted["units"]] == [["0.0"], ["0.1"]]
    assert len(corpus["units"]) == 3  # Shared by all points.
    failed = data["questions"][2]
    assert failed["rows"][points["asqa prefix truncation 0.5"]] == {"status": "failed(out of memory)"}
    assert failed["excluded"] == ["asqa prefix truncation 0.5: failed(out of memory)"]
    assert next(iter(data["points"].values()))["family"] == "identity"


def test_support_by_the_source_decides_before_the_units_text():
    statement = {"cited": [0], "generated": {"recalled": False}, "grounded": {"recalled": True}}
    assert verdict_of(statement) == "source"
    assert verdict_of({**statement, "cited": []}) == "uncited"


@pytest.mark.parametrize(("asked", "kept"), [(3, ["q1", "p1", "q2"]), (0, [])])
def test_the_inspector_holds_so_many_questions_and_says_so(folder, asked, kept):
    page = Page(page_of(folder, asked))
    assert [one["id"] for one in json.loads(page.scripts[0][1])["questions"]] == kept
    assert f"{asked} of 4 questions" in page.text
    assert f"(the page holds at most {asked})" in page.text


def test_offsets_outside_a_text_name_the_question(tmp_path):
    write_study(tmp_path, **TINY)
    text = (tmp_path / "sources.jsonl").read_text().replace('"end": 25', '"end": 2500', 1)
    (tmp_path / "sources.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"question 'q1': span 0 to 2500 \('0\.0'\)"):
        page_of(tmp_path)


def test_a_pivot_has_a_column_for_budgets_with_a_value_alone(study):
    table = pivot(study.of("asqa"), "reattribution_rate")
    assert table.budgets == (0.5, 0.1)
    assert [(family, title) for family, title, _ in table.rows] == [("abstractive", "zero-shot summary")]
    assert pivot(study.of("asqa"), "laundering").budgets == (None, 0.5, 0.1)


@pytest.mark.parametrize(
    ("number", "key", "words"),
    [
        (Number(0.1234), "grounded_precision", "12.3"),
        (Number(-0.05), "laundering", "-5.0"),
        (Number(None), "laundering", "–"),
        (Number(1234.5), TOTAL, "1,234"),
        (Number(90.04), TOTAL, "90.0"),
        (Number(3), "left_out", "3"),
    ],
)
def test_numbers_are_shown_at_one_scale(number, key, words):
    assert show(number, key) == words


def test_budgets_and_p_values_in_words():
    assert [show_budget(budget) for budget in (None, 0.05, 0.125, 64)] == ["no budget", "5 %", "12.5 %", "64 tokens"]
    assert [show_p(p) for p in (None, 0.0, 0.0009, 0.001, 1.0)] == ["–", "< 0.001", "< 0.001", "0.001", "1.000"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    folder = write_study(tmp_path_factory.mktemp("reported") / "tiny", **TINY)
    return folder, write_report(folder, 1)


def test_a_report_is_written_beside_the_results_and_replaced(reported):
    folder, written = reported
    names = [path.name for path in written]
    assert names[:3] == ["report.html", "frontier.csv", "frontier-asqa-generated-precision.png"]
    assert {"frontier-asqa-laundering.png", "frontier-asqa-str-em.png"} <= set(names)
    assert all(NAMES.fullmatch(name) for name in names)
    before = {path: path.read_bytes() for path in written}
    page = before[written[0]].decode()
    assert page.count('src="data:image/png;base64,') == len(names) - 2  # One family, one panel a figure.
    assert write_report(folder, 1) == written
    assert {path: path.read_bytes() for path in written} == before


def test_what_is_not_this_runs_report_is_never_touched(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.report.draw_figures", lambda study: {})
    folder = write_study(tmp_path / "a", **TINY)
    (folder / "frontier.csv").write_text("mine")
    with pytest.raises(FileExistsError, match=r"frontier\.csv is not a report of this run"):
        write_report(folder)
    assert (folder / "frontier.csv").read_text() == "mine"
    assert not (folder / "report.html").exists()
    (folder / "frontier.csv").unlink()
    write_report(folder)
    other = write_study(tmp_path / "b", **{**TINY, "budgets": (0.25,)})
    for name in (RECORD, "report.html"):
        (other / name).write_bytes((folder / name).read_bytes())
    assert main([str(other)]) == 2
    assert (other / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    (other / RECORD).write_text("[]")
    with pytest.raises(FileExistsError, match="not the record"):
        write_report(other)


def test_figures_that_are_no_more_go_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.report.draw_figures", lambda study: {})
    folder = write_study(tmp_path, **TINY)
    write_report(folder)
    record = json.loads((folder / RECORD).read_text())
    old = folder / "frontier-asqa-old.png"
    old.write_bytes(b"old")
    record["files"] += [old.name, "items.jsonl", "../outside"]
    (folder / RECORD).write_text(json.dumps(record))
    write_report(folder)
    assert not old.exists()
    assert (folder / "items.jsonl").exists()
    assert json.loads((folder / RECORD).read_text())["files"] == ["frontier.csv", "report.html"]


def test_what_is_no_study_of_citations_is_said(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "holds no finished study of citations: there is no manifest.json" in capsys.readouterr().err
    folder = write_study(tmp_path / "a", **TINY)
    (folder / "sources.jsonl").rename(folder / "moved")
    assert main([str(folder)]) == 2
    assert "there is no sources.jsonl" in capsys.readouterr().err
    (folder / "moved").rename(folder / "sources.jsonl")
    rows = (folder / "items.jsonl").read_bytes()
    (folder / "items.jsonl").write_bytes(rows + b'{"half": ')
    assert main([str(folder)]) == 2
    assert f"items.jsonl, line {len(rows.splitlines()) + 1}: no JSON" in capsys.readouterr().err
    (folder / "items.jsonl").write_bytes(rows.replace(b'"citer"', b'"cited_by"', 1))
    assert main([str(folder)]) == 2
    assert "items.jsonl, line 1: no 'citer'" in capsys.readouterr().err
    (folder / "items.jsonl").write_bytes(rows)
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(summary.replace('"frontier"', '"front"'))
    assert main([str(folder)]) == 2
    assert "point 'asqa raw documents': no 'frontier'; is this a study of citations?" in capsys.readouterr().err
    (folder / "summary.json").write_text(summary.replace('"p_permutation"', '"p"'))
    assert main([str(folder)]) == 2
    assert "summary.json, paired grounded_precision: no 'p_permutation'" in capsys.readouterr().err
    (folder / "summary.json").write_text(summary)
    (folder / "sensitivity.json").write_text("{}")
    assert main([str(folder)]) == 2
    assert "sensitivity.json: no 'evaluations'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(folder), "--inspect", "-1"])


def test_the_templates_are_part_of_the_package():
    names = {path.name for path in (resources.files("experiments") / "templates").iterdir()}
    assert names == {"report.html", "macros.html", "style.css", "inspector.js"}
