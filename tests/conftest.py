"""Fixtures of the whole suite: where models and the reference material lie, and what a skip means."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Programs that tests run in this process would switch it on for all that come after them.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
# Compiling, not running, takes the time of all tests but those of real models, which switch this off (`optimised`).
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import pytest
from hypothesis import settings

# What is first used in an example is imported or compiled in it.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent
# As it is before tests set it for themselves.
CONVERTED = Path(os.environ.get("RAGJAX_HOME", ROOT / "checkpoints"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --fail-on-skip, a run in which anything was skipped has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")  # A worker of xdist has none.
    if reporter is not None and session.config.getoption("--fail-on-skip") and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs() -> Iterator[None]:
    """A process that keeps the programs of all modules runs out of memory maps, and the compiler then crashes."""
    yield
    if "jax" in sys.modules:
        import jax

        jax.clear_caches()


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """Programs as users compile them, for modules in which running them takes longer."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The converted checkpoint of SmolLM2-135M-Instruct, which `make models` makes."""
    return _converted("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """The converted checkpoint of Gemma 3 270M, which `make models` makes."""
    return _converted("gemma-3-270m")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The converted checkpoint of all-MiniLM-L6-v2, which `make models` makes."""
    return _converted("all-minilm-l6-v2")


def _converted(name: str) -> Path:
    folder = CONVERTED / name
    if not (folder / "ragjax.json").exists():
        pytest.skip(f"{name} is not converted: run `make models`")
    return folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material; a test that asks for it skips, saying so, where it is absent."""
    folder = Path(os.environ.get("RAGJAX_SHARED", ROOT.parent / "shared"))
    if not (folder / "models").is_dir():
        pytest.skip("the reference material is not beside the checkout (set RAGJAX_SHARED)")
    return folder
