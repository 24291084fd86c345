"""Malformed files: each fault has a line, and costs that line alone."""

import json

import pytest

from ragjax.data import DataError, load_examples
from ragjax.data.rows import iter_rows


def row(n: int) -> str:
    return json.dumps({"question": f"question {n}?", "answers": ["a"], "docs": [{"title": "T", "text": "text"}]})


BAD = {
    3: ('{"question": "cut', "not valid JSON"),
    4: (row(40) + " " + row(41), "more than one"),
    6: ('{"question": "q", "answers": ["a"], "docs": [], "score": NaN}', "NaN"),
    8: ('{"question": "half \\ud83d", "answers": ["a"], "docs": []}', "surrogate"),
    9: ('{"question": "q", "question": "r", "docs": []}', "given twice"),
    10: ('["a row"]', "JSON object"),
}


@pytest.fixture
def malformed(tmp_path):
    """Ten lines: a byte order mark on the first, CRLF ends, a blank line (5), the faults of BAD, three good rows."""
    lines = [BAD[n][0] if n in BAD else "" if n == 5 else row(n) for n in range(1, 11)]
    path = tmp_path / "ten.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    return path


def test_I07_strict_names_file_and_line(malformed):
    with pytest.raises(DataError, match=r"ten\.jsonl, line 3: not valid JSON"):
        load_examples(malformed)


@pytest.mark.parametrize("number", BAD)
def test_I07_each_fault_is_an_error_in_strict_mode(number, tmp_path):
    line, reason = BAD[number]
    path = tmp_path / "one.jsonl"
    path.write_text("\n".join([row(1), "", line]))
    with pytest.raises(DataError, match=rf"one\.jsonl, line 3: .*{reason}"):
        load_examples(path)


def test_I07_lenient_lists_and_counts(malformed):
    loaded = load_examples(malformed, strict=False)
    assert [example.question for example in loaded.examples] == [f"question {n}?" for n in (1, 2, 7)]
    assert [skipped.line for skipped in loaded.skipped] == list(BAD)
    assert all(BAD[skipped.line][1] in skipped.reason for skipped in loaded.skipped)
    assert str(loaded.skipped[0]).startswith(f"{malformed}, line 3: not valid JSON")
    assert loaded.counts["skipped_rows"] == 6
    assert "6 skipped rows" in loaded.summary()


def test_I07_ids_do_not_depend_on_bad_rows(malformed, tmp_path):
    clean = tmp_path / "clean.jsonl"
    clean.write_text("\n".join(row(n) for n in (1, 2, 7)))
    lenient = load_examples(malformed, strict=False)
    assert [e.id for e in lenient.examples] == [e.id for e in load_examples(clean).examples]


def test_I07_line_separators_inside_a_text_are_text(tmp_path):
    path = tmp_path / "separators.jsonl"
    path.write_text('{"question": "a\u2028b\u0085c", "answers": "x", "docs": []}\n', encoding="utf-8")
    assert load_examples(path).examples[0].question == "a\u2028b\u0085c"


def test_I07_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(row(1).encode() + b'\n{"question": "caf\xe9", "docs": []}\n')
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        load_examples(path)
    assert len(load_examples(path, strict=False).examples) == 1


@pytest.mark.parametrize("raw", [b"PAR1\x00", b"\x1f\x8b\x08", "x".encode("utf-16")])
def test_I07_binary_files_are_refused_by_kind(raw, tmp_path):
    path = tmp_path / "binary.jsonl"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"binary\.jsonl: expected JSON Lines"):
        load_examples(path, strict=False)


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"[]", b"[ \n ]\n"])
def test_I07_a_file_without_rows_is_an_error(raw, tmp_path):
    path = tmp_path / "empty.json"
    path.write_bytes(raw)
    with pytest.raises(DataError, match="no row can be used"):
        load_examples(path, strict=False)


def test_an_array_reads_as_lines_do(tmp_path):
    lines, array = tmp_path / "lines.json", tmp_path / "array.jsonl"
    lines.write_text("\n".join(row(n) for n in range(3)))
    array.write_text(json.dumps([json.loads(row(n)) for n in range(3)], indent=4))
    assert load_examples(lines).examples == load_examples(array).examples


@pytest.mark.parametrize(
    ("text", "line", "good"),
    [
        ('[\n{"a": 1},\n{"b": \n2,}]', 3, 1),
        ('[\n{"a": 1},\n"text",\n{"a": 2}]', 3, 2),
        ('[{"a": 1}\n{"a": 2}]', 1, 1),
        ('[{"a": 1}]\n[{"a": 2}]', 1, 1),
        ('[{"a": 1},\n{"a": NaN}]', 2, 1),
    ],
)
def test_faults_in_an_array_have_a_line(text, line, good):
    rows = list(iter_rows(text.encode(), "array.json"))
    assert [row.line for row in rows if row.problem] == [line]
    assert sum(row.value is not None for row in rows) == good
