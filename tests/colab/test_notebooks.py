"""The notebooks run from top to bottom, as on Colab but for the backend."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent.parent


def run_notebook(monkeypatch: pytest.MonkeyPatch, **environment: str) -> nbformat.NotebookNode:
    """Execute the quickstart with some environment variables; the notebook with its outputs."""
    notebook = nbformat.read(ROOT / "colab" / "quickstart.ipynb", as_version=4)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(ROOT)}})
    return client.execute()


def texts(notebook: nbformat.NotebookNode, cell: str) -> str:
    """What a cell printed and returned."""
    outputs = next(c for c in notebook.cells if c.id == cell).outputs
    return "".join(o.get("text", "") or "".join(o.get("data", {}).values()) for o in outputs)


def test_quickstart_makes_the_table(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = run_notebook(
        monkeypatch,
        RAGJAX_EXPECT="cpu",
        JAX_DISABLE_MOST_OPTIMIZATIONS="0",  # it runs a real model
        RAGJAX_LIMIT="1",
        RAGJAX_OUT=str(tmp_path / "out"),
        RAGJAX_HOME=str(smollm2.parent),
    )
    assert "<span style" in texts(notebook, "one")
    table = texts(notebook, "table")
    for method in ("no context", "raw", "zero-shot", "generated", "concatenation", "FaviComp"):
        assert method in table
    assert (tmp_path / "out" / "items.jsonl").exists()


def test_H01_quickstart_stops_in_its_first_cell_without_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CellExecutionError, match=r"expected a TPU and found CPU .*jax \d") as stopped:
        run_notebook(monkeypatch, RAGJAX_EXPECT="tpu")
    assert "require_backend" in str(stopped.value)
