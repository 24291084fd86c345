"""Fixtures of the compressors' tests."""

from collections.abc import Iterator

import pytest

from ragjax.compress.favicomp import FaviComp
from ragjax.data.records import Document, Example
from ragjax.hub import LanguageModel
from ragjax.testing import tiny_model
from tests.oracle import SHORT


@pytest.fixture(scope="session")
def lm() -> LanguageModel:
    """A tiny model that writes, and reads what it wrote."""
    return tiny_model()


@pytest.fixture(scope="session")
def compressor(lm: LanguageModel) -> FaviComp:
    """It writes up to 12 tokens an example."""
    return FaviComp(compressor=lm, alpha=0.0, max_new=12, batch=4, prompts=SHORT)


@pytest.fixture(scope="session")
def examples() -> list[Example]:
    """Eight questions with a document each."""
    return [Example(f"q{n}", f"Who is {n}?", documents=(Document(f"Number {n} is {n * n}."),)) for n in range(8)]


@pytest.fixture(scope="module", autouse=True)
def _subspaces_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tiny models are no converted checkpoints: their subspaces would be kept under `RAGJAX_HOME`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGJAX_HOME", str(tmp_path_factory.mktemp("checkpoints")))
        yield
