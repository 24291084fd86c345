"""The command that scores answers made elsewhere, from ALCE's output format."""

import json
import socket

import nltk
import pytest

from ragjax.cite import LexicalOverlap
from ragjax.data import Example
from ragjax.evals.citation import main, read_answers
from ragjax.evals.quality import answer_quality

DOCS = [
    {"title": "First", "text": "ALPHA alpha is here. It is long."},
    {"title": "Second", "text": "BETA beta is there.", "summary": "no"},
    {"id": "7", "title": "Third", "text": "Something else.", "sent": "GAMMA gamma is gone."},
]
ROW = {"question": "Which?", "docs": DOCS, "sample_id": "12", "qa_pairs": None}
OUTPUT = "Alpha beta [1][2]. Gamma [3]. Delta [1]. Omega."


def written(tmp_path, rows, form="data"):
    path = tmp_path / "answers.json"
    if form == "lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps({"args": {}, "data": rows} if form == "data" else rows))
    return path


def scores_of(path):
    return json.loads(path.with_name("answers.json.score.json").read_text())


@pytest.mark.parametrize("form", ["data", "array", "lines"])
def test_a_file_is_scored_by_the_judge_without_a_model(form, tmp_path, capsys):
    path = written(tmp_path, [{**ROW, "output": OUTPUT}, {**ROW, "sample_id": "13", "output": ""}], form)
    assert main([str(path)]) == 0
    found = scores_of(path)
    assert found["judge"] == "lexical overlap (no entailment model)"
    assert found["means"]["generated"] == {"precision": 3 / 4 / 2, "recall": 2 / 4 / 2}
    assert [one["id"] for one in found["answers"]] == ["12", "13"]
    assert [s["generated"] for s in found["answers"][0]["statements"]] == [
        {"recalled": True, "precise": [0, 1]},
        {"recalled": True, "precise": [2]},
        {"recalled": False, "precise": []},
        {"recalled": False, "precise": []},
    ]
    shown = capsys.readouterr().out
    assert "judge: lexical overlap (no entailment model)" in shown
    assert "4 statements, 4 valid citations, 0 invalid; 1 answers without a statement" in shown


@pytest.mark.parametrize(("mode", "precision", "n"), [("strict", 3 / 7 / 2, 2), ("alce", 3 / 4, 1)])
def test_F04_the_mode_is_said_and_counts(mode, precision, n, tmp_path, capsys):
    rows = [{**ROW, "output": f"{OUTPUT} Zeta [9]. Eta [8][10]."}, {**ROW, "output": " "}]
    path = written(tmp_path, rows)
    assert main([str(path), "--mode", mode, "--tau", "0.6"]) == 0
    found = scores_of(path)
    assert (found["mode"], found["tau"], found["means"]["n"]) == (mode, 0.6, n)
    assert found["means"]["generated"]["precision"] == pytest.approx(precision)
    assert ("ALCE" in capsys.readouterr().out) == (mode == "alce")


def test_F10_nothing_is_fetched_to_evaluate(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network is asked")

    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    path = written(tmp_path, [{**ROW, "output": OUTPUT}])
    assert main([str(path)]) == 0
    pairs = [{"question": "Which?", "short_answers": ["beta"]}]
    example = Example("a", "Which?", meta={"qa_pairs": pairs, "annotations": [{"long_answer": "Alphas. A beta is."}]})
    assert answer_quality(example, "Alpha. Is it beta?") == {"str_em": 1, "str_hit": 1, "rouge_l": 0.5}


def test_F13_a_file_that_one_judge_scored_is_refused_another(tmp_path, capsys, monkeypatch):
    class Doubter(LexicalOverlap):
        name = "doubter"

        def describe(self):
            return {"judge": "doubter", "model": "1f", "dtype": "float32"}

    path = written(tmp_path, [{**ROW, "output": OUTPUT}])
    monkeypatch.setattr("ragjax.evals.citation.make_judge", lambda name, **settings: Doubter())
    assert main([str(path), "--judge", "doubter", "--tau", "0.6"]) == 0
    found = scores_of(path)
    assert (found["judge"], found["judge_settings"], found["tau"]) == ("doubter", Doubter().describe(), 0.6)
    monkeypatch.undo()
    assert main([str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert scores_of(path) == found


def test_documents_are_read_as_they_were_shown(tmp_path):
    rows = [{**ROW, "output": "A [4].", "docs": [*DOCS, {"title": "Fourth", "text": " "}, "plain"]}]
    (one,) = read_answers(str(written(tmp_path, rows)))
    assert one.units[0].text == "Title: First\nALPHA alpha is here. It is long."
    assert one.units[0].sources == ("0.0", "0.1")
    assert one.units[2].text == "Title: Third\nGAMMA gamma is gone."
    assert [unit.text for unit in one.units[3:]] == ["", "plain"]
    assert one.units[3].sources == ()


def test_what_is_written_is_never_overwritten(tmp_path, capsys):
    path = written(tmp_path, [{**ROW, "output": OUTPUT}])
    assert main([str(path)]) == 0
    before = scores_of(path)
    assert main([str(path), "--tau", "0.9"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert scores_of(path) == before


def test_answers_that_cite_nothing_are_written_and_fail(tmp_path, capsys):
    path = written(tmp_path, [{**ROW, "output": "Alpha."}] * 20 + [{**ROW, "output": "Alpha [1]."}])
    assert main([str(path)]) == 1
    assert scores_of(path)["means"]["share_citing"] == 1 / 21
    assert "4.8 % of the answers cite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Which?", "docs": DOCS}, "no field output; found docs, question"),
        ({"question": "Which?", "output": "A."}, "no field docs"),
        ({**ROW, "output": None}, "the field output is a text, got None"),
        ({**ROW, "output": ["A."]}, "the field output is a text"),
        ({**ROW, "output": "A.", "question": 3}, "the field question is a text"),
        ({**ROW, "output": "A.", "docs": "x"}, "the field docs"),
        ({**ROW, "output": "A.", "docs": [DOCS[0], {"title": "x"}]}, "the field docs, document 2"),
    ],
)
def test_a_broken_row_is_refused_by_line_and_field(row, message, tmp_path, capsys):
    path = written(tmp_path, [{**ROW, "output": OUTPUT}, row], "lines")
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert f"{path}, line 2: {message}" in error
    assert not path.with_name("answers.json.score.json").exists()


@pytest.mark.parametrize(("text", "message"), [('{"question": "W', "line 1"), ("", "there are no rows")])
def test_a_broken_file_is_refused(text, message, tmp_path, capsys):
    path = tmp_path / "answers.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert message in capsys.readouterr().err
    assert main([str(tmp_path / "absent.json")]) == 2


def test_settings_are_refused_before_a_model_is_looked_for(tmp_path, capsys):
    path = written(tmp_path, [{**ROW, "output": OUTPUT}])
    assert main([str(path), "--tau", "2", "--judge", "no/such-model"]) == 2
    assert "--tau" in capsys.readouterr().err
