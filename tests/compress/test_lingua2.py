"""LLMLingua-2 over a classifier whose probabilities the tests choose: one global cut, exact, whatever the text."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ragjax.compress import lingua2
from ragjax.compress.base import Budget
from ragjax.compress.lingua2 import LLMLingua2
from ragjax.compress.pruning import Protection, open_source
from ragjax.data import load_examples
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.testing import byte_tokenizer
from tests.compress.pruning_oracle import check_budget, check_units, pruned_text

MODEL = SimpleNamespace(
    name="tiny-bert", fingerprint="f00d", config=SimpleNamespace(head="token", labels=("LABEL_0", "LABEL_1"))
)
BYTES = byte_tokenizer()
SUBWORD = regex.compile(r"\w{1,4}|\S")


def labelled(text: str) -> Any:
    """What the classifier says of a text in sub-words of up to 4 characters: some probability, a few of them equal."""
    offsets = np.array([m.span() for m in SUBWORD.finditer(text)], int).reshape(-1, 2)
    first = np.array([ord(text[a]) for a, _ in offsets.tolist()], int)
    kept = ((first * 31 + offsets[:, 0]) * 2654435761 % 97 / 97).astype(np.float32)
    return SimpleNamespace(offsets=offsets, probabilities=np.stack([1 - kept, kept], axis=1))


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Stands in for the classifier; lists the texts of each of its calls."""
    calls: list[list[str]] = []

    def probabilities(model: Any, texts: Sequence[str], *, batch: int) -> list[Any]:
        assert model is MODEL
        calls.append(list(texts))
        return [labelled(text) for text in texts]

    monkeypatch.setattr(lingua2, "token_probabilities", probabilities)
    return calls


def compressor(**options: Any) -> LLMLingua2:
    return LLMLingua2(**{"model": MODEL, "tokenizer": BYTES, **options})


def example(*texts: str, question: str = "Who?") -> Example:
    return Example("e", question, documents=tuple(map(Document, texts)))


def ranking(source: Any) -> list[int]:
    """Every word by (protected, probability, position), from the sub-words one by one."""
    scores = []
    for words in source.words:
        one = labelled(words.text)
        pairs = [(*place, p) for place, p in zip(one.offsets.tolist(), one.probabilities[:, 1].tolist(), strict=True)]
        for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
            own = [p for a, b, p in pairs if max(a, start) < min(b, end)]
            scores.append(np.mean(own) if own else -np.inf)
    return sorted(range(len(scores)), key=lambda i: (not source.protected[i], -scores[i], i))


def check_cut(tokenizer: Any, one: Example, found: Any, budget: Budget, **options: Any) -> None:
    """The result is a prefix of the ranking; with the next word it would exceed the budget."""
    source = Opener(tokenizer, **options).open(one, budget)
    order, count = ranking(source), 0
    for unit in found.units:
        words = source.words[unit.spans[0][0]]
        count += sum(((words.starts >= a) & (words.ends <= b)).sum() for _, a, b in unit.spans)
    assert pruned_text(source, order[:count], source.filled) == found.text
    if count < len(order):
        assert count_tokens(tokenizer, pruned_text(source, order[: count + 1], source.filled)) > source.request.requested


TEXTS = st.lists(st.text(st.sampled_from("ab c\n d,.12é中文😀\u0301ب "), max_size=30), min_size=1, max_size=3)


@settings(deadline=None)
@given(TEXTS, st.integers(1, 40), st.sampled_from([(), ("digits",), ("question", "newlines")]))
def test_any_text_is_cut_to_a_prefix_of_the_ranking(texts, tokens, names):
    one, budget = example(*texts, question="ab 文?"), Budget(tokens=tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lingua2, "token_probabilities", lambda model, texts, batch: [labelled(t) for t in texts])
        (found,) = compressor(keep=names).compress([one], budget)
    check_units(one, found)
    check_budget(BYTES, found)
    assert found.status in ("ok", "short_input", "too_small", "empty")
    assert (found.status == "empty") == (not "".join(texts).strip())
    assert (found.status in ("empty", "too_small")) == (not found.units)
    if found.status == "ok":
        check_cut(BYTES, one, found, budget, keep=names)


@pytest.fixture(scope="module")
def metaspace(shared) -> PreTrainedTokenizerFast:
    """A real tokenizer of Llama's kind."""
    return PreTrainedTokenizerFast(tokenizer_file=str(shared / "models" / "phi-3-mini-tokenizer.json"))


@pytest.mark.shared
@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.1, 0.05])
def test_real_rows_meet_their_budget_and_no_further_word_fits(shared, metaspace, fraction):
    examples = load_examples(shared / "data" / "hotpotqa_retrieved.jsonl").examples
    budget = Budget(fraction=fraction)
    results = compressor(tokenizer=metaspace).compress(examples, budget)
    assert len(results) == 200
    statuses = Counter(found.status for found in results)
    print(f"budget {fraction}: {dict(statuses)}, {np.mean([r.achieved / r.requested for r in results]):.4f} of it used")
    assert statuses == {"ok": 200}
    for one, found in zip(examples, results, strict=True):
        check_units(one, found)
        check_budget(metaspace, found)
        assert found.achieved >= found.requested - 8
    for one, found in list(zip(examples, results, strict=True))[::10]:
        check_cut(metaspace, one, found, budget)
