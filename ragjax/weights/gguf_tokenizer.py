"""The tokenizer inside a GGUF file.

Byte-level BPE vocabularies (GPT-2, SmolLM2, Llama 3, Qwen2) are rebuilt here from the metadata, because how text is cut
before the merges is named there (`tokenizer.ggml.pre`) and decides about digits and white space. A kind of cutting that
is not known is refused by name. A SentencePiece vocabulary stores no merges: Llama 2's follow from the scores of its
tokens, Gemma's from their order.
"""

from typing import TYPE_CHECKING, Any

from ragjax.weights.gguf_reader import GgufFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE = "\u2581"

_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {"llama3": _LLAMA3_PATTERN, "qwen2": _LLAMA3_PATTERN.replace("{1,3}", "")}

# pre-tokenizer name -> (kind of cutting, whole words may skip the merges, BOS is added unless the file says otherwise)
_CUTTING = {
    "default": ("bytes", False, False),
    "gpt-2": ("bytes", False, False),
    "smollm": ("digits", False, False),
    "llama-bpe": ("llama3", True, True),
    "llama3": ("llama3", True, True),
    "qwen2": ("qwen2", False, False),
}


def gguf_tokenizer(file: GgufFile) -> "PreTrainedTokenizerFast":
    """Build the tokenizer of an opened file, chat template included.

    Raises:
        ValueError: naming the tokenizer model or the pre-tokenizer if it is not supported.
    """
    model = file.metadata.get("tokenizer.ggml.model")
    if model == "llama":
        gemma = file.metadata.get("general.architecture") == "gemma3"
        return _gemma(file.metadata) if gemma else _llama2(file.metadata)
    cutting = file.metadata.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or cutting not in _CUTTING:
        raise ValueError(f"{file.path}: tokenizer {model!r} with pre-tokenizer {cutting!r} is not supported")
    return _byte_level(file.metadata, *_CUTTING[cutting])


def _byte_level(metadata: dict[str, Any], cutting: str, whole_words: bool, adds_bos: bool) -> "PreTrainedTokenizerFast":
    from tokenizers import Tokenizer, decoders, models, normalizers

    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words))
    if cutting == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(cutting)
    backend.decoder = decoders.ByteLevel()
    return _finished(backend, metadata, metadata["tokenizer.ggml.tokens"], adds_bos)


def _gemma(metadata: dict[str, Any]) -> "PreTrainedTokenizerFast":
    """Tokens in the order in which they were merged, and no space in front of a text."""
    # Tokens of spaces alone are stored as spaces, all others with U+2581 for theirs.
    tokens = [_SPACE * len(t) if t and not t.strip(" ") else t for t in metadata["tokenizer.ggml.tokens"]]
    return _sentencepiece(metadata, tokens, tokens, spaced=False)


def _llama2(metadata: dict[str, Any]) -> "PreTrainedTokenizerFast":
    """The better its score, the earlier a token is merged; a space in front of a text, unless the file says otherwise.

    Control tokens and bytes take no part in the merges.
    """
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    kinds = metadata["tokenizer.ggml.token_type"]
    order = sorted(range(len(tokens)), key=lambda index: -scores[index])
    merged = [tokens[index] for index in order if kinds[index] == _NORMAL]
    return _sentencepiece(metadata, tokens, merged, spaced=metadata.get("tokenizer.ggml.add_space_prefix", True))


def _sentencepiece(
    metadata: dict[str, Any], tokens: list[str], merged: list[str], spaced: bool
) -> "PreTrainedTokenizerFast":
    """Byte-fallback BPE over text whose spaces are written as U+2581; `merged` are tokens in the order of merging."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    model = models.BPE(vocab=vocab, merges=_merges(vocab, merged), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = Tokenizer(model)
    replaced = normalizers.Replace(" ", _SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replaced]) if spaced else replaced
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if spaced else parts)
    return _finished(backend, metadata, tokens, adds_bos=True)


def _merges(vocab: dict[str, int], merged: list[str]) -> list[tuple[str, str]]:
    """The merges that make each token from two others: tokens in their order, of one token the longest left first."""
    return [
        (token[:cut], token[cut:])
        for token in merged
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in vocab and token[cut:] in vocab
    ]


def _finished(backend: Any, metadata: dict[str, Any], tokens: list[str], adds_bos: bool) -> "PreTrainedTokenizerFast":
    """Control and user-defined tokens, BOS, the special roles and the chat template: alike for every vocabulary."""
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    kinds = list(zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True))
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in kinds if k == _CONTROL])
    backend.add_tokens([AddedToken(t, normalized=False) for t, k in kinds if k == _USER_DEFINED])
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    if metadata.get("tokenizer.ggml.add_bos_token", adds_bos):
        bos = tokens[ids["bos"]]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, ids["bos"])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        chat_template=metadata.get("tokenizer.chat_template"),
        **{f"{name}_token": tokens[index] for name, index in ids.items() if index is not None},
    )


def _pre_tokenizer(cutting: str) -> Any:
    """How text is cut into words before the merges."""
    from tokenizers import Regex, pre_tokenizers

    if cutting == "bytes":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if cutting == "digits":
        first = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    split = pre_tokenizers.Split(Regex(_PATTERNS[cutting]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
