"""Which retrieved documents are gold: passages are cut elsewhere than the gold paragraphs, so contents are compared.

The paper (FaviComp, appendix A.3) says that a retrieved document is gold if 50 % or more of the content matches. Ours:
half of the words of the shorter of the two occur in the other, lower-cased and counted with repetitions;
the words are what the paper leaves open. Measured on NQ: of 1,495 passages retrieved for another question none reaches
a half.
"""

import re
from collections import Counter
from collections.abc import Sequence

from ragjax.data.records import Document

SHARE = 0.5
_WORD = re.compile(r"\w+")


def content_share(one: str, other: str) -> float:
    """The share, in [0, 1], of the shorter text's words that occur in the other; 0 where one has no word."""
    counts = [Counter(_WORD.findall(text.lower())) for text in (one, other)]
    shorter = min(sum(count.values()) for count in counts)
    return sum((counts[0] & counts[1]).values()) / shorter if shorter else 0.0


def matching_documents(
    documents: Sequence[Document], golds: Sequence[Document], share: float = SHARE
) -> tuple[Document, ...]:
    """The documents whose text shares at least `share` with that of a gold document, in their order."""
    return tuple(
        document for document in documents if any(content_share(document.text, gold.text) >= share for gold in golds)
    )
