"""Citations: whether what an answer cites supports it, seen as its generator saw it and in the source behind that.

`parse` reads an answer's claims and markers; `score` gives precision and recall, `verify` checks claim by claim, and
`reattribute` finds sources for evidence that declares none. All ask a judge of entailment: `LexicalOverlap`,
`Classifier`, `TrueT5`, `AskYesNo`, `Remembered` around any of them, and `make_judge`, which makes one from a name.
Each name is loaded when it is first used.
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "Answer": "ragjax.cite.records",
        "AskYesNo": "ragjax.cite.judges",
        "Averages": "ragjax.cite.averages",
        "Cited": "ragjax.cite.records",
        "ClaimTooLong": "ragjax.cite.entailment",
        "Classifier": "ragjax.cite.judges",
        "Judge": "ragjax.cite.entailment",
        "Judged": "ragjax.cite.entailment",
        "LexicalOverlap": "ragjax.cite.overlap",
        "PrecisionRecall": "ragjax.cite.records",
        "Remembered": "ragjax.cite.entailment",
        "Scored": "ragjax.cite.records",
        "Statement": "ragjax.cite.records",
        "StatementScore": "ragjax.cite.records",
        "Tally": "ragjax.cite.records",
        "TrueT5": "ragjax.cite.judges",
        "Verified": "ragjax.cite.records",
        "View": "ragjax.cite.records",
        "average": "ragjax.cite.averages",
        "laundering_gaps": "ragjax.cite.averages",
        "make_judge": "ragjax.cite.judges",
        "parse": "ragjax.cite.parsing",
        "reattribute": "ragjax.cite.resolving",
        "reattribution_shares": "ragjax.cite.averages",
        "score": "ragjax.cite.scoring",
        "verify": "ragjax.cite.verifying",
    },
)
