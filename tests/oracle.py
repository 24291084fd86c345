"""What the tests compare with: transformers on the CPU, a plain loop over it, and models whose logits are a table."""

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.models import CACHE, MODELS
from ragjax import hub
from ragjax.compress.prompts import PromptSet
from ragjax.decode.buckets import left_pad
from ragjax.decode.engine import Execution, Voice, decode_prompts
from ragjax.decode.prompt import Prompt
from ragjax.models import decoder
from ragjax.models.config import DecoderConfig
from ragjax.testing import (
    byte_tokenizer,
    encoder_tokenizer,
    random_encoder_params,
    random_params,
    tiny_config,
    tiny_encoder_config,
    tiny_model,
    tiny_t5,
    write_checkpoint,
)

ROOT = Path(__file__).resolve().parent.parent
PLAIN = Execution(batch=4, compaction=False)
"""One batch of four rows that keeps its shape to the end: most tests share its compiled programs."""

SHORT = PromptSet(
    version="short",
    compress_system="",
    compress_user="Q {question} D {documents} P",
    context_system="",
    context_user="Q {question} P",
    read_system="",
    read_question_first="Q {question} C {context} A",
    read_context_first="C {context} Q {question} A",
    read_alone="Q {question} A",
)
"""Prompts of few bytes, so that a byte tokenizer's prompts stay in the shortest buckets."""


@dataclass(frozen=True, eq=False)
class Pair:
    """One checkpoint, loaded by us and by transformers."""

    ours: hub.LanguageModel
    theirs: Any

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Their float32 logits [T, V] of one unpadded text, over the ids that we may emit."""
        import torch

        with torch.no_grad():
            found = self.theirs(torch.tensor([list(ids)])).logits[0]
        return found[:, : self.ours.vocab_width].float().numpy()


@cache
def pair(seed: int = 0, dtype: str = "float32", **changes: Any) -> Pair:
    """A tiny random checkpoint, written once and read by both sides."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # more threads only wait for each other at this size
    cfg = tiny_config(**changes)
    params = random_params(cfg, seed, jnp.dtype(dtype))
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(folder, cfg, params, byte_tokenizer())
        ours = hub.load(folder, dtype=dtype)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    assert ours.config == cfg
    return Pair(dataclasses.replace(ours, name=f"tiny-{seed}"), theirs)


@dataclass(frozen=True, eq=False)
class SourcePair:
    """One T5, loaded by us and by transformers."""

    ours: hub.EncoderDecoder
    theirs: Any

    def logits(self, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """Their float32 logits [T + 1, V] after the start token and after each of T tokens, without a cache."""
        import torch

        begun = torch.tensor([[self.ours.config.start_id, *target]])
        with torch.no_grad():
            found = self.theirs(input_ids=torch.tensor([list(source)]), decoder_input_ids=begun, use_cache=False)
        return found.logits[0, :, : self.ours.vocab_width].float().numpy()


@cache
def source_pair(version: str = "1.1", seed: int = 0, **changes: Any) -> SourcePair:
    """A tiny random T5, written once and read by both sides."""
    import torch
    from transformers import T5ForConditionalGeneration

    torch.set_num_threads(1)
    made = tiny_t5(seed, version=version, **changes)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(folder, made.config, made.params, made.tokenizer)
        ours = hub.load(folder, dtype="float32")
        theirs = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    assert ours.config == made.config
    return SourcePair(dataclasses.replace(ours, name=made.name), theirs)


def some_sources(sizes: Sequence[int], seed: int = 0) -> list[Prompt]:
    """Random byte sources of so many tokens, the last of which ends them."""
    generator = np.random.default_rng(seed)
    return [as_prompt([*generator.integers(0, 256, size - 1), 257]) for size in sizes]


@dataclass(frozen=True, eq=False)
class EncoderPair:
    """One checkpoint of an encoder, loaded by us and by transformers."""

    ours: hub.Encoder
    theirs: Any

    def outputs(self, tokens: np.ndarray, valid: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Their float32 last states [B, T, D] and, where there is a head, logits. Types go in where they take any."""
        import torch

        inputs = {"input_ids": tokens, "attention_mask": valid, "token_type_ids": types}
        if not getattr(self.ours.config, "type_vocab_size", 0):
            inputs.pop("token_type_ids")
        with torch.no_grad():
            found = self.theirs(
                **{name: torch.tensor(value).long() for name, value in inputs.items()}, output_hidden_states=True
            )
        logits = found.logits.numpy() if self.ours.config.head else None
        return found.hidden_states[-1].numpy(), logits


@cache
def encoder_pair(family: str, head: str | None = None, seed: int = 0, **changes: Any) -> EncoderPair:
    """A tiny random encoder in float32, written once and read by both sides."""
    import torch

    torch.set_num_threads(1)
    cfg = tiny_encoder_config(family, head, **changes)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(folder, cfg, random_encoder_params(cfg, seed), encoder_tokenizer(family))
        ours = hub.load(folder, dtype="float32")
        theirs = auto_class(head).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    assert ours.config == cfg
    return EncoderPair(dataclasses.replace(ours, name=f"tiny-{family}"), theirs)


def auto_class(head: str | None) -> Any:
    """The class of transformers that loads an encoder with this head."""
    import transformers

    ending = {None: "", "sequence": "ForSequenceClassification", "token": "ForTokenClassification"}[head]
    return getattr(transformers, f"AutoModel{ending}")


def converted_from(name: str) -> Any:
    """The model of transformers that reads the GGUF file of one of `experiments.models` by itself, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    gguf = ROOT / CACHE / MODELS[name].source
    if not gguf.exists():
        pytest.skip("the GGUF file that the checkpoint was converted from is gone: run `make models` anew")
    torch.set_num_threads(1)  # as many workers as cores run: more threads would only wait for each other
    return AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64, over the last axis."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


def plain_loop(
    members: Sequence[tuple[Pair, Sequence[int], float]],
    max_new: int,
    stop: Sequence[int],
    mix: str = "geometric",
    penalty: float = 1.0,
) -> list[int]:
    """Greedy ensemble decoding the slow way: every member reads its whole text again for each token.

    The penalty goes to each member's raw logits of the ids in its own prompt and of those generated.
    """
    made: list[int] = []
    while len(made) < max_new:
        parts = []
        for p, ids, share in members:
            raw, seen = np.array(p.logits([*ids, *made])[-1]), sorted({*ids, *made})
            raw[seen] = np.where(raw[seen] > 0, raw[seen] / penalty, raw[seen] * penalty)
            parts.append((share, log_softmax(raw)))
        if mix == "geometric":
            mixed = sum(share * part for share, part in parts)
        else:
            mixed = np.log(sum(share * np.exp(part) for share, part in parts))
        best = int(np.argmax(mixed))
        if best in stop:
            break
        made.append(best)
    return made


@partial(jax.jit, static_argnames=("cfg", "width", "layer"))
def run_forward(params, cfg: DecoderConfig, tokens, valid, width: int, layer: int | None = None):
    """Hidden states, logits (of the final states only) and cache of left-padded prompts."""
    hidden, kept = decoder.forward(params, cfg, tokens, valid, layer)
    return hidden, decoder.logits(params, hidden, width) if layer is None else None, kept


def our_logits(lm: Any, texts: Sequence[Sequence[int]], length: int) -> list[np.ndarray]:
    """Our prefill logits [T, V] of each text, all in one left-padded batch of `length`."""
    tokens, valid = left_pad(texts, len(texts), length)
    _, logits, _ = run_forward(lm.params, lm.config, tokens, valid, lm.vocab_width)
    return [np.asarray(row[length - len(ids) :]) for row, ids in zip(logits, texts, strict=True)]


def bigram_model(table: np.ndarray, name: str = "bigram", **changes: Any) -> hub.LanguageModel:
    """A model whose logits after token t are exactly `table[t]` ([V, V]), whatever came before.

    One layer that adds nothing; embeddings are one-hot, so the final norm hands the head a known vector.
    """
    size = len(table)
    lm = tiny_model(vocab_size=size, hidden_size=size, num_layers=1)
    params = lm.params
    block = params.layers[0]
    still = block.replace(
        attention=block.attention.replace(o=jnp.zeros_like(block.attention.o)),
        mlp=block.mlp.replace(down=jnp.zeros_like(block.mlp.down)),
    )
    peak = 1 / np.sqrt(1 / size + lm.config.rms_norm_eps)
    params = params.replace(
        embedding=jnp.eye(size), layers=(still,), final_norm=jnp.ones(size), head=jnp.asarray(table.T / peak)
    )
    return dataclasses.replace(lm, params=params, name=name, **changes)


def bigram_stub(table: np.ndarray) -> Any:
    """The same for scoring alone, without a tokenizer: ids are given as they are."""
    lm = bigram_model(table)
    return SimpleNamespace(params=lm.params, config=lm.config, vocab_width=len(table), name="stub", stop_ids=())


def chain(successor: dict[int, int], size: int = 272, strength: float = 8.0) -> np.ndarray:
    """A table [V, V] in which each token's successor (default: the next id) has the largest logit."""
    table = np.zeros((size, size), np.float32)
    for token in range(size):
        table[token, successor.get(token, (token + 1) % size)] = strength
    return table


def as_prompt(ids: Sequence[int]) -> Prompt:
    """Raw ids as a prompt; its text is their digits, so equal ids are equal prompts."""
    return Prompt(tuple(int(i) for i in ids), " ".join(map(str, ids)))


def some_prompts(count: int, seed: int = 0, low: int = 49, high: int = 64) -> list[Prompt]:
    """Random byte prompts of `low` to `high` tokens: all in the bucket of 64."""
    generator = np.random.default_rng(seed)
    return [as_prompt(generator.integers(0, 256, generator.integers(low, high + 1))) for _ in range(count)]


def tokens_of(result: Any) -> list[list[list[int]]]:
    """The tokens of a `DecodeResult`: [example][candidate][token]."""
    return [[row.tokens.tolist() for row in rows] for rows in result.rows]


def decode(lm: Any, prompts: Sequence[Prompt], max_new: int = 12, execution: Execution = PLAIN, **settings: Any):
    """`decode_prompts` of one model."""
    return decode_prompts([Voice(lm, prompts)], max_new=max_new, execution=execution, **settings)


def decode_pair(first: Any, second: Any, alpha: float | Sequence[float], prompts: tuple, **settings: Any):
    """`decode_prompts` of two models, `prompts` being the two lists; `alpha` is the second's share, or several."""
    alphas = [alpha] if isinstance(alpha, int | float) else alpha
    settings = {"max_new": 12, "execution": PLAIN, **settings}
    voices = [Voice(first, prompts[0]), Voice(second, prompts[1])]
    return decode_prompts(voices, weights=[(1 - a, a) for a in alphas], **settings)
