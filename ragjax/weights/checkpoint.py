"""Converted checkpoints: `NAME/params` (Orbax), config.json, tokenizer files, and `ragjax.json` written last.

A folder is a checkpoint if and only if its `ragjax.json` exists. Everything is written to a hidden sibling that is
renamed at the end, so a conversion that is killed leaves at most that sibling, which the next one removes. Restoring
asks the caller where each array goes; nothing of the topology that wrote a checkpoint is read back.
"""

import ctypes
import gc
import json
import os
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xxhash
from etils import epath
from flax import traverse_util

from ragjax.models.architectures import Config, parse_config
from ragjax.typing import PyTree
from ragjax.weights.keymap import leaf_specs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MANIFEST = "ragjax.json"
SENTENCE_FILES = "sentence_transformers"
"""Where a manifest keeps the files that say how texts are embedded; the earliest ones have no such entry."""
FORMAT = 1
_PACKAGES = ("ragjax", "jax", "flax", "orbax-checkpoint", "numpy", "transformers", "safetensors", "gguf")
_SLACK_BYTES = 1 << 20


def home() -> epath.Path:
    """Where converted checkpoints live: `RAGJAX_HOME`, or `checkpoints` in the working directory."""
    return epath.Path(os.environ.get("RAGJAX_HOME", "checkpoints"))


def is_checkpoint(folder: str | os.PathLike) -> bool:
    """Whether a folder is a finished checkpoint."""
    return (epath.Path(folder) / MANIFEST).exists()


def read_manifest(folder: str | os.PathLike) -> dict[str, Any]:
    """The `ragjax.json` of a checkpoint: what `save` was given of its provenance, format, dtype, sizes, versions.

    Raises:
        FileNotFoundError: if the folder is no finished checkpoint.
        ValueError: if it is no manifest, or was written in another format.
    """
    folder = epath.Path(folder)
    if not is_checkpoint(folder):
        raise FileNotFoundError(f"{folder}: no finished checkpoint ({MANIFEST} is missing)")
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        written = manifest["format"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder / MANIFEST}: not a manifest ({error!r}); convert the model again") from error
    if written != FORMAT:
        raise ValueError(f"{folder}: checkpoint format {written}; this version reads {FORMAT}")
    return manifest


def config_of(folder: str | os.PathLike, manifest: Mapping[str, Any]) -> Config:
    """The parsed config of a checkpoint. Raises ValueError, naming its manifest and every attribute refused."""
    try:
        return parse_config(manifest["config"])
    except ValueError as error:
        raise ValueError(f"{epath.Path(folder) / MANIFEST}: {error}") from None


def fingerprint_of(folder: epath.Path, manifest: Mapping[str, Any]) -> str:
    """Hash of the weights' fingerprint and of the files beside them as they are now: a chat template may be edited."""
    digest = xxhash.xxh3_128(manifest["fingerprint"].encode())
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_file() and path.name != MANIFEST:
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def check_free(folder: epath.Path, force: bool) -> None:
    """Raise FileExistsError if a checkpoint cannot be written to `folder` (see `save`)."""
    if not folder.exists():
        return
    if not is_checkpoint(folder):
        raise FileExistsError(f"{folder} exists and is no checkpoint: choose another name")
    if not force:
        raise FileExistsError(f"{folder} is a checkpoint already: choose another name, or force its replacement")


def save(
    folder: str | os.PathLike,
    params: PyTree,
    tokenizer: "PreTrainedTokenizerFast",
    provenance: Mapping[str, Any],
    force: bool = False,
) -> epath.Path:
    """Write a checkpoint and return its folder.

    `provenance` holds source, source_fingerprint, fingerprint, config, generation_config and `SENTENCE_FILES` (raw
    dicts); dtype, sizes and package versions are added.

    Raises:
        FileExistsError: if the folder exists, unless `force` (which replaces a checkpoint, and nothing else).
    """
    folder = epath.Path(folder)
    check_free(folder, force)
    partial = folder.parent / f".{folder.name}.partial"
    if partial.exists():
        partial.rmtree()
    partial.mkdir(parents=True)
    _save_params(partial / "params", params)
    for name in ("config", "generation_config"):
        (partial / f"{name}.json").write_text(json.dumps(provenance[name], indent=2))
    with tempfile.TemporaryDirectory() as local:
        tokenizer.save_pretrained(local)
        _copy_files(epath.Path(local), partial)
    (partial / MANIFEST).write_text(json.dumps(_manifest(params, tokenizer, provenance), indent=2))
    # The old checkpoint stands until the new one is whole, and is gone only after that one has its place.
    replaced = folder.parent / f".{folder.name}.replaced"
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    if replaced.exists():
        replaced.rmtree()
    return folder


def load_tokenizer(folder: str | os.PathLike) -> "PreTrainedTokenizerFast":
    """The tokenizer of a checkpoint, from wherever it lies."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as local:
        _copy_files(epath.Path(folder), epath.Path(local))
        return AutoTokenizer.from_pretrained(local, local_files_only=True)


def restore(folder: str | os.PathLike, target: PyTree) -> PyTree:
    """Read the parameters of a checkpoint as `target` wants them.

    The target's leaves are `ParamSpec` (default device) or `jax.ShapeDtypeStruct` with a sharding; a dtype other than
    the stored one is cast while reading.

    Raises:
        ValueError: naming the leaves that the checkpoint lacks, has over, or holds in another shape.
    """
    import orbax.checkpoint as ocp

    path = epath.Path(folder).absolute() / "params"
    specs = leaf_specs(target)
    handler = _handler(ocp, specs)
    with ocp.Checkpointer(handler) as checkpointer:
        _check_stored(path, checkpointer, specs)
        flat: dict[str, jax.Array] = {}
        for names in _in_groups(specs):
            item = traverse_util.unflatten_dict({name: _wanted(specs[name]) for name in names}, sep=".")
            restore_args = ocp.checkpoint_utils.construct_restore_args(item)
            args = ocp.args.PyTreeRestore(item=item, restore_args=restore_args, partial_restore=True)
            flat |= traverse_util.flatten_dict(checkpointer.restore(path, args=args), sep=".")
            _return_memory()
    return jax.tree.unflatten(jax.tree.structure(target), [flat[name] for name in specs])


def _save_params(path: epath.Path, params: PyTree) -> None:
    """Orbax, with as many bytes in flight as the largest leaf needs: its default would copy the whole model."""
    import orbax.checkpoint as ocp

    flat = leaf_specs(params)
    with ocp.Checkpointer(_handler(ocp, flat)) as checkpointer:
        tree = traverse_util.unflatten_dict(flat, sep=".")
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(tree))


def _return_memory() -> None:
    """Free what Orbax left in reference cycles, and hand free pages back: glibc keeps those of other threads."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _in_groups(leaves: Mapping[str, Any]) -> list[list[str]]:
    """Names in groups no larger than the largest leaf: Orbax may hold a copy of all that one call restores."""
    sizes = {name: _bytes(leaf) for name, leaf in leaves.items()}
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if groups[-1] and filled + size > max(sizes.values()):
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _bytes(leaf: Any) -> int:
    return int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize


def _handler(ocp: Any, leaves: Mapping[str, Any]) -> Any:
    in_flight = (max(map(_bytes, leaves.values())) + _SLACK_BYTES) / 1e9
    # Weights hardly compress; without trying, saving is quicker and needs no second buffer.
    return ocp.PyTreeCheckpointHandler(
        save_concurrent_gb=in_flight, restore_concurrent_gb=in_flight, use_compression=False
    )


def _check_stored(path: epath.Path, checkpointer: Any, specs: Mapping[str, Any]) -> None:
    """Compare the stored leaves with the wanted ones before any is read."""
    metadata = checkpointer.metadata(path)
    tree = getattr(getattr(metadata, "item_metadata", metadata), "tree", metadata)
    stored = {name: tuple(leaf.shape) for name, leaf in traverse_util.flatten_dict(tree, sep=".").items()}
    problems = [f"{name} is missing" for name in specs if name not in stored]
    problems += [f"{name} is over" for name in stored if name not in specs]
    shared = [name for name in specs if name in stored and stored[name] != tuple(specs[name].shape)]
    problems += [f"{name} has shape {list(stored[name])}, not {list(specs[name].shape)}" for name in shared]
    if problems:
        raise ValueError(f"{path}: " + "; ".join(problems))


def _wanted(spec: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(spec, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding)


def _copy_files(source: epath.Path, target: epath.Path) -> None:
    """Copy the files directly in a folder; transformers reads and writes local ones only."""
    for path in source.iterdir():
        if path.is_file():
            path.copy(target / path.name, overwrite=True)


def _manifest(params: PyTree, tokenizer: Any, provenance: Mapping[str, Any]) -> dict[str, Any]:
    leaves = jax.tree.leaves(params)
    return {
        "format": FORMAT,
        **provenance,
        "dtype": params.embedding.dtype.name,
        "tokenizer_class": type(tokenizer).__name__,
        "parameters": sum(leaf.size for leaf in leaves),
        "bytes": sum(leaf.nbytes for leaf in leaves),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
