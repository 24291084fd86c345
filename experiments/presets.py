"""The paper's decoding: the compressor's own default temperature and top-p, which its generation config states.

FaviComp, appendix A.1: "default temperature and top-p values of the compression model", the reader at 1.0. The released
code is greedy instead, and so are our defaults.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from ragjax.hub import find_local
from ragjax.weights import checkpoint
from ragjax.weights.download import fetch_small

GENERATION = "generation_config.json"

# What a model whose files state nothing is sampled with: transformers' own defaults.
UNSTATED = 1.0


def settle(points: Sequence[Experiment]) -> list[Experiment]:
    """The points with every preset replaced by values; of a model on the hub, one small file is fetched.

    Without a compressor (generated context) the target's own values are meant.

    Raises:
      FileNotFoundError: a model cannot be had; says what to do.
      ValueError: a file states something that is no number.
    """
    return [settled(point) if point.preset is not None else point for point in points]


def settled(point: Experiment) -> Experiment:
    """One point, its temperature and top-p read from the files of the model that decodes. Raises as `settle` does."""
    temperature, top_p = own_sampling(point.compressor or point.target)
    return replace(point, preset=None, temperature=temperature, top_p=top_p).canonical()


def own_sampling(source: str) -> tuple[float, float]:
    """The default temperature and top-p of a model: those of its generation config, 1.0 where it states none.

    Raises as `settle` does.
    """
    stated = generation_config(source)
    values = [UNSTATED if stated.get(name) is None else stated[name] for name in ("temperature", "top_p")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError(f"{source}: the generation config states temperature and top_p {values}")
    return float(values[0]), float(values[1])


def generation_config(source: str) -> Mapping[str, Any]:
    """What a model's generation config states, without its weights; nothing where there is no such file.

    Raises as `settle` does.
    """
    local = find_local(source)
    if local is not None and checkpoint.is_checkpoint(local):
        return checkpoint.read_manifest(local)["generation_config"]
    file = fetch_small(source, GENERATION) if local is None else Path(local) / GENERATION
    if file is None or not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: not a JSON object ({error})") from error
