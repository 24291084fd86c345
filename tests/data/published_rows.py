"""Invented rows of each public dataset, in the hub's form and in the original one; and ways to write them."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HOTPOT_HUB = [
    {
        "id": "a1",
        "question": "Which is older, the Blue Gate or the Red Mill?",
        "answer": "the Blue Gate",
        "type": "comparison",
        "level": "easy",
        "supporting_facts": {"title": ["Blue Gate", "Red Mill", "Blue Gate"], "sent_id": [0, 0, 9]},
        "context": {
            "title": ["Blue Gate", "Red Mill", "Blue Gate", "Empty"],
            "sentences": [
                ["It opened in 1900.", " It is blue.", " Kim likes it."],
                ["Built in 1950.", "It turns."],
                ["A song."],
                [],
            ],
        },
    },
    {
        "id": "a2",
        "question": "Is Lyme a town?",
        "answer": "yes",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["Nowhere", "Lyme"], "sent_id": [0, 0]},
        "context": {"title": ["Lyme"], "sentences": [["Lyme is a town in Dorn."]]},
    },
    {
        "id": "a3",
        "question": "Who is not told?",
        "answer": None,
        "type": None,
        "level": None,
        "supporting_facts": {"title": [], "sent_id": []},
        "context": {"title": [], "sentences": []},
    },
]


def hotpot_original(row):
    """The row as the authors write it: pairs, `_id`, and absent keys where the hub has null."""
    pairs = {
        name: [list(pair) for pair in zip(*row[name].values(), strict=True)] for name in ("supporting_facts", "context")
    }
    plain = {name: row[name] for name in ("question", "answer", "type", "level") if row[name] is not None}
    if row["answer"] is None:
        del pairs["supporting_facts"]
    return {"_id": row["id"], **plain, **pairs}


def wiki_strings(row):
    """As xanhho's mirror has it: JSON texts in the columns."""
    return {
        name: json.dumps(value) if isinstance(value, list) else value for name, value in hotpot_original(row).items()
    }


def flashrag(row):
    """As FlashRAG has it: `content` in the place of `sentences`, inside `metadata`."""
    context = {"title": row["context"]["title"], "content": row["context"]["sentences"]}
    metadata = {"supporting_facts": row["supporting_facts"], "context": context}
    metadata |= {name: row[name] for name in ("type", "level") if row[name]}
    golds = [row["answer"]] if row["answer"] else []
    return {"id": row["id"], "question": row["question"], "golden_answers": golds, "metadata": metadata}


MUSIQUE = {
    "id": "2hop__1_2",
    "paragraphs": [
        {"idx": 0, "title": "Lyme", "paragraph_text": "Lyme is in Dorn.", "is_supporting": True},
        {"idx": 1, "title": "Rye", "paragraph_text": "Rye is elsewhere.", "is_supporting": False},
        {"idx": 2, "title": "Dorn", "paragraph_text": "Dorn was founded by Io.", "is_supporting": True},
    ],
    "question": "Who founded the county where Lyme lies?",
    "question_decomposition": [
        {"id": 1, "question": "Lyme >> county", "answer": "Dorn", "paragraph_support_idx": 0},
        {"id": 2, "question": "Who founded #1?", "answer": "Io", "paragraph_support_idx": 2},
    ],
    "answer": "Io",
    "answer_aliases": ["Io of Dorn"],
    "answerable": True,
}

TRIVIAQA_HUB = {
    "question": "Which town hosts the Blue Gate fair?",
    "question_id": "zz_1",
    "question_source": "http://x/",
    "entity_pages": {"doc_source": [], "filename": [], "title": [], "wiki_context": []},
    "search_results": {"description": [], "filename": [], "rank": [], "title": [], "url": [], "search_context": []},
    "answer": {
        "aliases": ["Lyme", "Lyme Town"],
        "normalized_aliases": ["lyme", "lyme town"],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "normalized_value": "lyme",
        "type": "WikipediaEntity",
        "value": "Lyme",
    },
}
TRIVIAQA_ORIGINAL = {
    "Question": TRIVIAQA_HUB["question"],
    "QuestionId": "zz_1",
    "QuestionSource": "http://x/",
    "EntityPages": [{"DocSource": "TagMe", "Filename": "Lyme.txt", "Title": "Lyme"}],
    "SearchResults": [],
    "Answer": {
        "Aliases": ["Lyme", "Lyme Town"],
        "NormalizedAliases": ["lyme", "lyme town"],
        "NormalizedValue": "lyme",
        "Type": "WikipediaEntity",
        "Value": "Lyme",
    },
}
TRIVIAQA_HIDDEN = {
    **TRIVIAQA_HUB,
    "question_id": "zz_2",
    "answer": {**TRIVIAQA_HUB["answer"], "value": "<unk>", "normalized_value": "<unk>", "aliases": [], "type": ""},
}

ASQA = {
    "ambiguous_question": "When did the gate open?",
    "qa_pairs": [
        {
            "context": "No context provided",
            "question": "When did the old gate open?",
            "short_answers": ["1900"],
            "wikipage": None,
        },
        {"context": "c", "question": "The new one?", "short_answers": ["1950", "in 1950"], "wikipage": "Blue Gate"},
    ],
    "wikipages": [{"title": "Blue Gate", "url": "http://x"}],
    "annotations": [
        {
            "knowledge": [{"content": "..", "wikipage": "Blue Gate"}],
            "long_answer": "Old: 1900, new: 1950.",
        },
        {"knowledge": [], "long_answer": "1900, then 1950."},
    ],
    "sample_id": "-12",
}


def _annotation(**fields):
    blank = {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}
    return {**blank, "evidence": [], "highlighted_evidence": [], **fields}


QASPER_QUESTIONS = [
    (
        "q1",
        "How big is it?",
        [
            _annotation(
                extractive_spans=["10 files", "2 GB"],
                evidence=["p3", "FLOAT SELECTED: Table 1"],
                highlighted_evidence=["p3"],
            ),
            _annotation(free_form_answer="ten files", evidence=["p1"]),
        ],
    ),
    ("q2", "Is it public?", [_annotation(yes_no=False, evidence=["p2"]), _annotation(unanswerable=True)]),
]
QASPER_SECTIONS = [("Intro", ["p1", "p2"]), ("Data ::: Size", ["p3"]), (None, [""])]


def qasper_original():
    """The original file: papers by id, lists of dicts everywhere."""
    questions = [
        {
            "question": question,
            "question_id": name,
            "nlp_background": "two",
            "answers": [{"answer": one, "annotation_id": "a", "worker_id": "w"} for one in annotations],
        }
        for name, question, annotations in QASPER_QUESTIONS
    ]
    sections = [{"section_name": name, "paragraphs": paragraphs} for name, paragraphs in QASPER_SECTIONS]
    return {"0000.1": {"title": "T", "abstract": "A", "full_text": sections, "qas": questions}}


def qasper_hub():
    """The hub's row: dicts of lists, twice."""
    names, questions, annotations = (list(column) for column in zip(*QASPER_QUESTIONS, strict=True))
    answers = [{"answer": a, "annotation_id": ["a"] * len(a), "worker_id": ["w"] * len(a)} for a in annotations]
    sections, paragraphs = (list(column) for column in zip(*QASPER_SECTIONS, strict=True))
    qas = {"question": questions, "question_id": names, "nlp_background": ["two"] * 2, "answers": answers}
    text = {"section_name": sections, "paragraphs": paragraphs}
    return {"id": "0000.1", "title": "T", "abstract": "A", "full_text": text, "qas": qas}


def lines(path: Path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def array(path: Path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1))
    return path


def parquet(path: Path, rows, metadata=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), path)
    return path
