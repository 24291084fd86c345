"""Fixtures of the whole suite: where the reference material lies, and that every comparison runs in float32 on the CPU."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material; a test that asks for it skips, saying so, where it is absent."""
    folder = Path(os.environ.get("RAGJAX_SHARED", ROOT.parent / "shared"))
    if not (folder / "models").is_dir():
        pytest.skip("the reference material is not beside the checkout (set RAGJAX_SHARED)")
    return folder
