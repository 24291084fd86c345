"""Fixtures of the compressors' tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _subspaces_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tiny models are no converted checkpoints: their subspaces would be kept under `RAGJAX_HOME`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGJAX_HOME", str(tmp_path_factory.mktemp("checkpoints")))
        yield
