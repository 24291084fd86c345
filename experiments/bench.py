"""`python -m experiments.bench`: FaviComp against the loop that a user would write with transformers, in one run.

The peer is a batched, left-padded loop over two caches of one transformers model on the same dequantised weights: two
forwards a token, the mixed log-probabilities' best token fed back, until every row has stopped. Both decode the same
shipped questions; the tokens are compared before the times are. Needs torch and accelerate (extra `test`).
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from experiments.models import CACHE, MODELS, SMOLLM2, ensure_model
from experiments.study import find_data
from ragjax import FaviComp, load
from ragjax.compress.prompts import DEFAULT_PROMPTS, number_documents
from ragjax.data import load_examples
from ragjax.decode.buckets import left_pad
from ragjax.decode.prompt import build_prompt
from ragjax.runtime import setup

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


def peer_model() -> Any:
    """The transformers model on the weights that ours were converted from."""
    from transformers import AutoModelForCausalLM

    file = Path(CACHE) / MODELS[SMOLLM2].source
    return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32").eval()


def peer_decode(model: Any, prompts: Sequence[Sequence[Sequence[int]]], alpha: float, count: int, stop: int) -> list:
    """The plain loop over the compression prompts and the context prompts: the tokens of each row up to its stop."""
    import torch
    from transformers import DynamicCache

    members, rows = [], len(prompts[0])
    for of in prompts:
        tokens, valid = left_pad(of, rows, max(map(len, of)))
        members.append([DynamicCache(), torch.tensor(tokens).long(), torch.tensor(valid).long()])
    made, done = [], torch.zeros(rows, dtype=torch.bool)
    for _ in range(count):
        mixed = 0.0
        for member, share in zip(members, (1 - alpha, alpha), strict=True):
            cache, new, mask = member
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -new.shape[1] :]
            with torch.inference_mode():
                output = model(
                    new, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
                )
            mixed = mixed + share * torch.log_softmax(output.logits[:, -1].float(), dim=-1)
        token = mixed.argmax(-1)
        done |= token == stop
        made.append(torch.where(done, stop, token))
        if done.all():
            break
        for member in members:
            member[1], member[2] = token[:, None], torch.nn.functional.pad(member[2], (0, 1), value=1)
    table = torch.stack(made, dim=1).tolist()
    return [row[: row.index(stop)] if stop in row else row for row in table]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the wall-clock seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> None:
    """Time both, one alpha and five, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description="FaviComp against transformers.")
    parser.add_argument("--limit", type=int, default=8, help="questions, decoded as one batch (default 8)")
    parser.add_argument("--max-new", type=int, default=48, help="tokens a text (default 48)")
    arguments = parser.parse_args(argv)
    setup()
    lm = load(ensure_model())
    examples = load_examples(find_data("questions"), limit=arguments.limit).examples
    ours = FaviComp(compressor=lm, target=lm, max_new=arguments.max_new, batch=len(examples))
    prompts = [prompt_ids(lm, examples, role) for role in ("compress", "context")]
    model = peer_model()
    for alphas in (ALPHAS[2:3], ALPHAS):
        ours.compress_alphas(examples, alphas)  # compiles
        found, mine = timed(partial(ours.compress_alphas, examples, alphas))
        peer = partial(peer_decode, model, prompts, count=arguments.max_new, stop=lm.stop_ids[0])
        other, theirs = timed(lambda alphas=alphas, peer=peer: [peer(alpha) for alpha in alphas])
        texts = [one.trace.tokens.tolist() for of in found for one in of]
        equal = sum(a == b for a, b in zip(texts, chain.from_iterable(other), strict=True))
        print(
            f"{len(alphas)} alphas x {len(examples)} questions: ragjax {mine:.1f} s, transformers {theirs:.1f} s, "
            f"ratio {theirs / mine:.2f}; texts with equal tokens {equal} of {len(texts)}"
        )


def prompt_ids(lm: Any, examples: Sequence[Any], role: str) -> list[tuple[int, ...]]:
    """The prompts of one chat, as FaviComp builds them."""
    system, user = (getattr(DEFAULT_PROMPTS, f"{role}_{part}") for part in ("system", "user"))
    data = [{"question": e.question, "documents": number_documents(e.documents)} for e in examples]
    return [build_prompt(lm.tokenizer, system, user, of).ids for of in data]


if __name__ == "__main__":
    main()
