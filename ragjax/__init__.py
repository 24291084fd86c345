"""ragjax: compress retrieved evidence before a reader answers, and measure what that costs.

The public names, each loaded when it is first used:

    load            a model name, folder, .gguf file or converted checkpoint -> LanguageModel
    generate        texts or chats in, texts out
    perplexity      how surprising texts are to a model
    FaviComp        the compressor of two models decoding one text
    Reader          questions and contexts in, answers out
    Budget          how long compressed evidence may be
    Document, Example    the records everything works on
"""

import importlib
from typing import Any

_HOMES = {
    "Budget": "ragjax.compress.base",
    "Compressed": "ragjax.compress.base",
    "Document": "ragjax.data.records",
    "Example": "ragjax.data.records",
    "FaviComp": "ragjax.compress.favicomp",
    "LanguageModel": "ragjax.hub",
    "Reader": "ragjax.evals.reader",
    "generate": "ragjax.decode.text",
    "load": "ragjax.hub",
    "perplexity": "ragjax.decode.text",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragjax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
