"""Citations: whether what an answer cites supports it. Each name is loaded when it is first used.

Judges of entailment: `LexicalOverlap`, `Classifier`, `TrueT5`, `AskYesNo`, `Remembered` around any of them, and
`make_judge`, which makes one from a name.
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "AskYesNo": "ragjax.cite.judges",
        "ClaimTooLong": "ragjax.cite.entailment",
        "Classifier": "ragjax.cite.judges",
        "Judge": "ragjax.cite.entailment",
        "Judged": "ragjax.cite.entailment",
        "LexicalOverlap": "ragjax.cite.overlap",
        "Remembered": "ragjax.cite.entailment",
        "TrueT5": "ragjax.cite.judges",
        "make_judge": "ragjax.cite.judges",
    },
)
