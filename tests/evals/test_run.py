"""A run killed, torn, repeated or changed: what it redoes, what it refuses, and that its bytes stay the same."""

import json
import shutil

import numpy as np
import pytest

from ragjax.evals.parts import encode_line, read_part, read_parts, write_part
from ragjax.evals.run import Group, Item, MixedSettingsError, Point, check_folder, identify, run


class Recorder:
    """Makes one row an item and a point; remembers what it was asked for, and raises where told to."""

    def __init__(self, texts, failing=(), stop_after=None):
        self.texts, self.failing, self.stop_after, self.calls = texts, dict(failing), stop_after, []

    def __call__(self, points, items, tell):
        if self.stop_after is not None and len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append((tuple(points), tuple(items)))
        for item in items:
            if self.failing.get(item, 0) > 0:
                self.failing[item] -= 1
                raise RuntimeError(f"item {item} broke\nwith a long story")
        rows = [[{"status": "ok", "text": f"{self.texts[i]} → {p}é"} for i in items] for p in points]
        return rows, [{"stage": "read", "point": p, "seconds": len(self.calls) / 7} for p in points]


TEXTS = ["who", "where", "who", "when", "how"]


def make_group(work, texts=TEXTS, points=2, batch=2, **settings):
    items = tuple(Item(id=f"q{i}" if text != "who" else "", content=text) for i, text in enumerate(texts))
    listed = tuple(Point(f"point {p}", {"alpha": p / 2, "data": "abc", **settings}) for p in range(points))
    return Group(listed, items, batch, work)


@pytest.fixture
def whole(tmp_path):
    """The folder of an uninterrupted run."""
    run(tmp_path / "whole", [make_group(Recorder(TEXTS))])
    return tmp_path / "whole"


def resume(folder):
    work = Recorder(TEXTS)
    finished = run(folder, [make_group(work)])
    return work.calls, finished


def same_items(a, b):
    return (a / "items.jsonl").read_bytes() == (b / "items.jsonl").read_bytes()


def test_rows_lie_in_plan_order_and_hold_no_clock(whole):
    rows = [json.loads(line) for line in (whole / "items.jsonl").read_text().splitlines()]
    assert [(row["point"], row["text"].split()[0]) for row in rows] == [
        (f"point {p}", text) for p in range(2) for text in TEXTS
    ]
    assert len({row["key"] for row in rows}) == 10
    assert not any("seconds" in row for row in rows)
    timings = [json.loads(line) for line in (whole / "timings.jsonl").read_text().splitlines()]
    assert [timing["point"] for timing in timings] == ["point 0", "point 1"] * 3


def test_equal_questions_have_their_own_identities():
    items = [Item("", "who"), Item("", "who"), Item("q", "who"), Item("q", "who")]
    assert len(set(identify(items))) == 4
    assert identify(items[:1]) == identify(items)[:1]


def test_a_finished_run_makes_nothing_again(whole):
    before = (whole / "items.jsonl").read_bytes()
    calls, finished = resume(whole)
    assert calls == []
    assert finished.made == 0
    assert (whole / "items.jsonl").read_bytes() == before


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path, whole, stop):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "part", [make_group(Recorder(TEXTS, stop_after=stop))])
    assert not (tmp_path / "part" / "items.jsonl").exists()
    calls, finished = resume(tmp_path / "part")
    assert len(calls) == 3 - stop
    assert finished.made == 10 - 4 * stop
    assert same_items(tmp_path / "part", whole)


def closing_line(content):
    return content.rstrip(b"\n").rindex(b"\n") + 1


CUTS = {
    "mid_record": lambda content: content[: content.index(b'"status"')],
    "mid_record_newline": lambda content: content[: content.index(b'"status"')] + b"\n",
    "mid_character": lambda content: content[: content.index("→".encode()) + 1],
    "no_closing_line": lambda content: content[: closing_line(content)],
    "cut_closing_line": lambda content: content[: closing_line(content) + 12],
    "empty": lambda content: b"",
    "other_bytes": lambda content: content.replace(b"ok", b"OK", 1),
}


@pytest.mark.parametrize("name", list(CUTS))
def test_J01_a_torn_part_costs_that_part_alone(tmp_path, whole, name):
    folder = shutil.copytree(whole, tmp_path / "torn")
    victim = sorted((folder / "parts").glob("*.jsonl"))[1]
    victim.write_bytes(CUTS[name](victim.read_bytes()))
    assert read_part(victim) is None
    calls, finished = resume(folder)
    assert calls == [((0, 1), (2, 3))]
    assert finished.made == 4
    assert finished.damaged == [victim.name]
    assert same_items(folder, whole)
    assert resume(folder)[0] == []


def test_J01_torn_part_orphan_and_lost_manifest_with_a_second_kill(tmp_path, whole):
    folder = shutil.copytree(whole, tmp_path / "torn")
    first, second, _ = sorted((folder / "parts").glob("*.jsonl"))
    content = first.read_bytes()
    (folder / "manifest.json").unlink()
    (folder / "items.jsonl").unlink()
    first.write_bytes(content[: len(content) // 2])
    second.unlink()
    (folder / "parts" / f"{second.name}.tmp").write_bytes(content[:40])
    with pytest.raises(KeyboardInterrupt):
        run(folder, [make_group(Recorder(TEXTS, stop_after=1))])
    calls, finished = resume(folder)
    assert calls == [((0, 1), (2, 3))]
    assert finished.made == 4
    assert same_items(folder, whole)
    assert not list((folder / "parts").glob("*.tmp"))


def test_J01_a_torn_manifest_counts_as_lost(tmp_path, whole):
    folder = shutil.copytree(whole, tmp_path / "torn")
    manifest = folder / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content[: len(content) // 2])
    assert resume(folder)[0] == []
    assert manifest.read_bytes() == content


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.3}, "alpha was 0.5 and is now 0.3"),
        ({"reader": "f2"}, "reader was 'f1' and is now 'f2'"),
        ({"data": "d2"}, "data was 'd1' and is now 'd2'"),
    ],
)
def test_J03_changed_settings_are_refused_by_name(tmp_path, settings, message, lost):
    old = {"alpha": 0.5, "reader": "f1", "data": "d1"}
    work = Recorder(TEXTS)
    run(tmp_path, [Group((Point("p", old),), (Item("a", "x"),), 1, work)])
    if lost:
        (tmp_path / "manifest.json").unlink()
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    changed = Point("p", {**old, **settings})
    for refuse in (
        lambda: run(tmp_path, [Group((changed,), (Item("a", "x"),), 1, work)]),
        lambda: check_folder(tmp_path, [changed]),
    ):
        with pytest.raises(MixedSettingsError, match=message) as caught:
            refuse()
        assert str(caught.value).count(" was ") == 1
    assert len(work.calls) == 1
    assert before == sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())


def test_J03_a_point_that_went_is_refused_and_a_new_one_is_not(tmp_path, whole):
    with pytest.raises(MixedSettingsError, match="the point 'point 1' is no longer part of the run"):
        run(whole, [make_group(Recorder(TEXTS), points=1)])
    work = Recorder(TEXTS)
    assert run(whole, [make_group(work, points=3)]).made == 5
    assert work.calls == [((2,), (0, 1)), ((2,), (2, 3)), ((2,), (4,))]
    run(tmp_path / "three", [make_group(Recorder(TEXTS), points=3)])
    assert same_items(whole, tmp_path / "three")


def test_J03_the_check_before_models_load_ignores_what_it_does_not_know(whole):
    check_folder(whole, [Point("", {"alpha": 0.0}), Point("", {"alpha": 0.5})])


def test_J04_failing_rows_are_tried_stored_and_counted(tmp_path):
    texts = ["who", "a", "who", *"bcdefgh"]
    group = make_group(Recorder(texts, failing={4: 99, 9: 1}), texts=texts, points=1, batch=4)
    finished = run(tmp_path, [group], tries=2)
    rows = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    assert len({row["key"] for row in rows}) == 10
    assert [row["status"] for row in rows if row["status"] != "ok"] == ["failed(RuntimeError: item 4 broke)"]
    assert rows[4]["tries"] == 2
    assert finished.failed == 1
    assert group.work.calls.count(((0,), (4,))) == 2
    assert group.work.calls.count(((0,), (9,))) == 1
    again = Recorder(texts)
    assert run(tmp_path, [make_group(again, texts=texts, points=1, batch=4)]).failed == 1
    assert again.calls == []


def test_a_row_that_json_cannot_hold_fails_with_a_reason(tmp_path):
    def work(points, items, tell):
        return [[{"status": "ok", "nll": np.inf if i == 1 else 0.5} for i in items] for _ in points], []

    finished = run(tmp_path, [make_group(work, texts=["a", "b", "c"], points=1)])
    assert [row["status"].split(":")[0] for row in finished.rows] == ["ok", "failed(ValueError", "ok"]


def test_a_larger_limit_reuses_finished_rows(tmp_path, whole):
    run(tmp_path / "grown", [make_group(Recorder(TEXTS), texts=TEXTS[:3])])
    calls, finished = resume(tmp_path / "grown")
    assert calls == [((0, 1), (3,)), ((0, 1), (4,))]
    assert finished.made == 4
    assert same_items(tmp_path / "grown", whole)
    smaller = run(tmp_path / "grown", [make_group(Recorder(TEXTS), texts=TEXTS[:1])])
    assert len(smaller.rows) == 2
    assert smaller.outside == 8


def test_the_batch_size_is_recorded_and_defines_no_row(tmp_path, whole):
    run(tmp_path / "one", [make_group(Recorder(TEXTS), batch=1)], execution={"limit": 5})
    assert same_items(tmp_path / "one", whole)
    parts, _ = read_parts(tmp_path / "one" / "parts")
    assert [part.header["execution"] for part in parts] == [{"limit": 5, "batch": 1}] * 5


def test_texts_with_any_character_come_back(tmp_path):
    texts = ["a\u2028b\x85c", "\ud800 lone", "é\r\n", ""]
    write_part(tmp_path / "p.jsonl", {"points": []}, [{"text": text} for text in texts])
    assert [row["text"] for row in read_part(tmp_path / "p.jsonl").rows] == texts
    assert encode_line({"text": "é"}) == '{"text": "é"}\n'.encode()


def test_a_part_of_another_format_is_refused(tmp_path):
    write_part(tmp_path / "p.jsonl", {"format": 99}, [])
    with pytest.raises(ValueError, match="format 99"):
        read_parts(tmp_path)
