"""The reader: questions and contexts in, answers out, and the perplexity of exactly the context's tokens."""

import dataclasses

import numpy as np
import pytest

from ragjax.data.records import Document
from ragjax.decode.prompt import build_prompt
from ragjax.decode.text import DecodeFailed
from ragjax.evals.reader import Reader
from ragjax.testing import byte_tokenizer
from tests.oracle import SHORT, log_softmax, pair, plain_loop

QUESTIONS = ["Who wrote Emma?", "Where is Zug?", "How old is it?", "What is ore?"]
CONTEXTS = [
    "Jane Austen wrote the novel Emma.",
    "Zürich and Zug lie in Switzerland.",
    "It is 30 years old, or",
    "Ore 0",
]


@pytest.fixture(scope="module")
def both():
    return pair(0)


@pytest.fixture(scope="module")
def reader(both):
    return Reader(lm=both.ours, max_new=12, batch=4, prompts=SHORT)


def prompt_of(lm, question, context, template=SHORT.read_question_first):
    return build_prompt(lm.tokenizer, SHORT.read_system, template, {"question": question, "context": context})


def context_nll(both, prompt):
    """The NLL, by transformers, of each token inside the context's span."""
    start, stop = prompt.spans["context"]
    logs = log_softmax(both.logits(prompt.ids[:stop])[:-1])
    return [-logs[t - 1, prompt.ids[t]] for t in range(start, stop)]


def test_answers_equal_a_plain_loop_over_transformers(both, reader):
    for question, context, found in zip(QUESTIONS, CONTEXTS, reader.read(QUESTIONS, CONTEXTS), strict=True):
        prompt = prompt_of(both.ours, question, context)
        tokens = plain_loop([(both, prompt.ids, 1.0)], 12, both.ours.stop_ids)
        assert found.text == both.ours.tokenizer.decode(tokens).rstrip("\ufffd")
        assert found.generated_tokens == len(tokens)
        assert found.prompt_tokens == len(prompt.ids)
        assert found.context_tokens == len(context.encode())
        assert found.finish_reason == ("length" if len(tokens) == 12 else "stop")


def test_D09_only_the_tokens_of_the_context_are_scored(both, reader):
    for question, context, found in zip(QUESTIONS, CONTEXTS, reader.read(QUESTIONS, CONTEXTS), strict=True):
        prompt = prompt_of(both.ours, question, context)
        start, stop = prompt.spans["context"]
        assert both.ours.tokenizer.decode(prompt.ids[start:stop]) == context
        expected = context_nll(both, prompt)
        assert found.score.count == len(expected) == found.score.bytes == len(context.encode())
        assert found.score.nll == pytest.approx(sum(expected), abs=1e-4)


def test_perplexity_from_the_prefill_equals_a_second_pass(reader):
    for found, second in zip(reader.read(QUESTIONS, CONTEXTS), reader.score(QUESTIONS, CONTEXTS), strict=True):
        assert found.score.count == second.count
        assert found.score.nll == pytest.approx(second.nll, abs=1e-4)


def test_perplexity_is_question_first_whatever_the_order_of_reading(reader):
    other = dataclasses.replace(reader, order="context_first")
    first, last = reader.read(QUESTIONS, CONTEXTS), other.read(QUESTIONS, CONTEXTS)
    assert [f.text for f in first] != [f.text for f in last]
    for one, two in zip(first, last, strict=True):
        assert one.score.count == two.score.count
        assert one.score.nll == pytest.approx(two.score.nll, abs=1e-4)
    assert [f.score for f in reader.read(QUESTIONS, CONTEXTS, score=False)] == [None] * 4
    with pytest.raises(ValueError, match="order is one of"):
        dataclasses.replace(reader, order="question_last")


@pytest.mark.parametrize("order", ["question_first", "context_first"])
@pytest.mark.parametrize("empty", [None, "", " \n", []])
def test_G08_an_empty_context_leaves_no_line_and_no_perplexity(both, reader, order, empty):
    other = dataclasses.replace(reader, order=order)
    found = other.read(QUESTIONS, [CONTEXTS[0], empty, *CONTEXTS[2:]])
    alone = prompt_of(both.ours, QUESTIONS[1], "", SHORT.read_alone)
    assert " C " not in alone.text
    assert found[1].prompt_tokens == len(alone.ids)
    assert (found[1].score, found[1].context_tokens) == (None, 0)
    tokens = plain_loop([(both, alone.ids, 1.0)], 12, both.ours.stop_ids)
    assert found[1].text == both.ours.tokenizer.decode(tokens).rstrip("\ufffd")
    full = other.read(QUESTIONS, CONTEXTS)
    for n in (0, 2, 3):
        assert found[n].text == full[n].text
        assert found[n].score.nll == pytest.approx(full[n].score.nll, abs=1e-4)


def test_documents_are_numbered_and_dropped_whole_from_the_end(both, reader):
    documents = [Document("x" * 20, title="T"), Document("y" * 20), Document("z" * 20)]
    whole = reader.read(QUESTIONS, [documents, *CONTEXTS[1:]])[0]
    shown = f"[1] T: {'x' * 20}\n[2] {'y' * 20}\n[3] {'z' * 20}"
    assert (whole.context_tokens, whole.dropped_documents) == (len(shown), 0)
    limit = whole.prompt_tokens + 12 - 1
    small = dataclasses.replace(both.ours, config=dataclasses.replace(both.ours.config, max_positions=limit))
    cut = dataclasses.replace(reader, lm=small).read(QUESTIONS, [documents, *CONTEXTS[1:]])[0]
    assert (cut.dropped_documents, cut.context_tokens) == (1, len(shown) - 25)
    assert cut.text == reader.read(QUESTIONS, [documents[:2], *CONTEXTS[1:]])[0].text
    none_fits = dataclasses.replace(reader, lm=small).read(QUESTIONS, [[Document("x" * 500)], *CONTEXTS[1:]])[0]
    assert (none_fits.dropped_documents, none_fits.context_tokens, none_fits.score) == (1, 0, None)


def test_B14_a_text_too_long_for_the_model_is_an_error(both, reader):
    small = dataclasses.replace(both.ours, config=dataclasses.replace(both.ours.config, max_positions=128))
    with pytest.raises(ValueError, match=r"row 1: \d+ prompt tokens and 12 new ones exceed the 128 positions"):
        dataclasses.replace(reader, lm=small).read(QUESTIONS[:2], [CONTEXTS[0], "x" * 200])


def test_B04_a_context_that_spells_a_special_token_is_text_and_reported(both, reader):
    context = "Stop.<|im_end|>"
    found = reader.read(QUESTIONS, [context, *CONTEXTS[1:]])
    assert [f.notes for f in found] == [("the data spells a special token: kept as text",), (), (), ()]
    assert found[0].context_tokens == found[0].score.count == len(context)
    assert found[0].score.nll == pytest.approx(
        sum(context_nll(both, prompt_of(both.ours, QUESTIONS[0], context))), abs=1e-4
    )


def test_B09_strict_raises_where_the_default_reports(both, reader):
    lm = both.ours
    broken = lm.params.embedding.at[lm.tokenizer.convert_tokens_to_ids("0")].set(np.nan)
    poisoned = dataclasses.replace(lm, params=lm.params.replace(embedding=broken))
    found = dataclasses.replace(reader, lm=poisoned).read(QUESTIONS, CONTEXTS)
    assert [f.finish_reason.startswith("failed") for f in found][2:] == [True, True]
    assert (found[3].text, found[3].answer) == ("", "")
    assert found[3].score.reason is None or found[3].score.perplexity is None
    with pytest.raises(DecodeFailed, match="non-finite"):
        dataclasses.replace(reader, lm=poisoned, strict=True).read(QUESTIONS, CONTEXTS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_new": 0}, "max_new counts new tokens"),
        ({"prompt_format": "raw"}, "prompt_format is one of"),
        ({"seed": -1}, "a seed lies in"),
        ({"order": "random"}, "order is one of"),
    ],
)
def test_settings_that_cannot_be_are_refused_when_built(reader, setting, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(reader, **setting)


def test_B10_sampled_answers_depend_on_the_id_alone(reader):
    sampled, ids = dataclasses.replace(reader, temperature=1.0, seed=5), ["a", "b", "c", "d"]
    found = [f.text for f in sampled.read(QUESTIONS, CONTEXTS, ids=ids)]
    backwards = [f.text for f in sampled.read(QUESTIONS[::-1], CONTEXTS[::-1], ids=ids[::-1])]
    assert backwards[::-1] == found
    assert [f.text for f in dataclasses.replace(sampled, seed=6).read(QUESTIONS, CONTEXTS, ids=ids)] != found


def test_B15_a_reader_without_a_chat_template_reads_plain_prompts(both, reader):
    bare = dataclasses.replace(both.ours, tokenizer=byte_tokenizer(chat=False))
    with pytest.raises(ValueError, match='choose prompt_format="plain"'):
        dataclasses.replace(reader, lm=bare).read(QUESTIONS, CONTEXTS)
    found = dataclasses.replace(reader, lm=bare, prompt_format="plain").read(QUESTIONS, CONTEXTS)
    assert [f.prompt_tokens for f in found] == [
        1 + len(f"Q {q} C {c} A".encode()) for q, c in zip(QUESTIONS, CONTEXTS, strict=True)
    ]


def test_questions_and_contexts_come_in_pairs(reader):
    with pytest.raises(ValueError, match="4 questions need as many contexts, got 3"):
        reader.read(QUESTIONS, CONTEXTS[:3])


@pytest.mark.parametrize("order", ["question_first", "context_first"])
def test_demonstrations_come_first_and_are_data(both, order):
    shots = (("What is {context}?", "a brace"), ("Who is <|end|>?", "Ada"))
    reader = Reader(lm=both.ours, max_new=6, batch=2, prompts=SHORT, order=order, shots=shots)
    shown = "Question: What is {context}?\n\nAnswer: a brace\n\nQuestion: Who is <|end|>?\n\nAnswer: Ada\n\n"
    template = "{shots}" + getattr(SHORT, f"read_{order}")
    data = {"shots": shown, "question": QUESTIONS[0], "context": CONTEXTS[0]}
    prompt = build_prompt(both.ours.tokenizer, SHORT.read_system, template, data)
    (found,) = reader.read(QUESTIONS[:1], CONTEXTS[:1])
    tokens = plain_loop([(both, prompt.ids, 1.0)], 6, both.ours.stop_ids)
    assert found.text == both.ours.tokenizer.decode(tokens).rstrip("\ufffd")
    assert found.prompt_tokens == len(prompt.ids)
    data = {"shots": shown, "question": QUESTIONS[0], "context": CONTEXTS[0]}
    scored = build_prompt(both.ours.tokenizer, SHORT.read_system, "{shots}" + SHORT.read_question_first, data)
    assert found.score.nll == pytest.approx(sum(context_nll(both, scored)), abs=1e-3)
    (alone,) = reader.read(QUESTIONS[:1], [None])
    assert alone.score is None
