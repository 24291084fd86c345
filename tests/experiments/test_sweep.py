"""The command from end to end on models that are text files: what it prints, writes, refuses, and survives."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from etils import epath
from fake_sweep import LIBRARY, FakeCompressor

from experiments.config_file import load_config
from experiments.experiment import Experiment
from experiments.study import check_vocabularies
from experiments.sweep import main
from ragjax.decode.ensemble import VocabularyMismatch
from ragjax.evals.parts import read_parts
from ragjax.hub import Vocabulary
from ragjax.testing import byte_tokenizer, random_params, tiny_config, write_checkpoint

HERE = Path(__file__).parent


def sweep(*argv):
    return main(["study.py", *argv], LIBRARY)


def rows_of(folder="results/study"):
    return [json.loads(line) for line in Path(folder, "items.jsonl").read_text().splitlines()]


def files_of(folder="results/study"):
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def test_a_sweep_leaves_its_results(workplace, capsys):
    assert sweep() == 0
    rows = rows_of()
    labels = list(dict.fromkeys(row["point"] for row in rows))
    assert labels == [
        "no context",
        "raw documents",
        "zero-shot summary",
        "generated context",
        "concatenation",
        "FaviComp alpha 0.3",
        "FaviComp alpha 0.7",
    ]
    assert len(rows) == 7 * 5
    assert len({row["key"] for row in rows}) == 7 * 5
    printed = capsys.readouterr().out
    assert all(label.split()[0] in printed for label in labels)
    assert "results in results/study" in printed
    assert "Acc, EM and F1 from 0 to 100" in printed
    concat = next(row for row in rows if row["point"] == "concatenation")
    texts = {row["point"]: row["text"] for row in rows if row["id"] == "a"}
    assert concat["text"] == texts["generated context"] + "\n" + texts["zero-shot summary"]
    assert len(concat["traces"]) == 2
    assert concat["achieved"] == len(concat["text"].split())
    assert concat["traces"][0]["log_probs"][0] == -0.333333


def test_points_that_differ_in_alpha_share_their_decoding(workplace):
    FakeCompressor.built.clear()
    assert sweep() == 0
    (compressor,) = FakeCompressor.built
    assert [alphas for _, alphas in compressor.calls] == [[0.0, 0.3, 0.7, 1.0]] * 3
    assert compressor.calls[0][0] == ["When?", "When?"]  # batches hold questions of similar length


def test_set_takes_several_fields_and_none_twice(workplace, capsys):
    assert sweep("--set", "max_new=9", "batch=1", "--set", "top_k=1", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("max_new=9", "batch=1", "top_k=1"))
    assert sweep("--set", "max_new=9", "max_new=8", "--dry-run") == 2
    assert "max_new is set twice" in capsys.readouterr().err


def test_official_rules_without_a_dataset_are_refused_before_models_load(workplace, capsys):
    assert sweep("--set", "normalizer=official") == 2
    assert "dataset" in capsys.readouterr().err
    assert not Path("results").exists()


def test_points_of_equal_content_are_refused(workplace, capsys):
    Path("copy.txt").write_bytes(Path("model.txt").read_bytes())
    config = Path("twins.py")
    config.write_text(
        "from experiments.combine import prod\nfrom experiments.experiment import Experiment\n"
        'POINTS = prod(Experiment(method="raw", data="data.jsonl"), reader=["model.txt", "copy.txt"])\n'
    )
    assert main(["twins.py"], LIBRARY) == 2
    assert "would make the same rows" in capsys.readouterr().err


def test_a_second_run_makes_nothing_and_changes_nothing(workplace):
    assert sweep() == 0
    before = files_of()
    assert sweep("--show", "2") == 0
    assert files_of() == before


def test_the_batch_and_a_larger_limit_reuse_rows(workplace):
    assert sweep("--limit", "3") == 0
    FakeCompressor.built.clear()
    assert sweep("--set", "batch=5") == 0
    assert [questions for questions, _ in FakeCompressor.built[0].calls] == [["When?", "When?"]]
    limited = Path("results/study/items.jsonl").read_bytes()
    assert sweep("--out", "whole") == 0
    assert Path("whole/items.jsonl").read_bytes() == limited


def test_dry_run_lists_and_touches_nothing(workplace, capsys):
    Path("model.txt").unlink()
    before = files_of(".")
    assert sweep("--dry-run", "--set", "max_new=9", "--force") == 0
    printed = capsys.readouterr().out
    assert "7 points, results in results/study" in printed
    assert "FaviComp alpha 0.7: method=favicomp" in printed
    assert "max_new=9" in printed
    assert files_of(".") == before


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--set", "aplha=0.3"], "no field 'aplha'; did you mean 'alpha'"),
        (["--set", "top_k=many"], "top_k is 'many'"),
        (["--limit", "0"], "limit is 0"),
        (["--data", "question"], "did you mean 'questions'"),
        (["--data", "missing.jsonl"], "no data file 'missing.jsonl'"),
        (["--data", "broken.jsonl"], "broken.jsonl, line 1"),
        (["--set", "reader=missing.txt"], "no model 'missing.txt'"),
        (["--set", "prompts=missing.toml"], "missing.toml"),
    ],
)
def test_wrong_input_is_one_line_before_any_model_loads(workplace, capsys, monkeypatch, argv, message):
    Path("broken.jsonl").write_text('{"question": "Why?"}\n')
    monkeypatch.setattr("fake_sweep.Path.read_bytes", lambda path: pytest.fail("a model was loaded"))
    assert sweep(*argv) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("results").exists()


def test_an_unknown_study_and_an_unknown_field_in_one_are_refused(workplace, capsys):
    assert main(["quickstrat", "--dry-run"], LIBRARY) == 2
    assert "did you mean 'quickstart'" in capsys.readouterr().err
    Path("typo.py").write_text("from experiments.experiment import Experiment\nPOINTS = [Experiment(aplha=0.3)]\n")
    assert main(["typo.py"], LIBRARY) == 2
    assert "did you mean 'alpha'" in capsys.readouterr().err
    Path("none.py").write_text("POINTS = []\n")
    with pytest.raises(ValueError, match="no list POINTS"):
        load_config(Path("none.py"))


def test_the_quickstart_lists_eight_methods(workplace, capsys):
    assert main(["quickstart", "--dry-run"], LIBRARY) == 0
    assert "8 points, results in results/quickstart" in capsys.readouterr().out


def change_alpha():
    return ["--set", "alpha=0.4"]


def change_model():
    Path("model.txt").write_text("revision 2")
    return []


def change_data():
    Path("data.jsonl").write_text(Path("data.jsonl").read_text().replace("1742", "1743"))
    return []


def change_prompts():
    Path("prompts.toml").write_text('version = "mine"\nread_alone = "{question}"\n')
    return ["--set", "prompts=prompts.toml"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_alpha, "alpha was 0.3 and is now 0.4"),
        (change_model, "reader was"),
        (change_data, "data was"),
        (change_prompts, "prompts was 'ragjax-1"),
    ],
)
def test_J03_changed_settings_are_refused_and_force_keeps_the_old(workplace, capsys, change, message):
    assert sweep("--limit", "2") == 0
    before = files_of()
    argv = change()
    assert sweep("--limit", "2", *argv) == 2
    assert message in capsys.readouterr().err
    assert files_of() == before
    assert sweep("--limit", "2", "--force", *argv) == 0
    (kept,) = Path("results").glob("study.*")
    assert f"the old results are kept in {kept}" in capsys.readouterr().out
    assert sorted(files_of(kept).values()) == sorted(before.values())
    assert len({row["settings"] for row in rows_of()}) == len(rows_of()) / 2


def test_J04_failures_are_stored_counted_and_told_by_the_exit_code(workplace, capsys, monkeypatch):
    monkeypatch.setenv("FAILING_QUESTION", "Where is it?")
    monkeypatch.setenv("NON_FINITE_QUESTION", "Why?")
    assert sweep() == 1
    rows = rows_of()
    statuses = {(row["point"], row["question"]): row["status"] for row in rows}
    assert len(rows) == 35
    assert statuses["raw documents", "Where is it?"] == "failed(RuntimeError: no reply)"
    assert statuses["raw documents", "Why?"] == "failed(non-finite at step 3)"
    assert statuses["no context", "Why?"] == "ok"
    summary = json.loads(Path("results/study/summary.json").read_text())
    failed = {point["label"]: point["counts"]["failed"] for point in summary["points"].values()}
    assert failed == {label: 1 if label == "no context" else 2 for label in failed}
    assert {pair["left_out"] for pair in summary["paired"]["acc"]} == {2}
    assert "rows failed: no context 1, raw documents 2" in capsys.readouterr().out


def test_B17_cut_and_empty_texts_are_counted(workplace, capsys, monkeypatch):
    monkeypatch.setenv("EMPTY_QUESTION", "When?")
    assert sweep("--set", "alpha=0.7") == 0
    printed = capsys.readouterr().out
    assert "rows without evidence: zero-shot summary 2, generated context 2" in printed
    empty = [row for row in rows_of() if row["question"] == "When?" and row["point"] == "FaviComp alpha 0.7"]
    assert [(row["status"], row["context"], row["perplexity"]) for row in empty] == [("empty", None, None)] * 2


def test_perplexity_is_the_targets(workplace):
    assert sweep("--set", "target=other.txt") == 0
    measured = {row["point"]: row["perplexity"] for row in rows_of() if row["id"] == "a"}
    assert measured["no context"] is None
    assert measured["raw documents"]["perplexity"] == 2.01375  # e^0.7
    assert measured["raw documents"]["count"] == 5


def test_a_data_file_and_top_k_from_the_command_line(workplace):
    assert sweep("--top-k", "1", "--limit", "2") == 0
    texts = {row["question"]: row["text"] for row in rows_of() if row["point"] == "raw documents"}
    assert texts == {"Who built the bridge?": "Ada built it.", "Where is it?": "A town → éa."}
    assert [row["documents"] for row in rows_of()] == [1] * 14


def test_show_colours_texts_from_stored_rows(workplace, capsys):
    assert sweep() == 0
    assert sweep("--show", "3") == 0
    printed = capsys.readouterr().out
    assert "the target's first choice" in printed
    shown = [line for line in printed.splitlines() if "(FaviComp" in line]
    assert [line.split("  ")[0] for line in shown] == ["Who built the bridge?"] * 2 + ["Where is it?"]


def test_an_interrupt_tells_how_to_go_on(workplace, capsys, monkeypatch):
    calls = []

    def interrupted(self, examples, alphas, budget):
        calls.append(alphas)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decode(self, examples, alphas, budget)

    decode = FakeCompressor.compress_alphas
    monkeypatch.setattr(FakeCompressor, "compress_alphas", interrupted)
    assert sweep("--force") == 130
    assert "To go on: python -m experiments.sweep study.py\n" in capsys.readouterr().err
    assert sweep() == 0
    assert len(calls) == 4


def parts_in(folder):
    return len(list(Path(folder, "parts").glob("*.jsonl")))


def start(folder, seconds):
    environment = {**os.environ, "SECONDS_PER_BATCH": str(seconds), "PYTHONPATH": str(HERE.parent.parent)}
    argv = [sys.executable, str(HERE / "fake_sweep.py"), "study.py", "--set", "batch=1", "--out", folder]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_once_it_wrote(folder, parts):
    """Start the sweep and kill it, without warning, at some moment after its n-th part."""
    process = start(folder, 0.05)
    deadline = time.monotonic() + 60
    while parts_in(folder) < parts and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read().decode()
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_at_five_points_and_resumed_the_items_are_the_same(workplace):
    assert sweep("--set", "batch=1", "--out", "whole") == 0
    for parts in (0, 3, 6, 9, 12):
        kill_once_it_wrote("killed", parts)
        assert not Path("killed/items.jsonl").exists()
    kept = parts_in("killed")
    assert 12 <= kept < 15
    assert sweep("--set", "batch=1", "--out", "killed") == 0
    assert Path("killed/items.jsonl").read_bytes() == Path("whole/items.jsonl").read_bytes()
    written, damaged = read_parts(epath.Path("killed/parts"))
    assert len(written) == 15
    assert damaged == []


SMALL_STUDY = """
from experiments.combine import prod
from experiments.experiment import Experiment

MODEL = {"compressor": "model.txt", "target": "model.txt", "reader": "model.txt"}
BASE = Experiment(**MODEL, data="data.jsonl", batch=2, max_new=6, reader_max_new=4, temperature=1.0)
POINTS = prod(BASE, alpha=[0.0, 0.5])
"""


@pytest.fixture
def real_workplace(workplace):
    """The place of work with random weights over the byte tokenizer in place of the text file, and a small study of
    questions of one length, for few programs to compile."""
    cfg = tiny_config(num_layers=1, vocab_size=264)
    Path("model.txt").unlink()
    write_checkpoint("model.txt", cfg, random_params(cfg), byte_tokenizer())
    Path("study.py").write_text(SMALL_STUDY)
    questions = [{"question": f"Who is {name}?", "answer": "Ada", "docs": ["Ada is."]} for name in "abcd"]
    Path("data.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    return workplace


def test_a_real_model_killed_and_resumed_gives_the_same_items(real_workplace):
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    argv = [sys.executable, "-m", "experiments.sweep", "study.py", "--out", "killed"]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while parts_in("killed") < 1 and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert parts_in("killed") == 1
    assert not Path("killed/items.jsonl").exists()
    assert main(["study.py", "--out", "killed"]) == 0
    assert main(["study.py", "--out", "whole"]) == 0
    assert Path("killed/items.jsonl").read_bytes() == Path("whole/items.jsonl").read_bytes()
    rows = rows_of("whole")
    assert [row["status"].startswith("failed") for row in rows] == [False] * 8
    assert all(row["perplexity"]["perplexity"] > 1 for row in rows if row["context"])
    assert {w for row in rows[:4] for trace in row["traces"] for w in trace["winners"]} == {"compressor"}


def vocabulary(name, **kind):
    return Vocabulary(byte_tokenizer(**kind), name, 261)


@pytest.mark.parametrize(
    ("kind", "words"),
    [({"bos": False}, "bos_token_id is None and 256"), ({"chat": False}, "no chat template: set prompt_format=plain")],
)
def test_what_a_tokenizer_shows_is_refused_before_a_model_is_loaded(workplace, capsys, kind, words):
    found = {"model.txt": vocabulary("model.txt", **kind), "target.txt": vocabulary("target.txt")}
    Path("target.txt").write_text("another")
    unread = replace(LIBRARY, vocabulary=found.get, load=lambda name, dtype: pytest.fail(f"{name} was loaded"))
    assert main(["study.py", "--set", "target=target.txt"], unread) == 2
    assert words in capsys.readouterr().err
    assert not Path("results").exists()


def test_models_that_are_never_mixed_need_no_shared_vocabulary():
    vocabularies = {"a": vocabulary("a"), "b": vocabulary("b", bos=False)}
    both = Experiment(method="concat", compressor="a", target="b", reader="a").canonical()
    mixed = Experiment(method="favicomp", compressor="a", target="b", reader="a").canonical()
    written = Experiment(
        method="xcompress", writer="favicomp", alpha=0.5, compressor="a", target="b", reader="b"
    ).canonical()
    check_vocabularies([both, replace(mixed, alpha=0.0), replace(mixed, admit_added=True)], vocabularies.get)
    for point in (mixed, written):
        with pytest.raises(VocabularyMismatch, match="bos_token_id"):
            check_vocabularies([both, point], vocabularies.get)


def test_plain_prompts_need_no_chat_template():
    base = vocabulary("base", chat=False)
    point = Experiment(method="raw", reader="base").canonical()
    check_vocabularies([replace(point, prompt_format="plain")], lambda name: base)
    with pytest.raises(ValueError, match="base has no chat template"):
        check_vocabularies([point], lambda name: base)
