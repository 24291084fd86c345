"""What a question has to do with a text, by a causal model's likelihoods: of whole documents, and of each token.

A text longer than the model is read in windows that overlap by half, so that every token has at least half a window
before it and none is left unread.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from ragjax.decode.engine import Execution, token_nlls
from ragjax.decode.prompt import Prompt, encode, encode_with_offsets
from ragjax.decode.text import perplexity
from ragjax.typing import Float, Int

GAP = "\n\n"
"""What stands between a text and a question, and before a text that is read without one."""

MARGIN = 4
"""Tokens of a window left free where its text is tokenised anew, together with what follows."""


def room_beside(lm: Any, question: str) -> int:
    """Tokens of a text that fit the model beside a question."""
    return lm.config.max_positions - len(encode(lm.tokenizer, question + GAP)) - MARGIN


def question_nlls(lm: Any, questions: Sequence[str], texts: Sequence[str], batch: int = 8) -> Float[np.ndarray, " n"]:
    """The mean NLL in nats a token of each question after its text; of a text in windows, after the best of them.

    LongLLMLingua's coarse step: lower means that the text matters more. NaN where it is not finite, 0 for an empty
    question.

    Raises:
      ValueError: for a question that leaves no room for a text.
    """
    pieces = [_pieces(lm, text, room_beside(lm, question)) for question, text in zip(questions, texts, strict=True)]
    asked = [question for question, own in zip(questions, pieces, strict=True) for _ in own]
    scores = iter(perplexity(lm, asked, given=[piece + GAP for own in pieces for piece in own], batch=batch))
    means = [[score.nll / max(score.count, 1) for score in islice(scores, len(own))] for own in pieces]
    return np.array([np.min(values) for values in means], float)


def _pieces(lm: Any, text: str, room: int) -> list[str]:
    """The text, or the texts of its windows."""
    _, offsets = encode_with_offsets(lm.tokenizer, text)
    if len(offsets) <= room:
        return [text]
    return [text[offsets[begin, 0] : offsets[end - 1, 1]] for begin, _, end in windows(len(offsets), room)]


def windows(length: int, room: int) -> list[tuple[int, int, int]]:
    """(begin, new, end) of each window of at most `room` tokens: it reads [begin, end), of which [new, end) is new.

    Raises:
      ValueError: for less room than 2 tokens.
    """
    if room < 2:
        raise ValueError(f"a window has room for at least 2 tokens, got {room}")
    found = [(0, 0, min(length, room))]
    while found[-1][2] < length:
        end = found[-1][2]
        begin = end - room // 2
        found.append((begin, end, min(begin + room, length)))
    return found


def token_contrasts(
    lm: Any, questions: Sequence[str], texts: Sequence[str], batch: int = 8
) -> list[tuple[Int[np.ndarray, "T 2"], Float[np.ndarray, " T"]]]:
    """How much likelier its question makes each token of a text, in nats: LongLLMLingua's fine step.

    Both readings tokenise the text by itself, so that each token has one number in each: what stands before it is
    "\\n\\n" in the one and the question and "\\n\\n" in the other, after the BOS where the family has one.

    Returns:
      For each text the character offsets of its T tokens, and NLL(token | before) - NLL(token | question, before).
    """
    read = [encode_with_offsets(lm.tokenizer, text) for text in texts]
    prompts: list[Prompt] = []
    for question, (ids, _) in zip(questions, read, strict=True):
        room = room_beside(lm, question)
        prompts += [p for before in (GAP, question + GAP) for p in _prompts(lm, before, ids, room)]
    nlls = iter(token_nlls(lm, prompts, "text", execution=Execution(batch=batch)))
    news = iter([nll[slice(*p.spans["text"])] for p, nll in zip(prompts, nlls, strict=True)])
    found = []
    for question, (ids, offsets) in zip(questions, read, strict=True):
        count = len(windows(len(ids), room_beside(lm, question)))
        alone, asked = (np.concatenate(list(islice(news, count))) for _ in range(2))
        found.append((offsets, alone.astype(float) - asked))
    return found


def _prompts(lm: Any, before: str, ids: Sequence[int], room: int) -> list[Prompt]:
    """Each window of the ids after some text; the piece "text" is what is new in it."""
    first = encode(lm.tokenizer, before)
    shift = len(first)
    return [
        Prompt((*first, *ids[begin:end]), "", {}, {"text": (shift + new - begin, shift + end - begin)})
        for begin, new, end in windows(len(ids), room)
    ]
