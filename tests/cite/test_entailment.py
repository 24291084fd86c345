"""The memory around a judge: each pair is judged once, whoever asks, and what was judged is never lost or mixed."""

import json
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ragjax.cite import Judged, LexicalOverlap, Remembered

PAIRS = [(f"premise {i}", f"claim {i % 7}") for i in range(23)]


class Counting:
    """A judge whose values are made of its pairs and a number; it counts what it is asked, and may fail at a pair."""

    name = "counting"

    def __init__(self, seed: int = 0, fails_at: str | None = None, told: dict | None = None) -> None:
        self.seed, self.fails_at, self.told = seed, fails_at, told or {"judge": "counting"}
        self.seen: list[tuple[str, str]] = []

    def describe(self):
        return self.told

    def probabilities(self, pairs):
        if any(premise == self.fails_at for premise, _ in pairs):
            raise ArithmeticError("not finite")
        self.seen += pairs
        values = [(sum(map(ord, p + h)) * 31 + self.seed) % 101 / 101 for p, h in pairs]
        return Judged(np.array(values), np.array([len(p) for p, _ in pairs]), np.array([len(h) for _, h in pairs]))


def equal(a: Judged, b: Judged) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("values", "tokens", "truncated"))


def test_each_distinct_pair_is_judged_once_and_answers_come_in_their_order():
    judge = Counting()
    remembered = Remembered(judge, chunk=5)
    found = remembered.probabilities(PAIRS + PAIRS[::-1])
    assert sorted(judge.seen) == sorted(PAIRS)
    assert equal(found, Counting().probabilities(PAIRS + PAIRS[::-1]))
    assert (remembered.calls, remembered.asked) == (5, 23)
    assert found.values.dtype == np.float64
    remembered.probabilities(PAIRS[3:9])
    assert (remembered.calls, remembered.asked) == (5, 23)
    assert remembered.name == "counting"
    assert remembered.describe() == judge.describe()


def test_a_pair_is_not_its_reverse_nor_another_cut_of_the_same_words():
    judge = Counting()
    Remembered(judge).probabilities([("a b", "c"), ("c", "a b"), ("a", "b c"), ("a b", "c")])
    assert len(judge.seen) == 3


def test_no_pairs_ask_nobody(tmp_path):
    remembered = Remembered(Counting(), tmp_path)
    found = remembered.probabilities([])
    assert found.values.shape == found.tokens.shape == found.truncated.shape == (0,)
    assert remembered.calls == 0


def test_a_second_run_makes_no_model_call(tmp_path):
    first = Remembered(Counting(), tmp_path).probabilities(PAIRS)
    again = Remembered(Counting(), tmp_path)
    assert equal(again.probabilities(PAIRS[::-1] + PAIRS), Counting().probabilities(PAIRS[::-1] + PAIRS))
    assert again.calls == again.asked == 0
    assert equal(again.probabilities(PAIRS), first)
    again.probabilities([*PAIRS, ("new", "pair")])
    assert (again.calls, again.asked) == (1, 1)


@pytest.mark.parametrize("change", ["model", "dtype", "mode", "label"])
def test_F13_judgements_of_different_judges_never_mix(change, tmp_path):
    told = {"judge": "classifier", "model": "a", "dtype": "float32", "mode": "truncate", "label": 0}
    Remembered(Counting(told=told), tmp_path).probabilities(PAIRS)
    other = Remembered(Counting(seed=50, told={**told, change: "other"}), tmp_path)
    assert equal(other.probabilities(PAIRS), Counting(seed=50).probabilities(PAIRS))
    assert other.asked == len(PAIRS)
    back = Remembered(Counting(told=told), tmp_path)
    assert equal(back.probabilities(PAIRS), Counting().probabilities(PAIRS))
    assert back.asked == 0


def test_F13_the_folder_tells_who_judged(tmp_path):
    Remembered(LexicalOverlap(), tmp_path)
    with sqlite3.connect(tmp_path / "entailment.sqlite3") as database:
        ((told,),) = database.execute("SELECT description FROM judges")
    assert json.loads(told) == LexicalOverlap().describe()


def test_what_was_judged_before_a_failure_is_kept(tmp_path):
    pairs = [("x" * (30 - i), "claim") for i in range(20)]
    broken = Remembered(Counting(fails_at=pairs[17][0]), tmp_path, chunk=5)
    with pytest.raises(ArithmeticError):
        broken.probabilities(pairs)
    mended = Remembered(Counting(), tmp_path, chunk=5)
    assert equal(mended.probabilities(pairs), Counting().probabilities(pairs))
    assert mended.asked == 5


KILLED = """
import os, signal, sys
sys.path.insert(0, "")
from tests.cite.test_entailment import PAIRS, Counting
from ragjax.cite import Remembered

class Dying(Counting):
    def probabilities(self, pairs):
        if len(self.seen) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().probabilities(pairs)

Remembered(Dying(), sys.argv[1], chunk=5).probabilities(PAIRS)
"""


def test_what_was_judged_before_a_kill_is_kept(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    rest = Remembered(Counting(), tmp_path)
    assert equal(rest.probabilities(PAIRS), Counting().probabilities(PAIRS))
    assert rest.asked == len(PAIRS) - 10


def test_runs_at_the_same_time_share_a_folder_and_agree(tmp_path):
    def run(seed: int) -> Judged:
        return Remembered(Counting(seed), tmp_path, chunk=2).probabilities(PAIRS[seed:] + PAIRS[:seed])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(4)))
    after = Remembered(Counting(9), tmp_path)
    kept = dict(zip(PAIRS, after.probabilities(PAIRS).values, strict=True))
    assert after.asked == 0
    for seed, judged in enumerate(found):
        # The judges differ: who was first with a pair is believed by all.
        assert judged.values.tolist() == [kept[pair] for pair in PAIRS[seed:] + PAIRS[:seed]]


def test_what_another_process_wrote_meanwhile_stands(tmp_path):
    class Late(Counting):
        def probabilities(self, pairs):
            Remembered(Counting(7), tmp_path).probabilities(pairs)
            return super().probabilities(pairs)

    found = Remembered(Late(), tmp_path).probabilities(PAIRS)
    assert equal(found, Counting(7).probabilities(PAIRS))
    assert not equal(found, Counting().probabilities(PAIRS))


def test_a_file_that_is_no_such_memory_is_told_and_left_alone(tmp_path):
    path = tmp_path / "entailment.sqlite3"
    path.write_text("something else, long enough to be looked at " * 10)
    with pytest.raises(OSError, match=r"entailment\.sqlite3: file is not a database"):
        Remembered(Counting(), tmp_path)
    assert path.read_text().startswith("something else")


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.5])
def test_a_value_that_is_no_probability_is_an_error_and_not_kept(value, tmp_path):
    class Odd(Counting):
        def probabilities(self, pairs):
            return Judged(np.full(len(pairs), value), np.ones(len(pairs), int), np.zeros(len(pairs), int))

    with pytest.raises(ValueError, match="counting gives 'the claim' the probability"):
        Remembered(Odd(), tmp_path).probabilities([("a", "the claim")])
    after = Remembered(Counting(), tmp_path)
    after.probabilities([("a", "the claim")])
    assert after.asked == 1


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="a chunk has at least 1 pair"):
        Remembered(Counting(), chunk=0)
    with pytest.raises(ValueError, match="local disk, got gs://bucket/there"):
        Remembered(Counting(), "gs://bucket/there")
