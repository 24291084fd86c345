"""Results folders of candidates and of ablations, without a model: the files that figures and tables read."""

import json

import numpy as np

from ragjax.evals.parts import digest, write_json, write_lines

SETTINGS = {"method": "candidate", "dataset": None, "candidates": 10, "pooling": "max", "layer": -2, "energy": 0.95}


def interval(value, n=60):
    """A summary's interval around a value."""
    return {"value": value, "low": value - 0.08, "high": value + 0.08, "n": n, "left_out": 0}


def summary_of(quality=None):
    """A point's summary as far as figures read it."""
    found = dict.fromkeys(("em", "f1", "acc"), None) if quality is None else quality
    none = {"value": None, "low": None, "high": None, "n": 0, "left_out": 60}
    measures = {name: none if value is None else interval(value) for name, value in found.items()}
    return {split: {**measures, "perplexity": {"interquartile_mean": none}} for split in ("all", "hits_0", "hits_1")}


def write_run(folder, points, rows=()):
    """A folder of results from (label, settings, summary) of each point and rows by the point's position."""
    folder.mkdir(parents=True)
    hashes = [digest(settings) for _, settings, _ in points]
    listed = [{"label": p[0], "hash": h, "settings": p[1]} for p, h in zip(points, hashes, strict=True)]
    write_json(folder / "manifest.json", {"points": listed})
    write_json(folder / "summary.json", {"points": {h: p[2] for h, p in zip(hashes, points, strict=True)}})
    named = [{**row, "settings": hashes[p], "point": points[p][0]} for p, row in rows]
    write_lines(folder / "items.jsonl", json.loads(json.dumps(named)))
    return folder


def candidate_row(item, draw, scores, em, f1, text=None, **more):
    """One row of the method "candidate"."""
    candidate = {"draw": draw, "scores": scores}
    quality = {"em": em, "f1": f1}
    return {
        "item": item,
        "status": "ok",
        "text": text or f"text {draw}",
        "candidate": candidate,
        "scores": quality,
    } | more


def write_candidates(folder, datasets=("hotpotqa", "nq"), questions=60, draws=10):
    """A study in which the first score says something and the others nothing."""
    rng, points, rows = np.random.default_rng(0), [], []
    for dataset in datasets:
        first = len(points)
        points += [
            (f"candidate draw {d}", {**SETTINGS, "dataset": dataset, "draw": d}, summary_of()) for d in range(draws)
        ]
        for q in range(questions):
            chance = rng.random()
            for d in range(draws):
                scores = dict(zip(("sps", "sps_drop", "ppl", "longppl"), map(float, rng.normal(size=4)), strict=True))
                em = float(rng.random() < np.clip(chance - 0.15 * scores["sps"], 0, 1))
                scores["longppl"] = None if q % 3 == 0 else scores["longppl"]
                f1 = max(em, round(float(rng.random()), 2) / 2)
                rows.append((first + d, candidate_row(f"{dataset}-{q}", d, scores, em, f1, dataset=dataset)))
    return write_run(folder, points, rows)


def write_ablation(folder, datasets=("hotpotqa", "nq")):
    """Points of xCompress that differ from a base in one setting each."""
    base = {**SETTINGS, "method": "xcompress", "first_token": "keep", "candidates": 5, "selector": "sps"}
    varied = {
        "pooling": ("max", "mean", "last"),
        "layer": (-4, -3, -2, -1),
        "first_token": ("keep", "drop", "bos"),
        "energy": (0.99, 0.5, 0.8, 0.9, 0.95),
        "candidates": (1, 2, 5, 10),
    }
    settings = [{**base, name: value, "dataset": d} for d in datasets for name, of in varied.items() for value in of]
    distinct = list({digest(of): of for of in settings}.values())
    rng = np.random.default_rng(1)
    levels = [rng.uniform(0.2, 0.5) for _ in distinct]
    points = [
        (f"xCompress {n}", of, summary_of({"em": x, "f1": x + 0.1, "acc": x + 0.12}))
        for n, (of, x) in enumerate(zip(distinct, levels, strict=True))
    ]
    return write_run(folder, points)
