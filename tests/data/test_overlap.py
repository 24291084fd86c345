"""Which retrieved documents count as gold: contents are compared, titles are not."""

import pytest

from ragjax.data.overlap import content_share, matching_documents
from ragjax.data.records import Document


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("a b c d", "a b x y", 0.5),
        ("A, b!", "a b c d e f", 1.0),
        ("a a a b", "a c d e", 0.25),
        ("", "a", 0.0),
        ("x y", "a b", 0.0),
    ],
)
def test_the_share_is_of_the_shorter_text(one, other, share):
    assert content_share(one, other) == content_share(other, one) == share


def test_half_of_the_content_is_enough_and_the_order_stays():
    gold = Document("the gate of lyme opened in 1900", "Gate")
    documents = [
        Document("nothing in common here at all", "Gate"),
        Document("opened in 1900 was another thing"),
        Document("it is known that the gate of lyme opened in 1900 and stood for long"),
    ]
    assert matching_documents(documents, [gold]) == tuple(documents[1:])
    assert matching_documents(documents, []) == ()
