"""A small finished frontier study, written file by file: what `experiments.report` reads, without any model."""

import json
import random
from pathlib import Path

from experiments.methods import title_of
from ragjax.evals.parts import digest, write_json, write_lines

LEXICAL = "lexical overlap (no entailment model)"
DECLARING = ("raw", "prefix", "random_sentences", "rerank", "extract", "ecr", "sentence_bert", "recomp_extractive")
SOURCES = {
    "asqa": [
        (
            "q1",
            "Who built the bridge at Rye?",
            [["Ada built the old bridge.", "It fell in 1742."], ["Ben repaired it."]],
        ),
        (
            "q2",
            "When did the mill burn?",
            [["The mill burned in 1803.", "Nobody was hurt."], ["It was rebuilt later."]],
        ),
    ],
    "qasper": [
        (
            "p1",
            "Which corpus is used?",
            [["We use the Norfell 🜁 corpus.", "It has 40 texts."], ["Results."]],
        ),
        ("p2", "How many layers?", [["The model has four layers.", "It is small."], ["Training took a day."]]),
    ],
}
QUALITY = {"asqa": ("str_em", "str_hit", "rouge_l"), "qasper": ("answer_f1", "evidence_f1")}
METHODS = (("raw", None), ("prefix", None), ("extract", "bm25"), ("ecr", "bm25"), ("zero_shot", None))


def settings(dataset, method, scorer, budget):
    return {
        "method": method,
        "scorer": scorer,
        "dataset": dataset,
        "budget": budget,
        "citer": "posthoc",
        "selector": "sps" if method == "xcompress" else None,
    }


def make_points(datasets, methods, budgets):
    """The points of the manifest: label, settings, hash."""
    points = []
    for dataset in datasets:
        for method, scorer in methods:
            for budget in [None] if method in ("raw", "no_context") else budgets:
                of = settings(dataset, method, scorer, budget)
                label = " ".join(str(part) for part in (dataset, title_of(of), budget) if part is not None)
                points.append({"label": label, "settings": of, "hash": digest(of)})
    return points


def make_sources(datasets, sources=SOURCES):
    """The questions with documents and the offsets of their sentences."""
    made = []
    for dataset in datasets:
        for id_, question, documents in sources[dataset]:
            sentences = []
            for d, texts in enumerate(documents):
                at = 0
                for s, text in enumerate(texts):
                    sentences.append({"sid": f"{d}.{s}", "document": d, "start": at, "end": at + len(text)})
                    at += len(text) + 1
            made.append(
                {
                    "item": digest([dataset, id_]),
                    "id": id_,
                    "question": question,
                    "dataset": dataset,
                    "documents": [{"title": f"Page {d}", "text": " ".join(of)} for d, of in enumerate(documents)],
                    "sentences": sentences,
                    "golds": ["Ada", "Ben"],
                    "evidence": ["0.0"],
                }
            )
    return made


def make_units(source, method):
    """The first two sentences as declared units, or one summary that declares nothing."""
    texts = {one["sid"]: source["documents"][one["document"]]["text"] for one in source["sentences"]}
    spans = {one["sid"]: [one["document"], one["start"], one["end"]] for one in source["sentences"]}
    sids = list(texts)[:2]
    cut = {sid: texts[sid][spans[sid][1] : spans[sid][2]] for sid in sids}
    if method in DECLARING:
        return [{"text": cut[sid], "sources": [sid], "spans": [spans[sid]]} for sid in sids]
    return [{"text": "In short: " + " ".join(cut.values()), "sources": None, "spans": []}]


def statement(text, start, cited, generated, grounded, invalid=()):
    """A statement with its verdicts; without a citation nothing supports it."""
    view = {"generated": generated, "grounded": grounded}
    return {
        "text": text,
        "start": start,
        "end": start + len(text),
        "cited": list(cited),
        "invalid": list(invalid),
        **{name: {"recalled": of, "precise": list(cited) if of else []} for name, of in view.items()},
        "verified": {"summary": generated, "span": grounded, "recovered": grounded},
        "structural": False,
    }


def make_answer(source, method):
    """An answer of four statements, one of each verdict."""
    first = source["documents"][0]["text"]
    texts = [f"{first[:40]} [1].", "It is well known [1].", "Some say otherwise [1].", "No more is told [7]."]
    verdicts = [((0,), True, True), ((0,), True, False), ((0,), False, False), ((), False, False)]
    at, statements = 0, []
    declares = method in DECLARING
    for text, (cited, generated, grounded) in zip(texts, verdicts, strict=True):
        statements.append(statement(text, at, cited, generated, grounded, ("[7]",) if "[7]" in text else ()))
        if not declares:
            statements[-1]["verified"]["span"], statements[-1]["structural"] = False, bool(cited)
        at += len(text) + 1
    return {"text": " ".join(texts), "finish_reason": "stop", "citer": "posthoc", "statements": statements}


def make_row(point, source, draw, judge, tau):
    """One row of items.jsonl."""
    method = point["settings"]["method"]
    units = make_units(source, method)
    undeclared = sum(unit["sources"] is None for unit in units)
    checks = ("summary", "span", "recovered")
    counted = {mode: {"claims": 4, "unsupported": 2, "structural": 1, "verifier_tokens": 50} for mode in checks}
    return {
        "key": digest([point["hash"], source["item"]]),
        "point": point["label"],
        "settings": point["hash"],
        **{name: source[name] for name in ("item", "id", "question", "dataset")},
        "status": "ok",
        "text": "\n".join(unit["text"] for unit in units),
        "units": units,
        "answer": make_answer(source, method),
        "citation": {
            "judge": judge,
            "tau": tau,
            "cites": True,
            "citations": 3,
            "invalid": 1,
            "generated": {"precision": 0.5, "recall": 0.5},
            "grounded": {"precision": 0.25, "recall": 0.25},
            "undeclared": undeclared,
            "reattributed": undeclared,
            "sources": {str(n): unit["sources"] or ["0.0", "1.0"] for n, unit in enumerate(units)},
            "verification": counted,
            "truncated_pairs": 1,
            "pairs": 10,
        },
        "quality": {name: round(draw.random(), 3) for name in QUALITY[source["dataset"]]},
    }


def interval(draw, n, middle):
    value = min(max(middle + draw.uniform(-0.05, 0.05), 0.0), 1.0)
    return {"value": value, "low": value * 0.9, "high": min(1.0, value * 1.1 + 0.01), "n": n, "left_out": 0}


def make_summary_point(point, n, failed, draw):
    """What a summary says of a point; abstractive methods launder."""
    method, budget = point["settings"]["method"], point["settings"]["budget"] or 1.0
    declares, quality = method in DECLARING, QUALITY[point["settings"]["dataset"]]
    made = interval(draw, n, 0.8)
    grounded = dict(made) if declares else interval(draw, n, 0.2)
    gap = made["value"] - grounded["value"]
    verification = {
        mode: {
            "unsupported": interval(draw, n, 0.3 if mode == "summary" or declares else 0.9),
            "structural": 0.0 if mode == "summary" or declares else 0.25,
            "verifier_tokens": 100 * draw.random(),
            "generator_tokens": 900 * budget,
        }
        for mode in ("summary", "span", "recovered")
    }
    achieved = budget * (0.97 if declares else 0.3)
    return {
        "label": point["label"],
        "settings": point["settings"],
        "title": title_of(point["settings"]),
        "counts": {
            "rows": n + failed,
            "failed": failed,
            "statuses": {"ok": n},
            "empty": 0,
            "too_small": 0,
            "notes": {},
        },
        "budget": {
            "requested": {"value": point["settings"]["budget"], "low": None, "high": None, "n": n, "left_out": 0},
            "achieved": {"value": achieved, "low": achieved * 0.95, "high": achieved * 1.05, "n": n, "left_out": 0},
        },
        "frontier": {
            "generated_precision": made,
            "generated_recall": interval(draw, n, 0.75),
            "grounded_precision": grounded,
            "grounded_recall": interval(draw, n, 0.7 if declares else 0.2),
            **{name: interval(draw, n, 0.3 + 0.3 * budget) for name in quality},
            "laundering": {"value": gap, "low": gap - 0.05, "high": gap + 0.05, "n": n, "left_out": 0},
            "reattribution_rate": None if declares else interval(draw, n, 0.6),
            "left_out": n if declares else 0,
            "share_citing": interval(draw, n, 0.95),
            "invalid": 1,
            "verification": verification,
        },
    }


def compared(point, against, draw):
    """A paired test of a point against another."""
    p = draw.random()
    return {
        "point": point["label"],
        "against": against["label"],
        "settings": point["hash"],
        **{"n": 2, "left_out": 1, "difference": draw.uniform(-0.5, 0.2), "low": -0.6, "high": 0.3},
        **{"p_permutation": p, "p_permutation_holm": min(1.0, 3 * p)},
        **{"p_mcnemar": None, "only_a": None, "only_b": None},
    }


def make_paired(points, draw):
    """Every point against its dataset's identity, and ECR against extraction at the same budget."""
    found = []
    for point in points:
        of = point["settings"]
        peers = [one for one in points if one["settings"]["dataset"] == of["dataset"]]
        found += [(point, one) for one in peers if one["settings"]["method"] == "raw" and one is not point]
        if of["method"] == "ecr":
            same = [one for one in peers if one["settings"] == {**of, "method": "extract"}]
            found += [(point, one) for one in same]
    tests = {name: [compared(*pair, draw) for pair in found] for name in ("grounded_precision", "laundering")}
    for test in tests["laundering"][:1]:
        test |= {"p_mcnemar": 0.125, "only_a": 4, "only_b": 0}
    return tests


def write_study(
    folder: Path,
    *,
    datasets=("asqa", "qasper"),
    methods=METHODS,
    budgets=(0.5, 0.1),
    judge=LEXICAL,
    failed=(("asqa", "q2"),),
    sources=SOURCES,
) -> Path:
    """The files of a finished study. `failed`: questions that fail at their dataset's first point with a budget."""
    draw, folder = random.Random(0), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    points, questions = make_points(datasets, methods, budgets), make_sources(datasets, sources)
    places = {point["label"]: point for point in reversed(points) if point["settings"]["budget"] is not None}
    first = {point["settings"]["dataset"]: point["label"] for point in places.values()}
    rows = []
    for point in points:
        for source in questions:
            if source["dataset"] == point["settings"]["dataset"]:
                row = make_row(point, source, draw, judge, 0.5)
                if (source["dataset"], source["id"]) in failed and point["label"] == first[source["dataset"]]:
                    left = ("units", "answer", "citation", "quality", "text")
                    row = {k: v for k, v in row.items() if k not in left} | {"status": "failed(out of memory)"}
                rows.append(row)
    counts = {name: sum(one["dataset"] == name for one in questions) for name in datasets}
    lost = {name: sum(dataset == name for dataset, _ in failed) for name in datasets}
    summaries = {
        point["hash"]: make_summary_point(point, counts[of] - lost[of], lost[of] * (point["label"] == first[of]), draw)
        for point in points
        for of in [point["settings"]["dataset"]]
    }
    execution = {
        "study": "frontier_tiny",
        "limit": [2],
        "data": [{"path": "asqa.jsonl", "dataset": "asqa", "split": "dev", "warnings": [], "counts": {"rows": 2}}],
        "models": {"tiny float32": {"fingerprint": "abc", "tokenizer": "T", "stop_ids": [1]}},
        "versions": {"ragjax": "0.1.0"},
    }
    write_json(folder / "manifest.json", {"points": points, "execution": execution})
    summary = {"scale": "in [0, 1]", "points": summaries, "paired": make_paired(points, draw), "skipped_rows": []}
    write_json(folder / "summary.json", summary)
    write_lines(folder / "items.jsonl", rows)
    write_lines(folder / "sources.jsonl", questions)
    return folder


def add_sensitivity(folder: Path) -> dict:
    """Two more evaluations of the first dataset's points; the file's content."""
    draw = random.Random(1)
    points = json.loads((folder / "manifest.json").read_text())["points"]
    metrics = ("generated_precision", "grounded_precision", "laundering")
    evaluations = [
        {
            "judge": judge,
            "tau": tau,
            "sources": sources,
            "questions": 2,
            "points": {point["hash"]: {name: interval(draw, 2, 0.4) for name in metrics} for point in points},
        }
        for judge, tau, sources in ((LEXICAL, 0.3, "own"), (LEXICAL, 0.7, "own"), ("TRUE T5", 0.5, "primary"))
    ]
    write_json(folder / "sensitivity.json", {"evaluations": evaluations})
    return {"evaluations": evaluations}
