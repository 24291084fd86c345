"""The folder's helper module, and a place of work with two small models and a data file."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

QUESTIONS = [
    {
        "id": "a",
        "question": "Who built the bridge?",
        "answers": ["Ada"],
        "docs": [{"title": "Bridge", "text": "Ada built it."}],
    },
    {"question": "Where is it?", "answer": "Rye", "docs": [{"title": "Rye", "text": "A town → éa."}, {"text": "No."}]},
    {"id": "c", "question": "Why?", "answers": [], "docs": [{"title": "T", "text": "Because of the river."}]},
    {"question": "When?", "answer": "1742", "docs": [{"title": "T", "text": "In 1742."}]},
    {"question": "When?", "answer": "1742", "docs": [{"title": "T", "text": "In 1742."}]},
]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """The working directory of a sweep: model.txt, other.txt, data.jsonl and study.py of six methods."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    (tmp_path / "model.txt").write_text("revision 1")
    (tmp_path / "other.txt").write_text("another model")
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    (tmp_path / "study.py").write_text(
        """
from experiments.combine import chain, prod
from experiments.experiment import Experiment

BASE = Experiment(compressor="model.txt", target="model.txt", reader="model.txt", data="data.jsonl", batch=2)
POINTS = chain(
    prod(BASE, method=["no_context", "raw", "zero_shot", "generated", "concat"]), prod(BASE, alpha=[0.3, 0.7])
)
"""
    )
    return tmp_path
