"""What the tests of the pruning families compare with: word by word, and counting every text."""

from collections.abc import Sequence

import numpy as np

from ragjax.compress.base import Compressed
from ragjax.compress.pruning import Source
from ragjax.data.records import Example
from ragjax.decode.prompt import count_tokens


def pruned_text(source: Source, order: Sequence[int], arrangement: Sequence[int]) -> str:
    """The words of `order` put back in place, by one slice after another."""
    lines = []
    for d in arrangement:
        words, base = source.words[d], int(source.bounds[d])
        kept = sorted(i - base for i in order if base <= i < base + len(words))
        line = ""
        for before, i in zip([None, *kept], kept, strict=False):
            if before is not None:
                between = words.text[words.ends[before] : words.starts[i]]
                dropped = [words.text[words.ends[n] : words.starts[n + 1]] for n in range(before, i)]
                beside = words.blank[before] or words.blank[i]
                line += between if i == before + 1 else "" if beside else "".join(dropped)[:1]
            line += words[i]
        lines += [line] if kept else []
    return "\n".join(lines)


def check_units(example: Example, found: Compressed) -> None:
    """Each unit is joined from slices of one document, in order; its text is a subsequence of the document's."""
    for unit in found.units:
        (document,) = {d for d, _, _ in unit.spans}
        text = example.documents[document].text
        assert "".join(text[a:b] for _, a, b in unit.spans) == unit.text
        places = np.array([place for _, *place in unit.spans])
        assert (places[:, 0] < places[:, 1]).all()
        assert (places[1:, 0] > places[:-1, 1]).all()


def check_budget(tokenizer: object, found: Compressed) -> None:
    """The counts of a result are those of its text."""
    assert found.achieved == count_tokens(tokenizer, found.text)
    assert found.requested is None or found.achieved <= found.requested or found.status == "short_input"
