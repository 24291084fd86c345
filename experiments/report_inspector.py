"""What the report's inspector shows: single questions, each text already cut at the offsets that the rows give.

Offsets count characters as Python does; a browser counts others. So texts go into the page as pieces, each with the
sentence or statement that it is, and nothing there needs an offset.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.report_data import MODES, FrontierStudy, grouped
from ragjax.evals.run import Row

VERDICTS: Mapping[str, tuple[str, str]] = {
    "source": ("✓", "supported by the source"),
    "summary": ("◐", "supported by the units' own text only"),
    "unsupported": ("✗", "not supported"),
    "uncited": ("○", "no valid citation"),
}
"""Of each verdict on a statement its sign and its words; signs, since colours alone tell nobody enough."""

Piece = tuple[str, Any]


def verdict_of(statement: Row) -> str:
    """Which of `VERDICTS` a scored statement has; support by the source comes first."""
    if not statement["cited"]:
        return "uncited"
    if statement["grounded"]["recalled"]:
        return "source"
    return "summary" if statement["generated"]["recalled"] else "unsupported"


def cut(text: str, spans: Iterable[tuple[int, int, Any]]) -> list[Piece]:
    """The text as pieces (text, key): those of the spans (start, end, key), and between them pieces of key None.

    Raises:
      ValueError: a span overlaps another or lies outside the text.
    """
    pieces: list[Piece] = []
    at = 0
    for start, end, key in sorted(spans, key=lambda span: span[:2]):
        if not at <= start <= end <= len(text):
            raise ValueError(f"span {start} to {end} ({key!r}) overlaps another or lies outside a text of {len(text)}")
        pieces += [(text[at:start], None), (text[start:end], key)]
        at = end
    pieces.append((text[at:], None))
    return [piece for piece in pieces if piece[0]]


def inspector_data(study: FrontierStudy) -> dict[str, Any]:
    """The JSON value of the inspector: the points, and of each question its documents and what each point made of it.

    Raises:
      ValueError: an offset lies outside its text, or a column is missing; the message names the question.
    """
    why = {one.item: [f"{label}: {status}" for label, status in one.reasons] for one in study.excluded}
    return {
        "verdicts": {name: {"sign": sign, "words": words} for name, (sign, words) in VERDICTS.items()},
        "points": {
            point.hash: {name: getattr(point, name) for name in ("label", "title", "family", "budget")}
            for _, of in grouped(study.points)
            for point in of
        },
        "questions": [inspect_question(source, rows, why.get(source["item"], [])) for source, rows in study.inspected],
    }


def inspect_question(source: Row, rows: Mapping[str, Row], excluded: Sequence[str]) -> Row:
    """A question: its documents in pieces, golds, and its rows; `units` holds what several rows share once."""
    units: dict[tuple, int] = {}
    try:
        return {
            **{name: source[name] for name in ("id", "question", "dataset")},
            "excluded": list(excluded),
            "golds": list(map(words_of, source.get("golds") or ())),
            "evidence": list(map(words_of, source.get("evidence") or ())),
            "documents": cut_documents(source),
            "rows": {hash_: inspect_row(row, units) for hash_, row in rows.items()},
            "units": [{"text": text, "sources": None if of is None else list(of)} for text, of in units],
        }
    except (KeyError, ValueError) as error:
        told = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"question {source['id']!r}: {told}") from None


def words_of(gold: Any) -> str:
    """A gold answer or a piece of evidence in words: a list is one answer in several wordings."""
    return " / ".join(map(words_of, gold)) if isinstance(gold, list | tuple) else str(gold)


def cut_documents(source: Row) -> list[Row]:
    """The documents, each text in pieces (text, sid)."""
    spans: dict[int, list[tuple[int, int, str]]] = {}
    for sentence in source["sentences"]:
        spans.setdefault(sentence["document"], []).append((sentence["start"], sentence["end"], sentence["sid"]))
    return [
        {"title": document["title"], "pieces": cut(document["text"], spans.get(n, ()))}
        for n, document in enumerate(source["documents"])
    ]


def inspect_row(row: Row, units: dict[tuple, int]) -> Row:
    """A row: places of its units in `units`, the answer in pieces (text, statement), each statement with its verdict.

    `resolved`: the sids that each unit resolves to, declared or recovered.
    """
    if row["status"].startswith("failed"):
        return {"status": row["status"]}
    answer, citation = row["answer"], row["citation"]
    keys = [(unit["text"], None if unit["sources"] is None else tuple(unit["sources"])) for unit in row["units"]]
    statements = answer["statements"]
    shown = ("text", "cited", "invalid", "generated", "grounded", "verified", "structural")
    return {
        "status": row["status"],
        "units": [units.setdefault(key, len(units)) for key in keys],
        "resolved": citation["sources"],
        "answer": cut(answer["text"], [(one["start"], one["end"], n) for n, one in enumerate(statements)]),
        "finish": answer["finish_reason"],
        "citer": answer["citer"],
        "statements": [{**{name: one[name] for name in shown}, "verdict": verdict_of(one)} for one in statements],
        "views": {view: citation[view] for view in ("generated", "grounded")},
        "verification": {mode: citation["verification"][mode] for mode in MODES if mode in citation["verification"]},
        "quality": row["quality"],
    }
