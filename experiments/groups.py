"""From points, data and models to the groups of a run: points that share work get one pipeline."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

from experiments.choosing import SCORERS, Choosing
from experiments.citing import CitingPipeline
from experiments.evidence import Decoding, Fitting, Maker, alphas_of
from experiments.experiment import LEXICAL, Experiment
from experiments.fitting import make_fitting
from experiments.methods import FREE_FIELDS, METHODS, READ_WITH, SHARED_FIELDS
from experiments.pipeline import Pipeline
from experiments.study import Library, Source, prompts_of, settings_of, source_of
from ragjax.compress.base import Budget
from ragjax.data.files import LoadedExamples
from ragjax.data.identity import content_hash
from ragjax.evals.demonstrations import demonstrations
from ragjax.evals.run import Group, Item, Point

JUDGEMENTS = ".cache/judgements"
"""Where models' judgements are kept, under the working directory."""


def group_points(points: Sequence[Experiment]) -> list[list[int]]:
    """Positions of the points that are decoded together; any other point is a group of its own."""
    groups: list[list[int]] = []
    for p, point in enumerate(points):
        home = next((group for group in groups if all(shares_work(points[q], point) for q in group)), None)
        if home is None:
            groups.append([p])
        else:
            home.append(p)
    return groups


def shares_work(a: Experiment, b: Experiment) -> bool:
    """Whether two points differ in nothing but what their family leaves free, and neither is to be timed by itself."""
    family = METHODS[a.method].family
    if a.alone or b.alone or family is None or METHODS[b.method].family != family:
        return False
    pairs = [(getattr(a, field), getattr(b, field)) for field in SHARED_FIELDS[family]]
    free = FREE_FIELDS[family].union(SHARED_FIELDS[family])
    # The first samples of any number are the same, the best beams are not.
    free -= {"candidates"} if a.sampler == "beams" else set()
    return common_fields(a, free) == common_fields(b, free) and all(None in p or p[0] == p[1] for p in pairs)


def common_fields(point: Experiment, free: Collection[str]) -> dict[str, Any]:
    """The fields in which all points of a group agree."""
    return {name: value for name, value in asdict(point).items() if name not in free}


def make_groups(
    points: Sequence[Experiment],
    labels: Sequence[str],
    data: Mapping[Source, LoadedExamples],
    models: Mapping[tuple[str, str], Any],
    parts: Library,
) -> list[Group]:
    """The groups of the run, in the order of their first points."""
    groups = []
    for members in group_points(points):
        chosen = [points[p] for p in members]
        loaded = data[source_of(chosen[0])]
        examples = loaded.examples[: chosen[0].limit]
        shown = tuple(replace(example, documents=example.documents[: chosen[0].top_k]) for example in examples)
        work = make_pipeline(chosen, shown, models, parts, last_questions(chosen, loaded))
        listed = tuple(Point(labels[p], settings_of(points[p], data, models)) for p in members)
        items = tuple(as_item(example, loaded) for example in examples)
        groups.append(Group(listed, items, chosen[0].batch, work, tuple(map(characters, shown))))
    return groups


def characters(example: Any) -> int:
    """About how long an example's prompt is: what batches are sorted by."""
    return len(example.question) + sum(len(document.text) for document in example.documents)


def as_item(example: Any, loaded: LoadedExamples) -> Item:
    """What identifies an example, and the columns that each of its rows repeats: its dataset and split among them.

    Where the user named none, they are those that the row itself states. Gold documents do not count: only the points
    of one method read them, and their rows are compared with the others'.
    """
    stated = {name: getattr(loaded, name) or example.meta.get(name) for name in ("dataset", "split")}
    source = {name: None if value is None else str(value) for name, value in stated.items()}
    paper = {"paper": example.meta["paper_id"]} if example.meta.get("paper_id") else {}
    columns = {"question": example.question, "answers": list(example.answers), **source, **paper}
    return Item(example.id, content_hash(example, golds=False), columns)


def last_questions(points: Sequence[Experiment], loaded: LoadedExamples) -> dict[int, tuple[Any, ...]]:
    """The questions that each number of them calibrates a filter on: the last ones of the data."""
    shown = [replace(e, documents=e.documents[: points[0].top_k]) for e in loaded.examples]
    return {point.calibrates: tuple(shown[-point.calibrates :]) for point in points if point.calibrates}


def make_pipeline(
    points: Sequence[Experiment],
    examples: tuple[Any, ...],
    models: Mapping[tuple[str, str], Any],
    parts: Library,
    calibration: Mapping[int, tuple[Any, ...]],
) -> Pipeline | CitingPipeline:
    """The work of one group: its maker, its reader and, where that is another model, what measures perplexity.

    Where answers cite their evidence, what judges the citations stands in the place of that.
    """
    first = points[0]
    reader = models[first.reader, first.dtype]
    measuring = next((models[point.target, point.dtype] for point in points if point.target), reader)
    settings = {"batch": first.batch, "prompt_format": first.prompt_format, "prompts": prompts_of(first)}
    reading = {"max_new": first.reader_max_new, "temperature": first.reader_temperature, "seed": first.seed or 0}
    shots = demonstrations(first.dataset, first.shots) if first.shots else ()
    make_reader = partial(parts.reader, shots=shots, **settings)
    maker = make_maker(points, models, parts, calibration, **settings)
    if first.task == "cite":
        role = {"model": "cite", "posthoc": "write"}[first.citer]
        cited = make_reader(lm=reader, order=first.reader_order or "question_first", role=role, **reading)
        return CitingPipeline(tuple(points), examples, maker, cited, make_judge(first, models, parts), parts.quality)
    return Pipeline(
        points=tuple(points),
        examples=examples,
        maker=maker,
        reader=make_reader(lm=reader, order=first.reader_order or "question_first", **reading),
        scorer=None if measuring.fingerprint == reader.fingerprint else make_reader(lm=measuring),
        count_measured=partial(parts.count_tokens, measuring.tokenizer),
    )


def make_judge(point: Experiment, models: Mapping[tuple[str, str], Any], parts: Library) -> Any:
    """What says whether evidence entails a statement; what a model said is kept, for other points and runs."""
    if point.judge == LEXICAL:
        return parts.judge(LEXICAL)
    model = models[point.judge, point.dtype]
    # The parameters that are loaded already are found again; a classifier alone cuts evidence by a mode.
    settings = {"mode": point.premises} if hasattr(model, "labels") else {}
    return parts.judge(point.judge, dtype=model.dtype, folder=JUDGEMENTS, **settings)


def make_maker(
    points: Sequence[Experiment],
    models: Mapping[tuple[str, str], Any],
    parts: Library,
    calibration: Mapping[int, tuple[Any, ...]],
    **settings: Any,
) -> Maker:
    """What makes a group's evidence, by the family of its methods."""
    first = points[0]
    count = partial(parts.count_tokens, models[first.reader, first.dtype].tokenizer)
    if METHODS[first.method].family == "candidates":
        return make_choosing(points, models, parts, calibration, count, **settings)
    if METHODS[first.method].family == "budgets":
        makers = {"compact": make_compact, "recomp_abstractive": make_recomp}
        own = makers.get(first.method)
        return Fitting(own(first, models, parts, **settings) if own else make_fitting(first, models, parts), count)
    tokenizer = models[first.reader, first.dtype].tokenizer
    return Decoding(make_compressor(points, models, parts, **settings), count, tokenizer)


def make_choosing(
    points: Sequence[Experiment],
    models: Mapping[tuple[str, str], Any],
    parts: Library,
    calibration: Mapping[int, tuple[Any, ...]],
    count: Callable[[str], int],
    **settings: Any,
) -> Choosing:
    """The maker of points that draw the same candidates."""
    first = points[0]
    reader = models[first.reader, first.dtype]
    write = make_compact if first.writer == "compact" else make_written
    writer = write(first, models, parts, **settings)

    @cache
    def threshold(number: int, **how: Any) -> Any:
        budget = Budget.of(first.budget)
        return parts.calibrate(writer, reader, calibration[number], budget=budget, batch=first.batch, **how)

    choosers = {
        p: cache(partial(make_chooser, point, writer, reader, threshold, parts))
        for p, point in enumerate(points)
        if point.method == "xcompress"
    }
    fixed = {p: point for p, point in enumerate(points) if point.method == "candidate"}
    return Choosing(writer, choosers, make_scorers(fixed, reader, parts), count)


def make_scorers(points: Mapping[int, Experiment], reader: Any, parts: Library) -> dict[int, dict[str, Any]]:
    """The selectors that score the candidates of each point; what would score alike is one selector."""
    made: dict[tuple, Any] = {}
    scorers: dict[int, dict[str, Any]] = {p: {} for p in points}
    for p, point in points.items():
        for name, given in SCORERS.items():
            stated = {**vars(point), **given}
            key = (given["kind"], *(stated[field] for field in sorted(READ_WITH["selector"][given["kind"]])))
            if key not in made:
                made[key] = make_selector(point, reader, parts, **given)
            scorers[p][name] = made[key]
    return scorers


def make_chooser(point: Experiment, writer: Any, reader: Any, threshold: Callable[..., Any], parts: Library) -> Any:
    """The `XCompress` of a point; `threshold` fixes its filter, where it has one, on that many questions."""
    how = {"share": point.share, "rho": point.rho, "layer": point.layer, "first_token": point.first_token}
    return parts.chooser(
        writer,
        reader,
        candidates=point.candidates,
        temperature=point.candidate_temperature or 0.0,
        repetition_penalty=point.candidate_penalty,
        selector=make_selector(point, reader, parts, kind=point.selector),
        filter=threshold(point.calibrates, **how) if point.calibrates else None,
        sampler=point.sampler,
        initial_joins=point.initial_joins,
        batch=point.batch,
    )


def make_selector(point: Experiment, reader: Any, parts: Library, **given: Any) -> Any:
    """The `Selector` of a point; fields that it does not read keep their default."""
    names = {"preset": "subspace", "window": "long_window", "stride": "long_stride"}
    names |= {name: name for name in ("energy", "pooling", "layer", "first_token", "seed", "batch")}
    stated = {name: getattr(point, field) for name, field in names.items() if getattr(point, field) is not None}
    return parts.selector(lm=reader, **{**stated, **given})


def make_compact(point: Experiment, models: Mapping[tuple[str, str], Any], parts: Library, **settings: Any) -> Any:
    """The `CompAct` of a point."""
    return parts.compact(
        lm=models[point.compressor, point.dtype],
        segment=point.segment,
        max_iterations=point.iterations,
        **writing_settings(point, models),
        **settings,
    )


def make_recomp(point: Experiment, models: Mapping[tuple[str, str], Any], parts: Library, **settings: Any) -> Any:
    """The `RecompAbstractive` of a point; its model has a prompt form of its own."""
    model, written = models[point.compressor, point.dtype], writing_settings(point, models)
    prompts = {name: settings[name] for name in ("prompts", "batch")}
    return parts.recomp(model=model, **written, **prompts)


def make_written(point: Experiment, models: Mapping[tuple[str, str], Any], parts: Library, **settings: Any) -> Any:
    """The `FaviComp` that writes a point's summaries; without an alpha, the compressor alone."""
    alpha = point.alpha or 0.0
    return parts.compressor(
        alpha=alpha,
        compressor=models[point.compressor, point.dtype],
        target=models[point.target, point.dtype] if alpha else None,
        mix=point.mix or "geometric",
        admit_added=bool(point.admit_added),
        **writing_settings(point, models),
        **settings,
    )


def writing_settings(point: Experiment, models: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """What every compressor of a point's texts is given."""
    return {
        "max_new": point.max_new,
        "temperature": point.temperature,
        "top_p": point.top_p or 1.0,
        "repetition_penalty": point.repetition_penalty,
        "seed": point.seed or 0,
        "tokenizer": models[point.reader, point.dtype].tokenizer,
    }


def make_compressor(
    points: Sequence[Experiment], models: Mapping[tuple[str, str], Any], parts: Library, **settings: Any
) -> Any | None:
    """The compressor that decodes a group's points, with the models that their weights need; None for no decoding."""
    first = points[0]
    if not METHODS[first.method].decodes:
        return None
    alphas = {alpha for point in points for alpha in alphas_of(point)}
    fields = SHARED_FIELDS["alphas"]
    named = {field: next((getattr(p, field) for p in points if getattr(p, field)), None) for field in fields}
    return parts.compressor(
        compressor=models[named["compressor"], first.dtype] if min(alphas) < 1 else None,
        target=models[named["target"], first.dtype] if max(alphas) > 0 else None,
        mix=named["mix"] or "geometric",
        admit_added=bool(named["admit_added"]),
        **writing_settings(first, models),
        **settings,
    )
