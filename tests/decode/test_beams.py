"""Beam search: the hypotheses of transformers, of one model and of two, whatever the company of an example."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ragjax.decode import buckets
from ragjax.decode.beams import decode_beams
from ragjax.decode.engine import Execution, Voice
from ragjax.runtime import PROGRAMS
from tests.oracle import PLAIN, as_prompt, log_softmax, pair, plain_loop, some_prompts, tokens_of

STOPS = tuple(range(0, 261, 16))
"""Enough of the random model's ids that some hypotheses end before the last token allowed."""

MAX_NEW = 10


@pytest.fixture(scope="module")
def exact():
    """A checkpoint without padded rows: transformers would give those a share of each step's probability."""
    return pair(vocab_size=261)


@pytest.fixture(scope="module")
def lm(exact):
    return dataclasses.replace(exact.ours, stop_ids=STOPS)


@pytest.fixture(scope="module")
def prompts():
    return some_prompts(4)


def search(lm, prompts, beams=3, max_new=MAX_NEW, execution=PLAIN, **settings):
    return decode_beams([Voice(lm, prompts)], beams=beams, max_new=max_new, execution=execution, **settings)


def theirs(model, prompt, beams, **settings):
    """transformers' hypotheses of one prompt, cut at the first stop id, and how each ended."""
    ids = torch.tensor([prompt.ids])
    if beams == 1:  # `generate` would search greedily
        settings["custom_generate"] = type(model)._beam_search
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        max_new_tokens=MAX_NEW,
        early_stopping=False,
        eos_token_id=list(STOPS),
        pad_token_id=STOPS[0],
        **settings,
    )
    hypotheses = []
    for row in found[:, len(prompt.ids) :].tolist():
        length = next((n for n, token in enumerate(row) if token in STOPS), len(row))
        hypotheses.append((row[:length], "stop" if length < len(row) else "length"))
    return hypotheses


def outcomes(result):
    return [[(row.tokens.tolist(), row.finish_reason) for row in rows] for rows in result.rows]


@pytest.mark.parametrize(
    ("beams", "penalty", "length_penalty"),
    [(1, 1.0, 1.0), (1, 1.2, 1.0), (3, 1.0, 1.0), (3, 1.2, 1.0), (3, 1.2, 0.3), (3, 0.8, -0.5), (5, 1.2, 1.0)],
)
def test_G09_hypotheses_equal_those_of_transformers(exact, lm, prompts, beams, penalty, length_penalty):
    settings = {"repetition_penalty": penalty, "length_penalty": length_penalty}
    found = outcomes(search(lm, prompts, beams, **settings))
    assert found == [theirs(exact.theirs, prompt, beams, **settings) for prompt in prompts]
    reasons = {reason for rows in found for _, reason in rows}
    assert "stop" in reasons
    if length_penalty == 1:
        assert reasons == {"stop", "length"}


def test_log_probs_are_the_models_own_before_the_penalty(exact, lm, prompts):
    result = search(lm, prompts, repetition_penalty=1.2)
    for prompt, rows in zip(prompts[:2], result.rows, strict=False):
        for row in rows:
            count = len(row.tokens)
            logs = log_softmax(exact.logits([*prompt.ids, *row.tokens]))[len(prompt.ids) - 1 :][:count]
            np.testing.assert_allclose(row.log_probs, logs[np.arange(count), row.tokens], atol=1e-4)
            np.testing.assert_allclose(row.member_log_probs[0], row.log_probs, atol=1e-5)
            np.testing.assert_array_equal(row.member_argmax[0], logs.argmax(-1))


def test_one_beam_is_greedy(exact, lm, prompts):
    greedy = [[plain_loop([(exact, prompt.ids, 1.0)], MAX_NEW, STOPS)] for prompt in prompts]
    assert tokens_of(search(lm, prompts, 1)) == greedy


def test_the_penalty_may_leave_out_the_prompt(lm, prompts):
    whole, made = (search(lm, prompts, repetition_penalty=2.0, penalty_scope=s) for s in ("prompt", "generated"))
    assert tokens_of(whole) != tokens_of(made) != tokens_of(search(lm, prompts))


def test_B01_hypotheses_do_not_depend_on_the_company(lm, prompts, monkeypatch):
    """Not on order, batch, padding, nor on the examples that leave the batch once they have ended."""

    def run(which, batch=4):
        execution = Execution(batch=batch, compaction=False)
        return outcomes(search(lm, which, repetition_penalty=1.2, execution=execution))

    expected = run(prompts)
    assert run(prompts[::-1]) == expected[::-1]
    assert run(prompts[:3]) == expected[:3]
    monkeypatch.setattr(buckets, "SHORTEST", 96)
    assert run(prompts, batch=1) == expected


def test_B06_examples_leave_the_batch_when_they_have_ended(lm, prompts):
    ending = dataclasses.replace(lm, stop_ids=(12, *range(13, 261, 16)))
    plain = search(ending, prompts)
    before = PROGRAMS.copy()
    compacted = search(ending, prompts, execution=Execution(batch=4, compaction=True))
    assert outcomes(compacted) == outcomes(plain)
    assert [key[3] for key in PROGRAMS - before] == [6]  # two examples of three beams


def reference(members, beams, stops, mix, penalty):
    """The same search over whole texts, in float64: `members` are (pair, ids, share)."""

    def added(text):
        parts, plain = [], []
        for p, ids, _ in members:
            own = log_softmax(p.logits([*ids, *text])[-1])
            seen = sorted({*ids, *text})
            plain.append(own.copy())
            own[seen] *= penalty
            parts.append(own)
        shares = np.array([share for _, _, share in members])[:, None]

        def mixed(logs):
            return (shares * logs).sum(0) if mix == "geometric" else np.log((shares * np.exp(logs)).sum(0))

        return mixed(np.array(parts)) - np.log(np.exp(mixed(np.array(plain))).sum())

    running, finished = [(0.0, [])], []
    for count in range(1, MAX_NEW + 1):
        grown = [(score + x, [*text, t]) for score, text in running for t, x in enumerate(added(text))]
        grown = sorted(grown, key=lambda g: -g[0])[: beams * (1 + len(stops))]
        ended = [(score / count, text) for score, text in grown[:beams] if text[-1] in stops or count == MAX_NEW]
        finished = sorted(finished + ended, key=lambda g: -g[0])[:beams]
        running = [g for g in grown if g[1][-1] not in stops][:beams]
        if len(finished) == beams and running[0][0] / count <= finished[-1][0]:
            break
    return [text[:-1] if text[-1] in stops else text for _, text in finished]


@pytest.mark.parametrize(("mix", "penalty"), [("geometric", 1.2), ("arithmetic", 1.0)])
def test_an_ensemble_searches_the_mix_of_its_members(mix, penalty):
    """Their tables are higher than the tokenizer, and its rows beyond would win everywhere."""
    pairs = pair(0), pair(1)
    models = []
    for p in pairs:
        head = p.ours.params.head.at[261:].mul(50.0)
        models.append(dataclasses.replace(p.ours, params=p.ours.params.replace(head=head), stop_ids=STOPS))
    texts = some_prompts(4), some_prompts(4, seed=1)
    voices = [Voice(model, of) for model, of in zip(models, texts, strict=True)]
    settings = {"beams": 3, "max_new": MAX_NEW, "weights": (0.5, 0.5), "mix": mix, "repetition_penalty": penalty}
    found = tokens_of(decode_beams(voices, **settings, execution=PLAIN))
    for number in (0, 1):
        members = [(p, of[number].ids, 0.5) for p, of in zip(pairs, texts, strict=True)]
        assert found[number] == reference(members, 3, STOPS, mix, penalty)


@pytest.mark.parametrize("step", [0, 1, 3])
def test_B09_a_non_finite_example_fails_alone(lm, prompts, step):
    """The embedding of one token is NaN: the first prompt's last, or one that its best hypothesis takes later."""
    first, *others = prompts
    poison = [*first.ids[-1:], *search(lm, prompts).rows[0][0].tokens][step]
    others = [as_prompt([i for i in p.ids if i != poison]) for p in others]
    expected = search(lm, [first, *others])
    params = lm.params.replace(embedding=lm.params.embedding.at[poison].set(jnp.nan))
    found = search(dataclasses.replace(lm, params=params), [first, *others])
    texts = [row.tokens.tolist() for row in found.rows[0]]
    (reached,) = {len(text) for text in texts}  # a beam may have taken it before the best one did
    assert reached <= step
    assert step == 0 or poison in [text[-1] for text in texts]
    assert {row.finish_reason for row in found.rows[0]} == {f"failed(non-finite at step {reached})"}
    assert outcomes(found)[1:] == outcomes(expected)[1:]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 0}, "beams counts hypotheses and is at least 1, got 0"),
        ({"beams": 15}, "15 beams rank 270 continuations, and the vocabulary allows only 261 ids"),
        ({"length_penalty": float("nan")}, "length_penalty must be finite, got nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be positive"),
        ({"weights": (0.5,)}, "one share a member"),
        ({"max_new": 0}, "max_new counts new tokens"),
    ],
)
def test_searches_that_make_no_sense_are_refused(lm, prompts, settings, message):
    with pytest.raises(ValueError, match=message):
        search(lm, prompts, **settings)
