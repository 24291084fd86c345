"""RECOMP's abstractive compressor: an encoder-decoder reads question and documents, and writes a summary or nothing.

1. Question, documents and a cue become one flat text (arXiv 2310.04408, section 3; `recomp_source` of the prompts).
2. Where that is longer than the model's window, the documents go in order into as few windows as hold them: whole
   while they fit, one that fits no window by itself cut at words (a single word that does not, at characters).
3. Every window is summarised by itself, all windows of all examples in common batches, and the summaries of an
   example are joined in order.

An empty summary is an answer: nothing in the documents helps. It has the status "empty", and a reader then answers
without a context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ragjax.compress.base import Budget, Compressed, Trace, Writer, check_candidates
from ragjax.compress.cut import cut_to_budget
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, fill_template
from ragjax.compress.units import without_decoding
from ragjax.compress.writing import PromptTooLong, as_compressed, as_trace, write_budgets
from ragjax.data.records import Document, Example
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Execution, Sampling, Voice, check_settings, decode_prompts
from ragjax.decode.prompt import Prompt, count_tokens
from ragjax.decode.state import Decoded
from ragjax.decode.text import raise_failed, text_prompt
from ragjax.models.t5_config import T5Config

OVERFLOW = ("windows", "truncate", "error")


@dataclass(frozen=True, eq=False, kw_only=True)
class RecompAbstractive(Writer):
    """A compressor of one encoder-decoder.

    Args:
      model: the `EncoderDecoder` that reads and writes.
      max_new: the most tokens of a window's summary.
      max_source: the most tokens of a window, in the model's own, question and cue included.
      beams: 1 decodes token by token; more search, whatever the temperature.
      on_overflow: what happens to documents that do not fit one window: "windows" as above, "truncate" reads what
        fits and counts the rest (the published code's), "error" raises.
      prompts: the words; see `PromptSet`.
      tokenizer: the generator's, in which lengths are counted; default the model's own.
      strict: raise on non-finite logits instead of ending that example as failed.
    """

    model: Any
    max_new: int = 512
    max_source: int = 1024
    beams: int = 1
    on_overflow: str = "windows"
    prompts: PromptSet = DEFAULT_PROMPTS
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = 0
    batch: int = 8
    tokenizer: Any = None
    strict: bool = False

    def __post_init__(self) -> None:
        self._sampling  # noqa: B018, refuses a knob or a seed out of range
        check_settings(self.max_new)
        check_candidates(self.beams)
        if self.on_overflow not in OVERFLOW:
            raise ValueError(f"on_overflow is one of {OVERFLOW}, got {self.on_overflow!r}")
        if not isinstance(self.model.config, T5Config):
            kind = type(self.model).__name__
            raise ValueError(f"RecompAbstractive needs an encoder-decoder, and {self.model.name} is of the kind {kind}")

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """Summarise each example's documents, in batches.

        Raises:
          PromptTooLong: for a question that leaves no room for documents and, with "error", documents that need more
            than one window.
        """
        search = self.beams > 1
        return [rows[0] for rows in self._write(examples, self.beams if search else 1, budget, search)]

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
        """Several summaries an example, as `Writer.sample`; `initial` spares nothing here.

        With more than one window, a candidate is made of the windows' candidates of its number.
        """
        check_candidates(candidates)
        drawing = replace(self, temperature=temperature, repetition_penalty=repetition_penalty)
        return drawing._write(examples, candidates, budget, beams)

    @property
    def _sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.repetition_penalty, self.seed)

    @property
    def _counter(self) -> Any:
        """The tokenizer that lengths are counted with."""
        return self.tokenizer or self.model.tokenizer

    def _write(
        self, examples: Sequence[Example], candidates: int, budget: Budget | None, search: bool
    ) -> list[list[Compressed]]:
        """The candidates of every example, from one decode: result[example][candidate]."""
        settled = [without_decoding(self._counter, example, budget) for example in examples]
        rest = [i for i, done in enumerate(settled) if done is None]
        sources = [self._source(examples[i]) for i in rest]
        windows = [(examples[i].id, n, p) for i, s in zip(rest, sources, strict=True) for n, p in enumerate(s.windows)]
        rows = iter(self._decode(windows, candidates, search) if windows else ())
        found = [[done] * candidates for done in settled]
        for i, source in zip(rest, sources, strict=True):
            texts = [next(rows) for _ in source.windows]
            found[i] = [self._compressed(examples[i], source, one, budget) for one in zip(*texts, strict=True)]
        return found

    def _decode(self, windows: Sequence[tuple[str, int, Prompt]], candidates: int, search: bool) -> list[list[Decoded]]:
        if search:
            decode = partial(decode_beams, beams=candidates, repetition_penalty=self.repetition_penalty)
        else:
            decode = partial(decode_prompts, weights=((1.0,),) * candidates, sampling=self._sampling)
        result = decode(
            [Voice(self.model, [prompt for _, _, prompt in windows])],
            max_new=self.max_new,
            # Each window has a random stream; the first one that of its example.
            ids=[f"{name}#{number}" if number else name for name, number, _ in windows],
            execution=Execution(batch=self.batch),
        )
        if self.strict:
            raise_failed([row for rows in result.rows for row in rows])
        return result.rows

    def _compressed(
        self, example: Example, source: "_Source", rows: Sequence[Decoded], budget: Budget | None
    ) -> Compressed:
        trace, texts = _join([as_trace(row, 0.0, self.model.tokenizer) for row in rows])
        return as_compressed(
            self._counter,
            example,
            budget,
            " ".join(text for text in texts if text),
            trace,
            cut=trace.finish_reason == "length",
            dropped_documents=source.dropped_documents,
            notes=source.notes,
        )

    def _source(self, example: Example) -> "_Source":
        """The windows of an example's documents, blank ones left out."""
        lines = [_line(document) for document in example.documents if document.text.strip()]
        if self._fits(example, lines):
            return _Source((self._prompt(example, lines),))
        if self.on_overflow == "error":
            count = len(self._prompt(example, lines).ids)
            raise PromptTooLong(f"example {example.id!r}: its source has {count} tokens, more than {self.max_source}")
        if self.on_overflow == "truncate":
            return self._truncated(example, lines)
        groups: list[list[str]] = []
        for piece in self._pieces(example, lines):
            if groups and self._fits(example, [*groups[-1], piece]):
                groups[-1].append(piece)
            else:
                groups.append([piece])
        note = f"read in {len(groups)} windows of up to {self.max_source} tokens"
        return _Source(tuple(self._prompt(example, group) for group in groups), (note,))

    def _truncated(self, example: Example, lines: Sequence[str]) -> "_Source":
        flat = "\n".join(lines)
        kept = self._first_part(example, flat)
        lost = count_tokens(self.model.tokenizer, flat[len(kept) :].strip())
        starts = np.cumsum([0] + [len(line) + 1 for line in lines[:-1]])
        note = f"{lost} tokens of the documents did not fit"
        return _Source((self._prompt(example, [kept]),), (note,), int(np.sum(starts >= len(kept))))

    def _pieces(self, example: Example, lines: Sequence[str]) -> Iterator[str]:
        """Every line that fits a window, and the parts of those that do not."""
        for line in lines:
            rest = line
            while not self._fits(example, [rest]):
                part = self._first_part(example, rest)
                yield part
                rest = rest[len(part) :].lstrip()
            if rest:
                yield rest

    def _first_part(self, example: Example, text: str) -> str:
        """The longest beginning of a text that fits a window."""
        room = self.max_source - len(self._prompt(example, []).ids)
        while room > 0:
            part, _ = cut_to_budget(self.model.tokenizer, text, room, inside_words=True)
            over = len(self._prompt(example, [part]).ids) - self.max_source
            if part and over <= 0:
                return part
            room -= max(over, 1)  # A text may have more tokens among others than alone.
        raise PromptTooLong(
            f"example {example.id!r}: its question leaves no room for documents in {self.max_source} tokens"
        )

    def _fits(self, example: Example, lines: Sequence[str]) -> bool:
        return len(self._prompt(example, lines).ids) <= self.max_source

    def _prompt(self, example: Example, lines: Sequence[str]) -> Prompt:
        data = {"question": example.question, "documents": "\n".join(lines)}
        return text_prompt(self.model, fill_template(self.prompts.recomp_source, data))


@dataclass(frozen=True, eq=False)
class _Source:
    """The windows that an example's documents are read in, and what was left out."""

    windows: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()
    dropped_documents: int = 0


def _line(document: Document) -> str:
    return f"{document.title}\n{document.text}" if document.title else document.text


def _join(traces: Sequence[Trace]) -> tuple[Trace, list[str]]:
    """The windows' traces as one, and the text of each; if one of them failed, so has the whole."""
    reasons = [trace.finish_reason for trace in traces]
    failed = [reason for reason in reasons if reason.startswith("failed")]
    first, *others = (trace.pieces for trace in traces)
    spaced = [(f" {pieces[0]}", *pieces[1:]) if pieces else () for pieces in others]
    arrays = ("tokens", "log_probs", "member_log_probs", "member_argmax")
    joined = Trace(
        **{name: np.concatenate([getattr(trace, name) for trace in traces], axis=-1) for name in arrays},
        winners=tuple(winner for trace in traces for winner in trace.winners),
        pieces=tuple(piece for pieces in (first, *spaced) for piece in pieces),
        finish_reason=(failed or [reason for reason in reasons if reason == "length"] or ["stop"])[0],
    )
    return joined, ["".join(trace.pieces).strip() for trace in traces]
