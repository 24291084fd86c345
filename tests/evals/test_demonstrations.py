"""The demonstrations: five a dataset, short answers, and nothing from a dataset that is at hand."""

import json

import pytest

from ragjax.data.catalog import DATASETS
from ragjax.evals.demonstrations import DEMONSTRATIONS, demonstrations
from ragjax.evals.qa import parse_answer


def test_there_are_five_for_each_dataset():
    assert set(DEMONSTRATIONS) == set(DATASETS)
    for dataset, pairs in DEMONSTRATIONS.items():
        assert len(pairs) == 5
        assert len({question for question, _ in pairs}) == 5
        assert all(len(answer.split()) <= 12 and parse_answer(answer) == answer for _, answer in pairs), dataset
    assert demonstrations("nq", 2) == DEMONSTRATIONS["nq"][:2]
    with pytest.raises(ValueError, match="asked for 6"):
        demonstrations("nq", 6)
    with pytest.raises(ValueError, match="no demonstrations for the dataset 'squad'"):
        demonstrations("squad")


@pytest.mark.shared
def test_none_is_a_question_of_the_reference_files(shared):
    asked = set()
    for path in (shared / "data").glob("*.jsonl"):
        rows = (json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line)
        asked |= {str(row.get("question")).lower().strip(" ?") for row in rows}
    assert len(asked) > 1000
    assert not {q.lower().strip(" ?") for pairs in DEMONSTRATIONS.values() for q, _ in pairs} & asked
