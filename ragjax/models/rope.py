"""Rotary settings: what a forward pass needs of them, and their many spellings in config files.

Both spellings are read (`rope_theta` + `rope_scaling`, and `rope_parameters` of transformers 5), and a base found
anywhere in the file is never replaced by a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragjax.models.fields import Fields

_ORIGINAL = "original_max_position_embeddings"

# kind -> the settings that it reads beside theta
ROPE_KINDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
}


@dataclass(frozen=True)
class Rope:
    """One rotary table. Its frequencies are `theta ** (-2i / H)`, then slowed down by `kind`.

    `default` leaves them, `linear` divides all by `factor`, `llama3` divides the slow ones by `factor`, keeps the fast
    ones and blends between (wave lengths compared with `original_max_positions`, in tokens).
    A field that its kind has no use for keeps its default, the neutral value: with those the formula of `llama3` gives
    exactly the other two kinds.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0


def rope_of(fields: Fields, published_theta: float | None) -> Rope:
    """Read one rotary table from any spelling; `published_theta` is used only where the file states no base at all."""
    blocks = [b for b in (fields.take("rope_scaling", None), fields.take("rope_parameters", None)) if b is not None]
    blocks = [_single_table(fields, block) for block in blocks]
    stated = [fields.take("rope_theta", None), *(block.pop("rope_theta", None) for block in blocks)]
    bases = [value for value in stated if value is not None]
    if any(base != bases[0] for base in bases):
        fields.problems.append(f"rope_theta is stated as {' and '.join(map(str, bases))}")
    original = fields.take(_ORIGINAL, None)
    theta = Fields({"rope_theta": bases[0] if bases else published_theta})
    base = theta.number("rope_theta")
    ropes = {_scaling(fields, block, base, original) for block in blocks or [{}]}
    fields.problems += theta.problems
    if len(ropes) > 1:
        fields.problems.append("rope_scaling and rope_parameters contradict each other")
    return ropes.pop()


def ropes_of(fields: Fields, full_theta: float, windowed_theta: float) -> tuple[Rope, Rope]:
    """The tables of full and of windowed layers, where a model has two.

    The old spelling has `rope_theta` and `rope_scaling` for the full layers and `rope_local_base_freq` for the windowed
    ones, which are never scaled; `rope_parameters` is keyed by the kind of layer. The published bases are used only
    where the file states none.
    """
    blocks = fields.mapping("rope_parameters", {})
    if strange := set(blocks) - {"full_attention", "sliding_attention"}:
        fields.problems.append(f"rope_parameters of two kinds of layers hold {', '.join(sorted(strange))}")
    full = {"rope_parameters": blocks.get("full_attention")}
    full |= {key: fields.take(key, None) for key in ("rope_theta", "rope_scaling")}
    windowed = {
        "rope_parameters": blocks.get("sliding_attention"),
        "rope_theta": fields.take("rope_local_base_freq", None),
    }
    readers = Fields(full), Fields(windowed)
    tables = rope_of(readers[0], full_theta), rope_of(readers[1], windowed_theta)
    fields.problems += readers[0].problems
    fields.problems += [f"rope_local_base_freq or sliding_attention: {problem}" for problem in readers[1].problems]
    return tables


def _single_table(fields: Fields, block: Any) -> dict[str, Any]:
    """The settings of a model that has one table: flat, or nested under its only layer type."""
    if not isinstance(block, Mapping):
        fields.problems.append(f"rope settings are {block!r}, not an object")
        return {}
    nested = {key: value for key, value in block.items() if isinstance(value, Mapping)}
    if set(nested) == set(block) == {"full_attention"}:
        return dict(nested["full_attention"])
    if nested:
        fields.problems.append(f"rope settings per layer type ({', '.join(nested)}) in a model with one table")
        return {}
    return dict(block)


def _scaling(fields: Fields, block: Mapping[str, Any], theta: float, original: int | None) -> Rope:
    """One rotary table from the settings inside a rope block; a setting that its kind does not read is refused."""
    inner = Fields(block)
    kind = inner.take("rope_type", inner.left.get("type") or "default")
    if inner.take("type", kind) != kind:
        inner.problems.append(f"rope kinds {kind!r} and {block['type']!r} contradict each other")
    if not isinstance(kind, str) or kind not in ROPE_KINDS:
        fields.problems.append(f"rope kind {kind!r} is not supported (supported: {', '.join(ROPE_KINDS)})")
        return Rope(theta)
    used = ROPE_KINDS[kind]
    if original is not None:
        inside = inner.left.get(_ORIGINAL)
        inner.left[_ORIGINAL] = original
        if inside not in (None, original):
            inner.problems.append(f"{_ORIGINAL} is stated as {original!r} and {inside!r}")
    factors = {key: inner.number(key) for key in used if key != _ORIGINAL}
    positions = {"original_max_positions": inner.integer(_ORIGINAL)} if _ORIGINAL in used else {}
    rope = Rope(theta, kind, **factors, **positions)
    if rope.high_freq_factor <= rope.low_freq_factor:
        inner.problems.append("high_freq_factor must be above low_freq_factor")
    inner.only("partial_rotary_factor", 1.0)
    inner.problems += [f"{k} is {v!r}, of no use in kind {kind!r}" for k, v in inner.left.items() if v is not None]
    fields.problems += [f"rope settings: {problem}" for problem in inner.problems]
    return rope
