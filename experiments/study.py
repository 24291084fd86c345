"""From the points of a study to the groups of a run: data read, models loaded once, points that share work together.

Everything a user can get wrong is found in this order: fields, models' places, data, settings of an old folder,
tokenizers; only then are models loaded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from etils import epath

from experiments.evidence import alphas_of
from experiments.experiment import LEXICAL, MODEL_FIELDS, SOURCE_FIELDS, Experiment, nearest
from experiments.methods import EXECUTION_FIELDS, METHODS, kind_of
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, read_prompts, texts_of
from ragjax.data.catalog import find_split
from ragjax.data.files import LoadedExamples, load_examples
from ragjax.data.identity import content_hash
from ragjax.data.records import Example
from ragjax.data.sources import HUB, join_golds, load_dataset, needs_documents
from ragjax.decode.ensemble import share_vocabulary
from ragjax.evals.parts import digest

WORDS = ("compress", "context", "read")
"""The roles of the prompt texts that the rows of every method may depend on."""

CITING_WORDS = {"model": ("cite",), "posthoc": ("write",)}
"""The role of the texts that the rows of a citer depend on."""

OWN_WORDS = {"compact": "compact", "recomp_abstractive": "recomp"}
"""The role of the texts that one method's rows depend on, and no other's."""


@dataclass(frozen=True)
class Library:
    """The parts of ragjax that load and run models; a test puts small ones in their place.

    `check` refuses, before anything is fetched whole, models that cannot be had or do not fit the memory; `vocabulary`
    reads of a model what `share_vocabulary` compares, and no weights. `fitted` makes a compressor that copies, and
    `scorer` what scores for it, by name. `judge` makes what says whether evidence entails a statement, `quality` scores
    an answer by the rules of its dataset.
    """

    resolve: Callable[[str], Any]
    vocabulary: Callable[[str], Any]
    load: Callable[..., Any]
    compressor: Callable[..., Any]
    reader: Callable[..., Any]
    count_tokens: Callable[[Any, str], int]
    check: Callable[[Sequence[tuple[str, Any, str]]], None]
    compact: Callable[..., Any]
    chooser: Callable[..., Any]
    selector: Callable[..., Any]
    calibrate: Callable[..., Any]
    fitted: Callable[..., Any]
    scorer: Callable[..., Any]
    recomp: Callable[..., Any]
    judge: Callable[..., Any]
    quality: Callable[..., Any]


def library() -> Library:
    """The parts themselves."""
    from ragjax.cite.judges import make_judge
    from ragjax.compress.catalog import make_compressor, make_scorer
    from ragjax.compress.compact import CompAct
    from ragjax.compress.favicomp import FaviComp
    from ragjax.compress.filters import calibrate_filter
    from ragjax.compress.recomp import RecompAbstractive
    from ragjax.compress.select import Selector
    from ragjax.compress.xcompress import XCompress
    from ragjax.decode.prompt import count_tokens
    from ragjax.evals.quality import answer_quality
    from ragjax.evals.reader import Reader
    from ragjax.hub import load, load_vocabulary, resolve
    from ragjax.memory import check_models

    return Library(
        resolve=resolve,
        vocabulary=load_vocabulary,
        load=load,
        compressor=FaviComp,
        reader=Reader,
        count_tokens=count_tokens,
        check=check_models,
        compact=CompAct,
        chooser=XCompress,
        selector=Selector,
        calibrate=calibrate_filter,
        fitted=make_compressor,
        scorer=make_scorer,
        recomp=RecompAbstractive,
        judge=make_judge,
        quality=answer_quality,
    )


Source = tuple[str, str | None, str | None, str | None, bool]
"""What of a point says where its questions come from: the values of `SOURCE_FIELDS`."""


def source_of(point: Experiment) -> Source:
    """The point's values of `SOURCE_FIELDS`."""
    return tuple(getattr(point, name) for name in SOURCE_FIELDS)


def find_data(name: str) -> epath.Path | None:
    """A file's or a folder's path, or that of a shipped data set; None where there is neither."""
    folder = Path(str(resources.files("experiments"))) / "data"
    candidates = (epath.Path(name), epath.Path(folder / f"{name}.jsonl"))
    return next((path for path in candidates if path.exists()), None)


def load_data(points: Sequence[Experiment]) -> dict[Source, LoadedExamples]:
    """Each data set that the points name, as far as their limits need it.

    Raises:
      FileNotFoundError: a file is missing, or a dataset cannot be had; says what to do.
      DataError: a row cannot be used; names file and line.
      ValueError: a method needs documents or gold documents, and there are none.
    """
    limits: dict[Source, list[int | None]] = {}
    for point in points:
        limits.setdefault(source_of(point), []).append(None if point.calibrates else point.limit)
    data = {source: load_source(*source, None if None in wanted else max(wanted)) for source, wanted in limits.items()}
    for point in points:
        check_documents(point, data[source_of(point)])
        check_calibration(point, data[source_of(point)])
    working = {source_of(point) for point in points if METHODS[point.method].documents}
    return {source: warn_of_missing(loaded) if source in working else loaded for source, loaded in data.items()}


def check_calibration(point: Experiment, loaded: LoadedExamples) -> None:
    """Raise ValueError where a point's filter would be calibrated on questions that it is evaluated on."""
    if not point.calibrates:
        return
    left = len(loaded.examples) - point.calibrates
    if point.limit is None or point.limit > left:
        raise ValueError(
            f"{loaded.path}: the filter is calibrated on the last {point.calibrates} of {len(loaded.examples)} "
            f"questions, and limit is {point.limit}: set limit to at most {max(left, 0)}, or filter=none"
        )
    held = {seen_content(point, example) for example in loaded.examples[left:]}
    twice = [example.id for example in loaded.examples[: point.limit] if seen_content(point, example) in held]
    if twice:
        raise ValueError(
            f"{loaded.path}: {len(twice)} of the first {point.limit} questions, {twice[0]!r} for one, are also among "
            f"the last {point.calibrates}, which the filter is calibrated on: take them out, or set filter=none"
        )


def seen_content(point: Experiment, example: Example) -> str:
    """The hash of what a point's models see of an example."""
    return content_hash(replace(example, documents=example.documents[: point.top_k]), golds=False, answers=False)


def load_source(
    data: str, dataset: str | None, split: str | None, golds: str | None, lenient: bool, limit: int | None
) -> LoadedExamples:
    """One data set, with the gold documents of another file where `golds` names one. Raises as `load_data` does."""
    reading = {"strict": not lenient, "limit": limit}
    if dataset is not None:
        loaded = load_dataset(dataset, split, data if data == HUB else find_data(data) or data, **reading)
    elif (path := find_data(data)) is not None:
        loaded = load_examples(path, **reading)
    else:
        folder = Path(str(resources.files("experiments"))) / "data"
        shipped = sorted(path.stem for path in folder.glob("*.jsonl"))
        raise FileNotFoundError(f"no data file {data!r} (shipped: {', '.join(shipped)}{nearest(data, shipped)})")
    return loaded if golds is None else with_golds(loaded, load_golds(golds, dataset, split, lenient))


def load_golds(golds: str, dataset: str | None, split: str | None, lenient: bool) -> LoadedExamples:
    """The rows that hold the gold documents, all of them. Raises as `load_data` does."""
    if dataset is None:
        return load_examples(golds, strict=not lenient)
    return load_dataset(dataset, split, golds, strict=not lenient)


def with_golds(loaded: LoadedExamples, golds: LoadedExamples) -> LoadedExamples:
    """The examples with the gold documents of the same questions; hash and skipped rows are those of both."""
    examples, without = join_golds(loaded.examples, golds.examples)
    skipped = (*loaded.skipped, *golds.skipped)
    counts = {**loaded.counts, "with_gold_documents": len(examples) - without, "skipped_rows": len(skipped)}
    both = f"{loaded.content_hash} {golds.content_hash}"
    return replace(loaded, examples=tuple(examples), counts=counts, content_hash=both, skipped=skipped)


def check_hub(points: Sequence[Experiment]) -> None:
    """Raise ValueError, before anything is fetched, where a method needs documents and the hub's rows have none."""
    for point in points:
        if METHODS[point.method].documents and point.data == HUB and not has_documents(point):
            raise ValueError(f"the method {point.title} needs documents. {needs_documents(point.dataset)}")


def has_documents(point: Experiment) -> bool:
    """Whether its dataset's own rows, if it names one, hold documents."""
    return point.dataset is None or find_split(point.dataset, point.split)[1].documents


def warn_of_missing(loaded: LoadedExamples) -> LoadedExamples:
    """With a warning that counts the rows on which a method that needs documents has nothing to work."""
    without = loaded.counts["without_documents"]
    if not without:
        return loaded
    told = f"{without} of {len(loaded.examples)} questions have no documents: nothing is compressed for them"
    return replace(loaded, warnings=(*loaded.warnings, told))


def check_documents(point: Experiment, loaded: LoadedExamples) -> None:
    """Raise ValueError, with what to do, where a point's method finds nothing to work on."""
    if METHODS[point.method].documents and not any(example.documents for example in loaded.examples):
        told = f"None of the {len(loaded.examples)} questions of {loaded.path} has any"
        if not has_documents(point):
            told = needs_documents(point.dataset)
        raise ValueError(f"the method {point.title} needs documents. {told}")
    if point.method == "gold" and not any(example.gold_documents for example in loaded.examples):
        raise ValueError(
            f"{loaded.path} has no gold documents for the method {point.title}: give golds=hub or golds=FILE, the rows "
            "of hotpotqa, 2wikimultihopqa or musique (rows of your own name them gold_docs)"
        )


def models_of(point: Experiment) -> dict[str, str]:
    """The models that a point names, by field."""
    named = {field: getattr(point, field) for field in MODEL_FIELDS}
    return {field: name for field, name in named.items() if name is not None and (field, name) != ("judge", LEXICAL)}


def model_names(points: Sequence[Experiment]) -> list[tuple[str, str]]:
    """The distinct (name, dtype) of all models that the points read."""
    return list(dict.fromkeys((name, point.dtype) for point in points for name in models_of(point).values()))


def check_models(points: Sequence[Experiment], check: Callable[[Sequence[tuple[str, Any, str]]], None]) -> None:
    """See that all models can be had and held, and are of the kind that their roles need.

    Raises as `ragjax.memory.check_models` does.
    """
    named = [(point, field, name) for point in points for field, name in models_of(point).items()]
    asked = dict.fromkeys((name, p.dtype, kind_of(vars(p), field)) for p, field, name in named)
    check([(name, None if dtype == "auto" else dtype, kind) for name, dtype, kind in asked])


def check_vocabularies(points: Sequence[Experiment], load: Callable[[str], Any]) -> None:
    """See, from the models' vocabularies alone, that they can be prompted and mixed as the points ask.

    Raises:
      ValueError: a model without a chat template is to be prompted as a chat, or two models are to be mixed that do
        not share a vocabulary (`VocabularyMismatch`, naming the first token that differs).
    """
    load = cache(load)
    for name in dict.fromkeys(name for p in points if p.prompt_format == "chat" for name in chatting(p)):
        if not load(name).tokenizer.chat_template:
            raise ValueError(f"{name} has no chat template: set prompt_format=plain")
    mixing = [point for point in points if any(0 < alpha < 1 for alpha in alphas_of(point))]
    for pair, admit_added in dict.fromkeys(((p.compressor, p.target), bool(p.admit_added)) for p in mixing):
        share_vocabulary([load(name) for name in pair], admit_added=admit_added)


def chatting(point: Experiment) -> list[str]:
    """The models that a point prompts: its reader, and what writes its evidence."""
    writes = METHODS[point.method].decodes and kind_of(vars(point), "compressor") == "causal"
    fields = ("reader", "target", *(("compressor",) if writes else ()))
    return [name for name in (getattr(point, field) for field in fields) if name is not None]


def load_models(points: Sequence[Experiment], load: Callable[..., Any]) -> dict[tuple[str, str], Any]:
    """The models of all points by (name, dtype), each loaded once."""
    return {(name, dtype): load(name, dtype=None if dtype == "auto" else dtype) for name, dtype in model_names(points)}


def prompts_of(point: Experiment) -> PromptSet:
    """The prompt texts of a point. Raises ValueError or OSError about the file it names."""
    return DEFAULT_PROMPTS if point.prompts is None else read_prompts(point.prompts)


def settings_of(
    point: Experiment, data: Mapping[Source, LoadedExamples], models: Mapping[tuple[str, str], Any] | None
) -> dict[str, Any]:
    """What defines a point's rows: its fields, with data and models by content; without the models if not loaded."""
    settings = {name: value for name, value in asdict(point).items() if name not in EXECUTION_FIELDS}
    loaded = data[source_of(point)]
    del settings["golds"]
    settings |= {"data": loaded.content_hash, "split": loaded.split}
    prompts = prompts_of(point)
    own = [OWN_WORDS[name] for name in (point.method, point.writer) if name in OWN_WORDS]
    words = (*WORDS, *CITING_WORDS.get(point.citer, ()), *own)
    settings["prompts"] = f"{prompts.version} {digest(texts_of(prompts, words))}"
    stated = {field: settings.pop(field) for field in MODEL_FIELDS}
    if models is None:
        del settings["dtype"]
        return settings
    found = {field: models[name, point.dtype] for field, name in models_of(point).items()}
    settings["dtype"] = str(found["reader"].dtype)
    return {**settings, **{field: found[field].fingerprint if field in found else stated[field] for field in stated}}
