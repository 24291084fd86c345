"""Encoding: texts in batches to vectors, to classes, to the labels of their tokens. Each name is loaded when used.

On the host: `embed`, `classify`, `token_probabilities`. A model is a `ragjax.Encoder`.
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "Classes": "ragjax.encode.texts",
        "Embeddings": "ragjax.encode.texts",
        "NonFinite": "ragjax.encode.batches",
        "TokenLabels": "ragjax.encode.labels",
        "classify": "ragjax.encode.texts",
        "embed": "ragjax.encode.texts",
        "token_probabilities": "ragjax.encode.labels",
    },
)
