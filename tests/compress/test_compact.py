"""CompAct: the way of an example through its segments, with scripted replies; and the decode, with a tiny model."""

import dataclasses
import re

import numpy as np
import pytest

import ragjax
from ragjax.compress import compact
from ragjax.compress.base import Budget
from ragjax.compress.compact import CompAct, Reply, parse_reply
from ragjax.compress.prompts import number_documents
from ragjax.data.records import Document, Example
from ragjax.decode.engine import DecodeResult
from ragjax.decode.prompt import count_tokens, decode_text
from ragjax.decode.state import Decoded
from ragjax.decode.text import DecodeFailed
from ragjax.testing import tiny_model
from tests.oracle import SHORT

PROMPTS = dataclasses.replace(
    SHORT,
    compact_system="",
    compact_user="Q {question} D {documents} S",
    compact_next="Q {question} O {summary} V {evaluation} D {documents} S",
)
ON, ENOUGH = "Verdict: incomplete", "Verdict: complete"


@pytest.fixture(scope="module")
def lm():
    return tiny_model()


def example(count, question="Who?", start=0):
    documents = tuple(Document(f"text {n}", title=f"T{n}") for n in range(start, start + count))
    return Example(question, question, documents=documents)


@pytest.fixture
def script(monkeypatch, lm):
    """Replies by question and segment (a text, a list of candidates, or a text and how it finished), and the calls."""
    replies, calls = {}, []

    def decode(voices, *, max_new, weights, ids, sampling, execution):
        (voice,) = voices
        calls.append({"prompts": voice.prompts, "ids": ids, "sampling": sampling, "max_new": max_new})
        rows = []
        for prompt, name in zip(voice.prompts, ids, strict=True):
            segment = int(re.match(r"segment (\d+) of ", name)[1])
            reply = replies[prompt.pieces["question"]][segment - 1]
            several = reply if isinstance(reply, list) else [reply] * len(weights)
            rows.append([row_of(lm, one) for one in several[: len(weights)]])
        return DecodeResult(rows, [None] * len(rows), 0, ())

    monkeypatch.setattr(compact, "decode_prompts", decode)
    return replies, calls


def row_of(lm, reply):
    text, finish = (reply, "stop") if isinstance(reply, str) else reply
    ids = np.array(lm.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)
    return Decoded(ids, np.zeros(len(ids)), np.zeros((1, len(ids))), ids[None], finish)


@pytest.mark.parametrize(
    ("text", "summary", "complete"),
    [
        ("Ada.\nVerdict: complete\nAll is there.", "Ada.", True),
        ("Ada.\nVerdict: incomplete\nThe year is missing.", "Ada.", False),
        ("Ada.\n\n**Verdict:** Not complete, no year.", "Ada.", False),
        ("Ada.\n- EVALUATION: [COMPLETE] as asked", "Ada.", True),
        ("Ada.\n__Evaluation__: [INCOMPLETE]", "Ada.", False),
        ("Ada.\nVerdict: The evidence is not complete.", "Ada.", False),
        ("Verdict: complete", "", True),
        ("Ada.\nIncomplete: no year is given.", "Ada.", False),
        ("Ada.\n\n(complete)\nAll is there.", "Ada.", True),
        ("Ada.\n**Not complete** - no year.", "Ada.", False),
        ("Ada.\nVerdict: incomplete\nVerdict: complete", "Ada.", False),
        # No verdict: another word, not at a line's beginning, cut short, or none at all.
        ("Verdict: guilty.\nHe was hanged.", "Verdict: guilty.\nHe was hanged.", None),
        ("The jury's verdict: complete acquittal.", "The jury's verdict: complete acquittal.", None),
        ("Ada.\nVerdict: completely clear", "Ada.\nVerdict: completely clear", None),
        ("Ada.\nComplete works appeared.", "Ada.\nComplete works appeared.", None),
        ("Ada.\nCompleted.", "Ada.\nCompleted.", None),
        ("Ada.\nVerdict: comp", "Ada.\nVerdict: comp", None),
        ("  Ada. ", "Ada.", None),
        ("", "", None),
    ],
)
def test_a_reply_is_split_at_its_verdict(text, summary, complete):
    found = parse_reply(text)
    assert (found.summary, found.complete) == (summary, complete)
    assert (found.evaluation == "") == (complete is None)
    assert text.endswith(found.evaluation)


def test_the_evaluation_is_the_verdict_and_all_that_follows():
    assert parse_reply("Ada.\n*Verdict*: incomplete\nNo year.\nNo place.") == Reply(
        "Ada.", "*Verdict*: incomplete\nNo year.\nNo place.", False
    )


def test_segments_are_read_in_order_until_the_evidence_is_complete(lm, script):
    replies, calls = script
    replies["Who?"] = [f"One.\n{ON}\nNo year.", f"One, two.\n{ENOUGH}\nAll."]
    whole = example(20)
    (found,) = CompAct(lm=lm, prompts=PROMPTS).compress([whole])
    assert (found.text, found.status, found.dropped_documents) == ("One, two.", "ok", 0)
    assert found.notes == ("read 10 of 20 documents in 2 iterations: complete",)
    assert found.achieved == found.prompt_tokens == count_tokens(lm.tokenizer, "One, two.")
    assert "".join(found.trace.pieces) == f"One, two.\n{ENOUGH}\nAll."
    assert set(found.trace.winners) == {"compressor"}
    first, second = (call["prompts"][0].pieces for call in calls)
    assert first == {"question": "Who?", "documents": number_documents(whole.documents[:5])}
    assert second == {
        "question": "Who?",
        "summary": "One.",
        "evaluation": f"{ON}\nNo year.",
        "documents": number_documents(whole.documents[5:10]),
    }


def test_at_most_so_many_iterations_leave_the_rest_unread(lm, script):
    script[0]["Who?"] = [f"S{n}.\n{ON}" for n in range(9)]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=2, max_iterations=3).compress([example(9)])[0]
    assert (found.text, found.dropped_documents) == ("S2.", 0)
    assert found.notes == ("read 6 of 9 documents in 3 iterations: incomplete",)
    assert len(script[1]) == 3
    found = CompAct(lm=lm, prompts=PROMPTS).compress([example(40)])[0]
    assert found.notes == ("read 30 of 40 documents in 6 iterations: incomplete",)


def test_I06_few_documents_or_none_are_a_short_segment_or_nothing(lm, script):
    counts = (0, 1, 5, 6)
    examples = [example(n, f"Q{n}") for n in counts]
    script[0].update({f"Q{n}": [f"A{n}.\n{ON}", f"B{n}.\n{ON}"] for n in counts})
    found = CompAct(lm=lm, prompts=PROMPTS).compress(examples)
    assert [(one.text, one.status) for one in found] == [("", "empty"), ("A1.", "ok"), ("A5.", "ok"), ("B6.", "ok")]
    assert [len(call["prompts"]) for call in script[1]] == [3, 1]
    assert found[0].trace is None
    assert found[3].notes == ("read 6 of 6 documents in 2 iterations: incomplete",)
    assert CompAct(lm=lm).compress([]) == []


def test_no_verdict_reads_on_and_is_counted(lm, script):
    script[0]["Who?"] = ["One.", f"Two.\n{ENOUGH}"]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress([example(3)])[0]
    assert found.text == "Two."
    assert script[1][1]["prompts"][0].pieces["evaluation"] == ON
    assert found.notes == (
        "read 2 of 3 documents in 2 iterations: complete",
        "1 of 2 replies had no verdict, which counts as incomplete",
    )
    script[0]["Who?"] = ["One.", "Two.", "Three."]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress([example(3)])[0]
    assert found.notes[0] == "read 3 of 3 documents in 3 iterations: no verdict"


def test_an_empty_summary_leaves_the_one_before_it_standing(lm, script):
    script[0]["Who?"] = [f"One.\n{ON}", f"{ENOUGH}\nNothing to add."]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress([example(3)])[0]
    assert (found.text, found.status) == ("One.", "ok")
    assert found.notes == (
        "read 2 of 3 documents in 2 iterations: complete",
        "1 of 2 replies had no summary, which leaves the one before it standing",
    )


def test_complete_without_any_summary_is_not_believed(lm, script):
    script[0]["Who?"] = [ENOUGH, f" \n{ENOUGH}"]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress([example(2)])[0]
    assert (found.text, found.status, found.units) == ("", "empty", ())
    assert found.notes[0] == "read 2 of 2 documents in 2 iterations: incomplete"
    assert "summary" not in script[1][1]["prompts"][0].pieces


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (("Two and", "length"), "length"),
        (("Two.\nVerdict: comp", "length"), "length"),
        ((f"Two.\n{ON}\nIt lacks", "length"), "ok"),
        (f"Two.\n{ON}", "ok"),
        (ON, "length"),
    ],
)
def test_B17_a_summary_cut_by_the_cap_is_never_told_as_whole(lm, script, last, status):
    script[0]["Who?"] = [("One and", "length"), last]
    found = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress([example(2)])[0]
    assert found.status == status
    cut = 2 if isinstance(last, tuple) else 1
    assert f"{cut} of 2 replies had no end within max_new tokens" in found.notes
    assert found.trace.finish_reason == ("length" if isinstance(last, tuple) else "stop")


def test_B09_a_failure_stops_its_example_alone(lm, script):
    script[0]["a"] = [f"One.\n{ON}", ("junk", "failed(non-finite at step 4)"), ENOUGH]
    script[0]["b"] = [f"S{n}.\n{ON}" for n in range(3)]
    pair = [example(3, "a"), example(3, "b")]
    broken, whole = CompAct(lm=lm, prompts=PROMPTS, segment=1).compress(pair)
    assert (broken.status, broken.text, broken.units) == ("failed(non-finite at step 4)", "", ())
    assert broken.notes == ("read 2 of 3 documents in 2 iterations: failed",)
    assert whole.text == "S2."
    assert [len(call["prompts"]) for call in script[1]] == [2, 2, 1]
    with pytest.raises(DecodeFailed, match="row 0 failed"):
        CompAct(lm=lm, prompts=PROMPTS, segment=1, strict=True).compress(pair)


def shortened(lm, positions):
    return dataclasses.replace(lm, config=dataclasses.replace(lm.config, max_positions=positions))


def test_G07_B14_whole_documents_are_dropped_from_a_segment_s_end_and_counted(lm, script):
    replies, calls = script
    replies["Who?"] = [f"One.\n{ON}", f"Two.\n{ENOUGH}"]
    documents = tuple(Document(f"{n}" * 40) for n in range(8))
    long = Example("x", "Who?", documents=documents)
    small = shortened(lm, 200)
    found = CompAct(lm=small, prompts=PROMPTS, segment=4, max_new=12).compress([long])[0]
    shown = [re.findall(r"(\d)\1{39}", call["prompts"][0].pieces["documents"]) for call in calls]
    assert shown == [["0", "1", "2"], ["4", "5"]]
    assert found.dropped_documents == 3
    assert found.notes == ("read 5 of 8 documents in 2 iterations: complete",)
    for call in calls:
        assert len(call["prompts"][0].ids) + 12 <= 200 < len(call["prompts"][0].ids) + 12 + 40
    with pytest.raises(ValueError, match=r"example 'x': .* exceed the 200 positions"):
        CompAct(lm=small, prompts=PROMPTS, segment=4, max_new=12, on_overflow="error").compress([long])
    calls.clear()
    with pytest.raises(ValueError, match="exceed the 60 positions"):
        CompAct(lm=shortened(lm, 60), prompts=PROMPTS, max_new=12).compress([long])
    assert not calls


def test_B14_a_segment_without_room_is_passed_over_and_counted(lm, script):
    script[0].update({"a": [f"{'One. ' * 20}\n{ON}", f"No.\n{ON}"], "b": [f"Two.\n{ON}", f"Yes.\n{ON}"]})
    pair = [example(4, "a"), example(4, "b")]
    full, fine = CompAct(lm=shortened(lm, 160), prompts=PROMPTS, segment=2, max_new=12).compress(pair)
    assert full.text.startswith("One. One.")
    assert (full.status, full.dropped_documents) == ("ok", 2)
    assert full.notes == ("read 2 of 4 documents in 1 iteration: incomplete",)
    assert (fine.text, fine.dropped_documents) == ("Yes.", 0)
    huge = (Document("x" * 400), Document("y"))
    script[0]["c"] = ["", "Never asked.", f"Three.\n{ON}"]
    mixed = Example("c", "c", documents=(Document("one"), Document("two"), *huge, Document("five")))
    passed = CompAct(lm=shortened(lm, 160), prompts=PROMPTS, segment=2, max_new=12).compress([mixed])[0]
    assert (passed.text, passed.dropped_documents) == ("Three.", 2)
    assert passed.notes[0] == "read 3 of 5 documents in 2 iterations: incomplete"
    drawn = CompAct(lm=shortened(lm, 160), prompts=PROMPTS, segment=2, max_new=12).sample(pair, 2)
    assert [one.dropped_documents for rows in drawn for one in rows] == [2, 2, 0, 0]
    with pytest.raises(ValueError, match=r"example 'a': .* exceed"):
        CompAct(lm=shortened(lm, 160), prompts=PROMPTS, segment=2, max_new=12, on_overflow="error").compress(pair)


@pytest.mark.parametrize(
    ("budget", "text", "status"),
    [
        (2, "", "too_small"),
        (9, "Ada", "length"),
        (10, "Ada Byron,", "length"),
        (18, "Ada Byron, London.", "ok"),
        (400, None, "short_input"),
    ],
)
def test_a_budget_cuts_the_final_summary(lm, script, budget, text, status):
    script[0]["Who?"] = [f"Ada was born in a house in London.\n{ON}", f"Ada Byron, London.\n{ENOUGH}"]
    whole = example(6)
    found = CompAct(lm=lm, prompts=PROMPTS).compress([whole], Budget.of(budget))[0]
    assert (found.text, found.status) == ("\n".join(d.text for d in whole.documents) if text is None else text, status)
    assert found.achieved == count_tokens(lm.tokenizer, found.text) <= found.requested == budget
    if status == "short_input":
        assert not script[1]
    else:
        assert script[1][1]["prompts"][0].pieces["summary"] == "Ada was born in a house in London."


def test_candidates_are_replies_to_the_last_prompt(lm, script):
    replies, calls = script
    several = [f"Two.\n{ENOUGH}", "Three.", ON, ("Fo", "length"), ("x", "failed(non-finite at step 1)")]
    replies["Who?"] = [f"One.\n{ON}", several, "Never read."]
    ours = CompAct(lm=lm, prompts=PROMPTS, segment=1, top_p=0.9)
    (expected,) = ours.compress([example(3)])
    (drawn,) = ours.sample([example(3)], 5, temperature=0.7, repetition_penalty=1.2)
    assert [one.text for one in drawn] == ["Two.", "Three.", "One.", "Fo", ""]
    assert [one.status for one in drawn] == ["ok", "ok", "ok", "length", "failed(non-finite at step 1)"]
    assert drawn[0].notes == expected.notes
    assert drawn[1].notes[0] == "read 2 of 3 documents in 2 iterations: no verdict"
    assert [call["ids"] for call in calls[2:]] == [["segment 1 of Who?"], ["segment 2 of Who?"], ["segment 2 of Who?"]]
    assert calls[-1]["prompts"] == calls[-2]["prompts"] == calls[1]["prompts"]
    settings = calls[-1]["sampling"]
    assert (settings.temperature, settings.repetition_penalty, settings.top_p) == (0.7, 1.2, 0.9)
    assert {call["sampling"].temperature for call in calls[:-1]} == {0}
    assert [one.status for one in ours.sample([example(0)], 3)[0]] == ["empty"] * 3
    with pytest.raises(ValueError, match="candidates counts texts"):
        ours.sample([example(3)], 0)


def test_settings_that_cannot_be_are_refused_when_built(lm):
    for setting, message in (
        ({"segment": 0}, "segment is at least 1, got 0"),
        ({"max_iterations": 0}, "max_iterations is at least 1"),
        ({"max_new": 0}, "max_new counts new tokens"),
        ({"prompt_format": "raw"}, "prompt_format is one of"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"seed": -1}, "a seed lies in"),
        ({"on_overflow": "cut"}, "on_overflow is one of"),
    ):
        with pytest.raises(ValueError, match=message):
            CompAct(lm=lm, **setting)


# The decode itself: a tiny model, whose replies of ten bytes hold no verdict, so every document is read. All prompts
# have 129 to 192 tokens: one program for four rows, one for one.

RUN = {"segment": 1, "max_new": 10, "batch": 4, "prompts": PROMPTS}
EXAMPLES = [
    Example(f"q{n}", f"Who is {n}?", documents=tuple(Document(f"{n}{d}. " * 24, title="T") for d in range(count)))
    for n, count in enumerate((2, 2, 1, 2))
]


@pytest.fixture(scope="module")
def tiny():
    return tiny_model(num_layers=1)


def tokens(found):
    return [one.trace.tokens.tolist() for one in found]


def test_B10_a_result_does_not_depend_on_the_other_examples(tiny):
    ours = CompAct(lm=tiny, **RUN, temperature=1.0, seed=7)
    found = ours.compress(EXAMPLES)
    assert [one.notes[0] for one in found] == [
        f"read {n} of {n} documents in {n} iteration{'s' * (n > 1)}: no verdict" for n in (2, 2, 1, 2)
    ]
    assert tokens(ours.compress(EXAMPLES[::-1])) == tokens(found)[::-1]
    (alone,) = ours.compress(EXAMPLES[:1])
    assert alone.trace.tokens.tolist() == tokens(found)[0]
    assert (alone.text, alone.notes) == (found[0].text, found[0].notes)
    assert alone.text == decode_text(tiny.tokenizer, alone.trace.tokens).strip()


def test_the_call_takes_one_question_or_lists(tiny):
    compress = ragjax.CompAct(lm=tiny, **RUN)
    documents = [[{"title": d.title, "text": d.text} for d in e.documents] for e in EXAMPLES]
    several = compress([e.question for e in EXAMPLES], documents)
    assert tokens(several) == tokens(compress.compress(EXAMPLES))
    assert compress(EXAMPLES[0].question, documents[0]).text == several[0].text
    assert compress("Who?", []).status == "empty"


def test_samples_of_the_last_prompt_are_streams_of_their_own(tiny, monkeypatch):
    ours = CompAct(lm=tiny, **RUN)
    drawn = ours.sample(EXAMPLES, 3, temperature=1.0)
    assert all(len(set(map(tuple, tokens(rows)))) == 3 for rows in drawn)
    assert [tokens(rows) for rows in ours.sample(EXAMPLES[::-1], 3, temperature=1.0)] == [
        tokens(rows) for rows in drawn[::-1]
    ]
    greedy = ours.sample(EXAMPLES, 3, temperature=0.0)
    initial = ours.compress(EXAMPLES)
    assert [tokens(rows) for rows in greedy] == [[row] * 3 for row in tokens(initial)]
    monkeypatch.setattr(CompAct, "_follow", None)
    resumed = ours.sample(EXAMPLES, 3, temperature=1.0, initial=initial)
    assert [tokens(rows) for rows in resumed] == [tokens(rows) for rows in drawn]
    lengths = [len(row) for rows in drawn for row in tokens(rows)]
    assert [row.decoded_tokens for rows in resumed for row in rows] == lengths
    assert any(one.decoded_tokens > len(one.trace.tokens) for one in initial)
