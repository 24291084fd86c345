"""Which public layout a row is in, told by its fields alone: recognised, or refused by name.

A layout with documents is recognised wherever it turns up; rows of questions and answers alone are taken only where
the caller says that they are a dataset's, since elsewhere they are rows whose documents were forgotten.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.data.multihop import read_flashrag, read_multihop, read_musique
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
    """

    name: str
    needs: frozenset[str]
    read: Callable[[Row], list[Example]]
    without: frozenset[str] = frozenset()
    any_of: frozenset[str] = frozenset()
    questions_only: bool = False
    unique: bool = False

    def fits(self, fields: frozenset[str]) -> bool:
        """Whether a row with these fields is in this layout."""
        return self.needs <= fields and not self.without & fields and (not self.any_of or bool(self.any_of & fields))


def _one(read: Callable[[Mapping[str, Any]], Example]) -> Callable[[Row], list[Example]]:
    return lambda row: [read(row.value)]


def _fields(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The first that fits is meant.
LAYOUTS = (
    Layout("QASPER", _fields("full_text qas"), lambda row: read_paper(row.value, row.path)),
    Layout("ASQA", _fields("ambiguous_question qa_pairs"), lambda row: [read_asqa(row.value, row.path)]),
    Layout("TriviaQA", _fields("question entity_pages search_results"), _one(read_triviaqa), unique=True),
    Layout("TriviaQA (original)", _fields("Question QuestionId"), _one(read_triviaqa), unique=True),
    Layout("ALCE's ASQA", _fields("question docs qa_pairs"), _one(read_alce_asqa), without=_fields("answers")),
    Layout("retrieved documents", _fields("question"), _one(read_retrieved), any_of=frozenset(FIELDS["documents"])),
    Layout("MuSiQue", _fields("question paragraphs"), _one(read_musique)),
    Layout("HotpotQA", _fields("question context"), _one(read_multihop)),
    Layout("FlashRAG", _fields("question golden_answers metadata"), _one(read_flashrag)),
    Layout("questions", _fields("question"), _one(read_question), any_of=ANSWERS, questions_only=True),
)

# What is often at hand and holds no questions with answers and documents, with what to use in its place.
REFUSED = (
    (_fields("question gen_ctx"), "FaviComp's output: give the file of retrieved documents that it was made from"),
    (_fields("question iterations"), "CompAct's demonstrations: give its retrieval files"),
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
    fields = frozenset(row.value)
    for layout in LAYOUTS:
        if layout.fits(fields) and (questions_only or not layout.questions_only):
            return layout
    for known, words in REFUSED:
        if known <= fields:
            raise DataError(f"this row is of {words}")
    read_retrieved(row.value)
    raise DataError(f"no layout is known with the fields {', '.join(sorted(fields))}")
