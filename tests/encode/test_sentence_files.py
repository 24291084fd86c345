"""A folder of sentence-transformers against its modules done by hand over transformers: each setting counts."""

import dataclasses
import json
import logging
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from ragjax import hub
from ragjax.compress.base import describe
from ragjax.compress.extract import Extract
from ragjax.encode import embed
from ragjax.models.embedding_config import EmbeddingConfig
from ragjax.retrieve.scorers import BiEncoder
from ragjax.testing import encoder_tokenizer, random_encoder_params, tiny_encoder_config, write_checkpoint
from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model
from tests.oracle import auto_class
from tests.weights.test_checkpoint import same

TEXTS = ["the cat was in the house", "is it", "of the " * 30, "Seen AND heard, to the end"]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
PLAIN = {
    "modules.json": MODULES[:2],
    "1_Pooling/config.json": {"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": None},
}
CLS = {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}
PROMPTS = {"query": "find: ", "document": "text: "}
CHANGES = {
    "plain": {},
    "cls": CLS,
    "max": {"1_Pooling/config.json": {"pooling_mode": "max"}},
    "short": {"sentence_bert_config.json": {"max_seq_length": 9}},
    "unit": {"modules.json": MODULES},
    "prompted": {"config_sentence_transformers.json": {"prompts": PROMPTS, "default_prompt_name": "query"}},
}
DENSE = {"modules.json": [*MODULES[:2], {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]}


def published(folder, changes=None, head=None):
    """A folder of a tiny BERT, with the settings of sentence-transformers, or with none of them."""
    cfg = tiny_encoder_config("bert", head, num_layers=1)
    write_checkpoint(folder, cfg, random_encoder_params(cfg), encoder_tokenizer("bert"))
    for name, value in ({} if changes is None else PLAIN | changes).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("published")
    return {name: published(home / name, changes) for name, changes in CHANGES.items()}


@cache
def their_model(folder):
    return auto_class(None).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def by_hand(folder, texts, prompt_name=None):
    """The modules in their order: prompt, cut, transformer, pooling, normalisation, as sentence-transformers does."""
    files = {name: json.loads((folder / name).read_text()) for name in PLAIN}
    search, pooling = files["config_sentence_transformers.json"], files["1_Pooling/config.json"]
    prompt = search["prompts"].get(prompt_name or search["default_prompt_name"], "")
    inputs = hub.load(folder).tokenizer(
        [(prompt + text).strip() for text in texts],
        padding=True,
        truncation="longest_first",
        max_length=files["sentence_bert_config.json"]["max_seq_length"],
        return_tensors="pt",
    )
    model = their_model(folder)
    with torch.no_grad():
        states = model(**inputs).last_hidden_state.numpy()
    mask = inputs["attention_mask"].numpy()[..., None]
    if pooling.get("pooling_mode_cls_token"):
        vectors = states[:, 0]
    elif pooling.get("pooling_mode") == "max":
        vectors = np.where(mask, states, -1e9).max(1)
    else:
        vectors = (states * mask).sum(1) / mask.sum(1)
    unit = len(files["modules.json"]) == 3
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if unit else vectors


@pytest.mark.parametrize("name", CHANGES)
def test_vectors_are_those_of_the_modules_in_order(folders, name):
    expected = by_hand(folders[name], TEXTS)
    np.testing.assert_allclose(embed(hub.load(folders[name]), TEXTS).vectors, expected, atol=1e-4)
    if name != "plain":
        assert np.abs(expected - by_hand(folders["plain"], TEXTS)).max() > 0.1


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_keeps_what_its_source_states(folders, name, tmp_path):
    converted, _ = convert_model(str(folders[name]), str(tmp_path / name))
    one, two = hub.load(folders[name]), hub.load(converted)
    assert one.embedding == two.embedding
    np.testing.assert_array_equal(embed(one, TEXTS).vectors, embed(two, TEXTS).vectors)


def test_what_an_argument_says_wins(folders):
    every = hub.load(folders["plain"])
    raw = {"pooling": "mean", "max_length": 64, "normalize": False, "prompt": ""}
    expected = embed(every, TEXTS).vectors
    for name in CHANGES:
        found = embed(hub.load(folders[name]), TEXTS, **raw)
        np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
        assert found.truncated.tolist() == [0] * 4
    assert embed(hub.load(folders["short"]), TEXTS).truncated[2] == 60 - 7


def test_other_settings_are_another_model_to_whoever_asks_which_made_a_result(folders):
    models = [hub.load(folder) for folder in folders.values()]
    assert same(models[0].params, models[1].params)
    assert len({model.fingerprint for model in models}) == len(models)
    told = [describe(Extract(tokenizer=None, scorer=BiEncoder(model=model))) for model in models]
    assert all(one not in told[:place] for place, one in enumerate(told))


def test_a_model_that_states_nothing_is_pooled_by_the_mean(folders, tmp_path):
    model = hub.load(published(tmp_path / "bare"))
    assert model.embedding == EmbeddingConfig()
    expected = by_hand(folders["plain"], TEXTS)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embed(model, TEXTS).vectors, unit, atol=1e-5)
    np.testing.assert_allclose(embed(model, TEXTS, normalize=False).vectors, expected, atol=1e-4)
    model.tokenizer.model_max_length = 9
    assert embed(model, TEXTS).truncated[2] == 60 - 7


def test_a_limit_beyond_the_positions_is_none(tmp_path):
    model = hub.load(published(tmp_path / "long", {"sentence_bert_config.json": {"max_seq_length": 514}}))
    assert embed(model, ["the " * 600]).truncated.tolist() == [600 - 510]


def test_a_model_that_cannot_embed_as_stated_does_everything_else(tmp_path):
    model = hub.load(published(tmp_path / "dense", DENSE, head="sequence"))
    told = "cannot embed texts as its files say: modules.json: 2_Dense is a sentence_transformers.models.Dense"
    for ask in (lambda: embed(model, TEXTS, pooling="mean"), lambda: BiEncoder(model=model)):
        with pytest.raises(ValueError, match=told):
            ask()
    assert embed(dataclasses.replace(model, embedding=EmbeddingConfig()), TEXTS).vectors.shape == (4, 48)


def test_a_pooling_that_is_given_takes_the_place_of_one_that_cannot_be(tmp_path):
    folder = published(tmp_path / "last", {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}})
    model = hub.load(folder)
    for ask in (lambda: embed(model, TEXTS), lambda: BiEncoder(model=model)):
        with pytest.raises(ValueError, match=r"1_Pooling/config\.json: pooling_mode is lasttoken"):
            ask()
    assert len(BiEncoder(model=model, pooling="mean").score(["the"], [TEXTS])[0].values) == 4
    assert np.isfinite(embed(model, TEXTS, pooling="cls").vectors).all()


@pytest.mark.parametrize(
    ("modules", "told"),
    [("{", "modules.json: not JSON"), ("{}", None), ('["a"]', "modules.json: not a list of modules")],
)
def test_a_broken_list_of_modules_is_named(modules, told, tmp_path):
    folder = published(tmp_path / "broken", {})
    (folder / "modules.json").write_text(modules)
    if told is None:
        assert hub.load(folder).embedding.problems
        return
    with pytest.raises(ValueError, match=told):
        hub.load(folder)


@pytest.mark.parametrize("similarity", [None, "cosine", "dot"])
def test_a_search_puts_each_prompt_before_its_own_texts(similarity, tmp_path):
    stated = {"prompts": PROMPTS, "default_prompt_name": None, "similarity_fn_name": "dot"}
    folder = published(tmp_path / "search", CLS | {"config_sentence_transformers.json": stated})
    asked, texts = by_hand(folder, ["the cat"], "query"), by_hand(folder, TEXTS, "document")
    scorer = BiEncoder(model=hub.load(folder), similarity=similarity)
    (found,) = scorer.score(["the cat"], [TEXTS])
    products = (asked * texts).sum(1)
    cosines = products / np.linalg.norm(asked) / np.linalg.norm(texts, axis=1)
    np.testing.assert_allclose(found.values, cosines if similarity == "cosine" else products, rtol=1e-4, atol=1e-4)
    units = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    np.testing.assert_allclose(scorer.similarities([TEXTS])[0], units @ units.T, atol=1e-4)


def test_the_dot_product_of_a_model_that_normalises_is_the_cosine(folders):
    (dot,), (cosine,) = (
        BiEncoder(model=hub.load(folders["unit"]), similarity=kind).score(["the cat"], [TEXTS])
        for kind in ("dot", "cosine")
    )
    np.testing.assert_allclose(dot.values, cosine.values, atol=1e-5)


def test_a_checkpoint_that_kept_nothing_says_so(folders, tmp_path, caplog):
    converted, _ = convert_model(str(folders["cls"]), str(tmp_path / "old"))
    manifest = json.loads((converted / "ragjax.json").read_text())
    del manifest[checkpoint.SENTENCE_FILES]
    (converted / "ragjax.json").write_text(json.dumps(manifest))
    with caplog.at_level(logging.WARNING, "ragjax"):
        assert hub.load(converted).embedding == EmbeddingConfig()
    assert "was converted without what sentence-transformers keeps beside a model" in caplog.text
