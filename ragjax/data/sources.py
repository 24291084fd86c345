"""A dataset by name: from the hub's Parquet files, or from whatever copy of it lies on this machine.

No loading script is ever run. What cannot be had is an error that says which file is missing, where it comes from and
how to give a local one.
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from ragjax.data.catalog import DATASETS, GENERAL, PARTS, Dataset, Split, check_count, find_split, plain_split
from ragjax.data.files import LoadedExamples, load_files
from ragjax.data.openqa import with_short_answers
from ragjax.data.records import DataError, Example

HUB = "hub"


def load_dataset(
    dataset: str,
    split: str | None = None,
    source: str | os.PathLike = HUB,
    *,
    strict: bool = True,
    limit: int | None = None,
) -> LoadedExamples:
    """The examples of one split of a known dataset.

    `source` is "hub", a file in any known layout, or a folder with the hub's or the original files. A split that is not
    named is the one that is usually evaluated (validation). `strict` and `limit` are those of `files.load_examples`.

    Raises:
      DataError: an unknown dataset or split, a row that cannot be used (file and line are named), or rows of another
        dataset, by their layout or by what they say.
      FileNotFoundError: the files cannot be had; the message says what to do.
    """
    full, known = find_split(dataset, split)
    if os.fspath(source) == HUB:
        folder = fetch(dataset, known)
        paths, name = _in_folder(folder, known, dataset), f"hub {known.hub or DATASETS[dataset].hub}"
    else:
        paths, name = _local(epath.Path(source), known, dataset), Path(os.fspath(source)).name
    group = known.group or full.rsplit("/", 1)[-1]
    loaded = load_files(paths, name, strict=strict, limit=limit, questions_only=True, group=group, hidden=known.hidden)
    _refuse_other_layouts(loaded, dataset)
    _refuse_other_rows(loaded, dataset, full)
    if DATASETS[dataset].short_answers:
        loaded = dataclasses.replace(loaded, examples=tuple(map(with_short_answers, loaded.examples)))
    warnings = tuple(_warnings(dataset, full, known, loaded, limit))
    return dataclasses.replace(loaded, dataset=dataset, split=full, warnings=warnings)


def fetch(dataset: str, split: Split) -> Path:
    """The local folder with a split's files, from the hub's cache or the network.

    Raises FileNotFoundError saying why it cannot be had and what to do about it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    known = DATASETS[dataset]
    hub, revision = split.hub or known.hub, split.revision or known.revision
    try:
        found = snapshot_download(hub, repo_type="dataset", revision=revision, allow_patterns=list(split.files))
        return Path(found)
    except GatedRepoError:
        reason = f"is gated: accept its terms at https://huggingface.co/datasets/{hub} and log in with `hf auth login`"
    except RevisionNotFoundError:
        reason = f"has no revision {revision} any more"
    except RepositoryNotFoundError:
        reason = "is not on the hub any more, or is private (log in with `hf auth login`)"
    except OSError:
        reason = "is not in the local cache and the hub cannot be reached"
    raise FileNotFoundError(f"{dataset}: {hub} {reason}. {_how_to_get(known, split, hub, revision)}") from None


def join_golds(examples: Sequence[Example], golds: Sequence[Example]) -> tuple[list[Example], int]:
    """The examples with the gold documents and sentences that the same questions have in `golds`, by the question.

    Retrieved files name no golds, the dataset does. Returns the examples and how many of them found none.
    """
    known: dict[str, Example] = {}
    for gold in golds:
        key = _same_question(gold)
        if gold.gold_documents and len(gold.gold_documents) > len(known[key].gold_documents if key in known else ()):
            known[key] = gold
    joined = [_with_golds(example, known.get(_same_question(example))) for example in examples]
    return joined, sum(not example.gold_documents for example in joined)


def _with_golds(example: Example, gold: Example | None) -> Example:
    if gold is None:
        return example
    return dataclasses.replace(example, gold_documents=gold.gold_documents, gold_sentences=gold.gold_sentences)


def _same_question(example: Example) -> str:
    return " ".join(example.question.lower().split()).rstrip(" ?")


def _how_to_get(known: Dataset, split: Split, hub: str, revision: str) -> str:
    other = f", or {' or '.join(split.originals)} from {known.origin}" if split.originals else ""
    return (
        f"Download {' or '.join(split.files)} of https://huggingface.co/datasets/{hub}/tree/{revision} where there is "
        f"a network{other}, and give the file or its folder as the data"
    )


def _local(path: epath.Path, split: Split, dataset: str) -> list[epath.Path]:
    if path.is_dir():
        return _in_folder(path, split, dataset)
    if path.is_file():
        return [path]
    raise FileNotFoundError(f"{path}: no such file or folder. {_what_to_give(split, dataset)}")


def _in_folder(folder: os.PathLike, split: Split, dataset: str) -> list[epath.Path]:
    """The files of a split in a folder: by the first pattern that finds any, in the order of their names."""
    folder = epath.Path(folder)
    flat = [pattern.rsplit("/", 1)[-1] for pattern in split.files if "/*" not in pattern]
    for pattern in (*split.files, *split.originals, *flat, *split.mirrors):
        if found := sorted(folder.glob(pattern)):
            return found
    told = _what_to_give(split, dataset)
    if scripts := sorted(path.name for path in folder.glob("*.py")):
        raise FileNotFoundError(
            f"{folder} holds the loading script {scripts[0]}, which is not run, and no data of this split. {told}"
        )
    raise FileNotFoundError(f"{folder} holds no file of this split of {dataset}. {told}")


def _what_to_give(split: Split, dataset: str) -> str:
    known = DATASETS[dataset]
    told = _how_to_get(known, split, split.hub or known.hub, split.revision or known.revision)
    return told if split.documents else f"{needs_documents(dataset)}. For its questions alone: {told}"


def needs_documents(dataset: str) -> str:
    """What to say where a dataset without documents is to be compressed."""
    return (
        f"{dataset} itself has no documents: give retrieved ones (JSON Lines with question, answers and ctxs, as DPR, "
        f"Contriever, FaviComp, CompAct and ALCE write them) with --data FILE"
    )


def _refuse_other_layouts(loaded: LoadedExamples, dataset: str) -> None:
    """Raise DataError where the rows are in a layout that the dataset has in none of its forms."""
    own = (*DATASETS[dataset].layouts, *GENERAL)
    for layout in loaded.layouts:
        if layout not in own:
            having = [name for name, known in DATASETS.items() if layout in known.layouts]
            raise DataError(
                f"{loaded.path} looks like {layout}, the layout of {' and '.join(having)}; rows of {dataset} are in "
                f"{', '.join(own[:-1])} or {own[-1]}"
            )


def _refuse_other_rows(loaded: LoadedExamples, dataset: str, split: str) -> None:
    """Raise DataError where a row states another dataset, or another split, than the one it is read as."""
    part = plain_split(split.rsplit("/", 1)[-1])
    kinds = DATASETS[dataset].others
    for example in loaded.examples:
        states = str(example.meta.get("dataset") or kinds.get(str(example.meta.get("type")), dataset)).lower()
        if states in DATASETS and states != dataset:
            raise DataError(f"{loaded.path}: {example.id} is a question of {states}, not of {dataset}")
        stated = plain_split(str(example.meta.get("split") or part))
        if stated in PARTS and stated != part:
            raise DataError(f"{loaded.path}: {example.id} is of the split {stated}, not {split}: name it with --split")
        if split.startswith("answerable/") and example.meta.get("answerable") is False:
            raise DataError(f"{loaded.path}: {example.id} is unanswerable, so of full/{part}: name it with --split")


def _warnings(dataset: str, full: str, known: Split, loaded: LoadedExamples, limit: int | None) -> list[str]:
    found = []
    read = len(loaded.examples) + loaded.counts["skipped_rows"] + loaded.counts["repeated_questions"]
    if limit is None and (warning := check_count(dataset, full, read)):
        found.append(warning)
    if known.hidden:
        found.append(f"the golds of {dataset} {full} are not public: answers are made, and nothing is scored")
    elif loaded.counts["unanswered"] == len(loaded.examples):
        found.append(
            "no question has a gold, and nothing is scored: rows of a hidden test split look like this, use validation"
        )
    if limit is not None and DATASETS[dataset].order:
        found.append(f"{DATASETS[dataset].order} (limit {limit})")
    return found
