"""The sweep over models that are text files: quick, exact, and as slow as SECONDS_PER_BATCH says. Runs as a program."""

import hashlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

from experiments.pipeline import shown_context
from experiments.study import Library
from experiments.sweep import main
from ragjax.compress.base import Compressed, Trace, Unit
from ragjax.compress.select import Selection, choose
from ragjax.compress.xcompress import XCompress
from ragjax.decode.likelihood import Score
from ragjax.evals.reader import Reading

TOKENIZER = SimpleNamespace(chat_template="any")


@dataclass(frozen=True)
class FakeModel:
    name: str
    fingerprint: str
    tokenizer: object
    dtype: str = "float32"
    stop_ids: tuple = (2,)
    tokenizer_class: str = "Fake"


def resolve(name):
    if not Path(name).is_file():
        raise FileNotFoundError(f"no model {name!r}")
    return Path(name)


def check(models):
    for name, _, _ in models:
        resolve(name)


def vocabulary(name):
    return SimpleNamespace(name=name, tokenizer=TOKENIZER, vocab_width=9)


def load(name, dtype):
    return FakeModel(name, hashlib.sha256(Path(name).read_bytes()).hexdigest()[:8], TOKENIZER)


def count_tokens(tokenizer, text):
    return len(text.split())


class FakeCompressor:
    """Words of the documents, as many as the alpha says; each word's winner from the alpha."""

    built: ClassVar[list] = []

    def __init__(self, **settings):
        self.settings, self.calls = settings, []
        FakeCompressor.built.append(self)

    def compress_alphas(self, examples, alphas, budget):
        time.sleep(float(os.environ.get("SECONDS_PER_BATCH", 0)))
        self.calls.append(([example.question for example in examples], list(alphas)))
        return [[self.one(example, alpha, budget) for example in examples] for alpha in alphas]

    def compress(self, examples, budget):
        return self.compress_alphas(examples, [self.settings.get("alpha", 0.5)], budget)[0]

    def sample(self, examples, candidates, *, temperature, repetition_penalty, budget, beams, initial):
        """One word more a candidate, the second and third alike; no documents leave nothing to draw."""
        self.calls.append(([example.question for example in examples], candidates))
        lengths = [0.1 * max(1, n if n != 2 else 1) for n in range(candidates)]
        return [[self.one(example, length, budget) for length in lengths] for example in examples]

    def one(self, example, alpha, budget):
        words = " ".join(document.text for document in example.documents).split()
        words = words[: max(1, int(alpha * 10))]
        if example.question == os.environ.get("EMPTY_QUESTION"):
            words = []
        winner = {0.0: "compressor", 1.0: "target"}.get(alpha, "both")
        pieces = tuple(word if i == 0 else f" {word}" for i, word in enumerate(words))
        n = len(words)
        trace = Trace(
            tokens=np.arange(n),
            log_probs=np.full(n, -1 / 3, np.float32),
            member_log_probs=np.zeros((2, n)),
            member_argmax=np.zeros((2, n), int),
            winners=(winner,) * n,
            pieces=pieces,
            finish_reason="length" if n == 7 else "stop",
        )
        text = "".join(pieces)
        status = "empty" if not n else "length" if n == 7 else "ok"
        return Compressed((Unit(text),), None, n, n, count_tokens("", " ".join(words)), status, trace)


class FakeReader:
    """Answers with the context, or with the question where there is none."""

    def __init__(self, lm, **settings):
        self.lm, self.settings = lm, settings

    def read(self, questions, contexts, *, ids, score):
        time.sleep(float(os.environ.get("SECONDS_PER_BATCH", 0)))
        return [self.one(question, context, score) for question, context in zip(questions, contexts, strict=True)]

    def score(self, questions, contexts):
        return [self.score_text(shown_context(context, 0)) for context in contexts]

    def score_text(self, text):
        if not text:
            return None
        count = count_tokens("", text)
        return Score(count * (0.5 if self.lm.name == "model.txt" else 0.7), count, len(text))

    def one(self, question, context, score):
        if question == os.environ.get("FAILING_QUESTION"):
            raise RuntimeError("no reply")
        finish = "stop"
        if context is not None and question == os.environ.get("NON_FINITE_QUESTION"):
            finish = "failed(non-finite at step 3)"
        shown = shown_context(context, 0)
        text = shown or question
        return Reading(
            text=text,
            answer=text,
            finish_reason=finish,
            prompt_tokens=9,
            context_tokens=count_tokens("", shown or ""),
            generated_tokens=len(text.split()),
            score=self.score_text(shown) if score else None,
        )


class FakeCompact(FakeCompressor):
    """Writes as the other one does."""


class FakeSelector:
    """Prefers the longest text; "first" the first. Scores are minus the numbers of words, NaN where there is none."""

    own_subspace = None

    def __init__(self, lm, kind="sps", **settings):
        self.kind, self.settings = kind, settings

    def select(self, candidates):
        return [Selection(choose(scores), tuple(scores)) for scores in self.score(candidates)]

    def score(self, candidates):
        if self.kind == "first":
            return [np.arange(len(one.texts), dtype=float) for one in candidates]
        return [np.array([-len(t.split()) if t else np.nan for t in one.texts], float) for one in candidates]


LIBRARY = Library(
    resolve=resolve,
    vocabulary=vocabulary,
    load=load,
    compressor=FakeCompressor,
    reader=FakeReader,
    count_tokens=count_tokens,
    check=check,
    compact=FakeCompact,
    chooser=XCompress,
    selector=FakeSelector,
    calibrate=None,
    fitted=None,
    scorer=None,
    recomp=None,
    judge=None,
    quality=None,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], LIBRARY))
