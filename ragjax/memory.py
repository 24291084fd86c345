"""Whether the models of a run can be had and held, found out before any weight is fetched or loaded.

Of a model on the hub only its config is fetched, so that a licence that was not accepted or a missing model is told
first. The bytes needed are those of the parameters, from the config alone; decoding needs room beside them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from ragjax.hub import default_dtype, find_local
from ragjax.models.config import DecoderConfig, parse_config
from ragjax.models.decoder import abstract
from ragjax.weights import checkpoint
from ragjax.weights.download import fetch_config
from ragjax.weights.keymap import leaf_specs
from ragjax.weights.opening import open_published

GIGABYTE = 1e9


class OutOfMemoryError(ValueError):
    """The models of a run need more memory than there is."""


def check_models(models: Sequence[tuple[str, Any]]) -> None:
    """See that models, as (source, dtype or None for the default), can be had, and held together.

    A model in two roles is held once.

    Raises:
      FileNotFoundError: a model cannot be had; says what to do (token, licence page, local folder).
      ValueError: a model's config is refused.
      OutOfMemoryError: their weights are more than the memory that is free; names each model's share.
    """
    sizes: dict[tuple[str, str], tuple[str, int]] = {}
    for source, dtype in models:
        dtype = jnp.dtype(dtype or default_dtype())
        local = find_local(source)
        config = read_config(local) if local is not None else _parse(fetch_config(source))
        sizes[str(local or source), dtype.name] = (f"{source} in {dtype.name}", weight_bytes(config, dtype))
    free, place = free_memory()
    needed = sum(size for _, size in sizes.values())
    if free is not None and needed > free:
        shares = ", ".join(f"{size / GIGABYTE:,.1f} GB for {name}" for name, size in sizes.values())
        raise OutOfMemoryError(
            f"the weights need {needed / GIGABYTE:,.1f} GB ({shares}) and {free / GIGABYTE:,.1f} GB are free {place}: "
            "choose smaller models, dtype=bfloat16, or a larger machine"
        )


def weight_bytes(config: DecoderConfig, dtype: Any) -> int:
    """Bytes of a model's parameters in one dtype."""
    specs = leaf_specs(abstract(config, jnp.dtype(dtype))).values()
    return sum(int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize for spec in specs)


def read_config(path: epath.Path) -> DecoderConfig:
    """The config of a checkpoint, a published folder or a .gguf file. Raises ValueError or FileNotFoundError."""
    if checkpoint.is_checkpoint(path):
        return checkpoint.config_of(checkpoint.read_manifest(path))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path}: no config.json in it")
        return _parse(path / "config.json")
    return open_published(path).config


def free_memory() -> tuple[int | None, str]:
    """Bytes that are free where weights go, None where the device does not tell; and where that is."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return _free_host_memory(), "on this machine"
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return (None if limit is None else limit - stats.get("bytes_in_use", 0)), f"on {device.device_kind}"


def _parse(path: os.PathLike) -> DecoderConfig:
    try:
        return parse_config(json.loads(epath.Path(path).read_text()))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def _free_host_memory() -> int:
    """What this process may still take: the machine's available memory, or less in a container."""
    meminfo = _numbers(Path("/proc/meminfo"), scale=1024)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = meminfo.get("MemAvailable:", total)
    group = Path("/sys/fs/cgroup")
    limit = _text(group / "memory.max")
    if limit.isdigit():
        free = min(free, int(limit) - _numbers(group / "memory.stat").get("anon", 0))
    return free


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _numbers(path: Path, scale: int = 1) -> dict[str, int]:
    """Lines of a name and a number, as the kernel writes them; nothing where there is no such file."""
    lines = [line.split() for line in _text(path).splitlines()]
    return {words[0]: int(words[1]) * scale for words in lines if len(words) > 1 and words[1].isdigit()}
