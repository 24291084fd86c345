"""What the tests of copying families share: texts of many scripts, real rows, and the contract as plain checks."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ragjax.compress.base import Budget, Compressed, Compressor
from ragjax.compress.cut import source_length
from ragjax.compress.prompts import number_documents
from ragjax.compress.units import shown_documents
from ragjax.data import load_examples
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_each, count_tokens
from ragjax.retrieve.scorers import Scores
from ragjax.retrieve.sentences import split_sentences

FRACTIONS = (0.5, 0.25, 0.1, 0.05)
TEXTS = st.text("abAB .!?\n1é🏔\u0301\xa0今天。ابي؟", max_size=40)
EXAMPLES = st.builds(
    lambda texts, question: Example("x", question, documents=tuple(Document(t, title=t[:3].strip()) for t in texts)),
    st.lists(TEXTS, max_size=4),
    TEXTS,
)
BUDGETS = st.one_of(st.none(), st.integers(1, 80), st.sampled_from(FRACTIONS), st.just(1.0)).map(Budget.of)


@dataclass(frozen=True)
class Table:
    """A scorer that looks each text up; unknown ones score 0."""

    scores: dict[str, float]
    truncated: int = 0

    def score(self, questions: Sequence[str], texts: Sequence[Sequence[str]]) -> list[Scores]:
        return [Scores(np.array([self.scores.get(t, 0.0) for t in own]), self.truncated) for own in texts]


def check_contract(tokenizer: Any, example: Example, budget: Budget | None, found: Compressed) -> None:
    """Lengths, statuses, spans and sources of a result whose family copies and declares."""
    blank = not any(d.text.strip() for d in example.documents)
    source = 0 if blank else source_length(tokenizer, example.documents)
    assert found.source_tokens == source
    assert found.requested == (budget.resolve(source) if budget else None)
    assert found.achieved == count_tokens(tokenizer, found.text)
    shown = number_documents(shown_documents(found.units, example.documents))
    assert found.prompt_tokens == count_tokens(tokenizer, shown)
    sentences = {s.sid: s for s in split_sentences(example.documents)}
    for unit in found.units:
        ((number, start, end),) = unit.spans
        assert unit.text == example.documents[number].text[start:end]
        assert unit.text.strip()
        own = [sid for sid, s in sentences.items() if s.document == number and s.start < end and s.end > start]
        assert set(own) <= set(unit.sources) <= set(sentences)


def check_budget(tokenizer: Any, found: Compressed) -> None:
    """Within the budget, and the status says what became of it."""
    if found.requested is None:
        assert found.status == ("ok" if found.units else "empty")
        return
    assert found.achieved <= found.requested
    if found.source_tokens == 0:
        assert (found.status, found.units, found.rate) == ("empty", (), None)
    elif found.source_tokens <= found.requested:
        assert found.status == "short_input"
    else:
        assert found.status == ("ok" if found.units else "too_small")


def further_fits(tokenizer: Any, texts: Sequence[str], kept: Sequence[int], budget: int) -> list[int]:
    """The units that could still be added, each tried by tokenising the joined text; `texts` are in final order."""
    left = [i for i in range(len(texts)) if i not in set(kept)]
    joined = ["\n".join(texts[j] for j in sorted({*kept, i})) for i in left]
    return [i for i, count in zip(left, count_each(tokenizer, joined), strict=True) if count <= budget]


def real_rows(shared: Path, name: str = "nq") -> list[Example]:
    """200 rows, to be compressed at the published budgets in turn."""
    return list(load_examples(shared / "data" / f"{name}.jsonl").examples[:200])


def compress_in_turn(
    compressor: Compressor, rows: Sequence[Example], check: Callable[[Example, Compressed], None]
) -> dict[float, Counter]:
    """Each row at one of the published budgets, checked; how often each status came at each budget, printed too."""
    statuses = {}
    for n, fraction in enumerate(FRACTIONS):
        own = rows[n :: len(FRACTIONS)]
        found = compressor.compress(own, Budget(fraction=fraction))
        statuses[fraction] = Counter(one.status for one in found)
        for example, one in zip(own, found, strict=True):
            check_contract(compressor.tokenizer, example, Budget(fraction=fraction), one)
            check_budget(compressor.tokenizer, one)
            check(example, one)
    print(type(compressor).__name__, statuses)
    return statuses


def check_alone_and_together(compressor: Compressor, examples: Sequence[Example], budget: Budget | None) -> None:
    """A result does not depend on the other examples or on their order."""
    together = compressor.compress(examples, budget)
    backwards = compressor.compress(examples[::-1], budget)[::-1]
    for example, one, other in zip(examples, together, backwards, strict=True):
        (alone,) = compressor.compress([example], budget)
        assert alone.units == one.units == other.units
        assert alone.status == one.status == other.status
