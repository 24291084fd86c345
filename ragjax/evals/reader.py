"""The reader: a model that answers a question from a context, and how familiar that context is to it.

The order of question and context is fixed before a run. Perplexity is always that of the context after the question:
in question-first order it is read off the reader's own prefill, else it takes a second pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, fill_template, number_documents
from ragjax.data.records import Document
from ragjax.decode.engine import (
    Execution,
    Sampling,
    Voice,
    check_settings,
    decode_prompts,
    require_causal,
    score_prompts,
)
from ragjax.decode.likelihood import Score
from ragjax.decode.prompt import Prompt, build_prompt, decode_text
from ragjax.decode.text import raise_failed
from ragjax.evals.demonstrations import Demonstrations
from ragjax.evals.qa import parse_answer

ORDERS = ("question_first", "context_first")
ROLES = ("read", "write", "cite")

Context = str | Sequence[Document] | None
"""What a reader reads: a compressed text, whole documents (numbered and titled for it), or nothing."""


@dataclass(frozen=True, eq=False)
class Reading:
    """One answer: `text` as decoded, `answer` as parsed from it, and the context's score (None without one)."""

    text: str
    answer: str
    finish_reason: str
    prompt_tokens: int
    context_tokens: int
    generated_tokens: int
    score: Score | None
    dropped_documents: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Reader:
    """Answers questions in batches; greedy unless a temperature is given (the paper's preset reads at 1.0).

    `shots` are (question, answer) pairs that stand before the question in the user's turn, without contexts:
    `ragjax.evals.demonstrations` has five a dataset. The perplexity of a context is given them too. Its `role` is to
    "read" (an answer in a few words), to "write" a paragraph, or to "cite" in it the numbers of its documents.

    A context of documents that is too long for the model loses whole documents from the end, counted; one text that
    is too long is an error.
    """

    lm: Any
    max_new: int = 32
    order: str = "question_first"
    prompt_format: str = "chat"
    prompts: PromptSet = DEFAULT_PROMPTS
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = 0
    batch: int = 8
    strict: bool = False
    shots: Demonstrations = ()
    role: str = "read"

    def __post_init__(self) -> None:
        require_causal("a reader", self.lm)
        check_settings(self.max_new, prompt_format=self.prompt_format)
        Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)
        if self.role not in ROLES:
            raise ValueError(f"role is one of {ROLES}, got {self.role!r}")
        if self.order not in ORDERS:
            raise ValueError(f"order is one of {ORDERS}, got {self.order!r}")

    def read(
        self,
        questions: Sequence[str],
        contexts: Sequence[Context],
        *,
        ids: Sequence[str] | None = None,
        score: bool = True,
    ) -> list[Reading]:
        """Answer each question from its context; `score=False` leaves the perplexity out."""
        if len(questions) != len(contexts):
            raise ValueError(f"{len(questions)} questions need as many contexts, got {len(contexts)}")
        built = [self._fit(q, c, self.order, n) for n, (q, c) in enumerate(zip(questions, contexts, strict=True))]
        free = score and self.order == "question_first"
        result = decode_prompts(
            [Voice(self.lm, [prompt for prompt, _ in built])],
            max_new=self.max_new,
            # A stream of its own: the compressor keys its samples by the same ids.
            ids=None if ids is None else [f"reader:{name}" for name in ids],
            sampling=Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed),
            score="context" if free else None,
            execution=Execution(batch=self.batch),
        )
        scores = result.scores
        if score and not free:
            scores = self.score(questions, contexts)
        rows = [candidates[0] for candidates in result.rows]
        if self.strict:
            raise_failed(rows)
        return [self._reading(*b, row, s) for b, row, s in zip(built, rows, scores, strict=True)]

    def score(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Score | None]:
        """The `Score` of each context after its question, None where there is no context."""
        pairs = zip(questions, contexts, strict=True)
        built = [self._fit(q, c, "question_first", n)[0] for n, (q, c) in enumerate(pairs)]
        scores = score_prompts(self.lm, built, "context", execution=Execution(batch=self.batch))
        return [s if p.pieces["context"] else None for p, s in zip(built, scores, strict=True)]

    def _fit(self, question: str, context: Context, order: str, row: int) -> tuple[Prompt, int]:
        documents = tuple(context) if context is not None and not isinstance(context, str) else None
        limit = self.lm.config.max_positions - self.max_new
        dropped = 0
        while True:
            text = number_documents(documents[: len(documents) - dropped]) if documents else (context or "")
            prompt = self._prompt(question, text, order)
            if len(prompt.ids) <= limit:
                return prompt, dropped
            if documents is None or dropped == len(documents):
                raise ValueError(
                    f"row {row}: {len(prompt.ids)} prompt tokens and {self.max_new} new ones exceed the "
                    f"{self.lm.config.max_positions} positions of {self.lm.name}"
                )
            dropped += 1

    def _prompt(self, question: str, context: str, order: str) -> Prompt:
        template = getattr(self.prompts, f"read_{order}") if context.strip() else self.prompts.read_alone
        data = {"question": question, "context": context.strip()}
        if self.shots:
            template, data = f"{{shots}}{template}", data | {"shots": self._shots()}
        prompt = build_prompt(
            self.lm.tokenizer,
            getattr(self.prompts, f"{self.role}_system"),
            template,
            data,
            prompt_format=self.prompt_format,
        )
        if "context" in prompt.spans:
            return prompt
        # No context, no line for one: an empty piece keeps rows of both kinds in one batch.
        return Prompt(
            prompt.ids, prompt.text, {**prompt.pieces, "context": ""}, {**prompt.spans, "context": (0, 0)}, prompt.notes
        )

    def _shots(self) -> str:
        """The demonstrations as text: data, so that nothing in them is read as a template or a special token."""
        template = self.prompts.read_shot
        return "".join(fill_template(template, {"question": q, "answer": a}) for q, a in self.shots)

    def _reading(self, prompt: Prompt, dropped: int, row: Any, score: Score | None) -> Reading:
        text = "" if row.failed else decode_text(self.lm.tokenizer, row.tokens)
        start, stop = prompt.spans["context"]
        return Reading(
            text=text,
            answer=parse_answer(text),
            finish_reason=row.finish_reason,
            prompt_tokens=len(prompt.ids),
            context_tokens=stop - start,
            generated_tokens=len(row.tokens),
            score=score if prompt.pieces["context"] else None,
            dropped_documents=dropped,
            notes=prompt.notes,
        )
