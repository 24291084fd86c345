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
        "Candidates": "ragjax.compress.select",
        "Coarse": "ragjax.compress.longlingua",
        "Choice": "ragjax.compress.base",
        "Filter": "ragjax.compress.filters",
        "OnlinePool": "ragjax.compress.filters",
        "LLMLingua2": "ragjax.compress.lingua2",
        "LongLLMLingua": "ragjax.compress.longlingua",
        "Selector": "ragjax.compress.select",
        "XCompress": "ragjax.compress.xcompress",
        "PromptSet": "ragjax.compress.prompts",
        "Subspace": "ragjax.compress.subspace",
        "Trace": "ragjax.compress.base",
        "Unit": "ragjax.compress.base",
        "pool": "ragjax.decode.states",
        "pooled_states": "ragjax.decode.states",
        "principal_subspace": "ragjax.compress.subspace",
        "projection_residual": "ragjax.compress.subspace",
        "read_prompts": "ragjax.compress.prompts",
        "sps": "ragjax.compress.geometry",
        "sps_subspace": "ragjax.compress.geometry",
    },
)
