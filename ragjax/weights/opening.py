"""A published model as it lies on disk, opened: a folder of safetensors or of PyTorch's files, or a GGUF file, behind
one set of names."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath
from jax.sharding import Mesh

from ragjax.models.architectures import Config, abstract, parse_config
from ragjax.models.config import with_vocab_size
from ragjax.models.embedding_config import LIMITS, MODULES, PROMPTS, pooling_files
from ragjax.sharding import place
from ragjax.typing import PyTree
from ragjax.weights.fingerprint import fingerprint_files
from ragjax.weights.gguf_reader import gguf_config, gguf_generation, gguf_tensors, open_gguf
from ragjax.weights.gguf_tokenizer import gguf_tokenizer
from ragjax.weights.keymap import Ledger
from ragjax.weights.room import require_room_for
from ragjax.weights.safetensors_reader import SAFETENSORS
from ragjax.weights.shards import Format, open_weights, weight_files
from ragjax.weights.stream import TensorSource, fill
from ragjax.weights.tables import DECODER_TABLES, table_of
from ragjax.weights.torch_reader import TORCH

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Beside the weights, what a published folder says about the model and its text.
_SMALL_FILES = ("*.json", "*.model", "*.jinja", "*.txt")

# The first that a folder holds is read.
_FORMATS = (SAFETENSORS, TORCH)


@dataclass(frozen=True)
class Published:
    """An opened model. `raw_config` is its config.json (or what a GGUF file says in its place); `sentence_files` are
    what `ragjax.models.embedding_config` reads, JSON by path; `files` are what it is made of, by name."""

    path: Path
    raw_config: Mapping[str, Any]
    config: Config
    generation_config: Mapping[str, Any]
    tensors: TensorSource
    load_tokenizer: Callable[[], "PreTrainedTokenizerFast"]
    files: Mapping[str, Path]
    sentence_files: Mapping[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Content hash of all its files: reads them whole, so ask once."""
        return fingerprint_files(self.files)

    def load_params(self, dtype: Any, progress: bool = False, mesh: Mesh | None = None) -> tuple[PyTree, Ledger]:
        """The parameters in `dtype` on the default device or cut over a mesh, and the ledger they were read by.

        Raises:
            OutOfMemoryError: they are more than the memory that is free; nothing was read.
            ValueError: naming the file and everything that does not fit the config.
        """
        require_room_for(self.path, self.config, dtype, mesh)
        return fill(
            self.tensors,
            table_of(self.config, self.tensors.tensors),
            place(abstract(self.config, dtype), mesh),
            progress,
        )


def open_published(path: str | Path) -> Published:
    """Open a `.gguf` file or a folder with config.json and weights: safetensors or, without them, pytorch_model.bin.

    Raises:
        FileNotFoundError: if the path, its config.json or its weights are missing.
        ValueError: naming the file and what in it is refused.
    """
    path = Path(path)
    return _open_gguf(path) if path.is_file() else _open_folder(path)


def parse_file(path: str | PathLike) -> Config:
    """The config in a config.json, without the weights that belong to it. Raises as `open_published` does."""
    return _parsed(path, _read_config(epath.Path(path)))


def _read_config(path: epath.Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: no {path.name} in it")
    return _json(path)


def _folder_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _open_folder(folder: Path) -> Published:
    stated = _read_config(epath.Path(folder / "config.json"))
    form = _format_of(folder)
    tensors = open_weights(folder, form)
    raw = _stated(stated, tensors)
    indices = {form.index for form in _FORMATS}
    small = [path for pattern in _SMALL_FILES for path in folder.glob(pattern) if path.name not in indices]
    weights = [folder / name for name in weight_files(folder, form)]
    generation, sentence = folder / "generation_config.json", _sentence_files(folder)
    return Published(
        path=folder,
        raw_config=raw,
        config=_parsed(folder / "config.json", raw),
        generation_config=_json(generation) if generation.is_file() else {},
        tensors=tensors,
        load_tokenizer=lambda: _folder_tokenizer(folder),
        files={**{path.name: path for path in [*small, *weights]}, **sentence},
        sentence_files={name: _read_json(path) if name == MODULES else _json(path) for name, path in sentence.items()},
    )


def _sentence_files(folder: Path) -> dict[str, Path]:
    """The files that say how texts are embedded, by their paths in the folder; none without `modules.json`."""
    listed = folder / MODULES
    if not listed.is_file():
        return {}
    modules = _read_json(listed)
    try:
        names = [MODULES, PROMPTS, *LIMITS, *pooling_files(modules)]
    except ValueError as error:
        raise ValueError(f"{listed}: {error}") from None
    return {name: folder / name for name in names if (folder / name).is_file()}


def _format_of(folder: Path) -> Format:
    """The format of a folder's weights. Raises FileNotFoundError, naming other weight files, if it has none."""
    for form in _FORMATS:
        if form.is_in(folder):
            return form
    others = sorted(p.name for p in folder.glob("*") if p.suffix in {".bin", ".pth", ".pt", ".safetensors", ".gguf"})
    hint = f" (it holds {', '.join(others)})" if others else ""
    single, index = (" nor ".join(names) for names in zip(*((f.single, f.index) for f in _FORMATS), strict=True))
    raise FileNotFoundError(f"{folder}: neither {single}, nor shards under {index}{hint}")


def _open_gguf(path: Path) -> Published:
    file = open_gguf(path)
    raw = gguf_config(file)
    return Published(
        path=path,
        raw_config=raw,
        config=_parsed(path, raw),
        generation_config=gguf_generation(file),
        tensors=gguf_tensors(file, raw),
        load_tokenizer=lambda: gguf_tokenizer(file),
        files={"gguf": path},
    )


def _stated(raw: Mapping[str, Any], tensors: TensorSource) -> Mapping[str, Any]:
    """The raw config, with the vocabulary of the stored embedding where it states none."""
    table = DECODER_TABLES.get(raw.get("model_type"))
    names = [rule.name for rule in table.rules if rule.path == "embedding"] if table else []
    rows = [tensors.tensors[name].shape[0] for name in names if name in tensors.tensors]
    return with_vocab_size(raw, rows[0]) if rows else raw


def _json(path: epath.PathLike) -> dict[str, Any]:
    found = _read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a JSON object")
    return found


def _read_json(path: epath.PathLike) -> Any:
    try:
        return json.loads(epath.Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error


def _parsed(path: str | PathLike, raw: Mapping[str, Any]) -> Config:
    try:
        return parse_config(raw)
    except ValueError as error:
        raise ValueError(f"{fspath(path)}: {error}") from None
