"""Lists of points: every combination, position by position, one after the other."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from experiments.experiment import Experiment, check_field
from experiments.methods import EXECUTION_FIELDS, READ_WITH


def as_points(group: Experiment | Iterable[Experiment]) -> list[Experiment]:
    """One experiment or several, as a list."""
    return [group] if isinstance(group, Experiment) else list(group)


def prod(base: Experiment | Iterable[Experiment], **lists: Sequence[Any]) -> list[Experiment]:
    """Every combination of the lists' values on every base point; the last list varies fastest.

    Raises:
      ValueError: a name is no field of an experiment.
    """
    return vary(base, lists, itertools.product(*lists.values()))


def zip_(base: Experiment | Iterable[Experiment], **lists: Sequence[Any]) -> list[Experiment]:
    """The first values of all lists together, then the second ones, and so on, on every base point.

    Raises:
      ValueError: a name is no field of an experiment, or the lists differ in length.
    """
    if len({len(values) for values in lists.values()}) > 1:
        raise ValueError(f"zip_ takes lists of one length, got { {name: len(v) for name, v in lists.items()} }")
    return vary(base, lists, zip(*lists.values(), strict=True))


def chain(*groups: Experiment | Iterable[Experiment]) -> list[Experiment]:
    """The points of all groups, in order."""
    return [point for group in groups for point in as_points(group)]


def vary(
    base: Experiment | Iterable[Experiment], names: Iterable[str], rows: Iterable[tuple[Any, ...]]
) -> list[Experiment]:
    """Each base point with each row of values in the named fields."""
    names, rows = list(names), list(rows)
    for name in names:
        check_field(name)
    return [replace(point, **dict(zip(names, row, strict=True))) for point in as_points(base) for row in rows]


def override(points: Sequence[Experiment], values: Mapping[str, Any]) -> list[Experiment]:
    """The distinct points, in canonical form, after setting fields on all of them.

    Raises:
      ValueError: a name is no field, no point reads it, or two points would make the same rows.
    """
    for name in values:
        check_field(name)
    if values.get("seed", 0) is None:
        raise ValueError("seed is none; a study can be repeated: give it a number")
    changed = list(dict.fromkeys(replace(point, **values).canonical() for point in points))
    for name, value in values.items():
        # A preset turns into values of other fields.
        if name != "preset" and value is not None and all(getattr(point, name) is None for point in changed):
            raise ValueError(f"no point of this study reads {name}")
    if len({replace(point, **dict.fromkeys(EXECUTION_FIELDS)) for point in changed}) < len(changed):
        raise ValueError(f"two points differ in nothing but {', '.join(EXECUTION_FIELDS)}, which define no row")
    return changed


def label_points(points: Sequence[Experiment]) -> list[str]:
    """A short name for each canonical point: its method and whatever tells it from the others of that method.

    Files are not named where the dataset tells them apart.
    """
    by_method: dict[str, list[Experiment]] = {}
    for point in points:
        by_method.setdefault(point.method, []).append(point)
    telling = {method: telling_fields(peers) for method, peers in by_method.items()}
    labels = []
    for point in points:
        shown = [f"{name} {getattr(point, name)}" for name in telling[point.method] if getattr(point, name) is not None]
        labels.append(" ".join([point.title, *shown]))
    return labels


def telling_fields(peers: Sequence[Experiment]) -> list[str]:
    """The fields that tell points of one method apart, and alpha.

    A field that some points do not read, and the others have alike, follows from what makes them read it.
    """
    in_title = ("method", "scorer")
    varied = [field.name for field in fields(Experiment) if field.name not in (*in_title, *EXECUTION_FIELDS)]
    telling = [name for name in varied if name == "alpha" or tells(peers, name)]
    if "dataset" not in telling:
        return telling
    told = {name for name in ("data", "split", "golds", "top_k") if follows(peers, "dataset", name)}
    return [name for name in telling if name not in told]


def tells(peers: Sequence[Experiment], name: str) -> bool:
    """Whether a field has two values; None, of a point that does not read it, is one where nothing makes it so."""
    values = {getattr(peer, name) for peer in peers}
    optional = any(name in read for by_value in READ_WITH.values() for read in by_value.values())
    return len(values - {None} if optional else values) > 1


def follows(points: Sequence[Experiment], given: str, name: str) -> bool:
    """Whether one field's value decides another's."""
    pairs = {(getattr(point, given), getattr(point, name)) for point in points}
    return len(pairs) == len({first for first, _ in pairs})
