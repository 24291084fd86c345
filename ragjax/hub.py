"""A name becomes a model: parameters, config and tokenizer and, where it writes, the ids that end its texts.

`load` takes what a user has (a converted checkpoint, a folder of safetensors or of PyTorch's files, a .gguf file or a
hub name) and loads the same content in the same dtype only once while it is in use.
"""

import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from etils import epath
from jax.sharding import Mesh

from ragjax.models.architectures import Config, abstract
from ragjax.models.config import DecoderConfig
from ragjax.models.embedding_config import EmbeddingConfig, parse_embedding
from ragjax.models.encoder_config import BertConfig, DebertaConfig
from ragjax.models.t5_config import T5Config
from ragjax.runtime import LOG
from ragjax.sharding import place
from ragjax.typing import PyTree
from ragjax.weights import checkpoint
from ragjax.weights.download import fetch
from ragjax.weights.opening import open_published
from ragjax.weights.room import require_room_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Parameters in use, by (fingerprint, dtype, mesh): a model in two roles is held once.
_loaded: weakref.WeakValueDictionary[tuple[str, str, Mesh | None], PyTree] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A model ready to use.

    `fingerprint` is a hash of its content, independent of where its files lie. `folder` is the converted checkpoint
    that it is from, if it is from one: what is computed from the model once may be kept there.
    """

    params: PyTree
    config: Config
    tokenizer: "PreTrainedTokenizerFast"
    name: str
    fingerprint: str
    folder: epath.Path | None = None

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the parameters."""
        return jax.tree.leaves(self.params)[0].dtype

    @property
    def tokenizer_class(self) -> str:
        """The class that reads texts for it: two classes may cut the same text differently."""
        return type(self.tokenizer).__name__


@dataclass(frozen=True, eq=False, kw_only=True)
class _Writing(Model):
    """A model that writes; `stop_ids` are the ids that end a text or a turn."""

    stop_ids: tuple[int, ...]

    @cached_property
    def vocab_width(self) -> int:
        """How many ids, from 0, the tokenizer can emit: rows of the embedding beyond it never get probability."""
        return _vocab_width(self.config, self.tokenizer)


@dataclass(frozen=True, eq=False, kw_only=True)
class LanguageModel(_Writing):
    """A causal language model: it continues its prompt."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EncoderDecoder(_Writing):
    """A model with an encoder for its source text and a decoder that writes another."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Encoder(Model):
    """A model that reads texts: states of their tokens, and labels where it has a head.

    `embedding` is what its files state about the vectors of texts.
    """

    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of their ids; none without a head."""
        return self.config.labels


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """What of a `LanguageModel` is known before its weights are read; the names are that one's."""

    tokenizer: "PreTrainedTokenizerFast"
    name: str
    vocab_width: int


def load(source: str | Path, *, dtype: Any = None, mesh: Mesh | None = None) -> Model:
    """Load a model of any architecture: a converted checkpoint, a published folder, a .gguf file, or a hub name.

    A published folder holds safetensors or, without them, pytorch_model.bin, whole or in shards under an index; the
    latter is read without PyTorch, and nothing that it says is run.

    A name that is no path is looked up under `RAGJAX_HOME` (default `./checkpoints`), then in the hub's cache, then on
    the hub. `dtype` defaults to float32 on a CPU and to bfloat16 on an accelerator; all parameters get it, norms too.

    With a `mesh` (see `ragjax.make_mesh`) each device reads its part of the weights, and everything that is done with
    the model runs on all of its devices. What the mesh does not divide is whole on each, and logged.

    Raises:
        FileNotFoundError: if nothing is found, saying where it was looked for and what to do.
        OutOfMemoryError: if the weights are more than the memory that is free; none were read.
        ValueError: naming the file and the attribute or tensor that is refused.
    """
    path = resolve(source)
    dtype = jnp.dtype(dtype or default_dtype())
    return (_load_checkpoint if checkpoint.is_checkpoint(path) else _load_published)(path, str(source), dtype, mesh)


def load_vocabulary(source: str | Path) -> Vocabulary:
    """The vocabulary of what `load` takes, without its weights. Raises as `load` does."""
    path = resolve(source)
    if checkpoint.is_checkpoint(path):
        config, tokenizer = checkpoint.config_of(path, checkpoint.read_manifest(path)), checkpoint.load_tokenizer(path)
    else:
        published = open_published(path)
        config, tokenizer = published.config, published.load_tokenizer()
    return Vocabulary(tokenizer, str(source), _vocab_width(config, tokenizer))


def resolve(source: str | Path) -> epath.Path:
    """The local path of a source, fetched from the hub if it is nowhere else. Raises FileNotFoundError."""
    local = find_local(source)
    if local is not None:
        return local
    try:
        return epath.Path(fetch(str(source)))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} (no checkpoint of that name under {checkpoint.home()} either)") from None


def find_local(source: str | Path) -> epath.Path | None:
    """The path that a source names, or its checkpoint under `RAGJAX_HOME`; None for what only the hub can have.

    Raises FileNotFoundError for a source that is no hub name either.
    """
    local = epath.Path(source).expanduser()
    if local.exists():
        return local
    name = str(source)
    for candidate in (checkpoint.home() / name, checkpoint.home() / name.replace("/", "--")):
        if checkpoint.is_checkpoint(candidate):
            return candidate
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.endswith(".gguf"):
        raise FileNotFoundError(f"{name}: no such file or folder")
    return None


def default_dtype() -> jnp.dtype:
    """float32 on a CPU, bfloat16 on an accelerator."""
    return jnp.dtype(jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16)


def stop_ids(
    config: Mapping[str, Any], generation_config: Mapping[str, Any], tokenizer: "PreTrainedTokenizerFast"
) -> tuple[int, ...]:
    """Every id that ends a text: those of the generation config, of config.json, of its text part, the tokenizer's eos.

    Each source may state one id, a list or nothing. The union is taken, in that order, because each source of some
    published model misses an id that another has.

    Raises:
        ValueError: if a source states something that is no id.
    """
    sources = {
        "generation_config.json": generation_config.get("eos_token_id"),
        "config.json": config.get("eos_token_id"),
        "text_config of config.json": (config.get("text_config") or {}).get("eos_token_id"),
        "tokenizer": tokenizer.eos_token_id,
    }
    found: list[int] = []
    for source, stated in sources.items():
        for value in stated if isinstance(stated, list | tuple) else [stated]:
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ValueError(f"eos_token_id of {source} is {value!r}, no token id")
            found += [] if value is None else [value]
    return tuple(dict.fromkeys(found))


def _vocab_width(config: Config, tokenizer: "PreTrainedTokenizerFast") -> int:
    return min(config.vocab_size, max(tokenizer.get_vocab().values()) + 1)


def _load_checkpoint(path: epath.Path, name: str, dtype: jnp.dtype, mesh: Mesh | None) -> Model:
    manifest = checkpoint.read_manifest(path)
    config, weights = checkpoint.config_of(path, manifest), manifest["fingerprint"]
    tokenizer = checkpoint.load_tokenizer(path)
    params = _loaded.get((weights, dtype.name, mesh))
    if params is None:
        require_room_for(name, config, dtype, mesh)
        params = checkpoint.restore(path, place(abstract(config, dtype), mesh))
    _loaded[weights, dtype.name, mesh] = params
    sentence_files = manifest.get(checkpoint.SENTENCE_FILES)
    if sentence_files is None and _MODELS[type(config)] is Encoder and config.head is None:
        LOG.warning("%s was converted without what sentence-transformers keeps beside a model; convert it anew", name)
    told = manifest["config"], manifest["generation_config"], sentence_files or {}
    fingerprint = checkpoint.fingerprint_of(path, manifest)
    return _built(config, tokenizer, told, params=params, name=name, fingerprint=fingerprint, folder=path)


def _load_published(path: epath.Path, name: str, dtype: jnp.dtype, mesh: Mesh | None) -> Model:
    published = open_published(path)
    fingerprint = published.fingerprint()
    tokenizer = published.load_tokenizer()
    params = _loaded.get((fingerprint, dtype.name, mesh))
    if params is None:
        params, ledger = published.load_params(dtype, mesh=mesh)
        _tell_skipped(name, ledger.skipped)
    _loaded[fingerprint, dtype.name, mesh] = params
    told = published.raw_config, published.generation_config, published.sentence_files
    return _built(published.config, tokenizer, told, params=params, name=name, fingerprint=fingerprint)


_MODELS: Mapping[type, type[Model]] = {
    DecoderConfig: LanguageModel,
    BertConfig: Encoder,
    DebertaConfig: Encoder,
    T5Config: EncoderDecoder,
}

KINDS: Mapping[str, tuple[type[Model], str]] = {
    "causal": (LanguageModel, "a causal language model"),
    "encoder": (Encoder, "an encoder"),
    "encoder-decoder": (EncoderDecoder, "an encoder-decoder"),
}
"""The kinds of models, with the words for them."""


def kind_of(config: Config) -> str:
    """The kind of `KINDS` that a config's models are of."""
    return next(kind for kind, (model, _) in KINDS.items() if model is _MODELS[type(config)])


def require_kind(name: str, config: Config, kind: str) -> None:
    """Raise ValueError, naming the model, where its config is not of a kind of `KINDS`."""
    found = kind_of(config)
    if found != kind:
        raise ValueError(f"{name} is {KINDS[found][1]}, where {KINDS[kind][1]} is needed")


def _built(
    config: Config,
    tokenizer: "PreTrainedTokenizerFast",
    told: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]],
    **parts: Any,
) -> Model:
    """The model of a config's kind; `told` are its raw config, its generation config and its sentence files."""
    kind, (raw, generation, sentence_files) = _MODELS[type(config)], told
    names = {one.name for one in fields(kind)}
    if "stop_ids" in names:
        parts["stop_ids"] = stop_ids(raw, generation, tokenizer)
    if "embedding" in names:
        parts["embedding"] = parse_embedding(sentence_files)
    return kind(config=config, tokenizer=tokenizer, **parts)


def _tell_skipped(name: str, skipped: Sequence[str]) -> None:
    """Say which stored tensors the model does not use: a vision tower, tables that are computed here."""
    if skipped:
        first = ", ".join(skipped[:3]) + (", ..." if len(skipped) > 3 else "")
        LOG.info("%s: %d stored tensors are no part of the model: %s", name, len(skipped), first)
