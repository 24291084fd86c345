"""Compressors behind one contract. Each name is loaded when it is first used."""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "Budget": "ragjax.compress.base",
        "CompAct": "ragjax.compress.compact",
        "Compressed": "ragjax.compress.base",
        "Compressor": "ragjax.compress.base",
        "FaviComp": "ragjax.compress.favicomp",
        "PromptSet": "ragjax.compress.prompts",
        "Trace": "ragjax.compress.base",
        "Unit": "ragjax.compress.base",
        "read_prompts": "ragjax.compress.prompts",
    },
)
