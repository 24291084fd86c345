"""Whether a model's weights fit where they go, told from its config before any of them is read.

The bytes counted are those of the parameters alone. Decoding needs room beside them, for its cache and temporaries,
which depends on batch and lengths and is not known here.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ragjax.models.architectures import Config, abstract
from ragjax.sharding import spec_of
from ragjax.weights.keymap import leaf_specs


class OutOfMemoryError(ValueError):
    """Weights need more memory than there is."""


def require_room(sizes: Mapping[str, int]) -> None:
    """See that weights, as bytes by a name for people, fit the free memory together.

    Raises:
        OutOfMemoryError: naming each one's share, what is free and what to do.
    """
    free, place = free_memory()
    needed = sum(sizes.values())
    if free is None or needed <= free:
        return
    shares = ", ".join(f"{in_units(size)} for {name}" for name, size in sizes.items())
    raise OutOfMemoryError(
        f"the weights need {in_units(needed)} ({shares}) and {in_units(free)} are free {place}, where the cache and "
        "the temporaries of decoding must fit too: choose smaller models, dtype=bfloat16, or a larger machine"
    )


def require_room_for(name: Any, config: Config, dtype: Any, mesh: Mesh | None = None) -> None:
    """See that one model's weights fit the free memory. Raises as `require_room` does."""
    size = weight_bytes(config, dtype, mesh)
    # Virtual devices share the machine's memory.
    shared = mesh.size if mesh is not None and jax.default_backend() == "cpu" else 1
    require_room({f"{name} in {jnp.dtype(dtype).name}": size * shared})


def weight_bytes(config: Config, dtype: Any, mesh: Mesh | None = None) -> int:
    """Bytes of a model's parameters in one dtype; on a mesh, those that one of its devices holds."""
    specs = leaf_specs(abstract(config, jnp.dtype(dtype))).values()

    def held(spec: Any) -> tuple[int, ...]:
        return spec.shape if mesh is None else NamedSharding(mesh, spec_of(spec, mesh)).shard_shape(spec.shape)

    return sum(int(np.prod(held(spec))) * np.dtype(spec.dtype).itemsize for spec in specs)


def in_units(size: int) -> str:
    """Bytes for people: whole MB below one GB, tenths of a GB from there on (decimal units)."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def free_memory() -> tuple[int | None, str]:
    """Bytes that are free where weights go, None where the device does not tell; and where that is."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return _free_host_memory(), "on this machine"
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return (None if limit is None else limit - stats.get("bytes_in_use", 0)), f"on {device.device_kind}"


def _free_host_memory() -> int:
    """What this process may still take: the machine's available memory, or less in a container."""
    meminfo = _numbers(Path("/proc/meminfo"), scale=1024)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = meminfo.get("MemAvailable:", total)
    group = Path("/sys/fs/cgroup")
    limit = _text(group / "memory.max")
    if limit.isdigit():
        free = min(free, int(limit) - _numbers(group / "memory.stat").get("anon", 0))
    return max(free, 0)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _numbers(path: Path, scale: int = 1) -> dict[str, int]:
    """Lines of a name and a number, as the kernel writes them; nothing where there is no such file."""
    lines = [line.split() for line in _text(path).splitlines()]
    return {words[0]: int(words[1]) * scale for words in lines if len(words) > 1 and words[1].isdigit()}
