"""Every public layout of a dataset: the hub's form and the original one give the same examples, others are refused."""

import json

import published_rows as rows
import pytest

from ragjax.data import DataError, Document, load_examples
from ragjax.data.multihop import join_sentences
from ragjax.data.nested import as_records, decode_column
from ragjax.data.papers import reference_answer


def test_I04_hotpotqa_is_one_in_all_its_forms(tmp_path):
    hub = load_examples(rows.parquet(tmp_path / "hub.parquet", rows.HOTPOT_HUB))
    others = [
        rows.array(tmp_path / "original.json", [rows.hotpot_original(row) for row in rows.HOTPOT_HUB]),
        rows.parquet(tmp_path / "strings.parquet", [rows.wiki_strings(row) for row in rows.HOTPOT_HUB]),
        rows.lines(tmp_path / "flashrag.jsonl", [rows.flashrag(row) for row in rows.HOTPOT_HUB]),
        rows.lines(tmp_path / "hub.jsonl", rows.HOTPOT_HUB),
    ]
    for path in others:
        assert load_examples(path).examples == hub.examples, path.name
    assert hub.layouts == ("HotpotQA",)
    assert load_examples(others[2]).layouts == ("FlashRAG with documents",)


def test_I04_hotpotqa_golds_order_and_facts_that_lead_nowhere(tmp_path):
    loaded = load_examples(rows.lines(tmp_path / "hub.jsonl", rows.HOTPOT_HUB))
    first, second, third = loaded.examples
    assert [d.title for d in first.documents] == ["Blue Gate", "Red Mill", "Blue Gate"]
    assert first.documents[0].text == "It opened in 1900. It is blue. Kim likes it."
    assert first.documents[1].text == "Built in 1950. It turns."
    assert first.skipped_documents == (3,)
    assert first.gold_documents == first.documents[:2]
    assert first.gold_sentences == ("It opened in 1900.", "Built in 1950.")
    assert first.meta["absent_sentences"] == [["Blue Gate", 9]]
    assert second.gold_documents == second.documents
    assert second.meta["absent_titles"] == ["Nowhere"]
    assert (third.answers, third.documents, third.gold_documents) == ((), (), ())
    counted = {name: loaded.counts[name] for name in ("absent_titles", "absent_sentences", "unanswered")}
    assert counted == {"absent_titles": 1, "absent_sentences": 1, "unanswered": 1}
    assert "1 absent sentences" in loaded.summary()


def test_I04_a_repeated_title_means_the_paragraph_that_has_the_sentence(tmp_path):
    row = dict(rows.HOTPOT_HUB[0], supporting_facts={"title": ["T"], "sent_id": [1]})
    row["context"] = {"title": ["T", "T"], "sentences": [["One."], ["A.", " B."]]}
    (example,) = load_examples(rows.lines(tmp_path / "repeated.jsonl", [row])).examples
    assert example.gold_sentences == ("B.",)
    assert example.gold_documents == (example.documents[1],)


def test_2wikimultihopqa_keeps_its_evidences(tmp_path):
    row = rows.hotpot_original(rows.HOTPOT_HUB[1]) | {"evidences": [["Lyme", "kind", "town"]], "entity_ids": "Q1_Q2"}
    texts = {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
    paths = rows.array(tmp_path / "dev.json", [row]), rows.parquet(tmp_path / "dev.parquet", [texts])
    original, strings = (load_examples(path).examples for path in paths)
    assert original == strings
    assert original[0].meta["evidences"] == [["Lyme", "kind", "town"]]


def test_compact_context_pairs_hold_texts(tmp_path):
    row = {"_id": "x", "question": "q?", "answers": ["a"], "context": [["T", "A text."], ["U", None]]}
    (example,) = load_examples(rows.lines(tmp_path / "dev.json", [row])).examples
    assert example.documents == (Document("A text.", "T"),)
    assert (example.answers, example.skipped_documents) == (("a",), (1,))


def test_musique_is_one_in_all_its_forms_and_twins_are_told_apart(tmp_path):
    twin = dict(rows.MUSIQUE, answerable=False, paragraphs=rows.MUSIQUE["paragraphs"][1:2])
    nothing = {"answer", "answer_aliases", "answerable", "question_decomposition"}
    hidden = {name: value for name, value in rows.MUSIQUE.items() if name not in nothing} | {"id": "2hop__3_4"}
    full = [rows.MUSIQUE, twin]
    original = load_examples(rows.lines(tmp_path / "full.jsonl", full))
    assert load_examples(rows.parquet(tmp_path / "full.parquet", full)).examples == original.examples
    first, second = original.examples
    assert [first.id, second.id] == ["2hop__1_2", "2hop__1_2#unanswerable"]
    assert load_examples(rows.lines(tmp_path / "turned.jsonl", full[::-1])).examples == (second, first)
    assert first.answers == ("Io", "Io of Dorn")
    assert [d.title for d in first.gold_documents] == ["Lyme", "Dorn"]
    assert second.gold_documents == ()
    assert first.meta["answerable"] is True
    shown = [{n: v for n, v in p.items() if n != "is_supporting"} for p in rows.MUSIQUE["paragraphs"]]
    (test,) = load_examples(rows.lines(tmp_path / "test.jsonl", [hidden | {"paragraphs": shown}])).examples
    assert (test.answers, test.gold_documents, len(test.documents)) == ((), (), 3)


def test_triviaqa_is_one_in_both_forms_and_an_absent_answer_is_no_gold(tmp_path):
    hub = load_examples(rows.parquet(tmp_path / "hub.parquet", [rows.TRIVIAQA_HUB]))
    wrapped = tmp_path / "unfiltered-web-dev.json"
    wrapped.write_text(json.dumps({"Data": [rows.TRIVIAQA_ORIGINAL], "Domain": "Web", "Version": 1.0}, indent=2))
    assert load_examples(wrapped).examples == hub.examples
    assert hub.examples[0].answers == ("Lyme", "Lyme Town")
    without = {name: value for name, value in rows.TRIVIAQA_ORIGINAL.items() if name != "Answer"}
    path = tmp_path / "test.json"
    path.write_text(json.dumps({"Data": [without]}))
    assert load_examples(path).examples[0].answers == ()


def test_triviaqa_questions_of_both_domains_count_once(tmp_path):
    pages = {"doc_source": ["w"], "filename": ["f"], "title": ["Lyme"], "wiki_context": ["Lyme is a town."]}
    web, wiki = rows.TRIVIAQA_HUB, dict(rows.TRIVIAQA_HUB, entity_pages=pages)
    loaded = load_examples(rows.lines(tmp_path / "rc.jsonl", [wiki, web, dict(web, question_id="zz_9")]))
    assert [example.id for example in loaded.examples] == ["zz_1", "zz_9"]
    assert loaded.examples[0].documents == (Document("Lyme is a town.", "Lyme"),)
    assert loaded.counts["repeated_questions"] == 1


def test_asqa_is_one_in_both_forms_and_with_alces_documents(tmp_path):
    hub = load_examples(rows.parquet(tmp_path / "dev.parquet", [rows.ASQA]))
    inner = {name: value for name, value in rows.ASQA.items() if name != "sample_id"}
    path = tmp_path / "ASQA.json"
    path.write_text(json.dumps({"dev": {"-12": inner}}))
    assert load_examples(path).examples == hub.examples
    (example,) = hub.examples
    assert (example.id, example.question) == ("-12", "When did the gate open?")
    assert example.answers == ("1900", "1950", "in 1950")
    assert example.meta["long_answers"] == ["Old: 1900, new: 1950.", "1900, then 1950."]
    plain = {name: value for name, value in rows.ASQA.items() if name != "ambiguous_question"}
    docs = [{"id": "17", "title": "Blue Gate", "text": "It opened.", "score": 0.7, "summary": "irrelevant"}]
    alce = {**plain, "question": example.question, "answer": "Old: 1900, new: 1950.", "docs": docs}
    (read,) = load_examples(rows.array(tmp_path / "asqa_eval.json", [alce])).examples
    assert read.answers == example.answers
    assert read.meta == example.meta
    assert read.documents == (Document("It opened.", "Blue Gate", "17", 0.7, None, {"summary": "irrelevant"}),)
    output = tmp_path / "output.json"
    output.write_text(json.dumps({"args": {}, "data": [{**alce, "output": "text [1]"}]}))
    assert load_examples(output).examples[0].meta["output"] == "text [1]"


def test_alces_lists_of_spellings_are_golds(tmp_path):
    row = {"question": "q", "answer": "long", "answers": [["a", "b"], ["long"]], "docs": [], "sample_id": 3}
    (example,) = load_examples(rows.array(tmp_path / "qampari.json", [row])).examples
    assert (example.id, example.answers) == ("3", ("a", "b", "long"))


def test_qasper_is_one_in_both_forms(tmp_path):
    original = tmp_path / "qasper-dev-v0.3.json"
    original.write_text(json.dumps(rows.qasper_original(), indent=1))
    hub = load_examples(rows.parquet(tmp_path / "hub.parquet", [rows.qasper_hub()]))
    assert load_examples(original).examples == hub.examples
    first, second = hub.examples
    assert (first.id, first.answers) == ("q1", ("10 files, 2 GB", "ten files"))
    assert (second.id, second.answers) == ("q2", ("No", "Unanswerable"))
    assert [(d.title, d.text) for d in first.documents] == [("Intro", "p1"), ("Intro", "p2"), ("Data ::: Size", "p3")]
    assert first.skipped_documents == (3,)
    assert [d.text for d in first.gold_documents] == ["p1", "p3"]
    assert first.gold_sentences == ("p3",)
    assert first.meta["paper_id"] == "0000.1"
    assert [one["type"] for one in second.meta["annotations"]] == ["boolean", "none"]


def test_qasper_null_is_neither_yes_nor_no():
    with pytest.raises(DataError, match="none"):
        reference_answer({"unanswerable": False, "yes_no": None, "free_form_answer": ""})
    assert reference_answer({"yes_no": True, "extractive_spans": ["x"]}) == ("x", "extractive")


RETRIEVED = [
    [
        {
            "question": "q",
            "answers": ["a"],
            "ctxs": [{"id": "1", "title": "T", "text": "t", "score": "1.5", "has_answer": True}],
        }
    ],
    [
        {
            "question": "q",
            "answers": ["a"],
            "ctxs": [{"id": "1", "title": "T", "text": "t", "score": "1.5", "hasanswer": True}],
        }
    ],
    [{"question": "q", "answer": "['a']", "ctxs": [{"title": "T", "text": "t", "id": 1, "score": 1.5}]}],
]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('q one\t["a"]\n"q two\tb\nq three\tc\n', "line 3.*a quote was not closed"),
        ("q\t" + "x" * 200_000 + "\n", "line 1.*field larger than field limit"),
    ],
)
def test_I07_tables_that_csv_cannot_read_are_refused_by_line(table, message, tmp_path):
    path = tmp_path / "nq-test.qa.csv"
    path.write_text(table)
    with pytest.raises(DataError, match=message):
        load_examples(path, questions_only=True)


@pytest.mark.parametrize("written", RETRIEVED)
@pytest.mark.parametrize("write", [rows.lines, rows.array])
def test_retrieved_files_of_dpr_contriever_and_favicomp(written, write, tmp_path):
    (example,) = load_examples(write(tmp_path / "nq.json", written)).examples
    (document,) = example.documents
    assert example.answers == ("a",)
    assert (document.id, document.title, document.text, document.score) == ("1", "T", "t", 1.5)


def test_gold_documents_of_our_own_rows(tmp_path):
    row = {"question": "q", "answers": ["a"], "docs": ["x"], "gold_docs": [{"title": "G", "text": "g"}, {"text": ""}]}
    loaded = load_examples(rows.lines(tmp_path / "own.jsonl", [row]))
    assert loaded.examples[0].gold_documents == (Document("g", "G"),)
    assert loaded.counts["with_gold_documents"] == 1
    with pytest.raises(DataError, match="gold_docs is a list"):
        load_examples(rows.lines(tmp_path / "bad.jsonl", [row | {"gold_docs": "text"}]))


def test_questions_alone_are_read_where_they_are_asked_for(tmp_path):
    table = tmp_path / "nq-test.qa.csv"
    table.write_text("who painted it\t['Name \"A\"', 'N. A']\nwhen\t\"['1900']\"\n")
    nq = rows.lines(tmp_path / "NQ-open.dev.jsonl", [{"question": "who painted it", "answer": ['Name "A"', "N. A"]}])
    with pytest.raises(DataError, match="no field for documents"):
        load_examples(nq)
    read = load_examples(table, questions_only=True).examples
    assert [example.answers for example in read] == [('Name "A"', "N. A"), ("1900",)]
    assert load_examples(nq, questions_only=True).examples == read[:1]
    table.write_text("q\t['a']\nq\t['a']\tmore\n")
    with pytest.raises(DataError, match=r"nq-test\.qa\.csv, line 2: a question, a tab"):
        load_examples(table, questions_only=True)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "q", "answer": ["a"], "gen_ctx": "c"}, "FaviComp's output"),
        ({"question": "q", "answers": ["a"], "iterations": []}, "CompAct's demonstrations"),
        ({"question": "q", "answers": ["a"], "positive_ctxs": []}, "DPR's training data"),
        ({"id": "k", "input": "q", "output": [], "meta": {}}, "KILT"),
        ({"_id": "d1", "title": "T", "text": "t"}, "BEIR"),
        ({"id": "0", "contents": "T\nt"}, "corpus of FlashRAG"),
        ({"question_text": "q", "document_text": "t", "annotations": []}, "full Natural Questions"),
        ({"query": "q", "answers": [], "context_doc_ids": []}, "corag"),
    ],
)
def test_I08_known_files_of_another_kind_are_refused_by_name(row, words, tmp_path):
    with pytest.raises(DataError, match=rf"other\.json, line 1: .*{words}"):
        load_examples(rows.lines(tmp_path / "other.json", [row]))


def test_a_corpus_of_passages_is_refused_by_name(tmp_path):
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('id\ttext\ttitle\n1\t"A ""text"""\tT\n')
    with pytest.raises(DataError, match=r"psgs_w100\.tsv: a corpus of passages"):
        load_examples(path)


@pytest.mark.parametrize("feature", ["List", "Sequence"])
def test_I02_parquet_is_read_whatever_its_feature_metadata(feature, tmp_path):
    described = {"info": {"features": {"answers": {"_type": feature, "feature": {"dtype": "string"}}}}}
    row = {"id": "1", "question": "q", "answers": ["a"], "ctxs": [{"title": "T", "text": "t"}]}
    path = rows.parquet(tmp_path / "x.parquet", [row], {"huggingface": json.dumps(described)})
    assert load_examples(path).examples[0].documents == (Document("t", "T"),)


def test_I07_faults_in_parquet_and_in_held_rows_have_a_place(tmp_path):
    good, bad = rows.HOTPOT_HUB[1], dict(rows.HOTPOT_HUB[1], question=" ")
    path = rows.parquet(tmp_path / "x.parquet", [good, bad])
    with pytest.raises(DataError, match=r"x\.parquet, row 2: the field question"):
        load_examples(path)
    assert load_examples(path, strict=False).skipped[0].line == 2
    held = tmp_path / "held.json"
    papers = {**rows.qasper_original(), "0000.2": {"full_text": [], "qas": [{"question": None}]}}
    held.write_text(json.dumps(papers, indent=1))
    line = held.read_text()[: held.read_text().index("0000.2")].count("\n") + 1
    with pytest.raises(DataError, match=rf"held\.json, line {line}: the field question"):
        load_examples(held)
    assert len(load_examples(held, strict=False).examples) == 2
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet: .*damaged Parquet"):
        load_examples(cut)


def test_records_of_every_form():
    expected = [{"title": "A", "n": 1}, {"title": "B", "n": 2}]
    forms = [
        expected,
        {"title": ["A", "B"], "n": [1, 2]},
        [["A", 1], ("B", 2)],
        json.dumps(expected),
        "[('A', 1), ('B', 2)]",
    ]
    assert all(as_records(form, "title", "n") == expected for form in forms)
    assert as_records(None) == []
    for broken in ({"title": ["A"], "n": []}, [["A"]], "text", {"title": "A"}, 3):
        with pytest.raises(DataError):
            as_records(broken, "title", "n")
    with pytest.raises(DataError, match="broken"):
        decode_column("[__import__('os')]")


def test_sentences_join_with_a_blank_only_where_none_is():
    assert join_sentences(["A.", " B.", "C. ", "D.", "", "E."]) == "A. B. C. D. E."


EXTRA = {"split": "dev", "note": "[sic] a note", "rank": 3, "none": None}


@pytest.mark.parametrize(
    ("row", "own"),
    [
        (rows.HOTPOT_HUB[0], {"type": "comparison", "level": "easy"}),
        (rows.hotpot_original(rows.HOTPOT_HUB[0]), {"type": "comparison", "level": "easy"}),
        (rows.flashrag(rows.HOTPOT_HUB[0]), {"type": "comparison", "level": "easy"}),
        (rows.MUSIQUE, {"question_decomposition": rows.MUSIQUE["question_decomposition"], "answerable": True}),
        (rows.TRIVIAQA_HUB, {"question_source": "http://x/"}),
        (rows.TRIVIAQA_ORIGINAL, {"question_source": "http://x/"}),
        (rows.ASQA, {"wikipages": rows.ASQA["wikipages"], "annotations": rows.ASQA["annotations"]}),
        (rows.qasper_hub(), {"paper_id": "0000.1", "paper_title": "T", "nlp_background": "two"}),
    ],
)
def test_other_columns_of_every_layout_are_kept(row, own, tmp_path):
    example = load_examples(rows.lines(tmp_path / "rows.jsonl", [row | EXTRA])).examples[0]
    kept = own | {name: value for name, value in EXTRA.items() if value is not None}
    assert {name: example.meta[name] for name in kept} == kept
    texts = {"context", "paragraphs", "entity_pages", "search_results", "full_text", "abstract", "qas", "metadata"}
    assert not texts & set(example.meta)


def test_qaspers_annotations_keep_their_ids(tmp_path):
    (first, _) = load_examples(rows.lines(tmp_path / "rows.jsonl", [rows.qasper_hub()])).examples
    assert [(one["annotation_id"], one["worker_id"]) for one in first.meta["annotations"]] == [("a", "w")] * 2


def test_retrieved_documents_as_lists_in_an_object_and_as_text(tmp_path):
    documents = {"id": ["1", "2"], "title": ["T", "U"], "text": ["t", "u"], "score": ["1.5", None], "url": None}
    row = {"question": "q", "answers": ["a"], "ctxs": documents, "gold_docs": {"title": ["G"], "text": ["g"]}}
    (example,) = load_examples(rows.parquet(tmp_path / "x.parquet", [row])).examples
    assert example.documents == (Document("t", "T", "1", 1.5), Document("u", "U", "2"))
    assert example.gold_documents == (Document("g", "G"),)
    texts = row | {"ctxs": json.dumps(documents)}
    assert load_examples(rows.lines(tmp_path / "x.jsonl", [texts])).examples[0].documents == example.documents
    uneven = row | {"ctxs": {"title": ["T"], "text": []}}
    with pytest.raises(DataError, match=r"line 1: the field ctxs: .*unequal lengths"):
        load_examples(rows.lines(tmp_path / "uneven.jsonl", [uneven]))


def test_a_retrievers_documents_beside_a_datasets_own_columns_are_read(tmp_path):
    for name, row in (("trivia", rows.TRIVIAQA_HUB), ("asqa", rows.ASQA)):
        (plain,) = load_examples(rows.lines(tmp_path / f"{name}.jsonl", [row])).examples
        (example,) = load_examples(rows.lines(tmp_path / f"{name}_ctxs.jsonl", [row | {"ctxs": ["found"]}])).examples
        assert example.documents == (Document("found"),)
        assert (example.id, set(example.answers)) == (plain.id, set(plain.answers))


@pytest.mark.parametrize("field", ["contexts", "passages", "retrieved_docs", "candidates"])
@pytest.mark.parametrize("form", [list, "columns", json.dumps])
def test_documents_in_a_field_that_no_layout_knows_are_not_left_out_unseen(field, form, tmp_path):
    documents = [{"title": "T", "text": "Two words."}, {"title": "U", "text": "More words."}]
    columns = {name: [document[name] for document in documents] for name in ("title", "text")}
    row = {"question": "q", "answers": ["a"], field: columns if form == "columns" else form(documents)}
    with pytest.raises(DataError, match=rf"line 2: the field {field} looks like documents.*docs or ctxs"):
        load_examples(rows.lines(tmp_path / "x.jsonl", [{"question": "q", "answer": "a"}, row]), questions_only=True)


def test_other_lists_of_a_question_are_no_documents(tmp_path):
    harmless = {
        "def_correct_predictions": ["an answer", "another one"],
        "viewed_doc_titles": ["The Blue Gate"],
        "doc_ids": ["d 1"],
        "passages": [],
        "contexts": None,
        "aliases": [{"name": "a b"}],
    }
    row = {"question": "q", "answer": ["a"], **harmless}
    loaded = load_examples(rows.lines(tmp_path / "x.jsonl", [row]), questions_only=True)
    assert loaded.examples[0].meta == harmless
    assert loaded.counts["without_documents"] == 1


@pytest.mark.parametrize("row", [{"gen_ctx": "c"}, {"iterations": []}, {"positive_ctxs": [{"text": "two words"}]}])
def test_known_files_of_another_kind_are_no_questions_either(row, tmp_path):
    with pytest.raises(DataError, match="line 1: this row is of"):
        load_examples(
            rows.lines(tmp_path / "x.jsonl", [{"question": "q", "answers": ["a"], **row}]), questions_only=True
        )


@pytest.mark.parametrize(("field", "value"), [("context", ["text"]), ("context", "text"), ("paragraphs", ["text"])])
def test_a_field_of_documents_in_another_form_is_named(field, value, tmp_path):
    with pytest.raises(DataError, match=rf"line 1: the field {field}: .*docs or ctxs"):
        load_examples(rows.lines(tmp_path / "x.jsonl", [{"question": "q", "answer": "a", field: value}]))


def test_a_file_of_several_splits_needs_one_named(tmp_path):
    inner = {name: value for name, value in rows.ASQA.items() if name != "sample_id"}
    path = tmp_path / "ASQA.json"
    path.write_text(json.dumps({"train": {"1": inner, "2": inner}, "dev": {"3": inner}}))
    for limit in (None, 1):
        with pytest.raises(DataError, match=r"ASQA\.json holds the splits train and dev: name one.*--split dev"):
            load_examples(path, limit=limit)
    assert [e.id for e in load_examples(path, group="validation").examples] == ["3"]
    assert [e.id for e in load_examples(path, group="train").examples] == ["1", "2"]
    with pytest.raises(DataError, match="train and dev, not test"):
        load_examples(path, group="test")
