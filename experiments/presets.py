"""The paper's decoding: the compressor's own default temperature and top-p, which its generation config states.

FaviComp, appendix A.1: "default temperature and top-p values of the compression model", the reader at 1.0. The released
code is greedy instead, and so are our defaults.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from etils import epath

from experiments.experiment import Experiment
from ragjax.weights import checkpoint

# What a model whose files state nothing is sampled with: transformers' own defaults.
UNSTATED = 1.0


def settle(points: Sequence[Experiment], resolve: Callable[[str], Any]) -> list[Experiment]:
    """The points with every preset replaced by values. `resolve` gives a model's local path.

    Without a compressor (generated context) the target's own values are meant.
    """
    return [settled(point, resolve) if point.preset is not None else point for point in points]


def settled(point: Experiment, resolve: Callable[[str], Any]) -> Experiment:
    """One point, its temperature and top-p read from the files of the model that decodes."""
    temperature, top_p = own_sampling(epath.Path(resolve(point.compressor or point.target)))
    return replace(point, preset=None, temperature=temperature, top_p=top_p).canonical()


def own_sampling(path: epath.Path) -> tuple[float, float]:
    """The default temperature and top-p of a model: those of its generation config, 1.0 where it states none.

    Raises:
      ValueError: the file states something that is no number.
    """
    if checkpoint.is_checkpoint(path):
        stated = checkpoint.read_manifest(path)["generation_config"]
    else:
        file = path / "generation_config.json"
        stated = json.loads(file.read_text()) if path.is_dir() and file.exists() else {}
    values = [UNSTATED if stated.get(name) is None else stated[name] for name in ("temperature", "top_p")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError(f"{path}: the generation config states temperature and top_p {values}")
    return float(values[0]), float(values[1])
