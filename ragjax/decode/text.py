"""Texts in, texts out: plain generation and perplexity with one model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragjax.decode.engine import Execution, Sampling, Voice, decode_prompts, require_causal, score_prompts
from ragjax.decode.likelihood import Score, unscored
from ragjax.decode.prompt import Prompt, build_chat, decode_text, encode, encode_after, encode_source
from ragjax.decode.state import Decoded
from ragjax.models.t5_config import T5Config


class DecodeFailed(RuntimeError):
    """A row met non-finite logits and `strict` was asked for."""


@dataclass(frozen=True, eq=False)
class Generation:
    """One generated text, empty where the row failed. `tokens` and `log_probs` are [T]; `finish_reason` as in
    `Decoded`; `notes` say how the prompt was built, where that is not as asked."""

    text: str
    tokens: np.ndarray
    log_probs: np.ndarray
    finish_reason: str
    prompt_tokens: int
    notes: tuple[str, ...] = ()


def generate(
    lm: Any,
    prompts: Any,
    *,
    max_new: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    penalty_scope: str = "prompt",
    seed: int | None = 0,
    candidates: int | None = None,
    ids: Sequence[str] | None = None,
    batch: int = 8,
    strict: bool = False,
) -> Any:
    """Generate from prompts: greedy unless a temperature is given.

    Args:
      lm: a `LanguageModel`, or an `EncoderDecoder`.
      prompts: a str is continued as it stands, or is the encoder's source; a list of `{role, content}` messages is
        answered as a chat. A list of either gives a list of results.
      max_new: the most new tokens, whatever the prompt's length.
      candidates: how many samples a prompt; each prompt's result is then a list. They differ only when sampled.
      ids: names for the prompts, which key their random streams; default: their content.
      strict: raise `DecodeFailed` on non-finite logits instead of ending that row as failed.

    Returns:
      A `Generation`, or nested lists of them.
    """
    single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], dict))
    several = [prompts] if single else list(prompts)
    built = [_prompt(lm, p) for p in several]
    if candidates is not None and candidates < 1:
        raise ValueError(f"candidates counts samples and is at least 1, got {candidates}")
    result = decode_prompts(
        [Voice(lm, built)],
        max_new=max_new,
        weights=((1.0,),) * (candidates or 1),
        ids=ids,
        sampling=Sampling(temperature, top_k, top_p, repetition_penalty, seed, penalty_scope),
        execution=Execution(batch=batch),
    )
    if strict:
        raise_failed([row for rows in result.rows for row in rows])
    texts = [[_generation(lm, p, row) for row in rows] for p, rows in zip(built, result.rows, strict=True)]
    found = [rows[0] for rows in texts] if candidates is None else texts
    return found[0] if single else found


def raise_failed(rows: Sequence[Decoded]) -> None:
    """Raise `DecodeFailed` for the first failed row, if any."""
    for number, row in enumerate(rows):
        if row.failed:
            raise DecodeFailed(f"row {number} {row.finish_reason}")


def text_prompt(lm: Any, text: str) -> Prompt:
    """A text as its model reads it: to be continued, or the source of an encoder-decoder."""
    ids = encode_source if isinstance(lm.config, T5Config) else encode
    return Prompt(ids(lm.tokenizer, text), text)


def _prompt(lm: Any, prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return text_prompt(lm, prompt)
    require_causal("a chat", lm)
    return build_chat(lm.tokenizer, prompt)


def _generation(lm: Any, prompt: Prompt, row: Decoded) -> Generation:
    text = "" if row.failed else decode_text(lm.tokenizer, row.tokens)
    return Generation(text, row.tokens, row.log_probs, row.finish_reason, len(prompt.ids), prompt.notes)


def perplexity(
    lm: Any, texts: str | Sequence[str], *, given: str | Sequence[str] | None = None, batch: int = 8
) -> Score | list[Score]:
    """The NLL of each text under the model, given a text before it or nothing.

    Without `given` the first token is scored only where the family has a BOS to stand before it. A `given` too long
    for the model loses its beginning, and the score's notes count the tokens lost; a text that does not fit by itself
    is not scored at all, and the score says why.

    Returns:
      A `Score` (`.perplexity`, `.nll`, `.count`, `.bits_per_byte`), or a list of them; see
      `ragjax.decode.likelihood.summarize` for their means.
    """
    require_causal("perplexity", lm)
    single = isinstance(texts, str)
    several = [texts] if single else list(texts)
    before = [given or ""] * len(several) if given is None or isinstance(given, str) else list(given)
    if len(before) != len(several):
        raise ValueError(f"{len(several)} texts need as many given texts, got {len(before)}")
    limit = lm.config.max_positions
    prompts = [encode_after(lm.tokenizer, b, t, limit) for b, t in zip(before, several, strict=True)]
    fits = [i for i, p in enumerate(prompts) if 0 < len(p.ids) <= limit]
    found = score_prompts(lm, [prompts[i] for i in fits], "text", execution=Execution(batch=batch))
    scores: list[Score] = [unscored(p.pieces["text"], len(p.ids), limit, p.notes) for p in prompts]
    for place, score in zip(fits, found, strict=True):
        scores[place] = Score(score.nll, score.count, score.bytes, score.reason, prompts[place].notes)
    return scores[0] if single else scores
