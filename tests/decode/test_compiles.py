"""How many programs a study compiles: few prompt lengths, few batch sizes, three modes, and no setting at all."""

import dataclasses

import numpy as np
import pytest

from ragjax.decode.buckets import plan_batches
from ragjax.decode.engine import Execution, Sampling, Voice, decode_prompts
from ragjax.runtime import PROGRAMS
from ragjax.testing import tiny_model
from tests.oracle import as_prompt, tokens_of

COUNT, BATCH = 60, 8
ALPHAS = [n / 10 for n in range(11)]


@pytest.fixture(scope="module")
def job():
    """A compressor that reads 10 to 500 tokens, and a target of another shape that reads questions."""
    generator = np.random.default_rng(0)
    lengths = np.stack([generator.integers(10, 501, COUNT), generator.integers(33, 49, COUNT)], axis=1)
    models = tiny_model(0, num_layers=1), tiny_model(1, num_layers=1, max_positions=1024)
    prompts = [[as_prompt(generator.integers(0, 256, n)) for n in column] for column in lengths.T]
    return models, prompts, lengths


def run(job, alphas, **settings):
    """One run of the mode that its alphas need."""
    models, prompts, _ = job
    used = [0] if max(alphas) == 0 else [1] if min(alphas) == 1 else [0, 1]
    weights = [(1.0,) if len(used) == 1 else (1 - a, a) for a in alphas]
    return decode_prompts(
        [Voice(models[m], prompts[m]) for m in used],
        max_new=4,
        weights=weights,
        draws=(0,) * len(alphas),
        execution=Execution(batch=BATCH, compaction=False),
        sampling=Sampling(**settings),
    )


def test_H05_programs_stay_within_the_bound(job, capsys):
    _, _, lengths = job
    plans = {
        "compressor alone": plan_batches(lengths[:, :1], BATCH),
        "target alone": plan_batches(lengths[:, 1:], BATCH),
        "ensemble": plan_batches(lengths, BATCH),
    }
    buckets = [set(), set()]
    for name, members in (("compressor alone", [0]), ("target alone", [1]), ("ensemble", [0, 1])):
        for batch in plans[name].batches:
            for member, length in zip(members, batch.lengths, strict=True):
                buckets[member].add(length)
    shapes = {name: len({batch.lengths for batch in plan.batches}) for name, plan in plans.items()}

    before = PROGRAMS.copy()
    alone = [run(job, [alpha]) for alpha in ALPHAS]
    separate = PROGRAMS - before
    together = run(job, ALPHAS)
    candidates = PROGRAMS - before - separate

    prefills, decodes = (sum(n for key, n in separate.items() if key[0] == kind) for kind in ("prefill", "decode"))
    with capsys.disabled():
        print(
            f"\n  {COUNT} prompts, batch {BATCH}, {len(ALPHAS)} alphas: {prefills} prefill programs (buckets "
            f"{sorted(buckets[0])} + {sorted(buckets[1])}), {decodes} decode programs (cache shapes {shapes} x "
            f"1 batch size), {sum(candidates.values())} more for {len(ALPHAS)} candidates a prompt"
        )
    assert prefills == len(buckets[0]) + len(buckets[1])
    assert decodes == sum(shapes.values())
    assert sum(candidates.values()) == shapes["ensemble"]
    assert max(len(b) for b in buckets) <= 8
    assert sum(separate.values()) <= len(buckets[0]) + len(buckets[1]) + max(shapes.values()) * 1 * 3
    assert all(result.stats.padding_ratio <= 1.6 for result in [alone[0], together])
    for number, result in enumerate(alone):
        assert [rows[number] for rows in tokens_of(together)] == [rows[0] for rows in tokens_of(result)]


def test_H05_compaction_adds_row_counts_and_nothing_else(job, capsys):
    """A batch of 8 examples and 11 candidates whose examples end one by one: one id in eight is a stop id."""
    models, prompts, _ = job
    ending = [dataclasses.replace(model, stop_ids=tuple(range(0, 256, 8))) for model in models]
    short = [[as_prompt(p.ids[:40]) for p in of[:BATCH]] for of in prompts]
    voices = [Voice(model, of) for model, of in zip(ending, short, strict=True)]
    weights = [(1 - a, a) for a in ALPHAS]
    before = PROGRAMS.copy()
    settings = {"max_new": 32, "weights": weights, "sampling": Sampling(temperature=1.0)}
    found = decode_prompts(voices, **settings, execution=Execution(batch=BATCH))
    rows = sorted(key[3] for key in PROGRAMS - before if key[0] == "decode")
    with capsys.disabled():
        print(f"\n  one cache shape, {len(ALPHAS)} candidates of {BATCH} examples: programs for {rows} rows")
    assert len(rows) == len(set(rows)) > 1
    assert set(rows) <= {len(ALPHAS) * size for size in (1, 2, 4, 8)}
    plain = decode_prompts(voices, **settings, execution=Execution(batch=BATCH, compaction=False))
    assert tokens_of(found) == tokens_of(plain)


def test_H05_settings_compile_nothing(job):
    before = PROGRAMS.copy()
    texts = []
    for settings in (
        {"temperature": 0.5},
        {"temperature": 1.0, "seed": 3},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 0.8, "top_k": 5, "repetition_penalty": 1.2},
        {"repetition_penalty": 1.5, "penalty_scope": "generated"},
    ):
        texts += [str(tokens_of(run(job, [alpha], **settings))) for alpha in (0.0, 0.55, 1.0)]
    assert before == PROGRAMS
    assert len(set(texts)) == len(texts)
