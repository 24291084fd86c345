"""Tables of public names that import nothing until a name is used (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def name_table(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names live in the modules that `homes` gives.

    A name whose home is the package's own module of that name is that module.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        return home if homes[name] == f"{package}.{name}" else getattr(home, name)

    names = sorted(homes)
    return get, lambda: names, names
