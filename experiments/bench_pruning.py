"""`python -m experiments.bench_pruning`: what LLMLingua-2 costs the host, for documents of 900 words.

Everything but the classifier's forward pass is timed: tokenising for the classifier and for the reader, words, windows,
the ranking, the fit. The probabilities are drawn at random, the documents are words of the shipped questions.
"""

import time
from collections.abc import Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from transformers import AutoTokenizer

from experiments.models import MINILM, SMOLLM2, ensure_model
from experiments.study import find_data
from ragjax.compress.base import Budget
from ragjax.compressors import LLMLingua2
from ragjax.data import Document, Example, load_examples
from ragjax.encode.tokens import Row

BUDGETS = (0.5, 0.25, 0.1, 0.05)
WORDS = 900
REPEATS = 30


def documents(count: int) -> list[Example]:
    """Examples of one document each, of `WORDS` words."""
    examples = load_examples(find_data("questions")).examples
    words = " ".join(document.text for example in examples for document in example.documents).split()
    words *= -(-count * WORDS // len(words))
    texts = [" ".join(words[WORDS * i : WORDS * (i + 1)]) for i in range(count)]
    return [Example(str(i), "?", documents=(Document(text),)) for i, text in enumerate(texts)]


def _random_labels(model: Any, rows: Sequence[Row], reading: str, batch: int) -> list[np.ndarray]:
    return [np.random.default_rng(len(row.ids)).random((len(row.ids), 2), np.float32) for row in rows]


def milliseconds(compressor: LLMLingua2, examples: Sequence[Example], budget: float) -> float:
    """Median time in milliseconds, for each document of a call."""
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        compressor.compress(examples, Budget.of(budget))
        spent.append(time.perf_counter() - began)
    return median(spent) * 1e3 / len(examples)


def main() -> None:
    """Print a line a budget: one document at a time, and sixteen in one call."""
    reader, classifier = (AutoTokenizer.from_pretrained(ensure_model(name)) for name in (SMOLLM2, MINILM))
    config = SimpleNamespace(head="token", labels=("drop", "keep"), max_positions=512)
    model = SimpleNamespace(name="random", config=config, labels=config.labels, tokenizer=classifier, fingerprint="")
    compressor = LLMLingua2(model=model, tokenizer=reader)
    calls = [documents(count) for count in (1, 16)]
    with patch("ragjax.encode.labels.read_rows", _random_labels):
        for budget in BUDGETS:
            one, many = (milliseconds(compressor, examples, budget) for examples in calls)
            print(f"budget {budget}: {one:.1f} ms alone, {many:.1f} ms in a call of 16", flush=True)


if __name__ == "__main__":
    main()
