"""Decoding: prompts, the one loop, ensembles, scores. Each name is loaded when it is first used.

Pure functions on arrays: `prefill`, `start`, `decode_chunk`, `choose`, `span_nll`, `mix_log_probs`, `penalize`,
`restrict`, `sample`. On the host: `build_prompt`, `decode_prompts`, `decode_beams`, `next_log_probs`, `score_prompts`,
`share_vocabulary`, `summarize`.
"""

from ragjax.lazy import name_table

__getattr__, __dir__, __all__ = name_table(
    __name__,
    {
        "Decoded": "ragjax.decode.state",
        "DecodeFailed": "ragjax.decode.text",
        "Execution": "ragjax.decode.engine",
        "Prompt": "ragjax.decode.prompt",
        "PromptError": "ragjax.decode.prompt",
        "Sampling": "ragjax.decode.engine",
        "Score": "ragjax.decode.likelihood",
        "VocabularyMismatch": "ragjax.decode.ensemble",
        "Voice": "ragjax.decode.engine",
        "build_chat": "ragjax.decode.prompt",
        "build_prompt": "ragjax.decode.prompt",
        "choose": "ragjax.decode.loop",
        "decode_beams": "ragjax.decode.beams",
        "decode_chunk": "ragjax.decode.loop",
        "decode_prompts": "ragjax.decode.engine",
        "mix_log_probs": "ragjax.decode.ensemble",
        "next_log_probs": "ragjax.decode.engine",
        "penalize": "ragjax.decode.sampling",
        "prefill": "ragjax.decode.loop",
        "restrict": "ragjax.decode.sampling",
        "sample": "ragjax.decode.sampling",
        "score_prompts": "ragjax.decode.engine",
        "share_vocabulary": "ragjax.decode.ensemble",
        "span_nll": "ragjax.decode.loop",
        "start": "ragjax.decode.loop",
        "summarize": "ragjax.decode.likelihood",
    },
)
