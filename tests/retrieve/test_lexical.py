"""Words of every script, and how alike texts are by them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragjax.retrieve.lexical import lexical_similarities, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 3.14, U.S.-made!", "it s 3 14 u s made"),
        ("CAFÉ cafe\u0301 ﬁn", "café café fin"),
        ("今天天气", "今 天 天 气"),
        ("JAXは速い", "jax は 速 い"),
        ("كَيفَ حالك؟", "كَيفَ حالك"),
        ("हिन्दी है।", "हिन्दी है"),
        ("👍🏽 …", ""),
    ],
)
def test_terms_of_scripts(text, expected):
    assert terms(text) == expected.split()


def test_similarities_are_cosines_of_counts():
    found = lexical_similarities(["a b", "A, b!", "a a b", "c", "🏔", "🏔", "!"])
    assert np.allclose(found[0, :5], [1, 1, 3 / np.sqrt(10), 0, 0])
    assert np.allclose(found[4], [0, 0, 0, 0, 1, 1, 0])
    assert lexical_similarities([]).shape == (0, 0)


@given(st.lists(st.text("ab 今.🏔", max_size=8), min_size=1, max_size=6))
def test_similarities_are_symmetric_and_one_with_oneself(texts):
    found = lexical_similarities(texts)
    assert np.allclose(np.diag(found), 1, atol=1e-6)
    assert np.allclose(found, found.T)
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6
