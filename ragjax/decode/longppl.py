"""LongPPL: perplexity over those tokens alone that a long context explains.

A token is key where its log-probability, given everything before it, exceeds by more than `gain` nats the one given
only the nearest tokens, and exceeds `floor`. The short contexts are windows of the text: the published ones (4096
tokens, moved by 1024) leave a summary of a few hundred tokens without any key token.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragjax.decode.engine import Execution, require_causal, token_nlls
from ragjax.decode.ensemble import share_vocabulary
from ragjax.decode.likelihood import Score, unscored
from ragjax.decode.prompt import Prompt, encode_after
from ragjax.decode.tails import tail_nlls

_TARGET = "scored"


def long_perplexity(
    lm: Any,
    texts: Sequence[str],
    given: Sequence[str],
    *,
    evaluator: Any = None,
    window: int = 32,
    stride: int = 16,
    gain: float = 2.0,
    floor: float = -2.0,
    batch: int = 8,
) -> list[Score]:
    """Score each text over its key tokens, given the long text before it.

    Args:
      lm: the model whose perplexity is wanted.
      given: what stands before each text (the documents it was made from); its beginning is left out where both are
        too long for the model, and the score's notes count the loss.
      evaluator: the model that decides which tokens are key, of the same vocabulary; default `lm`.
      window, stride: a token's short context is the `window` to `window + stride - 1` tokens before it.
      gain, floor: a token is key where long - short > gain and long > floor, in nats.

    Returns:
      A `Score` a text: `count` is the number of key tokens, `reason` "no key token" where there is none.

    Raises:
      ValueError: for a window or stride below 1, or lists of different lengths.
      VocabularyMismatch: where the evaluator has another vocabulary.
    """
    if window < 1 or stride < 1:
        raise ValueError(f"window and stride count tokens and are at least 1, got {window} and {stride}")
    evaluator = lm if evaluator is None else evaluator
    require_causal("LongPPL", lm, evaluator)
    share_vocabulary([lm, evaluator])
    limit = min(lm.config.max_positions, evaluator.config.max_positions)
    prompts = [encode_after(lm.tokenizer, g, t, limit) for g, t in zip(given, texts, strict=True)]
    run = [i for i, p in enumerate(prompts) if p.pieces["text"].strip() and len(p.ids) <= limit]
    execution = Execution(batch=batch)
    kept = [prompts[i] for i in run]
    judged = tail_nlls(evaluator, kept, "text", execution=execution)
    own = judged if evaluator is lm else tail_nlls(lm, kept, "text", execution=execution)
    near = _short_context_nlls(evaluator, kept, judged, window, stride, execution)
    scores = [unscored(p.pieces["text"], len(p.ids), limit, p.notes) for p in prompts]
    for place, i in enumerate(run):
        scores[i] = _score(prompts[i], own[place], judged[place], near[place], gain, floor)
    return scores


def _short_context_nlls(
    model: Any, prompts: Sequence[Prompt], full: Sequence[np.ndarray], window: int, stride: int, execution: Execution
) -> list[np.ndarray]:
    """NLL of each token given the window before it; where the window holds everything, the full context's NLL."""
    pieces, places = [], []
    for row, prompt in enumerate(prompts):
        begin, end = prompt.spans["text"]
        for start in range(max(begin, window + 1), end, stride):
            stop, first = min(start + stride, end), start - window
            span = (window, stop - first)
            pieces.append(Prompt(prompt.ids[first:stop], "", {_TARGET: ""}, {_TARGET: span}))
            places.append((row, start, stop))
    near = [nll.copy() for nll in full]
    found = token_nlls(model, pieces, _TARGET, execution=execution)
    for (row, start, stop), nll in zip(places, found, strict=True):
        near[row][start:stop] = nll[window:]
    return near


def _score(prompt: Prompt, own: np.ndarray, judged: np.ndarray, near: np.ndarray, gain: float, floor: float) -> Score:
    start, stop = prompt.spans["text"]
    inside = np.zeros(len(own), bool)
    inside[max(start, 1) : stop] = True
    key = inside & (near - judged > gain) & (-judged > floor)
    size, total = len(prompt.pieces["text"].encode()), float(np.sum(own[key], dtype=np.float64))
    reason = None if key.any() else "no key token"
    if not all(np.isfinite(nll[inside]).all() for nll in (own, judged, near)) or not math.isfinite(total):
        reason = "non-finite likelihood"
    return Score(total, int(key.sum()), size, reason, prompt.notes)
