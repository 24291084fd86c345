"""Judges with models, tiny and random: against transformers and against themselves; what is cut, refused, or told."""

import dataclasses
import logging

import numpy as np
import pytest
import torch
from scipy.special import softmax
from transformers import PreTrainedTokenizerFast

from ragjax.cite import AskYesNo, ClaimTooLong, Classifier, Remembered, TrueT5, make_judge
from ragjax.cite.judges import judge_kind
from ragjax.decode.engine import next_log_probs
from ragjax.decode.text import generate
from ragjax.encode import NonFinite, classify
from ragjax.encode.batches import read_rows
from ragjax.hub import load_vocabulary
from ragjax.testing import (
    byte_tokenizer,
    random_encoder_params,
    random_params,
    tiny_config,
    tiny_encoder,
    tiny_encoder_config,
    tiny_model,
    tiny_t5,
    write_checkpoint,
)
from ragjax.weights import room
from ragjax.weights.room import OutOfMemoryError, weight_bytes
from tests.oracle import as_prompt, encoder_pair, log_softmax, pair, source_pair

GENERATOR = np.random.default_rng(0)
WORDS = ["the", "cat", "was", "in", "the", "house", "and", "is", "seen", "of", "to", "not", "1952"]


def some_pairs(sizes=((3, 5), (40, 4), (1, 1), (90, 9), (12, 30), (60, 2), (25, 7))):
    return [tuple(" ".join(GENERATOR.choice(WORDS, size)) for size in pair) for pair in sizes]


PAIRS = some_pairs()
SHORT = some_pairs(((3, 5), (6, 2), (1, 1), (8, 3), (2, 4)))


def classifier(family="deberta-v2", labels=("contradiction", "entailment", "neutral"), **settings) -> Classifier:
    return Classifier(tiny_encoder(family, "sequence", num_layers=1, labels=labels), **settings)


def small_t5(**changes):
    return tiny_t5(num_encoder_layers=1, num_layers=1, **changes)


def judges() -> dict:
    return {
        "classifier": classifier(batch=4),
        "windows": classifier(mode="windows", max_length=200, batch=4),
        "true": TrueT5(small_t5(), batch=2),
        "asked": AskYesNo(tiny_model(num_layers=1), "plain", batch=2),
    }


JUDGES = list(judges())


@pytest.mark.parametrize("family", ["deberta-v2", "bert"])
def test_a_classifier_equals_transformers(family):
    both = encoder_pair(family, "sequence", num_layers=1)
    inputs = both.ours.tokenizer(
        *(list(texts) for texts in zip(*PAIRS, strict=True)),
        padding=True,
        return_tensors="pt",
        return_token_type_ids=family == "bert",
    )
    with torch.no_grad():
        expected = torch.softmax(both.theirs(**inputs).logits.double(), -1)[:, 1].numpy()
    found = Classifier(both.ours, batch=4).probabilities(PAIRS)
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    assert np.ptp(expected) > 0.1
    counts = [sum(len(both.ours.tokenizer(t, add_special_tokens=False)["input_ids"]) for t in pair) for pair in PAIRS]
    assert found.tokens.tolist() == counts
    assert not found.truncated.any()


@pytest.mark.parametrize("name", JUDGES)
def test_a_pair_does_not_depend_on_batch_order_or_company(name):
    judge, pairs = judges()[name], SHORT if name in ("true", "asked") else PAIRS
    together = judge.probabilities(pairs)
    alone = np.concatenate([judge.probabilities([pair]).values for pair in pairs])
    np.testing.assert_allclose(together.values, alone, atol=1e-5)
    assert ((together.values >= 0.5) == (alone >= 0.5)).all()
    order = GENERATOR.permutation(len(pairs))
    np.testing.assert_allclose(judge.probabilities([pairs[i] for i in order]).values, alone[order], atol=1e-5)
    assert judge.probabilities([]).values.shape == (0,)


@pytest.mark.parametrize("name", JUDGES)
def test_a_second_run_makes_no_model_call(name, tmp_path, monkeypatch):
    judge = judges()[name]
    first = Remembered(judge, tmp_path).probabilities(SHORT)
    for function in ("read_rows", "next_log_probs"):
        monkeypatch.setattr(f"ragjax.cite.judges.{function}", None)
    again = Remembered(judges()[name], tmp_path)
    np.testing.assert_array_equal(again.probabilities(SHORT[::-1]).values, first.values[::-1])
    assert again.calls == 0


def test_F13_what_changes_a_judges_numbers_changes_its_description():
    model, lm = classifier().model, tiny_model(num_layers=1)
    told = [
        Classifier(model),
        Classifier(model, "windows"),
        Classifier(model, label=0),
        Classifier(model, max_length=64),
        Classifier(tiny_encoder("deberta-v2", "sequence", seed=1, num_layers=1)),
        Classifier(tiny_encoder("deberta-v2", "sequence", dtype="bfloat16", num_layers=1)),
        TrueT5(tiny_t5()),
        TrueT5(tiny_t5(), max_length=64),
        AskYesNo(lm),
        AskYesNo(lm, "plain"),
        AskYesNo(lm, prompts=dataclasses.replace(AskYesNo(lm).prompts, judge_system="Well?")),
    ]
    assert len({str(judge.describe()) for judge in told}) == len(told)
    assert Classifier(model, batch=3).describe() == Classifier(model).describe()
    assert told[0].describe()["model"] == model.fingerprint
    assert told[0].name == "tiny-deberta-v2-0 (float32, truncate)"


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        (("entailment", "neutral", "contradiction"), 0),
        (("contradiction", "neutral", "entailment"), 2),
        (("CONTRADICTION", "ENTAILMENT", "NEUTRAL"), 1),
        (("refuted", "entailed"), 1),
        (("entailment", "not_entailment"), 0),
        (("Not_Entailment", "Entailment"), 1),
    ],
)
def test_F12_the_entailment_label_is_found_by_its_name(labels, place):
    judge = classifier("bert", labels)
    logits = classify(judge.model, *zip(*SHORT, strict=True)).logits
    np.testing.assert_allclose(judge.probabilities(SHORT).values, softmax(logits, axis=1)[:, place], atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "label", "words"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), None, r"has the labels \['LABEL_0'.*give the id of the one that means ent"),
        (("yes", "no"), None, "give the id"),
        (("entailment", "entailed"), None, "give the id"),
        (("entailment",), None, "one of two or more"),
        (("LABEL_0", "LABEL_1"), 2, "from 0, got 2"),
        (("LABEL_0", "LABEL_1"), -1, "from 0, got -1"),
    ],
)
def test_F12_labels_that_do_not_say_are_refused(labels, label, words):
    with pytest.raises(ValueError, match=f"tiny-bert-0 .*{words}|label counts tiny-bert-0's .*{words}"):
        classifier("bert", labels, label=label)


def test_F12_the_user_may_give_the_label():
    named = classifier("bert")
    unnamed = classifier("bert", ("LABEL_0", "LABEL_1", "LABEL_2"), label=1)
    np.testing.assert_array_equal(unnamed.probabilities(SHORT).values, named.probabilities(SHORT).values)


def test_F12_a_label_by_which_nothing_entails_itself_is_told_once(caplog):
    model = classifier().model
    tried = [Classifier(model, label=label) for label in range(3)]
    with caplog.at_level(logging.WARNING, "ragjax"):
        for judge in tried:
            judge.probabilities(SHORT)
            judge.probabilities(PAIRS)
    weak = [judge for judge in tried if judge.self_entailment < 0.5]
    assert len(weak) >= 2
    assert np.isclose(sum(judge.self_entailment for judge in tried), 1)
    assert len(caplog.records) == len(weak)
    assert "tiny-deberta-v2-0 (float32, truncate) finds that a sentence entails itself" in caplog.text


FACT = "1952 was seen"
CLAIM = " ".join(["the house"] * 6)


@pytest.fixture
def by_fact(monkeypatch):
    """A stand-in for the model's weights: entailed where the sub-words of the fact stand in what the model reads."""
    read = []

    def look(model, rows, reading, batch):
        fact = " ".join(map(str, model.tokenizer(FACT, add_special_tokens=False)["input_ids"]))
        read.extend(rows)
        found = [f" {fact} " in f" {' '.join(map(str, row.ids))} " for row in rows]
        return [np.array([0.0, 9.0 if yes else -9.0, 0.0], np.float32) for yes in found]

    monkeypatch.setattr("ragjax.cite.judges.read_rows", look)
    return read


def passages() -> list[str]:
    """Three texts of 300 words each, sub-words in the tiny tokenizer; the fact is about the 700th of them."""
    filler = " ".join(["of to"] * 150)
    return [filler, filler, f"{' '.join(['of to'] * 50)} {FACT} {' '.join(['of to'] * 98)}"]


def test_F11_truncate_cuts_the_premise_alone_and_counts_it(by_fact):
    judge = classifier("bert")
    late, early = "\n".join(passages()), "\n".join(passages()[::-1])
    found = judge.probabilities([(late, CLAIM), (early, CLAIM), (FACT, CLAIM)])
    assert (found.values > 0.5).tolist() == [False, True, True]
    claim = judge.model.tokenizer(CLAIM, add_special_tokens=False)["input_ids"]
    whole = len(judge.model.tokenizer(late, add_special_tokens=False)["input_ids"])
    assert found.truncated.tolist() == [whole + len(claim) + 3 - 512] * 2 + [0]
    assert found.tokens[0] == whole + len(claim) > 900
    for row in by_fact:
        assert len(row.ids) <= 512
    assert all(list(row.ids[-len(claim) - 1 : -1]) == claim for row in by_fact[-3:])


def test_F11_windows_read_all_of_the_premise_in_any_order(by_fact):
    judge = classifier("bert", mode="windows")
    texts = passages()
    pairs = [("\n".join(texts[i] for i in order), CLAIM) for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0))]
    found = judge.probabilities([*pairs, (texts[0], CLAIM)])
    assert (found.values > 0.5).tolist() == [True, True, True, False]
    assert found.truncated.tolist() == [0] * 4
    assert max(len(row.ids) for row in by_fact) <= 512
    # Wherever the fact stands, some window has it whole.
    for place in range(0, 300, 7):
        premise = f"{'of ' * place}{FACT}{' to' * (300 - place)}"
        (value,) = Classifier(judge.model, "windows", max_length=100).probabilities([(premise, CLAIM)]).values
        assert value > 0.5


def test_F11_windows_take_the_best_of_what_each_says():
    judge = classifier(mode="windows", max_length=64)
    premise, claim = PAIRS[3][0], "the cat"
    (value,) = judge.probabilities([(premise, claim)]).values
    rows, tokens, _ = judge._rows([(premise, claim)])
    claimed = len(judge.model.tokenizer(claim, add_special_tokens=False)["input_ids"])
    assert len(rows) > 2
    assert sum(len(row.ids) - claimed - 3 for row in rows) > tokens[0] - claimed
    each = [softmax(read_rows(judge.model, [row], "classes", 1)[0])[1] for row in rows]
    assert np.isclose(value, max(each), atol=1e-5)


def test_F11_a_claim_is_never_cut(monkeypatch):
    long = " ".join(["the"] * 520)
    for mode in ("truncate", "windows"):
        judge = classifier("bert", mode=mode)
        monkeypatch.setattr("ragjax.encode.batches._read", None)
        with pytest.raises(
            ClaimTooLong, match=r"a claim leaves no room .* never cut: 'the the .*\(520 tokens\)"
        ) as error:
            judge._judge([("the", "a"), ("the", long)])
        assert error.value.hypotheses == (long,)
    for judge in (TrueT5(tiny_t5(), max_length=96), AskYesNo(tiny_model(max_positions=512))):
        with pytest.raises(ClaimTooLong, match=r"\(2079 tokens\)"):
            judge._judge([("the", "a"), ("the", long)])


@pytest.mark.parametrize("name", ["true", "asked"])
def test_F11_of_a_long_prompt_the_premise_loses_its_end(name):
    judge = {
        "true": TrueT5(small_t5(), max_length=96),
        "asked": AskYesNo(tiny_model(num_layers=1, max_positions=512), "plain"),
    }[name]
    room = len("cat ") * 5
    premise, claim = "cat " * 300, "the cat"
    found = judge.probabilities([(premise, claim), (premise[:4], claim)])
    assert found.truncated[1] == 0
    assert found.tokens.tolist() == [1207, 11]
    kept = 1200 - int(found.truncated[0])
    assert room < kept < 512
    (cut,) = judge.probabilities([(premise[:kept], claim)]).values
    assert np.isclose(found.values[0], cut, atol=1e-5)
    assert judge.probabilities([(premise[: kept + 1], claim)]).truncated.tolist() == [1]


def test_true_weighs_the_first_token_that_it_writes():
    both = source_pair(num_encoder_layers=1, num_layers=1)
    one, zero = ord("1"), ord("0")
    expected = []
    for premise, hypothesis in SHORT:
        source = [*f"premise: {premise} hypothesis: {hypothesis}".encode(), 257]
        logits = both.logits(ids_of(both.ours, source), [])[0].astype(np.float64)
        places = ids_of(both.ours, [one, zero])
        expected.append(softmax(logits[places])[0])
    found = TrueT5(both.ours, batch=2).probabilities(SHORT)
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    assert np.ptp(expected) > 0.05


def ids_of(model, symbols) -> list[int]:
    """The byte tokenizer numbers its symbols in an order of its own; 257 ends a text."""
    text = bytes(byte for byte in symbols if byte < 256).decode()
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids + [257] * (257 in symbols)


def test_true_agrees_with_what_it_writes_where_it_writes_an_answer():
    model = small_t5()
    # Only the two answers, and the end of the text, can be written.
    allowed = ids_of(model, [ord("1"), ord("0")])
    head = np.zeros(model.params.head.shape, np.float32)
    head[allowed] = 9 * np.asarray(model.params.head)[allowed]
    model = dataclasses.replace(model, params=model.params.replace(head=head))
    values = TrueT5(model).probabilities(SHORT).values
    written = generate(model, [f"premise: {p} hypothesis: {h}" for p, h in SHORT], max_new=1)
    assert [row.text == "1" for row in written if row.text in ("0", "1")] == [
        bool(value > 0.5) for value, row in zip(values, written, strict=True) if row.text in ("0", "1")
    ]
    assert sum(row.text in ("0", "1") for row in written) >= 3


def test_asked_weighs_every_way_to_begin_yes_and_no():
    both = pair(num_layers=1)
    judge = AskYesNo(both.ours, batch=2)
    expected = []
    for premise, hypothesis in SHORT:
        prompt = judge._prompt(both.ours, premise, hypothesis)
        assert f"Evidence: {premise}\n\nClaim: {hypothesis}\n\n" in prompt.text
        assert prompt.text.endswith("<|im_start|>assistant\n")
        chances = np.exp(log_softmax(both.logits(prompt.ids))[-1])
        yes, no = (chances[ids_of(both.ours, [ord(c) for c in letters])].sum() for letters in ("yY", "nN"))
        expected.append(yes / (yes + no))
    np.testing.assert_allclose(judge.probabilities(SHORT).values, expected, atol=1e-5)
    assert np.ptp(expected) > 0.05


def test_next_log_probs_are_a_distribution_in_the_order_of_the_prompts():
    both = pair(num_layers=1)
    prompts = [as_prompt(GENERATOR.integers(0, 256, size)) for size in (40, 3, 17)]
    found = next_log_probs(both.ours, prompts, range(both.ours.vocab_width))
    expected = [log_softmax(both.logits(prompt.ids))[-1] for prompt in prompts]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert next_log_probs(both.ours, [], [1, 2]).shape == (0, 2)
    with pytest.raises(ValueError, match="writes no text: it is of the kind Encoder"):
        next_log_probs(tiny_encoder(), prompts, [1])


@pytest.mark.parametrize("name", JUDGES)
def test_A14_a_result_that_is_no_number_is_an_error_and_never_a_label(name, monkeypatch):
    judge = judges()[name]
    model = judge.lm if name == "asked" else judge.model
    word = model.tokenizer("9", add_special_tokens=False)["input_ids"][-1]
    broken = model.params.replace(embedding=model.params.embedding.at[word].set(np.nan))
    changed = dataclasses.replace(model, params=broken)
    judge = dataclasses.replace(judge, **{"lm" if name == "asked" else "model": changed})
    vars(judge)["self_entailment"] = 1.0  # What it is tried on has a 9 in it too.
    with pytest.raises(NonFinite, match=r"pair 1 is not finite \(premise 'in 9', hypothesis 'the claim'\)"):
        judge.probabilities([("the", "a"), ("in 9", "the claim"), ("a", "b")])


def test_A14_half_precision_is_refused_for_a_T5():
    with pytest.raises(ValueError, match="T5 is refused in float16"):
        tiny_t5(dtype="float16")
    values = TrueT5(small_t5(dtype="bfloat16")).probabilities(SHORT).values
    np.testing.assert_allclose(values, TrueT5(small_t5()).probabilities(SHORT).values, atol=0.1)


def test_A18_an_id_outside_the_table_is_refused_before_the_model_runs(monkeypatch):
    monkeypatch.setattr("ragjax.encode.batches._read", None)
    monkeypatch.setattr("ragjax.decode.loop._prefill", None)
    with pytest.raises(ValueError, match=r"text 1: token id 1\d\d is outside tiny-bert-0's 40 embeddings"):
        Classifier(tiny_encoder("bert", "sequence", vocab_size=40))._judge([("a", "a"), ("the", "a")])
    for judge in (TrueT5(tiny_t5(vocab_size=60)), AskYesNo(tiny_model(vocab_size=60), "plain")):
        with pytest.raises(ValueError, match=r"row 0: token id \d+ is outside tiny-\S+'s 60 embeddings"):
            judge._judge([("~", "a")])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: classifier(mode="whole"), "mode is one of truncate, windows, got 'whole'"),
        (lambda: classifier(max_length=3), "max_length lies over the 3 special tokens"),
        (lambda: Classifier(tiny_encoder()), "tiny-bert-0 has no head"),
        (lambda: TrueT5(tiny_model()), "tiny-llama-0 is of the kind LanguageModel, not an encoder-decoder"),
        (lambda: AskYesNo(tiny_t5()), "needs a causal language model, and tiny-t5-0"),
        (lambda: AskYesNo(tiny_model(), "verse"), "prompt_format is one of"),
        (
            lambda: AskYesNo(dataclasses.replace(tiny_model(), tokenizer=byte_tokenizer(chat=False))),
            "has no chat template",
        ),
    ],
)
def test_a_judge_that_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("judges")
    encoder, plain, lm = tiny_encoder_config("deberta-v2", "sequence"), tiny_encoder_config(), tiny_config()
    t5 = tiny_t5()
    return {
        "encoder": write_checkpoint(
            home / "a", encoder, random_encoder_params(encoder), tiny_encoder("deberta-v2").tokenizer
        ),
        "no head": write_checkpoint(home / "b", plain, random_encoder_params(plain), tiny_encoder().tokenizer),
        "encoder-decoder": write_checkpoint(home / "c", t5.config, t5.params, t5.tokenizer),
        "causal": write_checkpoint(home / "d", lm, random_params(lm), byte_tokenizer()),
        "no chat": write_checkpoint(home / "e", lm, random_params(lm), byte_tokenizer(chat=False)),
    }


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("encoder", "encoder", {"judge": "classifier", "mode": "truncate", "label_name": "entailment"}),
        ("encoder-decoder", "encoder-decoder", {"judge": "true"}),
        ("causal", "causal", {"judge": "yes or no", "prompt_format": "chat"}),
        ("no chat", "causal", {"judge": "yes or no", "prompt_format": "plain"}),
    ],
)
def test_a_name_becomes_the_judge_of_its_kind(name, kind, told, folders, tmp_path):
    text = str(folders[name])
    assert judge_kind(text) == kind
    judge = make_judge(text, folder=tmp_path, batch=2)
    assert told.items() <= judge.describe().items()
    assert text in judge.name
    assert judge.probabilities([("a cat", "the cat")]).values.shape == (1,)
    assert make_judge(text, folder=tmp_path).probabilities([("a cat", "the cat")]).tokens.shape == (1,)


def test_the_judge_without_a_model_is_named_lexical(tmp_path):
    assert judge_kind("lexical") is None
    judge = make_judge("lexical", folder=tmp_path / "none")
    assert judge.name == "lexical overlap (no entailment model)"
    assert judge.probabilities([("a cat sat", "a cat")]).values.tolist() == [1]
    assert not (tmp_path / "none").exists()


def test_F13_a_judge_that_does_not_fit_is_told_before_its_weights_are_read(folders, monkeypatch):
    need = weight_bytes(tiny_t5().config, np.dtype("float32"))
    monkeypatch.setattr(room, "free_memory", lambda: (need - 1, "here"))
    monkeypatch.setattr("ragjax.cite.judges.load", None)
    with pytest.raises(OutOfMemoryError, match="choose smaller"):
        make_judge(str(folders["encoder-decoder"]))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("no head", {}, "has no head"),
        ("causal", {"mode": "windows"}, "has no mode"),
        ("encoder-decoder", {"label": 0}, "has no label"),
        ("encoder", {"label": 7}, "from 0, got 7"),
    ],
)
def test_a_name_that_is_no_judge_is_refused(name, settings, words, folders):
    with pytest.raises(ValueError, match=words):
        make_judge(str(folders[name]), **settings)
    with pytest.raises(FileNotFoundError):
        make_judge("./nothing/here")
    with pytest.raises(ValueError, match="the judge 'lexical' has no mode"):
        make_judge("lexical", mode="windows")


def test_an_answer_that_is_one_token_is_not_looked_for_in_the_beginning_of_another(smollm2):
    judge = AskYesNo(dataclasses.replace(tiny_model(), tokenizer=load_vocabulary(smollm2).tokenizer))
    yes, no = (judge.lm.tokenizer.batch_decode([[i] for i in ids]) for ids in judge._answers)
    assert sorted(yes) == [" Yes", " yes", "Yes", "yes"]  # "YES" is "Y" and "ES".
    assert sorted(no) == [" NO", " No", " no", "NO", "No", "no"]


@pytest.mark.shared
def test_true_begins_its_answers_as_the_real_vocabulary_does(shared):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(shared / "models" / "t5-small-tokenizer.json"))
    judge = TrueT5(dataclasses.replace(tiny_t5(), tokenizer=tokenizer))
    # "0" is written as a space and a zero.
    assert [tokenizer.convert_ids_to_tokens(ids) for ids in judge._answers] == [["\u25811"], ["\u2581"]]
