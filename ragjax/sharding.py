"""Where arrays lie on several devices: a mesh, and the rules by which the letters of a shape are cut along it.

A model loaded with a mesh has its weights cut by `MeshRules` from the start; whatever runs with it finds the mesh
through `mesh_of` and works under `on_mesh`. XLA splits the arithmetic after the weights; `constrain` at a few named
points (hidden states, caches, logits) only keeps it from choosing otherwise. Results do not depend on a mesh.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from ragjax.runtime import LOG
from ragjax.typing import Array, PyTree

AXES = ("data", "model")


@dataclass(frozen=True)
class MeshRules:
    """The mesh axis that cuts each logical axis; None leaves it whole, as every letter without a rule.

    A mesh axis cuts an array once, along the first of its axes that it divides. R are rows, the candidates of B.
    Experts are cut inside (F) and not apart (E): each token needs a few of them, whichever device they lie on.
    """

    B: str | None = "data"
    R: str | None = "data"
    V: str | None = "model"
    N: str | None = "model"
    K: str | None = "model"
    F: str | None = "model"
    E: str | None = None


RULES = MeshRules()

_WORDS = {"V": "vocabulary rows", "N": "query heads", "K": "key/value heads", "F": "feed-forward units", "E": "experts"}


def make_mesh(data: int = 1, model: int = 1) -> Mesh:
    """A mesh of the first data * model devices: batches are cut along `data`, weights along `model`.

    Raises:
        ValueError: if there are fewer devices.
    """
    devices = jax.devices()
    if data < 1 or model < 1 or data * model > len(devices):
        raise ValueError(f"a mesh of data={data} x model={model} does not fit {len(devices)} devices")
    return jax.make_mesh((data, model), AXES, axis_types=(AxisType.Auto,) * 2, devices=devices[: data * model])


def spec_of(param: Any, mesh: Mesh, rules: MeshRules = RULES) -> PartitionSpec:
    """How a parameter (anything with `shape` and `axes`) is cut. An axis that the mesh does not divide stays whole."""
    return _fit(param.axes, param.shape, mesh.shape, rules)


def place(specs: PyTree, mesh: Mesh | None, rules: MeshRules = RULES) -> PyTree:
    """The tree of `abstract` with a `jax.ShapeDtypeStruct` at each leaf, whose sharding says where its parts go.

    Without a mesh the tree is as it was. What is `replicated` is logged.

    Raises:
        ValueError: if the mesh lacks an axis that the rules name, or has one of another type than Auto.
    """
    if mesh is None:
        return specs
    named = {name for name in vars(rules).values() if name is not None}
    if not named <= set(mesh.axis_names) or set(mesh.axis_types) != {AxisType.Auto}:
        kinds = dict(zip(mesh.axis_names, (kind.name for kind in mesh.axis_types), strict=True))
        raise ValueError(f"a mesh has Auto axes {', '.join(sorted(named))}, got {kinds}: make it with ragjax.make_mesh")

    for sentence in replicated(specs, mesh, rules):
        LOG.warning("%s: %s", _describe(mesh), sentence)

    def leaf(spec: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, spec_of(spec, mesh, rules))
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=sharding)

    return jax.tree.map(leaf, specs)


def replicated(specs: PyTree, mesh: Mesh, rules: MeshRules = RULES) -> list[str]:
    """What stays whole on every device because the mesh does not divide it: a sentence for each axis, with numbers."""
    found: dict[tuple[str, int, str], list[int]] = {}
    for spec in jax.tree.leaves(specs):
        uncut = not spec_of(spec, mesh, rules)
        for letter, size in zip(spec.axes, spec.shape, strict=True):
            name = getattr(rules, letter, None)
            if uncut and name is not None and size % mesh.shape[name]:
                key = (letter, size, f"{name}={mesh.shape[name]}")
                found.setdefault(key, []).append(jnp.dtype(spec.dtype).itemsize * math.prod(spec.shape))
    return [
        f"{size} {_WORDS[letter]} are not divisible by {axis}: {len(sizes)} arrays ({sum(sizes) / 1e6:,.1f} MB) are "
        "whole on every device"
        for (letter, size, axis), sizes in found.items()
    ]


def mesh_of(models: Sequence[Any]) -> Mesh | None:
    """The mesh that all models' parameters lie on, None for plain devices.

    Raises:
        ValueError: if two models do not lie on the same mesh.
    """
    meshes = [_mesh(model.params) for model in models]
    for model, mesh in zip(models, meshes, strict=True):
        if mesh != meshes[0]:
            raise ValueError(
                f"{models[0].name} lies on {_describe(meshes[0])} and {model.name} on {_describe(mesh)}: "
                "models that work together are loaded with the same mesh"
            )
    return meshes[0]


def on_mesh(mesh: Mesh | None) -> contextlib.AbstractContextManager:
    """The context in which `constrain` and `zeros` mean this mesh; with None, the one in which they do nothing."""
    return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


def data_shards(mesh: Mesh | None = None) -> int:
    """Into how many parts the rows of a batch are cut, on a mesh or on that of the context."""
    return (mesh or jax.sharding.get_abstract_mesh()).shape.get(RULES.B, 1)


def constrain(x: Array, axes: str, rules: MeshRules = RULES) -> Array:
    """The array cut by the letters of its axes, traced or not; untouched outside of `on_mesh`."""
    mesh = jax.sharding.get_abstract_mesh()
    return x if mesh.empty else jax.lax.with_sharding_constraint(x, _fit(axes, x.shape, mesh.shape, rules))


def zeros(shape: tuple[int, ...], dtype: DTypeLike, axes: str, rules: MeshRules = RULES) -> Array:
    """Zeros cut by the letters of their axes, made where they lie."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return jnp.zeros(shape, dtype)
    return jax.jit(jnp.zeros, static_argnums=(0, 1), out_shardings=_fit(axes, shape, mesh.shape, rules))(shape, dtype)


def _fit(axes: str, shape: Sequence[int], sizes: Mapping[str, int], rules: MeshRules) -> PartitionSpec:
    """In the one spelling that equal placements share: no mesh axis of size 1, no None at the end."""
    cut: list[str | None] = []
    for letter, size in zip(axes, shape, strict=True):
        name = getattr(rules, letter, None)
        parts = sizes.get(name, 1)
        cut.append(name if parts > 1 and size % parts == 0 and name not in cut else None)
    while cut and cut[-1] is None:
        cut.pop()
    return PartitionSpec(*cut)


def _mesh(params: PyTree) -> Mesh | None:
    sharding = getattr(jax.tree.leaves(params)[0], "sharding", None)
    return sharding.mesh if isinstance(sharding, NamedSharding) else None


def _describe(mesh: Mesh | None) -> str:
    return "no mesh" if mesh is None else " x ".join(f"{name}={size}" for name, size in mesh.shape.items())
