"""What is retrieved, in finer pieces and in a better order. Each name is loaded when it is first used."""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "BM25": "ragjax.retrieve.scorers",
        "BiEncoder": "ragjax.retrieve.scorers",
        "CrossEncoder": "ragjax.retrieve.scorers",
        "Scorer": "ragjax.retrieve.scorers",
        "Scores": "ragjax.retrieve.scorers",
        "Sentence": "ragjax.retrieve.sentences",
        "lexical_similarities": "ragjax.retrieve.lexical",
        "split_sentences": "ragjax.retrieve.sentences",
        "terms": "ragjax.retrieve.lexical",
    },
)
