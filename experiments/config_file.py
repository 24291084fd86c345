"""A study's file: the points it builds, the rows it still waits for, the numbers it is compared with."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from experiments.experiment import Experiment, check_field, nearest
from experiments.published import Published, row_of


@dataclass(frozen=True)
class Config:
    """What a study's file builds: `POINTS`, and maybe `PENDING`, `PUBLISHED` and `ROW`.

    `pending` are rows of the published table whose method does not exist here yet, with the reason or the settings;
    `published` the numbers of the table, in whose `row` a point stands (`ROW`).
    """

    points: list[Experiment]
    pending: Mapping[str, str] = field(default_factory=dict)
    published: Published | None = None
    row: Callable[[Experiment], str] = row_of


def config_path(name: str) -> Path:
    """Where a study's file lies: a path that ends in .py, or the name of a shipped one.

    Raises:
      FileNotFoundError: there is neither; names what is shipped.
    """
    folder = Path(str(resources.files("experiments"))) / "configs"
    path = Path(name) if name.endswith(".py") else folder / f"{name}.py"
    if path.is_file():
        return path
    shipped = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    raise FileNotFoundError(f"no study {name!r} (shipped: {', '.join(shipped)}{nearest(name, shipped)})")


def load_config(path: Path) -> Config:
    """What a study's file builds.

    Raises:
      ValueError: the file sets a field that does not exist, or builds no list of points.
    """
    spec = importlib.util.spec_from_file_location(f"study_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except TypeError as error:
        unknown = re.search(r"Experiment.*unexpected keyword argument '(\w+)'", str(error))
        if unknown is None:
            raise
        check_field(unknown[1])
    points = getattr(module, "POINTS", None)
    if not isinstance(points, list) or not points or not all(isinstance(point, Experiment) for point in points):
        raise ValueError(f"{path} builds no list POINTS of experiments")
    stated = {"pending": "PENDING", "published": "PUBLISHED", "row": "ROW"}
    return Config(points, **{field: getattr(module, name) for field, name in stated.items() if hasattr(module, name)})
