"""The adaptive filter of xCompress: which questions keep their first summary and skip the sampling.

`rho` is measured on the reader's states of a summary; a question keeps its initial summary where rho exceeds a
threshold. `Filter` holds a threshold that was fixed on other questions beforehand (`calibrate_filter`); `OnlinePool`
is the published code's, whose decisions depend on the order of the data.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from etils import epath

from ragjax.compress.base import Budget, Compressor, describe
from ragjax.data.identity import content_hash, json_hash
from ragjax.data.records import Example
from ragjax.decode.states import LAYER, Pooled, pooled_states

RHOS = ("pooled", "token_norms")
_TINY = 1e-12


def concentration(pooled: Pooled, kind: str = "pooled") -> np.ndarray:
    """rho: how concentrated a summary's states are, [n] (xCompress, adaptive filter); NaN for an empty text.

    "pooled" is ||mean_t h_t||_2 / ||max_t h_t||_1, as the published code; "token_norms" the mean of the tokens' L2
    norms over the largest of their L1 norms.
    """
    if kind not in RHOS:
        raise ValueError(f"rho is one of {RHOS}, got {kind!r}")
    if kind == "token_norms":
        return np.asarray(pooled.token_l2) / (np.asarray(pooled.token_l1) + _TINY)
    above = np.linalg.norm(np.asarray(pooled.mean, np.float64), axis=-1)
    return above / (np.sum(np.abs(np.asarray(pooled.max, np.float64)), axis=-1) + _TINY)


@dataclass(frozen=True)
class Filter:
    """A threshold and what it holds for.

    A question keeps its initial summary where `rho` exceeds `threshold`, which the top `share` of the calibration
    questions do. `reader` and `compressor` say by content which models, prompts and budget it was measured with, `rows`
    are the hashes of the questions: none of them may be evaluated with it.
    """

    threshold: float
    share: float
    reader: str
    compressor: str
    rows: tuple[str, ...]
    rho: str = "pooled"
    first_token: str = "keep"
    layer: int = LAYER

    def save(self, path: str | os.PathLike) -> None:
        """Write it as JSON. Raises FileExistsError rather than replace a file."""
        path = epath.Path(path)
        _refuse_existing(path)
        path.write_text(json.dumps(asdict(self), indent=2))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Filter":
        """Read what `save` wrote. Raises ValueError, naming the file, for anything else."""
        try:
            found = json.loads(epath.Path(path).read_text())
            return cls(**{**found, "rows": tuple(found["rows"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)}: no filter of ours ({error})") from None

    def check(
        self, reader: Any, compressor: Compressor, examples: Sequence[Example], budget: Budget | None = None
    ) -> None:
        """Refuse another model, prompt or budget than the calibration's, and questions of the calibration itself.

        Raises:
          ValueError: naming what differs, or the first such question.
        """
        for name, mine, theirs in (
            ("reader", self.reader, reader.fingerprint),
            ("compressor or budget", self.compressor, _writer_key(compressor, budget)),
        ):
            if mine != theirs:
                raise ValueError(f"the filter was calibrated with another {name}: calibrate it for this one")
        known = set(self.rows)
        for example in examples:
            if content_hash(example, golds=False, answers=False) in known:
                raise ValueError(f"example {example.id!r} is one of those the filter was calibrated on")

    def keeps(self, values: np.ndarray) -> np.ndarray:
        """Which initial summaries stay, [n] bool. NaN never does."""
        return values > self.threshold


@dataclass
class OnlinePool:
    """The published code's filter: a pool of `size` values of rho that changes with every question.

    The first `size` questions are always sampled. Then a question with rho at or below the pool's value at rank
    `share * size` is sampled and replaces the pool's lowest value; another keeps its summary and replaces the highest.
    Decisions depend on the order of the questions: it is here to repeat the published numbers, not as the default.
    """

    size: int = 50
    share: float = 0.3
    rho: str = "pooled"
    first_token: str = "keep"
    layer: int = LAYER
    pool: list[float] = field(default_factory=list)

    def check(
        self, reader: Any, compressor: Compressor, examples: Sequence[Example], budget: Budget | None = None
    ) -> None:
        """Anything goes."""

    def keeps(self, values: np.ndarray) -> np.ndarray:
        """Which initial summaries stay, [n] bool, one after the other. NaN never does, and stays out of the pool."""
        return np.array([bool(np.isfinite(value)) and self._keeps(float(value)) for value in values], bool)

    def _keeps(self, value: float) -> bool:
        self.pool.sort()
        if len(self.pool) < self.size:
            self.pool.append(value)
            return False
        kept = value > self.pool[max(_part(self.share, self.size) - 1, 0)]
        self.pool[-1 if kept else 0] = value
        return kept


def calibrate_filter(
    compressor: Compressor,
    reader: Any,
    examples: Sequence[Example],
    *,
    share: float = 0.3,
    rho: str = "pooled",
    first_token: str = "keep",
    layer: int = LAYER,
    budget: Budget | None = None,
    batch: int = 8,
    path: str | os.PathLike | None = None,
) -> Filter:
    """Fix a filter's threshold: the value of rho that the top `share` of some questions' initial summaries exceed.

    Args:
      compressor: the one whose summaries are filtered; `reader`: the `LanguageModel` that reads them.
      examples: the calibration questions; the filter then refuses to be used on any of them.
      path: a file to keep it in (`Filter.load` reads it).

    Raises:
      ValueError: for a share outside (0, 1), or where fewer than two questions have a summary.
      FileExistsError: for a path where something is, before any model runs.
    """
    if not 0 < share < 1:
        raise ValueError(f"share lies in (0, 1), got {share}")
    if path is not None:
        _refuse_existing(epath.Path(path))
    texts = [one.text for one in compressor.compress(examples, budget)]
    values = measure(reader, texts, rho=rho, first_token=first_token, layer=layer, batch=batch)
    found = np.sort(values[np.isfinite(values)])[::-1]
    if len(found) < 2:
        raise ValueError(f"{len(found)} of the {len(texts)} calibration questions have a summary: give more")
    fixed = Filter(
        threshold=float(found[_part(share, len(found))]),
        share=share,
        reader=reader.fingerprint,
        compressor=_writer_key(compressor, budget),
        rows=tuple(content_hash(example, golds=False, answers=False) for example in examples),
        rho=rho,
        first_token=first_token,
        layer=layer,
    )
    if path is not None:
        fixed.save(path)
    return fixed


def _refuse_existing(path: epath.Path) -> None:
    if path.exists():
        raise FileExistsError(f"{path} exists: a threshold is not replaced")


def measure(reader: Any, texts: Sequence[str], *, rho: str, first_token: str, layer: int, batch: int = 8) -> np.ndarray:
    """rho of each text under the reader, [n]; NaN for an empty one."""
    return concentration(pooled_states(reader, texts, layer=layer, first_token=first_token, batch=batch), rho)


def _writer_key(compressor: Compressor, budget: Budget | None) -> str:
    return json_hash({**describe(compressor), "budget": budget and asdict(budget)})


def _part(share: float, count: int) -> int:
    """A share of a number, rounded down, as written in decimals: in binary, 0.29 of 100 would be 28."""
    return int(Fraction(str(share)) * count)
