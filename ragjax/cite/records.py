"""What is said of an answer's citations: the answer in statements, their scores, and what a check makes of them.

Units are counted from 0 here, in the order in which the generator saw them; the answer's markers count them from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ragjax.compress.base import Unit
from ragjax.data.records import Document
from ragjax.retrieve.sentences import Sentence, split_sentences


@dataclass(frozen=True)
class Statement:
    """A sentence of an answer and the units that it cites.

    `text` is the claim, without markers. `answer.text[start:end]` is the sentence as written, markers included.
    `cited` are unit indices, each once, in order of first mention; under "alce" as its script reads them, which may
    name a unit several times. `invalid` are markers that name no unit, as written ("[0]", "[9]", "[3-1]"), each once.
    """

    text: str
    start: int
    end: int
    cited: tuple[int, ...] = ()
    invalid: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """An answer as written, and its statements as a mode of `ragjax.cite.parse` reads them."""

    text: str
    statements: tuple[Statement, ...]
    mode: str = "strict"

    @property
    def cites(self) -> bool:
        """Whether there is at least one valid citation."""
        return any(statement.cited for statement in self.statements)

    @property
    def citations(self) -> int:
        """The number of valid citations."""
        return sum(len(statement.cited) for statement in self.statements)

    @property
    def invalid(self) -> int:
        """The number of invalid citations."""
        return sum(len(statement.invalid) for statement in self.statements)


@dataclass(frozen=True)
class Cited:
    """An answer to be scored, the units that its generator saw, and the documents that these were made from.

    `language` is that of the documents' and the answer's sentences; units declare sources under the same.
    """

    id: str
    question: str
    answer: str
    units: tuple[Unit, ...]
    documents: tuple[Document, ...]
    language: str = "en"

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """The documents' sentences, with the sids that units declare."""
        return split_sentences(self.documents, self.language)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where in `sentences` each sid is: document order."""
        return {sentence.sid: place for place, sentence in enumerate(self.sentences)}


@dataclass(frozen=True)
class PrecisionRecall:
    """Citation precision and recall, in [0, 1]."""

    precision: float
    recall: float


@dataclass(frozen=True)
class StatementScore:
    """A statement, whether its evidence entails it, and those of its `cited` that are precise, in their order."""

    statement: Statement
    recalled: bool
    precise: tuple[int, ...] = ()


@dataclass(frozen=True)
class View(PrecisionRecall):
    """An example's citations against one kind of evidence: the units' texts, or the source sentences behind them."""

    statements: tuple[StatementScore, ...]


@dataclass(frozen=True)
class Tally:
    """What a judge was asked, before any pair was spared.

    `tokens` are those of every premise and hypothesis, whole. `truncated` pairs had their premise cut; `unread` ones
    have a hypothesis that leaves the judge no room for a premise: they count as not entailed, and have tokens only
    where it is not the judge that counts them.
    """

    pairs: int = 0
    tokens: int = 0
    truncated: int = 0
    unread: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.pairs + other.pairs,
            self.tokens + other.tokens,
            self.truncated + other.truncated,
            self.unread + other.unread,
        )


@dataclass(frozen=True)
class Scored:
    """An example's citations, scored against what the generator saw (`generated`) and the source (`grounded`).

    `sources` are the sids that each unit resolves to, in document order. `undeclared` are the units that declare no
    sources, `recovered` those of them for which re-attribution found some. `asked` is the whole of what that took,
    `recovery` the part of re-attribution.
    """

    id: str
    answer: Answer
    generated: View
    grounded: View
    sources: Mapping[int, tuple[str, ...]]
    recovered: tuple[int, ...] = ()
    undeclared: tuple[int, ...] = ()
    asked: Tally = Tally()
    recovery: Tally = Tally()


@dataclass(frozen=True)
class Verified:
    """What one check makes of an answer's claims, in order: whether each is `supported`, and whether it was `refused`.

    A refused claim had no evidence to ask about; it is unsupported without a call of the judge. `asked` includes
    re-attribution where the check needs it.
    """

    supported: tuple[bool, ...]
    refused: tuple[bool, ...]
    asked: Tally = Tally()

    @property
    def claims(self) -> int:
        """The number of claims."""
        return len(self.supported)

    @property
    def unsupported(self) -> int:
        """How many are not supported, refused ones included."""
        return self.supported.count(False)

    @property
    def structural(self) -> int:
        """How many were refused."""
        return self.refused.count(True)

    @property
    def verifier_tokens(self) -> int:
        """Tokens of every premise and hypothesis, before truncation, de-duplication and cache."""
        return self.asked.tokens
