"""Scorers over real encoders of random weights: one batch or many, and what does not fit is counted."""

import numpy as np
import pytest

from ragjax.compress.extract import Extract
from ragjax.retrieve.scorers import BiEncoder, CrossEncoder
from ragjax.testing import byte_tokenizer
from ragjax.testing_encoders import tiny_encoder

QUESTIONS = ["who sat", "what ran"]
TEXTS = [["the cat sat", "a dog ran", "the cat sat"], ["birds fly", "the cat sat"]]


def scorers() -> dict:
    ranker = tiny_encoder(head="sequence", labels=("score",))
    return {
        "cosine": BiEncoder(model=tiny_encoder(), batch=2),
        "dot": BiEncoder(model=tiny_encoder(), similarity="dot", batch=2),
        "pairs": CrossEncoder(model=ranker, batch=2),
    }


@pytest.mark.parametrize("name", ["cosine", "dot", "pairs"])
def test_scores_do_not_depend_on_the_other_questions(name):
    scorer = scorers()[name]
    together = scorer.score(QUESTIONS, TEXTS)
    for question, texts, found in zip(QUESTIONS, TEXTS, together, strict=True):
        (alone,) = scorer.score([question], [texts])
        assert np.allclose(found.values, alone.values, atol=1e-5)
    assert together[0].values[0] == together[0].values[2] != together[0].values[1]
    assert [found.truncated for found in together] == [0, 0]


def test_what_does_not_fit_the_model_is_told():
    model = tiny_encoder()
    long = "cat " * 2 * model.config.max_positions
    found = Extract(tokenizer=byte_tokenizer(), scorer=BiEncoder(model=model))("who", [long])
    (note,) = found.notes
    assert int(note.split()[0]) >= model.config.max_positions


def test_similarities_are_cosines():
    (found,) = BiEncoder(model=tiny_encoder(), similarity="dot").similarities([TEXTS[0]])
    assert np.allclose(np.diag(found), 1, atol=1e-5)
    assert np.allclose(found, found.T, atol=1e-6)
    assert np.isclose(found[0, 2], 1, atol=1e-5)
