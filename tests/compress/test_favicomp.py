"""FaviComp from question and documents to text and trace, against a plain loop over transformers."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import ragjax
from ragjax.compress.base import Budget
from ragjax.compress.cut import source_length
from ragjax.compress.favicomp import FaviComp
from ragjax.compress.prompts import number_documents
from ragjax.data.records import Document, Example
from ragjax.decode.ensemble import VocabularyMismatch
from ragjax.decode.prompt import build_prompt, count_tokens
from ragjax.decode.text import DecodeFailed
from ragjax.testing import byte_tokenizer, random_params
from tests.oracle import SHORT, bigram_model, pair, plain_loop

QUESTIONS = ["Who wrote Emma?", "Where is Zug?", "How old is it?", "What is ore?"]
DOCUMENTS = [
    ["Jane Austen wrote it.", {"title": "Emma", "text": "A novel."}],
    ["Zug lies in Switzerland, by a lake."],
    [{"title": "Age", "text": "It is 30 years old."}, "Or more."],
    ["Rock with metal in it.", "Iron ore is red."],
]
ALPHAS = (0.0, 0.3, 0.5, 0.7, 1.0)
RUN = {"max_new": 12, "batch": 4, "prompts": SHORT}
EXAMPLES = [
    Example(f"q{n}", q, documents=tuple(Document(d) if isinstance(d, str) else Document(**d) for d in docs))
    for n, (q, docs) in enumerate(zip(QUESTIONS, DOCUMENTS, strict=True))
]


@pytest.fixture(scope="module")
def pairs():
    return pair(0), pair(1)


@pytest.fixture(scope="module")
def models(pairs):
    return {"compressor": pairs[0].ours, "target": pairs[1].ours}


def tokens(found):
    return [c.trace.tokens.tolist() for c in found]


def prompts_of(lm, example):
    data = {"question": example.question, "documents": number_documents(example.documents)}
    return (
        build_prompt(lm.tokenizer, SHORT.compress_system, SHORT.compress_user, data).ids,
        build_prompt(lm.tokenizer, SHORT.context_system, SHORT.context_user, data).ids,
    )


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_tokens_equal_a_plain_loop_over_transformers(pairs, models, penalty):
    found = FaviComp(**models, **RUN, repetition_penalty=penalty).compress_alphas(EXAMPLES, ALPHAS)
    for index, example in enumerate(EXAMPLES):
        compression, context = prompts_of(models["target"], example)
        for alpha, results in zip(ALPHAS, found, strict=True):
            members = [(pairs[0], compression, 1 - alpha), (pairs[1], context, alpha)]
            assert tokens(results)[index] == plain_loop(members, 12, models["target"].stop_ids, penalty=penalty)


def test_several_alphas_equal_runs_of_their_own(models):
    for settings in ({}, {"temperature": 1.0, "seed": 3}):
        together = FaviComp(**models, **RUN, **settings).compress_alphas(EXAMPLES, ALPHAS)
        for alpha, found in zip(ALPHAS, together, strict=True):
            alone = FaviComp(**models, **RUN, **settings, alpha=alpha).compress(EXAMPLES)
            assert tokens(found) == tokens(alone)
            for one, two in zip(found, alone, strict=True):
                assert one.trace.winners == two.trace.winners
                assert one.trace.member_argmax.tolist() == two.trace.member_argmax.tolist()
                np.testing.assert_allclose(one.trace.log_probs, two.trace.log_probs, atol=1e-5)


def test_alphas_zero_and_one_are_never_mixed_and_need_no_shared_vocabulary(models):
    """Two models that could not be mixed: each writes as it would alone, and only an alpha between is refused."""
    other = dataclasses.replace(models["target"], tokenizer=byte_tokenizer(bos=False), name="other")
    pair = FaviComp(compressor=models["compressor"], target=other, **RUN)
    zero, one = pair.compress_alphas(EXAMPLES, (0.0, 1.0))
    assert tokens(zero) == tokens(FaviComp(compressor=models["compressor"], **RUN, alpha=0.0).compress(EXAMPLES))
    assert tokens(one) == tokens(FaviComp(target=other, **RUN, alpha=1.0).compress(EXAMPLES))
    with pytest.raises(VocabularyMismatch):
        pair.compress_alphas(EXAMPLES, (0.0, 0.5, 1.0))


def test_alpha_zero_needs_no_target_and_alpha_one_no_compressor(models):
    both = FaviComp(**models, **RUN).compress_alphas(EXAMPLES, ALPHAS)
    for alpha, role, found in ((0.0, "compressor", both[0]), (1.0, "target", both[-1])):
        alone = FaviComp(**{role: models[role]}, **RUN, alpha=alpha)
        assert tokens(alone.compress(EXAMPLES)) == tokens(found)
        assert {w for c in found for w in c.trace.winners} == {role}
    with pytest.raises(ValueError, match=r"alpha 0\.5 needs a target"):
        FaviComp(compressor=models["compressor"], **RUN)(QUESTIONS[0], DOCUMENTS[0])
    with pytest.raises(ValueError, match=r"alpha 0\.0 needs a compressor"):
        FaviComp(target=models["target"], **RUN, alpha=0.0)(QUESTIONS[0], DOCUMENTS[0])
    with pytest.raises(ValueError, match="needs a compressor, a target, or both"):
        FaviComp()


def test_the_readme_call_takes_one_question_or_lists(models):
    lm = models["target"]
    compress = ragjax.FaviComp(compressor=lm, target=lm, alpha=0.5, **RUN)
    several = compress(QUESTIONS, DOCUMENTS)
    single = compress(QUESTIONS[1], DOCUMENTS[1])
    assert single.text == several[1].text
    assert single.trace.tokens.tolist() == several[1].trace.tokens.tolist()
    assert single.text == "".join(single.trace.pieces).strip()
    assert len(single.trace.winners) == len(single.trace.log_probs) == len(single.trace.tokens) == 12
    assert tokens(several) == tokens(compress.compress(EXAMPLES))
    assert compress([], []) == []
    with pytest.raises(ValueError, match="2 questions need as many lists of documents, got 1"):
        compress(QUESTIONS[:2], DOCUMENTS[:1])


def test_B10_samples_of_the_call_depend_on_content_not_on_place(models):
    sampled = FaviComp(**models, **RUN, temperature=1.0)
    found = tokens(sampled(QUESTIONS, DOCUMENTS))
    order = [2, 0, 3, 1]
    shuffled = tokens(sampled([QUESTIONS[i] for i in order], [DOCUMENTS[i] for i in order]))
    assert shuffled == [found[i] for i in order]
    twice = tokens(sampled([QUESTIONS[0]] * 4, [DOCUMENTS[0]] * 4))
    assert len(set(map(tuple, twice))) == 4
    assert twice[0] == found[0]


def test_winners_follow_from_the_argmaxes_and_pieces_join(models):
    for found in FaviComp(**models, **RUN).compress(EXAMPLES):
        trace = found.trace
        assert trace.member_log_probs.shape == trace.member_argmax.shape == (2, len(trace.tokens))
        for token, (mine, theirs), winner in zip(trace.tokens, trace.member_argmax.T, trace.winners, strict=True):
            expected = {(True, True): "both", (True, False): "compressor", (False, True): "target"}
            assert winner == expected.get((token == mine, token == theirs), "neither")
        assert "".join(trace.pieces).strip() == found.text
        assert (found.status, trace.finish_reason) in (("length", "length"), ("ok", "stop"))
        assert found.achieved == count_tokens(models["target"].tokenizer, found.text)
    winners = {w for c in FaviComp(**models, **RUN).compress(EXAMPLES) for w in c.trace.winners}
    assert {"compressor", "target"} <= winners


# Budgets and statuses: a model that writes "a bb ccc a bb ..." whatever it reads.

WRITTEN = "a bb ccc dd "


def writer(text=WRITTEN, ends=False):
    """Writes `text` after any prompt, over and over, or once; each byte of it but the spaces occurs in one place."""
    tokenizer = byte_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    table = np.zeros((272, 272), np.float32)
    table[:, ids[0]] = 9.0  # after anything else the text begins
    for here, after in pairwise(ids):
        table[here] = 0
        table[here, after] = 9.0
    last = ids[-1]
    table[last] = 0
    table[last, tokenizer.eos_token_id if ends else ids[0]] = 9.0
    return bigram_model(table)


def test_achieved_never_exceeds_requested(models):
    tokenizer = models["target"].tokenizer
    for budget in (0.25, 0.1, 7, Budget(tokens=3)):
        for example, found in zip(
            EXAMPLES, FaviComp(**models, **RUN).compress(EXAMPLES, Budget.of(budget)), strict=True
        ):
            source = source_length(tokenizer, example.documents)
            assert found.source_tokens == source
            assert found.requested == Budget.of(budget).resolve(source)
            assert found.achieved == count_tokens(tokenizer, found.text) <= found.requested
            assert found.prompt_tokens == found.achieved
            assert found.status in ("ok", "length", "too_small")
            assert (found.status == "too_small") == (found.text == "")


@pytest.mark.parametrize(
    ("text", "ends", "budget", "expected", "status"),
    [
        ("abc", True, None, "abc", "ok"),
        ("abc", True, 5, "abc", "ok"),
        ("abc", False, None, "abcabcabcabc", "length"),
        ("ab c", False, 5, "ab", "length"),
        ("abc", False, 6, "", "too_small"),
        ("\n", True, None, "", "empty"),
    ],
)
def test_status_says_what_became_of_the_text(text, ends, budget, expected, status):
    lm = writer(text, ends)
    found = FaviComp(compressor=lm, target=lm, **RUN)("Who?", ["Some words of evidence.", "More."], budget)
    assert (found.text, found.status) == (expected, status)
    assert found.achieved == len(expected.encode())
    assert len(found.units) == (1 if expected else 0)


def test_documents_that_fit_the_budget_are_returned_whole(models):
    found = FaviComp(**models, **RUN)("Who?", ["é one", "two"], budget=10)
    assert (found.status, found.text, found.trace) == ("short_input", "é one\ntwo", None)
    assert found.achieved == found.source_tokens == 10
    assert [u.spans for u in found.units] == [((0, 0, 5),), ((1, 0, 3),)]
    assert FaviComp(**models, **RUN)("Who?", ["é one", "two"], budget=1.0).status == "short_input"
    shorter = FaviComp(**models, **RUN)(QUESTIONS, [*DOCUMENTS[:3], ["é one", "two"]], budget=9)
    assert [c.status == "short_input" for c in shorter] == [False] * 4


def test_no_documents_give_empty_evidence_but_alpha_one_writes_its_own(models):
    found = FaviComp(**models, **RUN).compress_alphas(
        [*EXAMPLES[:3], Example("none", QUESTIONS[3])], ALPHAS, Budget(fraction=0.5)
    )
    empty, written = found[0][3], found[-1][3]
    assert (empty.status, empty.text, empty.achieved, empty.source_tokens) == ("empty", "", 0, 0)
    assert written.trace.winners == ("target",) * 12
    generous = FaviComp(**models, **RUN, alpha=1.0).compress([Example("none", QUESTIONS[3]), *EXAMPLES[:3]])
    assert generous[0].trace.tokens.tolist() == written.trace.tokens.tolist()
    assert all(c.trace is not None for c in found[0][:3])


def test_lengths_are_counted_with_the_generator_s_tokenizer(models):
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(kinds.WordLevel({"?": 0}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?")
    found = FaviComp(**models, **RUN, tokenizer=words)(QUESTIONS, DOCUMENTS, budget=2)[1]
    assert (found.source_tokens, found.requested) == (7, 2)
    assert found.achieved == count_tokens(words, found.text) <= 2


def test_B14_whole_documents_are_dropped_from_the_end_and_counted(models):
    long = [f"{n} " + "x" * 40 for n in range(6)]
    limit = len(prompts_of(models["target"], EXAMPLES[0])[0]) + 60
    short = {
        role: dataclasses.replace(lm, config=dataclasses.replace(lm.config, max_positions=limit))
        for role, lm in models.items()
    }
    found = FaviComp(**short, **RUN)(QUESTIONS[0], long)
    kept = len(long) - found.dropped_documents
    assert 0 < kept < len(long)
    assert found.trace.tokens.tolist() == FaviComp(**short, **RUN)(QUESTIONS[0], long[:kept]).trace.tokens.tolist()
    data = {"question": QUESTIONS[0], "documents": number_documents([Document(d) for d in long[: kept + 1]])}
    one_more = build_prompt(models["target"].tokenizer, "", SHORT.compress_user, data).ids
    assert len(one_more) + 12 > limit
    with pytest.raises(ValueError, match="exceed the"):
        FaviComp(**short, **RUN, on_overflow="error")(QUESTIONS[0], long)
    with pytest.raises(ValueError, match="exceed the"):
        FaviComp(**short, **RUN)(QUESTIONS[0], ["x" * 2000])
    with pytest.raises(ValueError, match="exceed the"):
        FaviComp(**short, **RUN)("x" * 2000, long)
    with pytest.raises(ValueError, match="on_overflow is one of"):
        FaviComp(**models, on_overflow="cut")


def test_A18_ids_outside_the_table_are_refused(models):
    cfg = dataclasses.replace(models["target"].config, vocab_size=200)
    small = dataclasses.replace(models["target"], config=cfg, params=random_params(cfg), name="small")
    with pytest.raises(ValueError, match=r"row 0 \(\w+\): token id 256 is outside small's 200 embeddings"):
        FaviComp(compressor=small, target=small, **RUN)(QUESTIONS, DOCUMENTS)


def test_B09_a_failure_never_looks_like_a_result(models):
    broken = writer(WRITTEN)
    head = broken.params.head.at[5].set(np.nan)
    broken = dataclasses.replace(broken, params=broken.params.replace(head=head))
    found = FaviComp(compressor=broken, target=broken, **RUN)("Who?", ["Some words of evidence.", "More."], budget=5)
    assert (found.status, found.text, found.units) == ("failed(non-finite at step 0)", "", ())
    with pytest.raises(DecodeFailed, match="row 0 failed"):
        FaviComp(compressor=broken, target=broken, **RUN, strict=True)("Who?", ["Some words of evidence.", "More."])


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf")])
def test_B07_alpha_lies_between_zero_and_one(models, alpha):
    with pytest.raises(ValueError, match=r"alpha lies in \[0, 1\]"):
        FaviComp(**models, alpha=alpha)
    with pytest.raises(ValueError, match=r"alpha lies in \[0, 1\]"):
        FaviComp(**models).compress_alphas(EXAMPLES, (0.5, alpha))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_new": 0}, "max_new counts new tokens"),
        ({"mix": "sum"}, "mix is one of"),
        ({"prompt_format": "raw"}, "prompt_format is one of"),
        ({"penalty_scope": "text"}, "penalty_scope is"),
        ({"seed": 2**32}, "a seed lies in"),
        ({"on_overflow": "cut"}, "on_overflow is one of"),
    ],
)
def test_settings_that_cannot_be_are_refused_when_built(models, setting, message):
    with pytest.raises(ValueError, match=message):
        FaviComp(**models, **setting)


def test_B15_models_without_a_chat_template_take_plain_prompts(models):
    bare = {role: dataclasses.replace(lm, tokenizer=byte_tokenizer(chat=False)) for role, lm in models.items()}
    with pytest.raises(ValueError, match='choose prompt_format="plain"'):
        FaviComp(**bare, **RUN)(QUESTIONS, DOCUMENTS)
    longer = {name: getattr(SHORT, name) + "." * 20 for name in ("compress_user", "context_user")}
    settings = RUN | {"prompts": dataclasses.replace(SHORT, **longer), "prompt_format": "plain"}
    found = FaviComp(**bare, **settings)(QUESTIONS, DOCUMENTS)
    assert [len(c.trace.winners) for c in found] == [len(c.trace.tokens) for c in found]
    assert all(c.text for c in found)


def test_B04_documents_that_spell_special_tokens_are_reported(models):
    found = FaviComp(**models, **RUN)(QUESTIONS, [["Ends here.<|im_end|>"], *DOCUMENTS[1:]])
    assert [c.notes for c in found] == [("the data spells a special token: kept as text",), (), (), ()]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_several_budgets_are_each_their_own_and_decoded_once(models, monkeypatch, alpha):
    compressor = FaviComp(**models, **RUN, alpha=alpha)
    budgets = [Budget(fraction=0.2), None, Budget(tokens=3), Budget(tokens=500)]
    alone = [compressor.compress(EXAMPLES, budget) for budget in budgets]
    runs = []
    decode = FaviComp._run
    monkeypatch.setattr(FaviComp, "_run", lambda self, of, *rest: runs.append(len(of)) or decode(self, of, *rest))
    together = compressor.compress_budgets(EXAMPLES, budgets)
    assert sum(runs) == len(EXAMPLES)
    for one, other in zip(alone, together, strict=True):
        assert [(c.text, c.status, c.requested, c.achieved) for c in one] == [
            (c.text, c.status, c.requested, c.achieved) for c in other
        ]
