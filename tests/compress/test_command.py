"""The compress command: lines in, lines out with a status each, a file to go on with, mistakes told before any work."""

import io
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ragjax.compress import __main__ as command
from ragjax.compress.catalog import check_settings, make_compressor, make_scorer
from ragjax.compress.resume import Output, OutputRefused, open_output
from ragjax.compress.stream import compress_stream
from ragjax.data.records import Document, Example
from ragjax.testing import byte_tokenizer, random_params, tiny_config, tiny_model, write_checkpoint
from ragjax.testing_encoders import tiny_encoder

ROWS = [
    {"id": "a", "question": "Who keeps the mill?", "docs": ["Ada keeps the mill. It is old.", "A mill is a house."]},
    {
        "id": "b",
        "question": "Where is the lake?",
        "docs": [{"title": "Lake", "text": "The lake is in Orr. It is deep."}],
    },
    {"question": "Is it empty?", "docs": []},
    {"id": "b", "question": "Where is the sea?", "docs": ["The sea is far. It is cold."]},
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    cfg = tiny_config()
    return str(write_checkpoint(tmp_path_factory.mktemp("tiny") / "model", cfg, random_params(cfg), byte_tokenizer()))


@pytest.fixture
def call(generator, monkeypatch, capfdbinary):
    """Runs the command on some bytes: exit code, lines, what was said."""

    def run(*arguments, given=TEXT, method="extract"):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
        code = command.main(["--method", method, "--generator", generator, *arguments])
        out, err = capfdbinary.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err.decode()

    return run


def test_a_line_a_question_in_order_each_with_its_status(call):
    code, lines, _ = call("--budget", "0.5", "--batch", "2")
    assert code == 0
    assert [lines[i]["id"] for i in (0, 1, 3)] == ["a", "b", "b#2"]
    assert [line["status"] for line in lines] == ["ok", "ok", "empty", "ok"]
    first = lines[0]
    assert first["text"] == "Ada keeps the mill." == first["units"][0]["text"]
    assert first["units"][0]["sources"] == ["0.0"]
    assert first["units"][0]["spans"] == [[0, 0, 19]]
    assert first["achieved"] == len(first["text"]) <= first["requested"] == first["source_tokens"] // 2
    assert lines[2]["rate"] is None


def test_a_budget_in_tokens_and_settings_of_the_method(call):
    _, lines, _ = call("--budget", "200", "--set", "most=1")
    assert [line["status"] for line in lines] == ["short_input", "short_input", "empty", "short_input"]
    _, lines, _ = call("--set", "most=1")
    assert [len(line["units"]) for line in lines] == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--budget", "1.5"], "--budget 1.5: a budget's fraction lies in (0, 1], got 1.5"),
        (["--budget", "much"], "--budget much: could not convert"),
        (["--set", "mots=1"], "extract has no setting 'mots'; it has most, language"),
        (["--set", "most"], "--set takes key=value, got 'most'"),
        (["--scorer", "bi_encoder"], "--scorer bi_encoder needs --encoder"),
        (["--set", "most=two"], "extract: most takes a whole number or null, got 'two'"),
        (["--set", "most=1.5"], "extract: most takes a whole number or null, got 1.5"),
        (["--set", "scorer.k2=1"], "bm25 has no setting 'k2'; it has k1, b"),
        (["--set", "scorer.k1=high"], "bm25: k1 takes a number, got 'high'"),
        (["--scorer", "bi_encoder", "--set", "scorer.k1=1"], "no setting 'k1'; it has similarity, pooling, batch"),
        (["--scorer", "cross_encoder", "--set", "scorer.b=1"], "cross_encoder has no setting 'b'; it has batch"),
        (["--set", "language=3"], "extract: language takes a word, got 3"),
        (["--model", "other"], "extract has no model of its own"),
        (["--encoder", "other"], "--encoder other is of no use: its --scorer is bm25"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--batch", "0"], "--batch counts questions and is at least 1, got 0"),
    ],
)
def test_mistakes_are_told_before_any_model_loads(call, monkeypatch, arguments, told):
    monkeypatch.setattr(command, "load", lambda name: pytest.fail("a model was loaded"))
    monkeypatch.setattr(command, "load_vocabulary", lambda name: pytest.fail("a vocabulary was loaded"))
    code, lines, said = call(*arguments)
    assert (code, lines) == (2, [])
    assert told in said


@pytest.mark.parametrize(
    ("method", "arguments", "told"),
    [
        ("prefix", ["--scorer", "bi_encoder", "--encoder", "other"], "prefix takes no scorer"),
        ("prefix", ["--set", "scorer.k1=1"], "prefix takes no scorer: leave out scorer.k1"),
        ("prefix", ["--encoder", "other"], "--encoder other is of no use: prefix scores nothing with it"),
        ("recomp_extractive", [], "recomp_extractive needs --encoder"),
        ("recomp_extractive", ["--encoder", "other", "--set", "most=null"], "most takes a whole number, got None"),
        ("llmlingua2", ["--model", "other", "--set", "keep=[1]"], "keep takes a list of words, got [1]"),
        ("ecr", ["--set", "similarity=high"], "ecr: similarity takes a number, got 'high'"),
        ("ecr", ["--set", "strict=1"], "ecr: strict takes true or false, got 1"),
        ("ecr", ["--set", "writer=other"], "ecr has no setting 'writer'"),
    ],
)
def test_what_a_method_does_not_take_is_told_before_any_model_loads(call, monkeypatch, method, arguments, told):
    monkeypatch.setattr(command, "load", lambda name: pytest.fail("a model was loaded"))
    code, lines, said = call(*arguments, method=method)
    assert (code, lines) == (2, [])
    assert told in said


def test_settings_reach_their_compressor_as_it_takes_them():
    assert check_settings("llmlingua2", {"keep": "digits", "threshold": 1}) == {"keep": ("digits",), "threshold": 1}
    assert check_settings("longllmlingua", {"keep": ["digits", "question"]}) == {"keep": ("digits", "question")}
    assert check_settings("favicomp", {"seed": None, "strict": True}) == {"seed": None, "strict": True}


def test_settings_reach_their_scorer(call, tmp_path):
    made = make_scorer("bi_encoder", tiny_encoder(), similarity="dot", pooling=None, batch=2)
    assert (made.similarity, made.pooling, made.batch) == ("dot", None, 2)
    row = {"question": "mill?", "docs": ["A mill.", "The mill by a mill at that mill is old.", "It is far."]}
    arguments, out = ("--set", "most=1", "scorer.b=0"), str(tmp_path / "out.jsonl")
    for k1, text in (("scorer.k1=2", row["docs"][1]), ("scorer.k1=0", row["docs"][0])):  # At 0 a word counts once.
        _, lines, _ = call(*arguments, k1, given=json.dumps(row).encode())
        assert lines[0]["text"] == text
    assert call(*arguments, "--out", out)[0] == 0
    code, _, said = call(*arguments, "scorer.k1=1", "--out", out)
    assert code == 2
    assert "scorer was {'k1': 1.5, 'b': 0} and is now {'k1': 1, 'b': 0}" in said


def test_recomp_extractive_is_a_bi_encoder_by_dot_product():
    made = make_compressor("recomp_extractive", byte_tokenizer(), {"encoder": tiny_encoder()}, most=2)
    assert (made.most, made.scorer.similarity) == (2, "dot")


def test_the_generator_chooses_among_several_summaries(call, tmp_path):
    arguments = ("--set", "candidates=2", "max_new=4", "prompt_format=plain", "--budget", "0.5")
    code, lines, _ = call(*arguments, method="xcompress")
    assert code == 0
    assert call(*arguments, "--out", str(tmp_path / "out.jsonl"), given=b"", method="xcompress")[0] == 0
    assert [line["status"] for line in lines][2] == "empty"
    assert all(line["achieved"] <= line["requested"] for line in lines)
    made = make_compressor("xcompress", byte_tokenizer(), {"model": tiny_model(), "target": (reader := tiny_model())})
    assert made.reader is reader
    assert (made.candidates, made.compressor.alpha, made.compressor.tokenizer is not None) == (5, 0.0, True)


def test_a_model_of_another_kind_is_refused_by_name(call, generator):
    code, _, said = call("--model", generator, method="llmlingua2")
    assert code == 2
    assert f"{generator} is a causal language model, where an encoder is needed" in said


def test_a_broken_line_is_named_or_with_lenient_given_a_status(call):
    given = TEXT.splitlines(keepends=True)
    given.insert(1, b'{"question": "cut"\n')
    code, lines, said = call(given=b"".join(given))
    assert (code, lines) == (2, [])
    assert "standard input, line 2: not valid JSON" in said
    code, lines, said = call("--lenient", given=b"".join(given))
    assert code == 1
    assert [line["id"] for line in lines][:3] == ["a", None, "b"]
    assert lines[1]["status"].startswith("failed(line 2: not valid JSON")
    assert "1 rows failed" in said


def test_a_row_that_raises_fails_alone(call, monkeypatch):
    real = command.build

    def build(*arguments):
        inner = real(*arguments)

        def compress(examples, budget):
            if any(example.id == "b" for example in examples):
                raise FloatingPointError("no number")
            return inner.compress(examples, budget)

        return SimpleNamespace(compress=compress)

    monkeypatch.setattr(command, "build", build)
    code, lines, _ = call()
    assert code == 1
    assert [line["status"] for line in lines] == ["ok", "failed(FloatingPointError: no number)", "empty", "ok"]


def test_J01_a_file_is_gone_on_with_byte_for_byte(call, tmp_path):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert call("--out", str(whole), "--batch", "1")[0] == 0
    assert call("--out", str(cut), given=b"".join(TEXT.splitlines(keepends=True)[:2]))[0] == 0
    with cut.open("ab") as file:
        file.write(b'{"id": "torn')
    code, lines, _ = call("--out", str(cut))
    assert (code, lines) == (0, [])
    assert cut.read_bytes() == whole.read_bytes()
    before = cut.stat().st_mtime_ns
    assert call("--out", str(cut))[0] == 0
    assert cut.stat().st_mtime_ns == before


def test_rows_that_failed_stay_failed_and_the_exit_code_says_so(call, tmp_path):
    out = tmp_path / "out.jsonl"
    given = b'{"question"\n' + json.dumps({**ROWS[0], "id": "line 4"}).encode() + b"\n\n[]\n"
    assert call("--out", str(out), "--lenient", given=given[: given.rindex(b"[")])[0] == 1
    code, _, said = call("--out", str(out), "--lenient", given=given)
    assert code == 1
    assert "2 rows failed" in said
    before = out.read_bytes()
    assert [json.loads(line)["id"] for line in before.splitlines()] == [None, "line 4", None]
    assert call("--out", str(out), "--lenient", given=given)[0] == 1
    assert out.read_bytes() == before


def test_J03_other_settings_documents_or_files_are_refused(call, tmp_path):
    out = tmp_path / "out.jsonl"
    assert call("--out", str(out), "--budget", "0.5")[0] == 0
    code, _, said = call("--out", str(out), "--budget", "0.25")
    assert code == 2
    assert "budget was '0.5' and is now '0.25'" in said
    code, _, said = call("--out", str(out), "--budget", "0.5", given=TEXT.replace(b"deep", b"flat"))
    assert code == 2
    assert "'b' was another question, or had other documents" in said
    (tmp_path / "mine.jsonl").write_text("{}\n")
    code, _, said = call("--out", str(tmp_path / "mine.jsonl"))
    assert code == 2
    assert "mine.jsonl exists and has no mine.jsonl.settings.json beside it" in said


def test_J03_other_sentences_or_gold_documents_are_another_question(call, tmp_path):
    documents = ["Ada keeps the mill. It is old."]
    row = {"id": "a", "question": "Who keeps the mill?", "docs": documents, "answers": ["Ada"]}
    given = Example("a", row["question"], ("Ada",), (Document(documents[0]),))
    cut = replace(given, documents=(Document(documents[0], sentences=("Ada keeps", " the mill. It is old.")),))
    out = tmp_path / "out.jsonl"
    assert call("--out", str(out), given=json.dumps(row).encode())[0] == 0
    held = Output(out, {"a": json.loads(out.read_text())["content"]})
    assert list(held.rest(iter([given, replace(given, answers=("Bo",))]))) == []
    for other in (cut, replace(given, gold_documents=given.documents)):
        with pytest.raises(OutputRefused, match="'a' was another question, or had other documents"):
            list(held.rest(iter([other])))


def test_J03_a_setting_that_is_no_longer_there_is_another(tmp_path):
    path = tmp_path / "out.jsonl"
    with open_output(path, {"family": "Extract", "most": 1}) as output:
        assert output.done == {}
    with open_output(path, {"most": 1, "family": "Extract"}) as output:
        assert output.done == {}
    with (
        pytest.raises(OutputRefused, match="most was 1 and is now None"),
        open_output(path, {"family": "Extract"}),
    ):
        pytest.fail("it was opened")


def test_J03_a_file_that_another_run_writes_is_refused(call, generator, tmp_path):
    out = tmp_path / "out.jsonl"
    with start(generator, "--batch", "1", "--out", str(out)) as process:
        process.stdin.write(TEXT.splitlines(keepends=True)[0])
        process.stdin.flush()
        while not (out.exists() and out.stat().st_size):
            assert process.poll() is None
            time.sleep(0.05)
        before = out.read_bytes()
        code, _, said = call("--out", str(out))
        assert (code, out.read_bytes()) == (2, before)
        assert f"{out}: another run is writing it: wait for its end, or choose another file" in said
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert call("--out", str(out))[0] == 0
    assert len(out.read_bytes().splitlines()) == 4


def test_a_package_that_is_missing_is_no_rows_fault():
    def compress(examples, budget):
        raise ImportError("no bm25s")

    with pytest.raises(ImportError, match="no bm25s"):
        list(compress_stream(SimpleNamespace(compress=compress), [Example("a", "?")], None, 4))


def start(generator, *arguments, **pipes):
    words = [sys.executable, "-m", "ragjax.compress", "--method", "extract", "--generator", generator, *arguments]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **pipes)


def test_lines_leave_while_the_input_is_still_open(generator):
    with start(generator, "--batch", "1") as process:
        process.stdin.write(TEXT.splitlines(keepends=True)[0])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == "a"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert b"stopped" in process.stderr.read()


def test_a_reader_that_has_enough_is_no_error(generator):
    with start(generator, "--batch", "1") as process:
        process.stdout.close()
        process.stdin.write(TEXT)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert b"Traceback" not in process.stderr.read()
