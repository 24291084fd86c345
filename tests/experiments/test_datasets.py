"""Datasets in a study: named, split, warned of, refused; the gold documents; the paper's decoding."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sweep import LIBRARY, FakeCompressor, FakeReader

from experiments.experiment import Experiment
from experiments.presets import own_sampling, settle
from experiments.study import load_data, source_of
from experiments.sweep import main
from ragjax.evals.demonstrations import DEMONSTRATIONS

HOTPOT = [
    {
        "_id": "a1",
        "question": "Who built it?",
        "answer": "Ada",
        "supporting_facts": [["Bridge", 0]],
        "context": [["Bridge", ["Ada built the bridge."]], ["Rye", ["Rye is a town of old."]]],
    },
    {"_id": "a2", "question": "Is it old?", "answer": "yes", "supporting_facts": [], "context": [["Rye", ["Rye is."]]]},
]
RETRIEVED = [
    {"question": "Who built it?", "answers": ["Ada"], "ctxs": ["Rye is far.", "It is said: Ada built the bridge."]},
    {"question": "Is it old?", "answers": ["yes"], "ctxs": [{"title": "Rye", "text": "Rye is."}]},
]
NQ = [{"question": "who built it", "answer": ["Ada"]}]


@pytest.fixture
def datasets(workplace):
    Path("hotpot.json").write_text(json.dumps(HOTPOT))
    contexts = [{**NQ[0], "contexts": ["Ada built it."]}]
    for name, rows in (("retrieved", RETRIEVED), ("nq", NQ), ("contexts", contexts)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return workplace


def sweep(*argv):
    return main(["study.py", *argv], LIBRARY)


def rows_of():
    return [json.loads(line) for line in Path("results/study/items.jsonl").read_text().splitlines()]


def test_the_split_is_stored_with_every_row_and_printed_with_the_table(datasets, capsys):
    assert sweep("--dataset", "hotpotqa", "--data", "hotpot.json") == 0
    assert {(row["dataset"], row["split"]) for row in rows_of()} == {("hotpotqa", "distractor/validation")}
    _, printed = capsys.readouterr().out.split("Acc, EM and F1")
    assert "questions: hotpotqa distractor/validation, hotpot.json: 2 questions" in printed
    assert "warning: 2 questions were read, hotpotqa distractor/validation is known to have 7,405" in printed
    execution = json.loads(Path("results/study/manifest.json").read_text())["execution"]
    assert execution["data"][0]["layouts"] == ["HotpotQA"]
    assert sweep("--dataset", "hotpotqa", "--split", "fullwiki/dev", "--data", "hotpot.json") == 2
    assert "split was 'distractor/validation' and is now 'fullwiki/validation'" in capsys.readouterr().err


def test_rows_that_state_their_split_keep_it(workplace):
    row = {"question": "Why?", "answers": ["a"], "docs": ["b"], "dataset": "mine", "split": "dev"}
    Path("data.jsonl").write_text(json.dumps(row))
    assert sweep() == 0
    assert {(row["dataset"], row["split"]) for row in rows_of()} == {("mine", "dev")}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--dataset", "hotpot"], "did you mean 'hotpotqa'"),
        (["--dataset", "nq", "--split", "test"], "3,610 questions is the split validation"),
        (["--dataset", "nq", "--data", "nq.jsonl"], "nq itself has no documents: give retrieved ones"),
        (["--dataset", "nq"], "nq itself has no documents: give retrieved ones"),
        (["--dataset", "hotpotqa", "--data", "nq.jsonl"], "None of the 1 questions of nq.jsonl has any"),
        (["--dataset", "nq", "--data", "hotpot.json"], "hotpot.json looks like HotpotQA, the layout of hotpotqa"),
        (["--dataset", "nq", "--data", "contexts.jsonl"], "the field contexts looks like documents"),
        (["--data", "hub"], "data 'hub' needs a dataset"),
        (["--set", "shots=5"], "shots 5 needs a dataset"),
        (["--set", "shots=6", "--dataset", "nq"], "there are 5 demonstrations"),
        (["--set", "method=gold"], "data.jsonl has no gold documents"),
        (["--dataset", "hotpotqa", "--data", "none.json"], "hotpot_dev_distractor_v1.json from hotpotqa.github.io"),
    ],
)
def test_what_cannot_be_run_is_one_line_before_any_model_loads(datasets, capsys, monkeypatch, argv, words):
    monkeypatch.setattr("fake_sweep.Path.read_bytes", lambda path: pytest.fail("a model was loaded"))
    assert sweep(*argv) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_I03_the_hub_out_of_reach_says_what_to_do(datasets, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: (_ for _ in ()).throw(OSError("no net")))
    assert sweep("--dataset", "musique") == 2
    assert "musique_ans_v1.0_dev.jsonl from musique_v1.0.zip" in capsys.readouterr().err


def test_a_model_that_cannot_be_had_is_told_before_a_dataset_is_fetched(datasets, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("a dataset was fetched"))
    assert sweep("--dataset", "hotpotqa", "--set", "reader=missing.txt") == 2
    assert "no model 'missing.txt'" in capsys.readouterr().err


def test_methods_without_documents_run_on_questions_alone(datasets):
    Path("study.py").write_text(
        "from experiments.experiment import Experiment\n"
        "POINTS = [Experiment(method='no_context', reader='model.txt', dataset='nq', data='nq.jsonl')]\n"
    )
    assert sweep() == 0
    assert [row["scores"]["unscored"] for row in rows_of()] == [None]


def test_a_hidden_split_is_answered_and_never_scored(datasets, capsys):
    Path("hotpot_test_fullwiki_v1.json").write_text(
        json.dumps([{"_id": "t1", "question": "Who?", "context": [["T", ["Ada did."]]]}])
    )
    assert sweep("--dataset", "hotpotqa", "--split", "fullwiki/test", "--data", ".") == 0
    assert {row["scores"]["unscored"] for row in rows_of()} == {"no gold"}
    assert {row["scores"]["acc"] for row in rows_of()} == {None}
    assert "are not public: answers are made, and nothing is scored" in capsys.readouterr().out


GOLD_STUDY = """
from experiments.combine import prod
from experiments.experiment import Experiment

BASE = Experiment(reader="model.txt", dataset="hotpotqa", data="retrieved.jsonl", golds="hotpot.json")
POINTS = prod(BASE, method=["raw", "gold"])
"""


def test_gold_documents_are_the_matching_ones_or_all(datasets):
    Path("study.py").write_text(GOLD_STUDY)
    assert sweep() == 0
    shown = {(row["point"], row["question"]): (row["text"], row["documents"]) for row in rows_of()}
    assert shown["gold documents", "Who built it?"] == ("It is said: Ada built the bridge.", 1)
    assert shown["gold documents", "Is it old?"] == shown["raw documents", "Is it old?"] == ("Rye is.", 1)
    assert shown["raw documents", "Who built it?"][1] == 2
    paired = json.loads(Path("results/study/summary.json").read_text())["paired"]["acc"]
    assert [(pair["point"], pair["against"], pair["n"]) for pair in paired] == [("gold documents", "raw documents", 2)]


def test_the_readers_demonstrations_are_the_datasets(datasets):
    built = []

    def reader(lm, **settings):
        built.append(settings)
        return FakeReader(lm, **settings)

    parts = replace(LIBRARY, reader=reader)
    assert main(["study.py", "--dataset", "hotpotqa", "--data", "hotpot.json", "--set", "shots=3"], parts) == 0
    assert {settings["shots"] for settings in built} == {DEMONSTRATIONS["hotpotqa"][:3]}


def test_one_dataset_of_a_study_over_several(datasets, capsys):
    Path("study.py").write_text(
        "from experiments.combine import zip_\nfrom experiments.experiment import Experiment\n"
        "BASE = Experiment(method='raw', reader='model.txt')\n"
        "POINTS = zip_(BASE, dataset=['hotpotqa', 'nq'], data=['hotpot.json', 'nq.jsonl'])\n"
        "PENDING = {'CompAct': 'one iteration'}\n"
    )
    assert sweep("--dry-run") == 0
    printed = capsys.readouterr().out
    assert "raw documents dataset hotpotqa: method" in printed
    assert "raw documents dataset nq: method" in printed
    assert "not run: CompAct (one iteration)" in printed
    assert sweep("--dataset", "hotpotqa") == 0
    assert len(rows_of()) == 2
    assert "not run: CompAct" in capsys.readouterr().out
    assert sweep("--dataset", "musique") == 2
    assert "it has hotpotqa, nq" in capsys.readouterr().err


def test_the_official_normaliser_is_that_of_the_named_dataset(datasets):
    assert sweep("--dataset", "nq", "--data", "retrieved.jsonl", "--set", "normalizer=official") == 0
    assert {row["scores"]["rules"]["normalizer"] for row in rows_of()} == {"nq"}


def test_a_source_is_loaded_once_as_far_as_its_points_need():
    base = Experiment(method="raw", reader="r", data="questions")
    data = load_data([replace(base, limit=2), replace(base, limit=4), replace(base, method="no_context")])
    assert [len(loaded.examples) for loaded in data.values()] == [44]
    assert source_of(base) in data


POINT = Experiment(compressor="c", target="t", reader="r", preset="paper", temperature=0.3)


def test_the_papers_decoding_is_the_compressors_own_from_one_small_file(tmp_path, monkeypatch):
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.9, "do_sample": true}')
    point = POINT.canonical()
    assert (point.preset, point.temperature, point.reader_temperature, point.seed) == ("paper", None, 1.0, 0)
    assert point.canonical() == point
    asked = []
    monkeypatch.setattr("experiments.presets.fetch_small", lambda *of: asked.append(of) or tmp_path / of[1])
    (settled,) = settle([point])
    assert (settled.preset, settled.temperature, settled.top_p, settled.reader_temperature) == (None, 0.6, 0.9, 1.0)
    settle([replace(POINT, method="generated").canonical()])
    assert asked == [("c", "generation_config.json"), ("t", "generation_config.json")]
    monkeypatch.setattr("experiments.presets.fetch_small", lambda *_: None)
    assert settle([point])[0].temperature == 1.0


def test_a_method_that_decodes_nothing_needs_no_models_values():
    point = replace(POINT, method="raw").canonical()
    assert (point.preset, point.reader_temperature) == (None, 1.0)
    assert point == replace(POINT, method="raw", preset=None, reader_temperature=1.0).canonical()
    assert replace(POINT, preset=None).canonical().temperature == 0.3


@pytest.mark.parametrize(("stated", "own"), [("{}", (1.0, 1.0)), ('{"top_p": 0.5, "temperature": null}', (1.0, 0.5))])
def test_what_a_model_does_not_state_is_one(stated, own, tmp_path):
    assert own_sampling(str(tmp_path)) == (1.0, 1.0)
    (tmp_path / "generation_config.json").write_text(stated)
    assert own_sampling(str(tmp_path)) == own
    for wrong, words in (('{"temperature": "hot"}', "states temperature"), ("{", "generation_config.json: not a JSON")):
        (tmp_path / "generation_config.json").write_text(wrong)
        with pytest.raises(ValueError, match=words):
            own_sampling(str(tmp_path))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("meta-llama__Llama-3.2-3B-Instruct", (0.6, 0.9)),
        ("mistralai__Mistral-7B-Instruct-v0.2", (1.0, 1.0)),
    ],
)
def test_the_published_compressors_own_values(shared, name, own, tmp_path):
    stated = (shared / "models" / "configs" / f"{name}.generation.json").read_text()
    (tmp_path / "generation_config.json").write_text(stated)
    assert own_sampling(str(tmp_path)) == own


def test_a_preset_runs_and_its_values_are_stored(datasets):
    assert sweep("--set", "preset=paper") == 0
    points = json.loads(Path("results/study/manifest.json").read_text())["points"]
    decoded = [point["settings"] for point in points if point["settings"]["method"] == "favicomp"]
    assert {(of["temperature"], of["top_p"], of["preset"]) for of in decoded} == {(1.0, 1.0, None)}
    assert {point["settings"]["reader_temperature"] for point in points} == {1.0}


def test_no_model_is_fetched_for_a_folder_of_rows_made_with_other_settings(datasets, capsys):
    assert sweep("--set", "preset=paper", "--limit", "1") == 0
    unfetched = replace(LIBRARY, resolve=lambda name: pytest.fail("a model was fetched whole"))
    assert main(["study.py", "--limit", "1", "--set", "preset=paper", "max_new=9"], unfetched) == 2
    assert "max_new was" in capsys.readouterr().err


def test_a_point_alone_shares_no_decoding(datasets):
    FakeCompressor.built.clear()
    assert sweep("--set", "alone=true") == 0
    assert len(FakeCompressor.built) == 5
    apart = Path("results/study/items.jsonl").read_bytes()
    assert sweep("--force") == 0
    assert Path("results/study/items.jsonl").read_bytes() == apart


def test_I07_lenient_leaves_out_and_lists(datasets, capsys):
    assert sweep() == 0
    whole = Path("results/study/items.jsonl").read_bytes()
    lines = Path("data.jsonl").read_text().splitlines()
    Path("data.jsonl").write_text("\n".join([lines[0], '{"question": "cut', *lines[1:]]))
    assert sweep("--out", "strict") == 2
    assert "data.jsonl, line 2: not valid JSON" in capsys.readouterr().err
    assert sweep("--lenient", "--out", "lenient") == 0
    printed = capsys.readouterr().out
    assert "5 questions (1 skipped rows" in printed
    assert "warning: 1 rows left out, listed in summary.json; the first: data.jsonl, line 2: not valid" in printed
    (skipped,) = json.loads(Path("lenient/summary.json").read_text())["skipped_rows"]
    assert (skipped["path"], skipped["line"], skipped["unit"]) == ("data.jsonl", 2, "line")
    execution = json.loads(Path("lenient/manifest.json").read_text())["execution"]
    assert (execution["lenient"], execution["data"][0]["counts"]["skipped_rows"]) == ([True], 1)
    before = Path("lenient/items.jsonl").read_bytes()
    # The file's hash is in the settings, and in nothing else.
    first, second = ([json.loads(line) for line in text.splitlines()] for text in (whole, before))
    for row in (*first, *second):
        del row["key"], row["settings"]
    assert first == second
    assert sweep("--lenient", "--out", "lenient") == 0
    assert Path("lenient/items.jsonl").read_bytes() == before


def test_questions_without_documents_are_warned_of(datasets, capsys):
    asked = [*RETRIEVED, {"question": "What?", "answers": ["a"], "ctxs": []}, {"question": "Who?", "answers": ["b"]}]
    Path("some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    assert sweep("--dataset", "nq", "--data", "some.jsonl") == 0
    printed = capsys.readouterr().out
    assert "4 questions (2 without documents)" in printed
    assert "warning: 2 of 4 questions have no documents: nothing is compressed for them" in printed
