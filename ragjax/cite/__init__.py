"""Citations that can be checked: against what a generator saw, and against the source behind it.

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
        "Classifier": "ragjax.cite.judges",
        "Judge": "ragjax.cite.entailment",
        "Judged": "ragjax.cite.entailment",
        "LexicalOverlap": "ragjax.cite.judges",
        "PrecisionRecall": "ragjax.cite.records",
        "Remembered": "ragjax.cite.entailment",
        "Scored": "ragjax.cite.records",
        "Statement": "ragjax.cite.records",
        "StatementScore": "ragjax.cite.records",
        "TrueT5": "ragjax.cite.judges",
        "Verified": "ragjax.cite.records",
        "View": "ragjax.cite.records",
        "average": "ragjax.cite.averages",
        "laundering_gaps": "ragjax.cite.averages",
        "parse": "ragjax.cite.parsing",
        "reattribute": "ragjax.cite.resolving",
        "reattribution_shares": "ragjax.cite.averages",
        "score": "ragjax.cite.scoring",
        "verify": "ragjax.cite.verifying",
    },
)
