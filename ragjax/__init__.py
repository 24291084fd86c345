"""ragjax: compress retrieved evidence before a reader answers, and measure what that costs.

The public names, each loaded when it is first used:

    load                 a model name, folder, .gguf file or converted checkpoint -> LanguageModel, Encoder,
                         EncoderDecoder
    make_mesh            several devices, for `load` to spread a model over
    generate             texts or chats in, texts out
    perplexity           how surprising texts are to a model
    sps, sps_subspace    how far summaries lie outside a reader's principal subspace
    compressors          every compressor by name: `ragjax.compressors.Extract(...)`
    cite                 citations parsed, scored against what was shown and against the source, verified
    FaviComp             the compressor of two models decoding one text
    CompAct              the compressor that reads a few documents at a time, until it has enough
    XCompress            several summaries, the reader's geometry chooses
    Reader               questions and contexts in, answers out
    Budget, Compressed   how long evidence may be, and what a compressor returns
    Document, Example    the records everything works on
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "Budget": "ragjax.compress.base",
        "CompAct": "ragjax.compress.compact",
        "Compressed": "ragjax.compress.base",
        "Document": "ragjax.data.records",
        "Encoder": "ragjax.hub",
        "EncoderDecoder": "ragjax.hub",
        "Example": "ragjax.data.records",
        "FaviComp": "ragjax.compress.favicomp",
        "LanguageModel": "ragjax.hub",
        "Reader": "ragjax.evals.reader",
        "XCompress": "ragjax.compress.xcompress",
        "cite": "ragjax.cite",
        "compressors": "ragjax.compressors",
        "calibrate_filter": "ragjax.compress.filters",
        "generate": "ragjax.decode.text",
        "load": "ragjax.hub",
        "make_mesh": "ragjax.sharding",
        "perplexity": "ragjax.decode.text",
        "sps": "ragjax.compress.geometry",
        "sps_subspace": "ragjax.compress.geometry",
    },
)
