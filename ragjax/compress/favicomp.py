"""FaviComp: evidence that the target model is familiar with (section 3 of the paper).

Two chats are decoded in lock-step into one text. The compressor sees the question and the documents, the target the
question alone; given the text so far, each token is the best of

    alpha * log P_target(v | question, text) + (1 - alpha) * log P_compressor(v | question, documents, text)

alpha 0 is zero-shot summarisation (the target is not run), alpha 1 generated context (the compressor is not run).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ragjax.compress.base import Budget, Compressed, Writer, check_candidates
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, number_documents
from ragjax.compress.units import without_decoding
from ragjax.compress.writing import as_compressed, as_trace, check_overflow, fit_documents, write_budgets
from ragjax.data import Document, Example
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import (
    DecodeResult,
    Execution,
    Sampling,
    Voice,
    check_settings,
    decode_prompts,
    require_causal,
)
from ragjax.decode.ensemble import share_vocabulary
from ragjax.decode.prompt import Prompt, build_prompt
from ragjax.decode.sampling import check_knobs
from ragjax.decode.state import Decoded
from ragjax.decode.text import raise_failed


@dataclass(frozen=True, eq=False, kw_only=True)
class FaviComp(Writer):
    """A compressor of two models; either may be None where alpha leaves it out.

    Args:
      compressor: the `LanguageModel` that reads the documents.
      target: the `LanguageModel` the evidence is meant for; it must share the compressor's vocabulary.
      alpha: the target's share, in [0, 1].
      max_new: the most tokens of a text.
      mix: "geometric" (the paper's) or "arithmetic".
      prompt_format: "chat", or "plain" for models without a chat template.
      tokenizer: the generator's, in which lengths are counted; default the target's, else the compressor's.
      on_overflow: what happens to a prompt too long for its model: "drop_docs" leaves out whole documents from the
        end and counts them, "error" raises.
      admit_added: admit a pair whose tokenizers differ in added tokens; those ids are never emitted.
      strict: raise on non-finite logits instead of ending that example as failed.
    """

    compressor: Any = None
    target: Any = None
    alpha: float = 0.5
    max_new: int = 128
    mix: str = "geometric"
    prompt_format: str = "chat"
    prompts: PromptSet = DEFAULT_PROMPTS
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    penalty_scope: str = "prompt"
    seed: int | None = 0
    batch: int = 8
    tokenizer: Any = None
    on_overflow: str = "drop_docs"
    admit_added: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        check_knobs(self.temperature, self.top_k, self.top_p, self.repetition_penalty, self.alpha)
        check_settings(self.max_new, self.mix, self.prompt_format)
        check_overflow(self.on_overflow)
        self._sampling  # noqa: B018, refuses a seed or a scope that does not exist
        if self.compressor is None and self.target is None:
            raise ValueError("FaviComp needs a compressor, a target, or both")
        require_causal("FaviComp", self.compressor, self.target)

    def compress(self, examples: Sequence[Example], budget: Budget | None = None) -> list[Compressed]:
        """Compress each example's documents at this compressor's alpha, in batches."""
        return self.compress_alphas(examples, (self.alpha,), budget)[0]

    def compress_budgets(self, examples: Sequence[Example], budgets: Sequence[Budget | None]) -> list[list[Compressed]]:
        """As `Compressor.compress_budgets`, over one decode."""
        return write_budgets(self, self._counter, examples, budgets, reads=self.alpha < 1)

    def compress_alphas(
        self,
        examples: Sequence[Example],
        alphas: Sequence[float],
        budget: Budget | None = None,
    ) -> list[list[Compressed]]:
        """Compress at several alphas over one prompt cache: result[alpha][example].

        Each alpha's texts are those of a run of its own.
        """
        for alpha in alphas:
            check_knobs(self.temperature, self.top_k, self.top_p, self.repetition_penalty, alpha)
        self._check_models(alphas)
        settled = [self._without_decoding(e, budget) if min(alphas) < 1 else None for e in examples]
        rest = [i for i, done in enumerate(settled) if done is None]
        rows: list[list[Compressed]] = [[done] * len(alphas) for done in settled]
        for i, row in zip(rest, self._run([examples[i] for i in rest], alphas, budget), strict=True):
            rows[i] = row
        # What alpha 1 writes does not depend on the documents: it is decoded where the other alphas need no model.
        alone = [i for i, done in enumerate(settled) if done is not None] if max(alphas) == 1 else []
        for i, (own,) in zip(alone, self._run([examples[i] for i in alone], (1.0,), budget), strict=True):
            rows[i] = [own if alpha == 1 else done for alpha, done in zip(alphas, rows[i], strict=True)]
        return [[row[n] for row in rows] for n in range(len(alphas))]

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
        """Several texts an example at this compressor's alpha, as `Writer.sample`; `initial` spares nothing here."""
        check_candidates(candidates)
        drawing = replace(self, temperature=temperature, repetition_penalty=repetition_penalty)
        self._check_models((self.alpha,))
        alphas = (self.alpha,) * candidates
        settled = [self._without_decoding(e, budget) if self.alpha < 1 else None for e in examples]
        rest = [i for i, done in enumerate(settled) if done is None]
        rows = [[done] * candidates for done in settled]
        draws = None if beams else range(candidates)
        drawn = drawing._run_together([examples[i] for i in rest], alphas, budget, draws, beams) if rest else []
        for i, row in zip(rest, drawn, strict=True):
            rows[i] = row
        return rows

    def _check_models(self, alphas: Sequence[float]) -> None:
        if self.compressor is None and min(alphas) < 1:
            raise ValueError(f"alpha {min(alphas)} needs a compressor")
        if self.target is None and max(alphas) > 0:
            raise ValueError(f"alpha {max(alphas)} needs a target")

    @property
    def _sampling(self) -> Sampling:
        return Sampling(
            self.temperature, self.top_k, self.top_p, self.repetition_penalty, self.seed, self.penalty_scope
        )

    @property
    def _counter(self) -> Any:
        """The tokenizer that lengths are counted with."""
        return self.tokenizer or (self.target or self.compressor).tokenizer

    def _without_decoding(self, example: Example, budget: Budget | None) -> Compressed | None:
        return without_decoding(self._counter, example, budget)

    def _run(
        self, examples: Sequence[Example], alphas: Sequence[float], budget: Budget | None
    ) -> list[list[Compressed]]:
        """Decode every example at every alpha: result[example][alpha].

        Alphas 0 and 1 are one model's alone. They join the others' decode where that costs nothing and changes
        nothing: where models are mixed anyway, and no id is masked because the tokenizers differ in it.
        """
        if not examples:
            return []
        inner = [alpha for alpha in alphas if 0 < alpha < 1]
        if len(alphas) == 1 or (inner and not self._masked_ids()):
            return self._run_together(examples, alphas, budget)
        groups = [(alpha,) for alpha in alphas if alpha in (0, 1)] + ([tuple(inner)] if inner else [])
        columns: dict[float, tuple[Compressed, ...]] = {}
        for group in groups:
            rows = self._run_together(examples, group, budget)
            columns |= dict(zip(group, zip(*rows, strict=True), strict=True))
        return [list(row) for row in zip(*(columns[alpha] for alpha in alphas), strict=True)]

    def _masked_ids(self) -> tuple[int, ...]:
        return share_vocabulary([self.compressor, self.target], admit_added=self.admit_added).masked

    def _run_together(
        self,
        examples: Sequence[Example],
        alphas: Sequence[float],
        budget: Budget | None,
        draws: Sequence[int] | None = None,
        beams: bool = False,
    ) -> list[list[Compressed]]:
        """As `_run`, in one decode over one prompt cache; `draws` numbers the random stream of each candidate.

        Runs that stand for themselves (the default) all draw from stream 0. `beams` searches instead: the alphas are
        then equal, one for each beam.
        """
        built = [self._build(example, alphas) for example in examples]
        result = self._decode(examples, built, alphas, (0,) * len(alphas) if draws is None else draws, beams)
        masked = f"ids that differ between the tokenizers and were never emitted: {list(result.masked)}"
        notes = (masked,) if result.masked else ()
        return [
            [self._compressed(e, b, row, alpha, budget, notes) for row, alpha in zip(candidates, alphas, strict=True)]
            for e, b, candidates in zip(examples, built, result.rows, strict=True)
        ]

    def _build(self, example: Example, alphas: Sequence[float]) -> "_Prepared":
        compression = context = None
        dropped = 0
        if min(alphas) < 1:
            compression, dropped = self._compression_prompt(example)
        if max(alphas) > 0:
            context = self._prompt(self.target, "context", {"question": example.question})
        return _Prepared(compression, context, dropped)

    def _compression_prompt(self, example: Example) -> tuple[Prompt, int]:
        def build(documents: Sequence[Document]) -> Prompt:
            data = {"question": example.question, "documents": number_documents(documents)}
            return self._prompt(self.compressor, "compress", data)

        return fit_documents(build, example, example.documents, self.compressor, self.max_new, self.on_overflow)

    def _prompt(self, model: Any, role: str, data: dict[str, str]) -> Prompt:
        system, user = getattr(self.prompts, f"{role}_system"), getattr(self.prompts, f"{role}_user")
        return build_prompt(model.tokenizer, system, user, data, prompt_format=self.prompt_format)

    def _decode(
        self,
        examples: Sequence[Example],
        built: Sequence["_Prepared"],
        alphas: Sequence[float],
        draws: Sequence[int],
        beams: bool,
    ) -> DecodeResult:
        voices = []
        if min(alphas) < 1:
            voices.append(Voice(self.compressor, [b.compression for b in built]))
        if max(alphas) > 0:
            voices.append(Voice(self.target, [b.context for b in built]))
        shares = tuple((1.0 - a, a) if len(voices) == 2 else (1.0,) for a in alphas)
        if beams:
            penalty = {"repetition_penalty": self.repetition_penalty, "penalty_scope": self.penalty_scope}
            decode = partial(decode_beams, beams=len(alphas), weights=shares[0], **penalty)
        else:
            decode = partial(decode_prompts, weights=shares, draws=draws, sampling=self._sampling)
        result = decode(
            voices,
            max_new=self.max_new,
            ids=[e.id for e in examples],
            mix=self.mix,
            admit_added=self.admit_added,
            execution=Execution(batch=self.batch),
        )
        if self.strict:
            raise_failed([row for rows in result.rows for row in rows])
        return result

    def _compressed(
        self,
        example: Example,
        prepared: "_Prepared",
        row: Decoded,
        alpha: float,
        budget: Budget | None,
        notes: tuple[str, ...],
    ) -> Compressed:
        trace = as_trace(row, alpha, (self.compressor or self.target).tokenizer)
        return as_compressed(
            self._counter,
            example,
            budget,
            "".join(trace.pieces).strip(),
            trace,
            cut=row.finish_reason == "length",
            dropped_documents=prepared.dropped_documents,
            notes=notes + (prepared.compression or prepared.context).notes,
        )


def zero_shot_summary(lm: Any, **settings: Any) -> FaviComp:
    """The summary that one model writes of the documents (section 3.2 of FaviComp); `settings` as FaviComp's."""
    return FaviComp(compressor=lm, alpha=0.0, **settings)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The prompts of one example, each None where alpha leaves its model out."""

    compression: Prompt | None
    context: Prompt | None
    dropped_documents: int
