"""The tables of public names: complete, documented, clear of module names, and free to import."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import ragjax

PACKAGES = (
    "ragjax",
    "ragjax.compressors",
    "ragjax.decode",
    "ragjax.encode",
    "ragjax.retrieve",
    "ragjax.compress",
    "ragjax.cite",
    "ragjax.data",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_table_exists_and_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} has no docstring"
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_no_public_name_is_a_module_s() -> None:
    modules = {part for info in pkgutil.walk_packages(ragjax.__path__, "ragjax.") for part in info.name.split(".")}
    tables = {package: importlib.import_module(package) for package in PACKAGES}
    named = {name: getattr(table, name) for table in tables.values() for name in table.__all__}
    others = {name for name, value in named.items() if not inspect.ismodule(value)}
    assert set(named) - others == {"cite", "compressors"}
    assert not others & modules


def test_importing_everything_touches_no_device() -> None:
    """Every module of the library, in a process of its own: no backend is initialised, no global setting changed."""
    script = """
import importlib, pkgutil, jax
before = dict(jax.config.values)
import ragjax, experiments
for package in (ragjax, experiments):
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(info.name)
from jax._src import xla_bridge
assert not xla_bridge._backends, "a backend was initialised"
assert dict(jax.config.values) == before, "a global setting changed"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
