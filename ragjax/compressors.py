"""Every compressor, and what scores for them, by name. Each is loaded when it is first used.

    Identity, Gold, NoContext            the documents as they are, the gold ones, or nothing
    Prefix, RandomSentences              floors: what any method should beat
    Rerank, Extract, ECR                 whole passages, sentences, clusters of like sentences, best first by a scorer
    recomp_extractive                    sentences by a bi-encoder's dot product, one or two of them
    RecompAbstractive                    a T5 that writes a summary, or nothing where the documents are no help
    zero_shot_summary, FaviComp          a summary by one model, or by two that decode one text
    CompAct, XCompress                   a few documents at a time; several summaries, of which one is chosen
    LLMLingua2, LongLLMLingua            words left out, by a token classifier or by a causal model's surprise
    BM25, BiEncoder, CrossEncoder        the scorers

All are called alike: `compressor(question, documents, budget=0.25)`, lists of both as one batch.
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "BM25": "ragjax.retrieve.scorers",
        "BiEncoder": "ragjax.retrieve.scorers",
        "CompAct": "ragjax.compress.compact",
        "CrossEncoder": "ragjax.retrieve.scorers",
        "ECR": "ragjax.compress.ecr",
        "Extract": "ragjax.compress.extract",
        "FaviComp": "ragjax.compress.favicomp",
        "Gold": "ragjax.compress.plain",
        "Identity": "ragjax.compress.plain",
        "LLMLingua2": "ragjax.compress.lingua2",
        "LongLLMLingua": "ragjax.compress.longlingua",
        "NoContext": "ragjax.compress.plain",
        "Prefix": "ragjax.compress.plain",
        "RandomSentences": "ragjax.compress.plain",
        "RecompAbstractive": "ragjax.compress.recomp",
        "Rerank": "ragjax.compress.rerank",
        "XCompress": "ragjax.compress.xcompress",
        "recomp_extractive": "ragjax.compress.extract",
        "as_document": "ragjax.compress.base",
        "zero_shot_summary": "ragjax.compress.favicomp",
    },
)
