"""Whether the models of a run can be had and held together, found out before any weight is fetched or loaded.

Of a model on the hub only its config is fetched, so that a licence that was not accepted or a missing model is told
first.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from etils import epath

from ragjax.hub import default_dtype, find_local, require_kind
from ragjax.models.architectures import Config
from ragjax.weights import checkpoint
from ragjax.weights.download import fetch_config
from ragjax.weights.opening import open_published, parse_file
from ragjax.weights.room import require_room, weight_bytes


def check_models(models: Sequence[tuple[str, Any, str]]) -> None:
    """See that models, as (source, dtype or None for the default, kind), can be had, and held together.

    A kind is one of `ragjax.hub.KINDS`, or "any". A model in two roles is held once.

    Raises:
      FileNotFoundError: a model cannot be had; says what to do (token, licence page, local folder).
      ValueError: a model's config is refused, or is of another kind than stated.
      OutOfMemoryError: their weights are more than the memory that is free; names each model's share.
    """
    sizes: dict[tuple[str, str], tuple[str, int]] = {}
    for source, dtype, kind in models:
        dtype = jnp.dtype(dtype or default_dtype())
        config, place = find_config(source), str(find_local(source) or source)
        if kind != "any":
            require_kind(source, config, kind)
        sizes[place, dtype.name] = (f"{source} in {dtype.name}", weight_bytes(config, dtype))
    require_room(dict(sizes.values()))


def find_config(source: str) -> Config:
    """The config of what `ragjax.load` takes; of a model on the hub nothing else is fetched. Raises as it does."""
    local = find_local(source)
    return read_config(local) if local is not None else parse_file(fetch_config(source))


def read_config(path: epath.Path) -> Config:
    """The config of a checkpoint, a published folder or a .gguf file. Raises ValueError or FileNotFoundError."""
    if checkpoint.is_checkpoint(path):
        return checkpoint.config_of(path, checkpoint.read_manifest(path))
    if path.is_dir():
        return parse_file(path / "config.json")
    return open_published(path).config
