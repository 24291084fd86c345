"""A dataset by name: the right split and files, what is warned of, and what is said where it cannot be had."""

import json
import re

import published_rows as rows
import pytest
from huggingface_hub import errors

from ragjax.data import DataError, load_examples
from ragjax.data.catalog import DATASETS, GENERAL, check_count, find_split
from ragjax.data.layouts import LAYOUTS
from ragjax.data.sources import fetch, join_golds, load_dataset

PUBLISHED = {
    ("nq", "validation"): 3610,
    ("triviaqa", "validation"): 11313,
    ("hotpotqa", "validation"): 7405,
    ("2wikimultihopqa", "validation"): 12576,
    ("musique", "full/validation"): 4834,
    ("musique", "dev"): 2417,
    ("asqa", None): 948,
    ("qasper", "validation"): 1005,
}


@pytest.mark.parametrize(("dataset", "split"), PUBLISHED)
def test_the_evaluation_splits_have_their_published_sizes(dataset, split):
    assert find_split(dataset, split)[1].questions == PUBLISHED[dataset, split]


@pytest.mark.parametrize(
    ("dataset", "split", "full"),
    [
        ("triviaqa", None, "unfiltered.nocontext/validation"),
        ("triviaqa", "rc/dev", "rc/validation"),
        ("asqa", "validation", "default/dev"),
        ("asqa", "dev", "default/dev"),
        ("hotpotqa", "fullwiki/test", "fullwiki/test"),
        ("musique", "full/dev", "full/validation"),
    ],
)
def test_a_split_goes_by_its_full_name(dataset, split, full):
    assert find_split(dataset, split)[0] == full


@pytest.mark.parametrize(
    ("dataset", "split", "words"),
    [
        ("nq", "test", "NQ's test set of 3,610 questions is the split validation"),
        ("hotpotqa", "test", "no split 'test'; there are distractor/train"),
        ("hotpot", None, "did you mean 'hotpotqa'"),
    ],
)
def test_an_unknown_split_says_what_there_is(dataset, split, words):
    with pytest.raises(DataError, match=words):
        find_split(dataset, split)


def test_I03_a_count_that_is_not_the_splits_is_warned_of():
    assert check_count("nq", "validation", 3610) is None
    assert check_count("musique", "test", 1) is None
    assert "DPR's own development set" in check_count("nq", "validation", 8757)
    assert "full/validation" in check_count("musique", "validation", 4834)
    assert "7,000 questions were read, hotpotqa distractor/validation" in check_count("hotpotqa", None, 7000)


def test_I03_a_local_file_is_always_accepted(tmp_path):
    path = rows.array(tmp_path / "hotpot_dev_distractor_v1.json", [rows.hotpot_original(r) for r in rows.HOTPOT_HUB])
    loaded = load_dataset("hotpotqa", source=path)
    assert (loaded.dataset, loaded.split) == ("hotpotqa", "distractor/validation")
    assert loaded.warnings == ("3 questions were read, hotpotqa distractor/validation is known to have 7,405",)
    assert loaded.summary().startswith("hotpotqa distractor/validation, hotpot_dev_distractor_v1.json: 3 questions")
    assert load_dataset("hotpotqa", source=tmp_path).examples == loaded.examples
    assert load_dataset("hotpotqa", source=path, limit=2).warnings == ()


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"split": "train"}, "a1 is of the split train, not distractor/validation: name it with --split"),
        ({"dataset": "musique"}, "a1 is a question of musique, not of hotpotqa"),
        ({"type": "compositional"}, "a1 is a question of 2wikimultihopqa, not of hotpotqa"),
    ],
)
def test_rows_that_say_what_they_are_are_not_read_as_something_else(states, message, tmp_path):
    row = {**rows.hotpot_original(rows.HOTPOT_HUB[0]), **states}
    with pytest.raises(DataError, match=message):
        load_dataset("hotpotqa", source=rows.array(tmp_path / "rows.json", [row]))
    agreeing = {**rows.hotpot_original(rows.HOTPOT_HUB[0]), "split": "dev (v1)", "dataset": "hotpotqa"}
    assert load_dataset("hotpotqa", source=rows.array(tmp_path / "rows.json", [agreeing])).examples


def test_a_folder_holds_hub_files_of_several_splits_and_shards(tmp_path):
    first, second, third = rows.HOTPOT_HUB
    for config, number, row in (("distractor", 0, first), ("distractor", 1, second), ("fullwiki", 0, third)):
        rows.parquet(tmp_path / config / f"validation-0000{number}-of-00002.parquet", [row])
    rows.parquet(tmp_path / "fullwiki" / "test-00000-of-00001.parquet", [third])
    assert [e.id for e in load_dataset("hotpotqa", source=tmp_path).examples] == ["a1", "a2"]
    assert [e.id for e in load_dataset("hotpotqa", "fullwiki/dev", tmp_path).examples] == ["a3"]
    whole, part = load_dataset("hotpotqa", source=tmp_path), load_dataset("hotpotqa", source=tmp_path, limit=1)
    assert whole.content_hash == part.content_hash
    hidden = load_dataset("hotpotqa", "fullwiki/test", tmp_path)
    assert hidden.examples[0].answers == ()
    assert any("not public" in warning for warning in hidden.warnings)


def test_questions_of_a_named_dataset_need_no_documents(tmp_path):
    path = rows.lines(tmp_path / "NQ-open.dev.jsonl", [{"question": "who painted it", "answer": ["N. A"]}])
    assert load_dataset("nq", source=path).examples[0].documents == ()
    flash = rows.lines(tmp_path / "nq.jsonl", [{"id": "test_0", "question": "who", "golden_answers": ["a"]}])
    assert load_dataset("nq", source=flash).examples[0].id == "test_0"


def test_asqas_original_file_gives_the_split_asked_for(tmp_path):
    inner = {name: value for name, value in rows.ASQA.items() if name != "sample_id"}
    (tmp_path / "ASQA.json").write_text(json.dumps({"train": {"1": inner, "2": inner}, "dev": {"-12": inner}}))
    assert [e.id for e in load_dataset("asqa", source=tmp_path).examples] == ["-12"]
    assert [e.id for e in load_dataset("asqa", "train", tmp_path / "ASQA.json").examples] == ["1", "2"]


def test_asqas_golds_are_the_short_answers_whatever_a_row_calls_its_answers(tmp_path):
    pairs = [{"question": "When?", "short_answers": ["1900"]}, {"question": "And then?", "short_answers": ["1950"]}]
    row = {"question": "When?", "answers": ["In 1900 it opened."], "docs": ["It opened."], "qa_pairs": pairs}
    path = rows.lines(tmp_path / "asqa.jsonl", [row, {**row, "answers": ["1950"]}])
    first, second = load_dataset("asqa", source=path).examples
    assert (first.answers, first.meta["long_answers"]) == (("1900", "1950"), ["In 1900 it opened."])
    assert second.answers == ("1950",)
    assert load_examples(path).examples[0].answers == ("In 1900 it opened.",)


def test_an_unanswerable_question_is_none_of_the_answerable_split(tmp_path):
    path = rows.lines(tmp_path / "musique.jsonl", [rows.MUSIQUE, dict(rows.MUSIQUE, answerable=False)])
    with pytest.raises(DataError, match="#unanswerable is unanswerable, so of full/validation: name it with --split"):
        load_dataset("musique", source=path)
    assert len(load_dataset("musique", "full/validation", path).examples) == 2


def test_musique_warns_that_its_rows_are_ordered(tmp_path):
    path = rows.lines(tmp_path / "musique_ans_v1.0_dev.jsonl", [rows.MUSIQUE])
    assert any("ordered by the number of hops" in w for w in load_dataset("musique", source=path, limit=1).warnings)


def test_I01_a_loading_script_is_not_run_and_the_parquet_files_are_named(tmp_path):
    (tmp_path / "qasper.py").write_text("raise SystemExit('the script ran')")
    with pytest.raises(FileNotFoundError, match=r"loading script qasper\.py, which is not run.*refs/convert/parquet"):
        load_dataset("qasper", source=tmp_path)


HOW_TO = [r"distractor/validation-\*\.parquet", "tree/1908d6a", r"hotpot_dev_distractor_v1\.json from hotpotqa"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, ["accept its terms"]),
        (errors.RepositoryNotFoundError, ["not on the hub any more"]),
        (errors.RevisionNotFoundError, ["no revision 1908d6a"]),
        (errors.LocalEntryNotFoundError, ["cannot be reached"]),
        (errors.OfflineModeIsEnabled, ["cannot be reached"]),
    ],
)
def test_I03_a_dataset_that_cannot_be_had_says_where_to_get_it(kind, words, monkeypatch):
    def snapshot(*_, **__):
        raise kind.__new__(kind)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    with pytest.raises(FileNotFoundError) as raised:
        load_dataset("hotpotqa")
    for word in [*words, *HOW_TO]:
        raised.match(word)


def test_I03_a_missing_local_file_says_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl: no such file.*no documents.*NQ-open\.dev\.jsonl"):
        load_dataset("nq", source=tmp_path / "nowhere.jsonl")
    with pytest.raises(FileNotFoundError, match=r"holds no file of this split.*no documents.*NQ-open\.dev\.jsonl"):
        load_dataset("nq", source=tmp_path)


def test_only_the_files_of_the_split_are_fetched(tmp_path, monkeypatch):
    asked = {}

    def snapshot(name, **options):
        asked.update(options, name=name)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert fetch("triviaqa", find_split("triviaqa")[1]) == tmp_path
    assert asked["name"] == "mandarjoshi/trivia_qa"
    assert asked["repo_type"] == "dataset"
    assert asked["allow_patterns"][0] == "unfiltered.nocontext/validation-*.parquet"
    assert not any(pattern.endswith(".py") for name in DATASETS for pattern in find_split(name)[1].files)
    rows.parquet(tmp_path / "unfiltered.nocontext" / "validation-00000-of-00001.parquet", [rows.TRIVIAQA_HUB])
    assert load_dataset("triviaqa").summary().startswith("triviaqa unfiltered.nocontext/validation, hub mandarjoshi/")


def test_golds_join_by_the_question(tmp_path):
    golds = load_examples(rows.lines(tmp_path / "hub.jsonl", rows.HOTPOT_HUB)).examples
    asked = [
        {"question": "which is OLDER, the Blue Gate or the Red Mill", "answers": ["a"], "ctxs": ["other"]},
        {"question": "What else?", "answers": ["a"], "ctxs": []},
    ]
    examples = load_examples(rows.lines(tmp_path / "retrieved.jsonl", asked)).examples
    joined, without = join_golds(examples, golds)
    assert joined[0].gold_documents == golds[0].gold_documents
    assert joined[0].documents == examples[0].documents
    assert (joined[1], without) == (examples[1], 1)


def test_I01_parquet_beside_a_loading_script_is_read(tmp_path):
    (tmp_path / "2WikiMultihopQA.py").write_text("raise SystemExit('the script ran')")
    for name, row in zip(("train", "dev", "test"), rows.HOTPOT_HUB, strict=True):
        rows.parquet(tmp_path / f"{name}.parquet", [rows.wiki_strings(row)])
    ids = {
        split: [example.id for example in load_dataset("2wikimultihopqa", split, tmp_path).examples]
        for split in (None, "train", "dev", "test")
    }
    assert ids == {None: ["a2"], "train": ["a1"], "dev": ["a2"], "test": ["a3"]}


def test_a_mirrors_folders_are_the_configs(tmp_path):
    twin = dict(rows.MUSIQUE, answerable=False)
    rows.parquet(tmp_path / "answerable" / "validation-00000-of-00001.parquet", [rows.MUSIQUE])
    rows.parquet(tmp_path / "default" / "validation-00000-of-00001.parquet", [rows.MUSIQUE, twin])
    assert len(load_dataset("musique", source=tmp_path).examples) == 1
    assert len(load_dataset("musique", "full/dev", tmp_path).examples) == 2
    assert len(load_dataset("musique", "validation", tmp_path / "answerable").examples) == 1
    with pytest.raises(FileNotFoundError, match="holds no file of this split"):
        load_dataset("musique", "train", tmp_path)


def test_files_without_a_configs_name_are_the_defaults(tmp_path):
    rows.lines(tmp_path / "dev.jsonl", rows.HOTPOT_HUB)
    assert len(load_dataset("hotpotqa", source=tmp_path).examples) == 3
    with pytest.raises(FileNotFoundError, match="holds no file of this split"):
        load_dataset("hotpotqa", "fullwiki/validation", tmp_path)


OWN = {
    "HotpotQA": rows.hotpot_original(rows.HOTPOT_HUB[0]),
    "FlashRAG with documents": rows.flashrag(rows.HOTPOT_HUB[0]),
    "MuSiQue": rows.MUSIQUE,
    "TriviaQA": rows.TRIVIAQA_HUB,
    "TriviaQA (original)": rows.TRIVIAQA_ORIGINAL,
    "ASQA": rows.ASQA,
    "QASPER": rows.qasper_hub(),
}
GENERAL_ROWS = {
    "retrieved documents": {"question": "q", "answers": ["a"], "ctxs": ["text"]},
    "CompAct": {"question": "q", "answers": ["a"], "context": [["T", "text"]]},
    "FlashRAG": {"question": "q", "golden_answers": ["a"], "metadata": {"pop": 3}},
    "questions": {"question": "q", "answers": ["a"]},
}


@pytest.mark.parametrize("layout", OWN)
def test_a_dataset_is_read_in_its_own_layouts_alone(layout, tmp_path):
    path = rows.lines(tmp_path / "rows.jsonl", [OWN[layout]])
    for dataset, known in DATASETS.items():
        if layout in known.layouts:
            assert load_dataset(dataset, source=path).layouts == (layout,)
            continue
        with pytest.raises(DataError) as raised:
            load_dataset(dataset, source=path)
        raised.match(rf"rows\.jsonl looks like {re.escape(layout)}, the layout of .*rows of {dataset} are in")


@pytest.mark.parametrize("layout", GENERAL_ROWS)
def test_any_dataset_is_read_from_retrieved_files_and_questions(layout, tmp_path):
    path = rows.lines(tmp_path / "rows.jsonl", [GENERAL_ROWS[layout]])
    assert {load_dataset(dataset, source=path).layouts for dataset in DATASETS} == {(layout,)}


def test_every_layout_that_a_dataset_admits_exists():
    named = {name for known in DATASETS.values() for name in known.layouts} | set(GENERAL)
    assert named == {layout.name for layout in LAYOUTS}


@pytest.mark.parametrize("answer", [rows.TRIVIAQA_HIDDEN["answer"], {"value": "", "aliases": []}])
def test_E10_placeholders_are_refused_but_in_a_hidden_split(answer, tmp_path):
    path = rows.lines(tmp_path / "rows.jsonl", [rows.TRIVIAQA_HUB, {**rows.TRIVIAQA_HIDDEN, "answer": answer}])
    for read in (load_examples, lambda path: load_dataset("triviaqa", source=path)):
        with pytest.raises(DataError, match=r"line 2: the field answer: .*use the validation split"):
            read(path)
    hidden = load_dataset("triviaqa", "test", path)
    assert [bool(example.answers) for example in hidden.examples] == [True, False]
    retrieved = {"question": "q", "answers": ["<unk>"], "ctxs": ["text"]}
    found = load_dataset("triviaqa", "test", rows.lines(tmp_path / "retrieved.jsonl", [retrieved]))
    assert (found.examples[0].answers, found.counts["unanswered"]) == ((), 1)


def test_E10_a_split_that_should_have_golds_and_has_none_is_warned_of(tmp_path):
    row = {name: value for name, value in rows.TRIVIAQA_ORIGINAL.items() if name != "Answer"}
    path = tmp_path / "unfiltered-web-test.json"
    path.write_text(json.dumps({"Data": [row]}))
    assert any("use validation" in warning for warning in load_dataset("triviaqa", source=path).warnings)


def test_triviaqas_original_file_is_of_the_split_that_it_states(tmp_path):
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"Data": [rows.TRIVIAQA_ORIGINAL], "Domain": "Web", "Split": "train", "Version": 1.0}))
    with pytest.raises(DataError, match="zz_1 is of the split train, not unfiltered"):
        load_dataset("triviaqa", source=path)
    (example,) = load_dataset("triviaqa", "train", path).examples
    assert example.meta["split"] == "train"
    path.write_text(json.dumps({"Split": "dev", "Data": [rows.TRIVIAQA_ORIGINAL]}))
    assert load_dataset("triviaqa", source=path).examples
    path.write_text(json.dumps({"Split": "train", "Data": [{**rows.TRIVIAQA_ORIGINAL, "split": "dev"}]}))
    assert load_dataset("triviaqa", source=path).examples[0].meta["split"] == "dev"


def test_asqas_original_file_is_read_by_split(tmp_path):
    inner = {name: value for name, value in rows.ASQA.items() if name != "sample_id"}
    path = tmp_path / "other_name.json"
    path.write_text(json.dumps({"train": {"1": inner}, "dev": {"2": inner}}))
    assert [e.id for e in load_dataset("asqa", source=path).examples] == ["2"]
    assert [e.id for e in load_dataset("asqa", "train", path).examples] == ["1"]
    path.write_text(json.dumps({"train": {"1": inner}}))
    with pytest.raises(DataError, match=r"other_name\.json holds the splits train, not dev"):
        load_dataset("asqa", source=path)


def test_rows_without_documents_are_counted(tmp_path):
    asked = [{"question": "q", "answers": ["a"]} | more for more in ({"ctxs": ["text"]}, {"ctxs": []}, {})]
    loaded = load_dataset("nq", source=rows.lines(tmp_path / "nq.jsonl", asked))
    assert loaded.counts["without_documents"] == 2
    assert "2 without documents" in loaded.summary()


def test_I07_lenient_lists_the_rows_of_every_shard(tmp_path):
    for number in range(2):
        rows.parquet(
            tmp_path / "distractor" / f"validation-0000{number}-of-00002.parquet",
            [rows.HOTPOT_HUB[number], dict(rows.HOTPOT_HUB[number], question=" ")],
        )
    loaded = load_dataset("hotpotqa", source=tmp_path, strict=False)
    assert [example.id for example in loaded.examples] == ["a1", "a2"]
    names = [f"validation-0000{number}-of-00002.parquet" for number in range(2)]
    assert [row.path.split("/")[-1] for row in loaded.skipped] == names
    assert all("row 2: the field question" in str(row) for row in loaded.skipped)
