"""Rows of every accepted layout, what is refused with a reason, and the reference files as they are."""

import json

import pytest

from ragjax.data import DataError, Document, load_examples, parse_document, parse_row

DOCS = [{"title": "T", "text": "text"}]


def row(**fields) -> dict:
    return {"question": "q?", "answers": ["a"], "docs": DOCS, **fields}


def write(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def test_fields_and_meta():
    example = parse_row(row(id=7, dataset="nq", supporting=[0]))
    assert (example.id, example.question, example.answers) == ("7", "q?", ("a",))
    assert example.documents == (Document("text", "T"),)
    assert example.meta == {"dataset": "nq", "supporting": [0]}


@pytest.mark.parametrize("name", ["id", "_id", "question_id", "sample_id", "qid"])
def test_every_spelling_of_the_id(name):
    assert parse_row(row(**{name: "x1"})).id == "x1"


def test_retrieval_scores_are_numbers_and_other_document_fields_stay():
    ctxs = [{"id": 17, "title": "T", "text": "t", "score": "1.63", "hasanswer": True}]
    document = parse_row({"question": "q", "answers": ["a"], "ctxs": ctxs}).documents[0]
    assert document == Document("t", "T", "17", 1.63, None, {"hasanswer": True})


@pytest.mark.parametrize("score", ["high", "nan", [1]])
def test_a_score_that_is_no_number_is_refused(score):
    with pytest.raises(DataError, match="score"):
        parse_document({"text": "t", "score": score})


def test_sentences_join_to_the_text():
    assert parse_document({"text": "A b. C d.", "sentences": ["A b.", " C d."]}).sentences == ("A b.", " C d.")
    with pytest.raises(DataError, match="do not join"):
        parse_document({"text": "A b.", "sentences": ["A c."]})


@pytest.mark.parametrize("name", ["answers", "answer", "golden_answers"])
def test_I08_every_spelling_of_the_answer(name):
    example = parse_row({"question": "q", name: ["yes"], "docs": DOCS})
    assert example.answers == ("yes",)
    assert name not in example.meta


@pytest.mark.parametrize("fields", [{}, {"answers": None}, {"answers": []}, {"answer": ""}, {"answers": [""]}])
def test_I08_rows_without_an_answer_are_loaded_and_counted(fields, tmp_path):
    path = write(tmp_path / "unanswered.jsonl", [{"question": "q", "docs": DOCS, **fields}, row()])
    loaded = load_examples(path)
    assert [example.answers for example in loaded.examples] == [(), ("a",)]
    assert loaded.counts["unanswered"] == 1


def test_I08_unknown_field_names_are_refused_with_those_found(tmp_path):
    path = write(tmp_path / "other.jsonl", [row(), {"query": "q", "answers": ["a"], "passages": DOCS}])
    match = (
        r"other\.jsonl, line 2: no field for question \(question\) and documents \(docs or ctxs\); found answers, pa"
    )
    with pytest.raises(DataError, match=match):
        load_examples(path)


def test_of_two_answer_spellings_the_containing_one_is_meant():
    example = parse_row(row(answer="b", answers=["a", "b"]))
    assert example.answers == ("a", "b")
    assert example.meta == {"answer": "b"}
    assert parse_row(row(answer=None, answers=["a"])).answers == ("a",)


@pytest.mark.parametrize("answer", ["b", ["a", "b"]])
def test_answer_spellings_that_disagree_are_ambiguous(answer):
    with pytest.raises(DataError, match=r"row 3: the answer is ambiguous: answers and answer"):
        parse_row(row(answer=answer, answers=["a", "c"]), "row 3")


def test_document_spellings_that_disagree_are_ambiguous():
    assert len(parse_row(row(ctxs=DOCS)).documents) == 1
    assert len(parse_row(row(ctxs=None)).documents) == 1
    with pytest.raises(DataError, match="docs and ctxs differ"):
        parse_row(row(ctxs=[]))


def test_E10_the_primary_answer_is_kept_apart_from_the_aliases():
    answer = {"value": "Lyme", "aliases": ["A Book of Towns"]}
    example = parse_row({"question": "q", "answer": answer, "docs": DOCS})
    assert example.answers == ("Lyme", "A Book of Towns")
    assert example.meta["answer"] == answer


def test_E10_a_hidden_test_split_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "hidden.jsonl", [row(answers={"value": "<unk>", "aliases": []})])
    with pytest.raises(DataError, match=r"hidden\.jsonl, line 1: the field answers: .*validation split"):
        load_examples(path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"question": None}, "question"),
        ({"question": "  "}, "question"),
        ({"docs": "text"}, "list of documents"),
        ({"docs": [{"contents": "t"}]}, "fields title and text"),
        ({"docs": [{"title": 3, "text": "t"}]}, "title"),
        ({"docs": [3]}, "document"),
        ({"id": 1.5}, "field id"),
    ],
)
def test_needed_fields_of_a_wrong_shape_are_refused(fields, reason):
    with pytest.raises(DataError, match=rf"row: .*{reason}"):
        parse_row(row(**fields))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_I06_any_number_of_documents(count):
    assert len(parse_row(row(docs=DOCS * count)).documents) == count


def test_I06_ragged_documents(tmp_path):
    long = "word " * 10_000
    docs = [{"title": "A", "text": None}, {"text": "no title"}, {"title": None, "text": "&amp; <b>x</b>"}]
    docs += [{"title": "D", "text": long}, {"title": "D", "text": long}, {"title": "E", "text": ""}, "bare text"]
    loaded = load_examples(write(tmp_path / "ragged.jsonl", [row(docs=docs), row(docs=None), row()]))
    first, second, _ = loaded.examples
    assert [d.text for d in first.documents] == ["no title", "&amp; <b>x</b>", long, long, "bare text"]
    assert [d.title for d in first.documents] == ["", "", "D", "D", ""]
    assert first.skipped_documents == (0, 5)
    assert second.documents == ()
    assert (loaded.counts["skipped_documents"], loaded.counts["repeated_documents"]) == (2, 1)


def test_limit_keeps_ids_and_the_file_hash(tmp_path):
    path = write(tmp_path / "many.jsonl", [row(question=f"q{n % 3}") for n in range(7)])
    whole, part = load_examples(path), load_examples(path, limit=5)
    assert part.examples == whole.examples[:5]
    assert part.content_hash == whole.content_hash
    assert (whole.counts["repeated_contents"], part.counts["repeated_contents"]) == (4, 2)
    with pytest.raises(ValueError, match="limit"):
        load_examples(path, limit=0)


def test_the_file_hash_follows_the_bytes(tmp_path):
    one, two = write(tmp_path / "one.jsonl", [row()]), write(tmp_path / "two.jsonl", [row(extra=1)])
    assert load_examples(one).content_hash != load_examples(two).content_hash


def test_J04_repeated_ids_of_a_file_stay_distinct_and_are_counted(tmp_path):
    rows = [row(id="2hop__1_2", answerable=True), row(id="2hop__1_2", answerable=False)]
    loaded = load_examples(write(tmp_path / "full.jsonl", rows))
    assert [example.id for example in loaded.examples] == ["2hop__1_2", "2hop__1_2#2"]
    assert loaded.counts["repeated_ids"] == 1


WITH_DOCUMENTS = {
    "nq": 5,
    "triviaqa": 5,
    "hotpotqa_retrieved": 5,
    "hotpotqa_distractor": 10,
    "hotpotqa_train_distractor": 10,
    "2wikimultihopqa_retrieved": 10,
    "2wikimultihopqa_distractor": 10,
    "musique_distractor": 20,
    "musique_train_distractor": 20,
    "asqa": 5,
    "qasper": None,
    "qasper_dev_evidence": None,
}


@pytest.mark.shared
@pytest.mark.parametrize("name", WITH_DOCUMENTS)
def test_reference_files_load_as_they_are(shared, name):
    path = shared / "data" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    loaded = load_examples(path)
    assert [e.id for e in loaded.examples] == [r["id"] for r in rows]
    assert [e.answers for e in loaded.examples] == [tuple(dict.fromkeys(r["answers"])) for r in rows]
    assert [[d.text for d in e.documents] for e in loaded.examples] == [[d["text"] for d in r["docs"]] for r in rows]
    harmless = {"repeated_documents", "with_gold_documents"}
    assert {name: count for name, count in loaded.counts.items() if count and name not in harmless} == {}
    assert loaded.counts["with_gold_documents"] == sum("gold_docs" in row for row in rows)
    if WITH_DOCUMENTS[name]:
        full = sum(len(e.documents) == WITH_DOCUMENTS[name] for e in loaded.examples)
        assert full >= len(rows) - 1  # one HotpotQA row has two documents


@pytest.mark.shared
def test_real_papers_of_qasper_give_the_answers_made_from_them(shared):
    """The papers, in the hub's layout, against the same questions as somebody else flattened them."""
    papers, flat = (load_examples(shared / "data" / f"{name}.jsonl") for name in ("qasper_papers", "qasper"))
    assert papers.layouts == ("QASPER",)
    read = {example.id: example for example in papers.examples}
    shared_ids = [example for example in flat.examples if example.id in read]
    assert len(shared_ids) > 20
    for example in shared_ids:
        assert read[example.id].question == example.question
        assert set(read[example.id].answers) == set(example.answers)
        gold = {example.documents[i].text.strip() for i in example.meta["supporting"]}
        assert gold <= {document.text.strip() for document in read[example.id].gold_documents}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("alce_asqa_human_eval", r"this row is of ALCE's human evaluation"),
        ("alce_human_eval_overall", r"no field for question \(question\) and documents"),
        ("nli_mnli_snli", r"no field for question \(question\) and documents"),
        ("qasper_leval_papers", r"no field for question \(question\); found dataset, docs"),
    ],
)
def test_other_reference_files_are_refused_with_what_is_missing(shared, name, missing):
    with pytest.raises(DataError, match=rf"{name}\.jsonl, line 1: {missing}"):
        load_examples(shared / "data" / f"{name}.jsonl")
