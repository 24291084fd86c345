"""What compressors that write share: prompts that fit their model, and the `Compressed` of a written text."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ragjax.compress.base import Budget, Compressed, Compressor, Trace, Unit
from ragjax.compress.cut import cut_to_budget, source_length
from ragjax.compress.units import without_decoding
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import Prompt, PromptError, count_tokens, decode_pieces
from ragjax.decode.state import Decoded

OVERFLOW = ("drop_docs", "error")


class PromptTooLong(PromptError):
    """A prompt that does not fit its model, whatever was left out of it."""


def check_overflow(on_overflow: str) -> None:
    """Refuse a way to treat over-long prompts that does not exist."""
    if on_overflow not in OVERFLOW:
        raise ValueError(f"on_overflow is one of {OVERFLOW}, got {on_overflow!r}")


def fit_documents(
    build: Callable[[Sequence[Document]], Prompt],
    example: Example,
    documents: Sequence[Document],
    lm: Any,
    max_new: int,
    on_overflow: str,
) -> tuple[Prompt, int]:
    """The prompt of the most documents, from the first on, that leaves the model room; and how many it leaves out.

    Args:
      build: makes the prompt of some documents.
      example: whose documents they are.
      documents: at least one.
      lm: the model that reads the prompt and writes up to `max_new` tokens after it.

    Raises:
      PromptTooLong: where not even one document fits or, if `on_overflow` is "error", where not all do.
    """
    limit = lm.config.max_positions - max_new
    fewest = len(documents) if on_overflow == "error" else 1
    for count in range(len(documents), fewest - 1, -1):
        prompt = build(documents[:count])
        if len(prompt.ids) <= limit:
            return prompt, len(documents) - count
    raise PromptTooLong(
        f"example {example.id!r}: {len(prompt.ids)} prompt tokens and {max_new} new ones exceed the "
        f"{lm.config.max_positions} positions of {lm.name}"
    )


def as_compressed(
    tokenizer: Any,
    example: Example,
    budget: Budget | None,
    text: str,
    trace: Trace,
    *,
    cut: bool,
    dropped_documents: int = 0,
    notes: tuple[str, ...] = (),
) -> Compressed:
    """A written text as one unit within the budget, counted by `tokenizer`.

    `cut` says that the text ended at the cap of new tokens. A text whose trace failed is no text.
    """
    source = source_length(tokenizer, example.documents)
    requested = budget.resolve(source) if budget else None
    status = "ok"
    if requested is not None:
        text, status = cut_to_budget(tokenizer, text, requested)
    if trace.finish_reason.startswith("failed"):
        text, status = "", trace.finish_reason
    elif status == "ok":
        status = "empty" if not text else "length" if cut else "ok"
    achieved = count_tokens(tokenizer, text)
    units = (Unit(text),) if text else ()
    return Compressed(units, requested, achieved, achieved, source, status, trace, dropped_documents, notes)


def write_budgets(
    compressor: Compressor, tokenizer: Any, examples: Sequence[Example], budgets: Sequence[Budget | None], reads: bool
) -> list[list[Compressed]]:
    """As `Compressor.compress_budgets`: every text is written once, and cut to each budget.

    `reads` as in `fit_written`. Examples whose documents fit every budget whole are not written for.
    """
    settled = [[without_decoding(tokenizer, e, budget) if reads else None for e in examples] for budget in budgets]
    needed = [i for i in range(len(examples)) if any(row[i] is None for row in settled)]
    written = dict(zip(needed, compressor.compress([examples[i] for i in needed]), strict=True))
    return [
        [row[i] or fit_written(tokenizer, e, written[i], budget, reads=False) for i, e in enumerate(examples)]
        for budget, row in zip(budgets, settled, strict=True)
    ]


def fit_written(
    tokenizer: Any, example: Example, written: Compressed, budget: Budget | None, *, reads: bool = True
) -> Compressed:
    """What a text that was written without a budget is within one: the same as if it had been asked for.

    So one decode serves any number of budgets. `reads` says that it was made from the documents, which then stand for
    themselves where they fit the budget whole.
    """
    if budget is None:
        return written
    whole = without_decoding(tokenizer, example, budget) if reads else None
    if whole is not None or written.trace is None:
        return whole or written
    cut = as_compressed(
        tokenizer,
        example,
        budget,
        written.text,
        written.trace,
        cut=written.status == "length",
        dropped_documents=written.dropped_documents,
        notes=written.notes,
    )
    return replace(cut, decoded=written.decoded, resume=written.resume)


def as_trace(row: Decoded, alpha: float, tokenizer: Any) -> Trace:
    """The trace of a row of compressor and target, the target's share being `alpha`.

    At alpha 0 and 1 it is that of the one model alone, however the row was run.
    """
    log_probs, argmax = row.member_log_probs, row.member_argmax
    if alpha in (0, 1):
        keep = slice(0, 1) if alpha == 0 else slice(-1, None)
        winners = ("compressor" if alpha == 0 else "target",) * len(row.tokens)
        log_probs, argmax = log_probs[keep], argmax[keep]
    else:
        mine, theirs = (row.tokens == choice for choice in argmax)
        names = {(True, True): "both", (True, False): "compressor", (False, True): "target"}
        winners = tuple(names.get((bool(a), bool(b)), "neither") for a, b in zip(mine, theirs, strict=True))
    pieces = decode_pieces(tokenizer, row.tokens)
    return Trace(row.tokens, row.log_probs, log_probs, argmax, winners, pieces, row.finish_reason)
