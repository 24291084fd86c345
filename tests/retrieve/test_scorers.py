"""Scorers: against the formula, batched over questions, blind to order; encoders as tables."""

import math
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.models.embedding_config import EmbeddingConfig
from ragjax.retrieve.lexical import terms
from ragjax.retrieve.scorers import BM25, BiEncoder, CrossEncoder

TEXTS = ["The cat sat.", "A dog and a cat and a cat.", "Birds fly.", "The cat sat."]


def okapi(question: str, texts: list[str], k1: float, b: float) -> list[float]:
    """The formula as written in Lucene, (k1 + 1) left out as there."""
    corpus = [terms(text) for text in texts]
    mean = sum(map(len, corpus)) / len(corpus)
    scores = []
    for words in corpus:
        total = 0.0
        for word in terms(question):
            having = sum(word in other for other in corpus)
            idf = math.log(1 + (len(corpus) - having + 0.5) / (having + 0.5))
            count = words.count(word)
            total += idf * count / (count + k1 * (1 - b + b * len(words) / mean)) if count else 0.0
        scores.append(total)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (0.0, 0.0)])
def test_bm25_is_the_formula(k1, b):
    for question in ("cat", "the cat's dog", "cat cat", "zebra", ""):
        (found,) = BM25(k1=k1, b=b).score([question], [TEXTS])
        assert np.allclose(found.values, okapi(question, TEXTS, k1, b), atol=1e-5)
        assert found.values[0] == found.values[3]
        assert found.truncated == 0


def test_bm25_says_nothing(caplog, capfd):
    with caplog.at_level("DEBUG"):
        BM25().score(["cat"], [TEXTS])
    assert not [record for record in caplog.records if record.name == "bm25s"]
    assert not "".join(capfd.readouterr())


def test_bm25_reads_other_scripts():
    texts = ["今天天气很好。", "他去上班。", "مرحبا بك.", "كيف حالك؟", "🏔"]
    chinese, arabic, emoji = BM25().score(["天气", "حالك", "🏔"], [texts] * 3)
    assert int(np.argmax(chinese.values)) == 0
    assert int(np.argmax(arabic.values)) == 3
    assert not emoji.values.any()


@given(st.lists(st.lists(st.text("ab 今.", max_size=9), max_size=5), max_size=4))
def test_bm25_of_a_question_depends_on_its_own_texts(lists):
    together = BM25().score(["a b"] * len(lists), lists)
    alone = [BM25().score(["a b"], [own])[0] for own in lists]
    assert [found.values.tolist() for found in together] == [found.values.tolist() for found in alone]
    assert [len(found.values) for found in together] == [len(own) for own in lists]


@pytest.mark.parametrize("bad", [{"k1": -1}, {"b": 2}])
def test_bm25_refuses_impossible_settings(bad):
    with pytest.raises(ValueError, match="BM25 takes"):
        BM25(**bad)


@dataclass
class Calls:
    """What reached the encoders."""

    texts: list[list] = field(default_factory=list)
    settings: list[dict] = field(default_factory=list)


@pytest.fixture
def encoders(monkeypatch) -> Calls:
    """`ragjax.encode` by table: a text's vector counts its letters a, b and c; a pair's logit its common letters."""
    calls = Calls()

    def embed(model, texts, **settings):
        calls.texts.append(list(texts))
        calls.settings.append(settings)
        vectors = np.array([[t.count(c) for c in "abc"] for t in texts], np.float32).reshape(-1, 3)
        if settings["normalize"]:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return SimpleNamespace(vectors=vectors, truncated=np.array([max(len(t) - 5, 0) for t in texts], np.int32))

    def classify(model, firsts, seconds, **settings):
        calls.texts.append(list(zip(firsts, seconds, strict=True)))
        calls.settings.append(settings)
        yes = np.array([len(set(q) & set(t)) for q, t in calls.texts[-1]], np.float32).reshape(-1, 1)
        logits = yes if len(model.config.labels) == 1 else np.concatenate([-yes, yes], axis=1)
        return SimpleNamespace(logits=logits, truncated=np.array([max(len(t) - 5, 0) for t in seconds], np.int32))

    fake = ModuleType("ragjax.encode")
    fake.embed, fake.classify = embed, classify
    monkeypatch.setitem(sys.modules, "ragjax.encode", fake)
    return calls


PLAIN = SimpleNamespace(name="tiny", embedding=EmbeddingConfig())


def classifier(*labels: str) -> SimpleNamespace:
    return SimpleNamespace(name="tiny", config=SimpleNamespace(labels=labels))


def test_bi_encoder_embeds_distinct_texts_once(encoders):
    scorer = BiEncoder(model=PLAIN, batch=7)
    first, second = scorer.score(["a", "aab"], [["ab", "aab", "ab"], ["aabbbb"]])
    assert encoders.texts == [["a", "aab", "ab", "aabbbb"]]
    assert encoders.settings == [{"pooling": None, "normalize": True, "prompt": "", "batch": 7}]
    assert np.allclose(first.values, [2**-0.5, 2 / 5**0.5, 2**-0.5])
    assert first.values[0] == first.values[2]
    assert np.allclose(second.values, [8 / (5 * 20) ** 0.5])
    assert (first.truncated, second.truncated) == (0, 1)


def test_bi_encoder_of_contriever_takes_the_dot_product(encoders):
    (found,) = BiEncoder(model=PLAIN, similarity="dot").score(["ab"], [["aaab", "", "c"]])
    assert found.values.tolist() == [4, 0, 0]
    assert not encoders.settings[0]["normalize"]
    with pytest.raises(ValueError, match="similarity is one of"):
        BiEncoder(model=PLAIN, similarity="euclid")


def test_bi_encoder_compares_texts_by_cosine(encoders):
    one, none = BiEncoder(model=PLAIN, similarity="dot").similarities([["aa", "b", "ab"], []])
    assert np.allclose(one, [[1, 0, 0.5**0.5], [0, 1, 0.5**0.5], [0.5**0.5, 0.5**0.5, 1]])
    assert none.shape == (0, 0)


@pytest.mark.parametrize("labels", [("score",), ("no", "yes")])
def test_cross_encoder_reads_distinct_pairs_once(encoders, labels):
    scorer = CrossEncoder(model=classifier(*labels), batch=3)
    first, second = scorer.score(["ab", "c"], [["abc", "aaaaaaa", "abc"], []])
    assert encoders.texts == [[("ab", "abc"), ("ab", "aaaaaaa")]]
    assert first.values.tolist() == [2, 1, 2]
    assert (first.truncated, second.truncated, second.values.tolist()) == (2, 0, [])


def test_a_classifier_of_other_labels_is_no_cross_encoder():
    with pytest.raises(ValueError, match="one label or two, tiny has"):
        CrossEncoder(model=classifier("entailment", "neutral", "contradiction"))
