"""CompAct: documents read a few at a time into one summary, until the model says that it suffices.

Each iteration shows the model a segment of the documents, the summary so far and the model's own evaluation of it.
It replies with the summary written anew and a verdict:

    Ada Lovelace was born in London in 1815.
    Verdict: incomplete
    The year of her death is missing.

"complete" ends the reading, as do the last document and the last iteration; documents not reached stay unread. What is
uncertain is decided for reading on: a reply without a verdict counts as incomplete, an empty summary leaves the one
before it standing, and "complete" with no summary at all is not believed. The notes of a result count all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragjax.compress.base import Budget, Compressed, Writer, check_candidates
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, number_documents
from ragjax.compress.units import without_decoding
from ragjax.compress.writing import (
    PromptTooLong,
    as_compressed,
    as_trace,
    check_overflow,
    fit_documents,
    write_budgets,
)
from ragjax.data import Document, Example
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Execution, Sampling, Voice, check_settings, decode_prompts, require_causal
from ragjax.decode.prompt import Prompt, build_prompt, decode_text
from ragjax.decode.state import Decoded
from ragjax.decode.text import raise_failed

# Between words models put asterisks, brackets and the like.
_VERDICT = re.compile(
    r"^(?:[^\w\n]|_)*"
    r"(?P<label>(?:verdict|evaluation)(?:[^\w\n]|_)*?:[\W_]*(?:the\s+(?:evidence|summary|passage)\s+is\s+)?)?"
    r"(?P<negated>in|not[\W_]+)?complete(?(label)(?![^\W_])|(?=[ \t*_\])]*(?:[.:;,\u2013\u2014-]|$)))",
    re.IGNORECASE | re.MULTILINE,
)
_UNJUDGED = "Verdict: incomplete"


@dataclass(frozen=True)
class Reply:
    """A model's reply in parts. `complete` is None where it holds no verdict; `evaluation` is then the empty text."""

    summary: str
    evaluation: str
    complete: bool | None


def parse_reply(text: str) -> Reply:
    """Split a reply at its verdict: the first line that begins "Verdict: complete" or "Verdict: incomplete".

    "Evaluation:" will do for "Verdict:", "not complete" for "incomplete", and the bare word where it ends its line or a
    mark follows ("Incomplete: no year is given"); case and markup do not matter. The summary is the text before that
    line, the evaluation the line and all that follows. Any other word after "Verdict:" makes no verdict (a document may
    tell of a court's).
    """
    found = _VERDICT.search(text)
    if found is None:
        return Reply(text.strip(), "", None)
    return Reply(text[: found.start()].strip(), text[found.start() :].strip(), found["negated"] is None)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompAct(Writer):
    """A compressor of one model that reads in segments.

    Args:
      lm: the `LanguageModel` that reads and writes.
      segment: documents an iteration.
      max_iterations: the most iterations; what lies behind them stays unread.
      max_new: the most tokens of a reply, verdict and reason included.
      prompt_format: "chat", or "plain" for models without a chat template.
      prompts: the words; see `PromptSet`.
      tokenizer: the generator's, in which lengths are counted; default the model's own.
      on_overflow: what happens to a prompt too long for the model: "drop_docs" leaves out whole documents from the
        segment's end and counts them, "error" raises.
      strict: raise on non-finite logits instead of ending that example as failed.

    A budget cuts the final summary, not those on the way. The trace is that of the last reply, evaluation included.
    """

    lm: Any
    segment: int = 5
    max_iterations: int = 6
    max_new: int = 512
    prompt_format: str = "chat"
    prompts: PromptSet = DEFAULT_PROMPTS
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = 0
    batch: int = 8
    tokenizer: Any = None
    on_overflow: str = "drop_docs"
    strict: bool = False

    def __post_init__(self) -> None:
        require_causal("CompAct", self.lm)
        self._sampling  # noqa: B018, refuses a knob or a seed out of range
        check_settings(self.max_new, prompt_format=self.prompt_format)
        check_overflow(self.on_overflow)
        for name in ("segment", "max_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, got {getattr(self, name)}")

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """The final summary of each example; all that still read share each iteration's decode.

        Raises:
          ValueError: for an example whose first segment does not fit the model, whatever is dropped from it; or any
            segment that does not fit as it is, where `on_overflow` is "error".
          DecodeFailed: for non-finite logits, where `strict` is set.
        """
        found = [without_decoding(self._counter, example, budget) for example in examples]
        rest = [i for i, done in enumerate(found) if done is None]
        for i, turn in zip(rest, self._follow([examples[i] for i in rest]), strict=True):
            one = self._compressed(examples[i], turn, turn.row, budget)
            found[i] = replace(one, decoded=turn.course.tokens + len(turn.row.tokens), resume=turn)
        return found

    def compress_budgets(self, examples: Sequence[Example], budgets: Sequence[Budget | None]) -> list[list[Compressed]]:
        """As `Compressor.compress_budgets`, over one decode."""
        return write_budgets(self, self._counter, examples, budgets, reads=True)

    def sample(
        self,
        examples: Sequence[Example],
        candidates: int,
        *,
        temperature: float = 1.0,
        repetition_penalty: float = 1.0,
        budget: Budget | None = None,
        beams: bool = False,
        initial: Sequence[Compressed] | None = None,
    ) -> list[list[Compressed]]:
        """Several final summaries an example, as `Writer.sample`.

        The way to the last iteration is that of `compress`, which `initial` spares; the candidates are replies to its
        prompt, each treated as that one reply would be.
        """
        check_candidates(candidates)
        settled = [without_decoding(self._counter, example, budget) for example in examples]
        rest = [i for i, done in enumerate(settled) if done is None]
        rows = [[done] * candidates for done in settled]
        if not rest:
            return rows
        turns = self._follow([examples[i] for i in rest]) if initial is None else [initial[i].resume for i in rest]
        sampling = Sampling(temperature, 0, self.top_p, repetition_penalty, self.seed)
        drawn = (self._search if beams else self._decode)(turns, candidates=candidates, sampling=sampling)
        for i, turn, replies in zip(rest, turns, drawn, strict=True):
            rows[i] = [self._compressed(examples[i], turn, row, budget) for row in replies]
        return rows

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.temperature, 0, self.top_p, self.repetition_penalty, self.seed)

    @property
    def _counter(self) -> Any:
        """The tokenizer that lengths are counted with."""
        return self.tokenizer or self.lm.tokenizer

    def _follow(self, examples: Sequence[Example]) -> list["_Turn"]:
        """Each example's last turn, with this compressor's own reply to it."""
        turns = [self._open(example, _Course()) for example in examples]
        last = list(turns)
        while reading := [i for i, turn in enumerate(turns) if turn.prompt is not None]:
            rows = self._decode([turns[i] for i in reading], candidates=1, sampling=self._sampling)
            for i, (row,) in zip(reading, rows, strict=True):
                last[i] = replace(turns[i], row=row)
                turns[i] = self._open(examples[i], self._after(turns[i].course, row))
        # Documents that there was no room for after the last turn are counted too.
        return [replace(t, dropped=end.course.dropped) for t, end in zip(last, turns, strict=True)]

    def _open(self, example: Example, course: "_Course") -> "_Turn":
        """The turn of the next segment of which something fits; without a prompt where the reading is over."""
        reached = min(len(example.documents), self.segment * self.max_iterations)
        while course.reads_on and course.segment * self.segment < reached:
            begin = course.segment * self.segment
            documents = example.documents[begin : begin + self.segment]
            prompt, dropped = self._fit(example, documents, course)
            course = replace(
                course,
                segment=course.segment + 1,
                read=course.read + len(documents) - dropped,
                dropped=course.dropped + dropped,
            )
            if prompt is not None:
                return _Turn(f"segment {course.segment} of {example.id}", course, prompt)
        return _Turn("", course, None)

    def _fit(self, example: Example, documents: Sequence[Document], course: "_Course") -> tuple[Prompt | None, int]:
        """The prompt of a segment and how many documents are left out of it.

        Where a later segment has no room for even one (a long document, or a long summary beside it) it is passed
        over whole: what was read before is not lost.
        """

        def build(shown: Sequence[Document]) -> Prompt:
            data = {"question": example.question, "documents": number_documents(shown)}
            user = self.prompts.compact_user
            if course.summary:
                user = self.prompts.compact_next
                data |= {"summary": course.summary, "evaluation": course.evaluation}
            system = self.prompts.compact_system
            return build_prompt(self.lm.tokenizer, system, user, data, prompt_format=self.prompt_format)

        try:
            return fit_documents(build, example, documents, self.lm, self.max_new, self.on_overflow)
        except PromptTooLong:
            if not course.replies or self.on_overflow == "error":
                raise
            return None, len(documents)

    def _decode(self, turns: Sequence["_Turn"], *, candidates: int, sampling: Sampling) -> list[list[Decoded]]:
        result = decode_prompts(
            [Voice(self.lm, [turn.prompt for turn in turns])],
            max_new=self.max_new,
            weights=((1.0,),) * candidates,
            ids=[turn.name for turn in turns],
            sampling=sampling,
            execution=Execution(batch=self.batch),
        )
        return self._checked(result.rows)

    def _search(self, turns: Sequence["_Turn"], *, candidates: int, sampling: Sampling) -> list[list[Decoded]]:
        result = decode_beams(
            [Voice(self.lm, [turn.prompt for turn in turns])],
            beams=candidates,
            max_new=self.max_new,
            ids=[turn.name for turn in turns],
            repetition_penalty=sampling.repetition_penalty,
            execution=Execution(batch=self.batch),
        )
        return self._checked(result.rows)

    def _checked(self, rows: list[list[Decoded]]) -> list[list[Decoded]]:
        if self.strict:
            raise_failed([row for candidates in rows for row in candidates])
        return rows

    def _after(self, course: "_Course", row: Decoded) -> "_Course":
        text = "" if row.failed else decode_text(self.lm.tokenizer, row.tokens)
        taken = _take_reply(course, parse_reply(text), row.finish_reason)
        return replace(taken, tokens=course.tokens + len(row.tokens))

    def _compressed(self, example: Example, turn: "_Turn", row: Decoded, budget: Budget | None) -> Compressed:
        course = self._after(turn.course, row)
        return as_compressed(
            self._counter,
            example,
            budget,
            course.summary,
            as_trace(row, 0, self.lm.tokenizer),
            cut=course.cut,
            dropped_documents=turn.dropped,
            notes=(*_notes(course, len(example.documents)), *turn.prompt.notes),
        )


@dataclass(frozen=True)
class _Course:
    """How far one example has been read, what the model makes of it, and counts of what is to be told.

    `segment` is the next one's number from 0, `cut` whether the summary ended at the cap of new tokens, `complete` the
    last verdict, `tokens` the length of all replies.
    """

    segment: int = 0
    read: int = 0
    dropped: int = 0
    summary: str = ""
    cut: bool = False
    evaluation: str = ""
    complete: bool | None = None
    failed: bool = False
    replies: int = 0
    without_verdict: int = 0
    without_summary: int = 0
    cut_replies: int = 0
    tokens: int = 0

    @property
    def reads_on(self) -> bool:
        """Whether the model wants more."""
        return not (self.failed or self.complete)


@dataclass(frozen=True, eq=False)
class _Turn:
    """A segment to be read: the course with its documents counted, and its prompt.

    `name` keys the random stream; `row` is the reply and `dropped` counts all documents dropped in the end.
    """

    name: str
    course: _Course
    prompt: Prompt | None
    row: Decoded | None = None
    dropped: int = 0


def _take_reply(course: _Course, reply: Reply, finish_reason: str) -> _Course:
    """The course after a reply: an empty summary leaves the one before it standing."""
    if finish_reason.startswith("failed"):
        return replace(course, failed=True, replies=course.replies + 1)
    cut = finish_reason == "length"
    # A reply that got as far as its verdict has a whole summary.
    fresh = (reply.summary, cut and reply.complete is None)
    summary, summary_cut = fresh if reply.summary else (course.summary, course.cut)
    return replace(
        course,
        summary=summary,
        cut=summary_cut,
        evaluation=reply.evaluation or _UNJUDGED,
        # Nothing at all is not complete.
        complete=False if reply.complete and not summary else reply.complete,
        replies=course.replies + 1,
        without_verdict=course.without_verdict + (reply.complete is None),
        without_summary=course.without_summary + (not reply.summary),
        cut_replies=course.cut_replies + cut,
    )


def _notes(course: _Course, documents: int) -> tuple[str, ...]:
    verdicts = {True: "complete", False: "incomplete", None: "no verdict"}
    verdict = "failed" if course.failed else verdicts[course.complete]
    iterations = f"{course.replies} iteration{'s' if course.replies > 1 else ''}"
    counts = {
        "no verdict, which counts as incomplete": course.without_verdict,
        "no summary, which leaves the one before it standing": course.without_summary,
        "no end within max_new tokens": course.cut_replies,
    }
    told = (f"{count} of {course.replies} replies had {what}" for what, count in counts.items() if count)
    return (f"read {course.read} of {documents} documents in {iterations}: {verdict}", *told)
