"""An empty place for what these tests keep: no subspace of theirs lands beside real checkpoints, or is found there."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGJAX_HOME", str(tmp_path_factory.mktemp("home")))
        yield
