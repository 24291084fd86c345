"""Tables of public names that import nothing until a name is used (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def name_table(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names live in the modules that `homes` gives."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    names = sorted(homes)
    return get, lambda: names, names
