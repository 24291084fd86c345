"""SPS (arXiv 2508.05909): how far a summary lies outside the principal subspace of its reader. Lower is better.

`sps_subspace` computes the subspace, once per checkpoint and setting: the file lies beside the checkpoint. `sps` lets
the reader read each text alone, pools the hidden states of one layer, and measures what the subspace leaves of them.
"""

import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from ragjax.compress.subspace import Subspace, principal_subspace, projection_residual
from ragjax.data.identity import json_hash
from ragjax.decode.engine import require_causal
from ragjax.decode.states import LAYER, block_of, check_choices, pooled_states, token_states
from ragjax.runtime import LOG
from ragjax.typing import Array, Float
from ragjax.weights import checkpoint

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"matrix": "embedding", "squared": False, "centred": False},
    "code": {"matrix": "q_proj", "squared": True, "centred": True},
}
"""The subspace as the paper states it, and as its published code computes it (PCA of a query projection)."""

MATRICES = ("embedding", "q_proj", "states")
FOLDER = "sps"
_FORMAT = 1


def sps_subspace(
    lm: Any,
    preset: str = "paper",
    *,
    matrix: str | None = None,
    energy: float = 0.95,
    layer: int = LAYER,
    texts: Sequence[str] | None = None,
    cache: bool = True,
) -> Subspace:
    """The principal subspace of a model.

    It is read from `sps/` in the model's checkpoint (or under `RAGJAX_HOME`, for a model that is no converted
    checkpoint) if it was computed before from the same weights with the same settings, else computed and kept there.

    Args:
      preset: "paper" (input embedding, singular values, uncentred) or "code" (query projection of the last block but
        one, squared singular values, centred).
      matrix: whose rows span the subspace, in place of the preset's: "embedding" (rows that the tokenizer can emit),
        "q_proj" (one row for each element of each head), or "states" (of all tokens of `texts` at `layer`).
      energy: the share of the singular values' sum that the subspace has.
      layer: which hidden states, for "states" alone; see `ragjax.decode.states.LAYER`.
      texts: a calibration corpus, for "states" alone.
      cache: False neither looks for a stored subspace nor stores one.

    Raises:
      ValueError: for a setting that cannot be, or weights that are not finite.
    """
    settings = _settings(lm, preset, matrix, energy, layer, texts)
    path = _path(lm, settings) if cache else None
    found = path and _read(path)
    if found:
        return found
    rows = _matrix(lm, settings["matrix"], layer, texts)
    subspace = principal_subspace(
        rows, energy=settings["energy"], squared=settings["squared"], centred=settings["centred"]
    )
    if path:
        _write(path, subspace, settings)
    return subspace


def sps(
    lm: Any,
    texts: str | Sequence[str],
    *,
    subspace: Subspace | None = None,
    preset: str = "paper",
    first_token: str = "keep",
    pooling: str = "max",
    layer: int = LAYER,
    batch: int = 8,
) -> float | Float[np.ndarray, " n"]:
    """||(I - P)(x - mean)||_2 of each text, x being the model's pooled states of the text alone. Lower is better.

    Args:
      lm: the reader.
      texts: summaries; one str gives one float.
      subspace: of this model; default `sps_subspace(lm, preset)`.
      first_token: one of `ragjax.decode.states.FIRST_TOKEN`.
      pooling: over a text's tokens: "max" (element by element), "mean" or "last".
      layer: which hidden states; see `ragjax.decode.states.LAYER`.
      batch: texts that are read at once.

    Returns:
      float32 [n], NaN for a text that is empty or white space.

    Raises:
      ValueError: as `pooled_states` and `sps_subspace`, and for a subspace of another width.
    """
    check_choices(first_token, pooling)
    subspace = sps_subspace(lm, preset) if subspace is None else subspace
    width, expected = subspace.vectors.shape[0], lm.config.hidden_size
    if width != expected:
        raise ValueError(f"the subspace is one of {width} dimensions, the states of {lm.name} have {expected}")
    several = [texts] if isinstance(texts, str) else list(texts)
    states = pooled_states(lm, several, layer=layer, first_token=first_token, batch=batch)
    scores = _residuals(subspace, getattr(states, pooling))
    return float(scores[0]) if isinstance(texts, str) else scores


_residual = jax.jit(projection_residual)


def _residuals(subspace: Subspace, x: Float[np.ndarray, "n D"]) -> Float[np.ndarray, " n"]:
    """The rows are padded to a power of two, so that lists of any length share a few programs."""
    count = len(x)
    padded = np.pad(x, ((0, (1 << max(count - 1, 0).bit_length()) - count), (0, 0)))
    return np.array(_residual(subspace, padded)[:count])


def _settings(
    lm: Any, preset: str, matrix: str | None, energy: float, layer: int, texts: Sequence[str] | None
) -> dict[str, Any]:
    """All that the subspace depends on, refused where it cannot be."""
    require_causal("a reader's subspace", lm)
    if preset not in PRESETS:
        raise ValueError(f"preset is one of {tuple(PRESETS)}, got {preset!r}")
    chosen = PRESETS[preset] if matrix is None else PRESETS[preset] | {"matrix": matrix}
    if chosen["matrix"] not in MATRICES:
        raise ValueError(f"matrix is one of {MATRICES}, got {matrix!r}")
    if chosen["matrix"] == "q_proj" and lm.config.num_layers < 2:
        raise ValueError(f"{lm.name} has one block, hence no query projection of the last but one")
    of_states = chosen["matrix"] == "states"
    if of_states != bool(texts):
        raise ValueError('matrix="states" goes with texts, and no other matrix does')
    model = {"format": _FORMAT, "model": lm.fingerprint, "dtype": lm.dtype.name, "rows": lm.vocab_width}
    corpus = {"block": block_of(lm.config, layer), "texts": json_hash(list(texts))} if of_states else {}
    return model | chosen | {"energy": float(energy)} | corpus


def _matrix(lm: Any, name: str, layer: int, texts: Sequence[str] | None) -> Array:
    """The matrix [rows, D] that a name stands for."""
    if name == "embedding":
        table = lm.params.embedding
        on_host = all(device.platform == "cpu" for device in table.devices())
        # The largest tensor of many models: on the host numpy looks at it without a copy.
        return (np.asarray(table) if on_host else table)[: lm.vocab_width]
    if name == "q_proj":
        weights = lm.params.layers[-2].attention.q
        return weights.reshape(weights.shape[0], -1).T
    return token_states(lm, texts, layer=layer)


def _path(lm: Any, settings: Mapping[str, Any]) -> epath.Path:
    return (lm.folder or checkpoint.home()) / FOLDER / f"{settings['matrix']}-{json_hash(settings)}.npz"


def _read(path: epath.Path) -> Subspace | None:
    """The subspace in a file; None if there is none, or none that can be read."""
    try:
        if not path.exists():
            return None
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            facts = json.loads(str(stored["facts"]))
            return Subspace(stored["vectors"], stored.get("mean"), **facts["subspace"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        LOG.warning("the stored subspace %s cannot be read (%s): computing it anew", path, error)
        return None


def _write(path: epath.Path, subspace: Subspace, settings: Mapping[str, Any]) -> None:
    """Write whole, then rename; a folder that cannot be written is a warning."""
    fields = ("complement", "rank", "energy", "note")
    facts = {"settings": settings, "subspace": {name: getattr(subspace, name) for name in fields}}
    arrays = {"vectors": subspace.vectors} | ({} if subspace.mean is None else {"mean": subspace.mean})
    buffer = io.BytesIO()
    np.savez(buffer, facts=np.array(json.dumps(facts)), **arrays)
    partial = path.parent / f".{path.name}.{os.getpid()}.partial"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(buffer.getvalue())
        partial.replace(path)
    except OSError as error:
        LOG.warning("the subspace cannot be kept in %s (%s): it will be computed again next time", path.parent, error)
