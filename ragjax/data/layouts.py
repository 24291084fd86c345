"""Which public layout a row is in, told by its fields alone: recognised, or refused by name.

A layout with documents is recognised wherever it turns up; rows of questions and answers alone are taken only where
the caller says that they are a dataset's, since elsewhere they are rows whose documents were forgotten.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.data.multihop import read_flashrag, read_multihop, read_musique
from ragjax.data.nested import as_records, decode_column, spelled
from ragjax.data.openqa import read_alce_asqa, read_asqa, read_question, read_triviaqa
from ragjax.data.papers import read_paper
from ragjax.data.qa import FIELDS, read_retrieved
from ragjax.data.records import DataError, Example
from ragjax.data.rows import Row

ANSWERS = frozenset(FIELDS["answers"])


@dataclass(frozen=True)
class Layout:
    """A known row: its name, the fields that tell it (and those that speak against it), and its reader.

    `unique`: a later row with an id that was seen is the same question again, and is left out and counted.
    `bare`: rows that have no documents of their own, so that a field that looks like documents was meant to be read.
    """

    name: str
    needs: frozenset[str]
    read: Callable[[Row], list[Example]]
    without: frozenset[str] = frozenset()
    any_of: frozenset[str] = frozenset()
    questions_only: bool = False
    unique: bool = False
    bare: bool = False

    def fits(self, fields: frozenset[str]) -> bool:
        """Whether a row with these fields is in this layout."""
        return self.needs <= fields and not self.without & fields and (not self.any_of or bool(self.any_of & fields))


def _one(read: Callable[[Mapping[str, Any]], Example]) -> Callable[[Row], list[Example]]:
    return lambda row: [read(row.value)]


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


DOCUMENTS = frozenset(FIELDS["documents"])

# The first that fits is meant.
LAYOUTS = (
    Layout("QASPER", _fields("full_text qas"), lambda row: read_paper(row.value, row.path)),
    Layout("ASQA", _fields("ambiguous_question qa_pairs"), lambda row: [read_asqa(row.value, row.path)], bare=True),
    Layout(
        "TriviaQA",
        _fields("question entity_pages search_results"),
        _one(read_triviaqa),
        without=DOCUMENTS,
        unique=True,
        bare=True,
    ),
    Layout(
        "TriviaQA (original)",
        _fields("Question QuestionId"),
        _one(read_triviaqa),
        without=DOCUMENTS,
        unique=True,
        bare=True,
    ),
    Layout("ALCE's ASQA", _fields("question docs qa_pairs"), _one(read_alce_asqa), without=_fields("answers")),
    Layout("retrieved documents", _fields("question"), _one(read_retrieved), any_of=DOCUMENTS),
    Layout("MuSiQue", _fields("question paragraphs"), _one(read_musique)),
    Layout("CompAct", _fields("question answers context"), _one(read_multihop), without=_fields("supporting_facts")),
    Layout("HotpotQA", _fields("question context"), _one(read_multihop)),
    Layout(
        "FlashRAG with documents",
        _fields("question golden_answers metadata"),
        _one(read_flashrag),
        any_of=_fields("metadata.context metadata.paragraphs"),
    ),
    Layout("FlashRAG", _fields("question golden_answers metadata"), _one(read_flashrag), bare=True),
    Layout("questions", _fields("question"), _one(read_question), any_of=ANSWERS, questions_only=True, bare=True),
)

# What fields of documents are called where no layout knows them, and the texts inside such a document.
_WORDS = ("context", "ctx", "passage", "paragraph", "doc", "evidence", "retriev", "snippet", "chunk")
_NAMING = ("id", "ids", "title", "titles", "url", "urls")
_TEXTS = _fields("text contents content paragraph_text passage passage_text snippet chunk body")

# What is often at hand and holds no questions with answers and documents, with what to use in its place.
REFUSED = (
    (_fields("question gen_ctx"), "FaviComp's output: give the file of retrieved documents that it was made from"),
    (_fields("question iterations"), "CompAct's demonstrations: give its retrieval files"),
    (_fields("question output utility_score"), "ALCE's human evaluation: give ALCE's ASQA files, with documents"),
    (_fields("question positive_ctxs"), "DPR's training data: give the output of a retriever (ctxs)"),
    (_fields("question_text document_tokens"), "the full Natural Questions: use NQ-open, whose answers are texts"),
    (_fields("question_text document_text"), "the full Natural Questions: use NQ-open, whose answers are texts"),
    (_fields("document annotations long_answer_candidates"), "the full Natural Questions: use NQ-open"),
    (_fields("query context_doc_ids"), "corag's: it names documents by id and holds no text"),
    (_fields("input output meta"), "KILT's: it names pages by id and holds no text"),
    (_fields("id contents"), "a corpus of FlashRAG: it has no questions"),
    (_fields("_id text"), "BEIR's: it has no answers"),
)


def recognise(row: Row, questions_only: bool = False) -> Layout:
    """The layout of a row. Raises DataError, naming what it is instead or the fields found."""
    fields = frozenset(row.value) | {f"metadata.{name}" for name, value in _metadata(row).items() if value is not None}
    refused = [(known, words) for known, words in REFUSED if known <= fields]
    questions_only = questions_only and not any("question" in known for known, _ in refused)
    for layout in LAYOUTS:
        if layout.fits(fields) and (questions_only or not layout.questions_only):
            return layout
    if refused:
        raise DataError(f"this row is of {refused[0][1]}")
    read_retrieved(row.value)
    raise DataError(f"no layout is known with the fields {', '.join(sorted(row.value))}")


def _metadata(row: Row) -> Mapping[str, Any]:
    """The fields that FlashRAG holds in one, where a row has it."""
    metadata = spelled(row.value.get("metadata"))
    return metadata if isinstance(metadata, Mapping) else {}


def check_forgotten(row: Row, layout: Layout) -> None:
    """Raise DataError, naming the field, where a row without documents has one that looks like them."""
    if not layout.bare:
        return
    known = layout.needs | ANSWERS | DOCUMENTS
    for name, value in {**_metadata(row), **row.value}.items():
        if name not in known and _looks_like_documents(name, value):
            raise DataError(
                f"the field {name} looks like documents, and is in no layout that is known: call it "
                f"{' or '.join(FIELDS['documents'])} (a list of texts, or of objects with title and text)"
            )


def _looks_like_documents(name: str, value: Any) -> bool:
    """Whether a list holds objects with a text, or anything with words under a name that documents are given."""
    try:
        value = decode_column(value)
        items = as_records(value) if isinstance(value, Mapping) else value
    except DataError:
        return False
    if not isinstance(items, list | tuple):
        return False
    if any(isinstance(item, Mapping) and any(_has_words(item.get(text)) for text in _TEXTS) for item in items):
        return True
    name = name.lower()
    return any(word in name for word in _WORDS) and not name.endswith(_NAMING) and _has_words(items)


def _has_words(value: Any) -> bool:
    """Whether there is a text of several words, and so no id or title alone, anywhere inside."""
    if isinstance(value, str):
        return len(value.split()) > 1
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_has_words(item) for item in items)
