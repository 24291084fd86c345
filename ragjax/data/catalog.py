"""What is known of the public datasets: where they lie, their splits, how many questions each has.

A split is called `config/split`, as on the hub; without a config the dataset's `default` is meant. Counts are those
of the sources as published; where a count is often taken for another split, `taken_for` says which it is.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ragjax.data.records import DataError


@dataclass(frozen=True)
class Split:
    """One split: its questions (None where no count is known), its files in the hub's repository, its original files.

    `files` are glob patterns, tried in order; `mirrors` those of other copies, looked for in a local folder. `group`
    names the split inside a file that holds several. `hidden`: the golds are not public. `documents`: its rows hold
    documents.
    """

    questions: int | None
    files: tuple[str, ...]
    originals: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    documents: bool = True
    group: str | None = None
    hidden: bool = False
    hub: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset: its repository on the hub, its splits, and what a user should be told.

    `origin` says where the original files come from; `layouts` are those of its own rows (`layouts.LAYOUTS`), beside
    which rows with retrieved documents, and questions alone, are read for any dataset (`GENERAL`).
    `others` are types of questions that only another dataset in the same layout has. `short_answers`: its golds are the
    short answers in `qa_pairs`, whatever else a row calls its answers.
    """

    hub: str
    default: str
    splits: Mapping[str, Split]
    origin: str
    layouts: tuple[str, ...]
    revision: str = "main"
    aliases: Mapping[str, str] = field(default_factory=dict)
    taken_for: Mapping[int, str] = field(default_factory=dict)
    order: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    short_answers: bool = False


_SPELLINGS = {"dev": "validation", "val": "validation"}
# The parts of a dataset, by their plain names.
PARTS = ("train", "validation", "test")
# How copies without shards end, in the order in which they are looked for.
_ENDS = ("parquet", "jsonl", "json")


def _parquet(config: str, split: str) -> tuple[str, ...]:
    """Where a split's Parquet files lie: by config, in the automatic conversion, or without a folder for the config."""
    name = config or "default"
    flat = (f"data/{split}-*.parquet", f"{split}-*.parquet") if not config or config == "default" else ()
    return (f"{name}/{split}-*.parquet", f"{name}/{split}/*.parquet", *flat)


def _mirrors(config: str, split: str, default: bool) -> tuple[str, ...]:
    """Where copies have a split, in any spelling of its name; files without a config's name are the default's."""
    names = (split, *(short for short, long in _SPELLINGS.items() if long == split))
    whole = [f"{{name}}.{end}" for end in _ENDS]
    places = ["{config}/{name}-*.parquet", "{config}/{name}/*.parquet", *(f"{{config}}/{place}" for place in whole)]
    if default:
        places += ["data/{name}-*.parquet", "{name}-*.parquet", *whole]
    return tuple(place.format(config=config, name=name) for place in places for name in names)


def _splits(
    config: str,
    originals: Mapping[str, str] | None = None,
    *,
    documents: bool = True,
    default: bool = True,
    **questions: int,
) -> dict[str, Split]:
    return {
        f"{config}/{split}": Split(
            count,
            _parquet(config, split),
            tuple(name for name in ((originals or {}).get(split),) if name),
            mirrors=_mirrors(config, split, default),
            documents=documents,
            hidden=split == "test",
        )
        for split, count in questions.items()
    }


# Layouts that rows of any dataset may be in: a retriever's output, and questions with answers.
GENERAL = ("retrieved documents", "CompAct", "FlashRAG", "questions")

_TRIVIAQA_COUNTS = {
    "unfiltered": {"train": 87622, "validation": 11313, "test": 10832},
    "rc": {"train": 138384, "validation": 17944, "test": 17210},
    "rc.web": {"train": 76496, "validation": 9951, "test": 9509},
    "rc.wikipedia": {"train": 61888, "validation": 7993, "test": 7701},
}
_TRIVIAQA_FILES = {"unfiltered": "unfiltered-web", "rc": "", "rc.web": "qa/web", "rc.wikipedia": "qa/wikipedia"}


def _triviaqa_originals(config: str) -> dict[str, str]:
    """The original files of a config; `rc` is those of two domains, and has none of its own."""
    stem = _TRIVIAQA_FILES[config]
    ends = {"train": "train", "validation": "dev", "test": "test-without-answers"}
    return {split: f"{stem}-{end}.json" for split, end in ends.items()} if stem else {}


DATASETS = {
    "nq": Dataset(
        hub="google-research-datasets/nq_open",
        default="nq_open",
        layouts=(),
        splits=_splits(
            "nq_open",
            {"train": "NQ-open.train.jsonl", "validation": "NQ-open.dev.jsonl"},
            documents=False,
            train=87925,
            validation=3610,
        ),
        origin="the folder nq_open of github.com/google-research-datasets/natural-questions",
        taken_for={
            3610: "what papers call NQ's test set of 3,610 questions is the split validation",
            8757: "8,757 questions are DPR's own development set, carved out of train",
            79168: "79,168 questions are DPR's part of train",
            1800: "1,800 questions are EfficientQA's development set: other questions than NQ-open's",
        },
    ),
    "triviaqa": Dataset(
        hub="mandarjoshi/trivia_qa",
        default="unfiltered.nocontext",
        layouts=("TriviaQA", "TriviaQA (original)"),
        splits={
            name: split
            for config, counts in _TRIVIAQA_COUNTS.items()
            for suffix in ("", ".nocontext")
            for name, split in _splits(
                config + suffix,
                _triviaqa_originals(config),
                documents=not suffix,
                default=config + suffix == "unfiltered.nocontext",
                **counts,
            ).items()
        },
        origin="triviaqa-unfiltered.tar.gz of nlp.cs.washington.edu/triviaqa",
        taken_for={
            11313: "what papers call TriviaQA's test set of 11,313 questions is the split validation of unfiltered",
            8837: "8,837 questions are DPR's own development set, carved out of train",
            78785: "78,785 questions are DPR's part of train",
        },
    ),
    "hotpotqa": Dataset(
        hub="hotpotqa/hotpot_qa",
        revision="1908d6afbbead072334abe2965f91bd2709910ab",
        default="distractor",
        layouts=("HotpotQA", "FlashRAG with documents"),
        splits={
            **_splits(
                "distractor",
                {"train": "hotpot_train_v1.1.json", "validation": "hotpot_dev_distractor_v1.json"},
                train=90447,
                validation=7405,
            ),
            **_splits(
                "fullwiki",
                {"validation": "hotpot_dev_fullwiki_v1.json", "test": "hotpot_test_fullwiki_v1.json"},
                default=False,
                train=90447,
                validation=7405,
                test=7405,
            ),
        },
        origin="hotpotqa.github.io",
        others=dict.fromkeys(("compositional", "inference", "bridge_comparison"), "2wikimultihopqa"),
    ),
    "2wikimultihopqa": Dataset(
        hub="framolfese/2WikiMultihopQA",
        revision="fe713bfbd1afbca1a65246741a75890405d56a3a",
        default="default",
        layouts=("HotpotQA", "FlashRAG with documents"),
        splits=_splits(
            "default",
            {"train": "train.json", "validation": "dev.json", "test": "test.json"},
            train=167454,
            validation=12576,
            test=12576,
        ),
        origin="github.com/Alab-NII/2wikimultihop (or the mirrors voidful/2WikiMultihopQA, xanhho/2WikiMultihopQA: "
        "download their files, a loading script is not run)",
        taken_for={15000: "15,000 questions are FlashRAG's part of train"},
    ),
    "musique": Dataset(
        hub="dgslibisey/MuSiQue",
        default="answerable",
        layouts=("MuSiQue", "FlashRAG with documents"),
        splits={
            f"answerable/{split}": Split(
                count, (name,), (name,), mirrors=_mirrors("answerable", split, True), hidden=split == "test"
            )
            for split, name, count in (
                ("train", "musique_ans_v1.0_train.jsonl", 19938),
                ("validation", "musique_ans_v1.0_dev.jsonl", 2417),
                ("test", "musique_ans_v1.0_test.jsonl", None),
            )
        }
        | {
            f"full/{split}": Split(
                count,
                _parquet("default", split),
                (f"musique_full_v1.0_{name}.jsonl",),
                mirrors=_mirrors("full", split, False),
                hidden=split == "test",
                hub="bdsaglam/musique",
                revision="22873a405dd809893b22ada0b499299fb612d2df",
            )
            for split, name, count in (
                ("train", "train", 39876),
                ("validation", "dev", 4834),
                ("test", "test", None),
            )
        },
        origin="musique_v1.0.zip of github.com/StonyBrookNLP/musique",
        taken_for={4834: "4,834 questions are full/validation: every id twice, answerable and not"},
        order="MuSiQue's files are ordered by the number of hops: their first rows are all of two",
    ),
    "asqa": Dataset(
        hub="din0s/asqa",
        default="default",
        layouts=("ASQA", "ALCE's ASQA"),
        splits={
            f"default/{split}": Split(
                count,
                _parquet("default", split),
                ("ASQA.json",),
                mirrors=_mirrors("default", "validation" if split == "dev" else split, True),
                documents=False,
                group=split,
            )
            for split, count in (("train", 4353), ("dev", 948))
        },
        origin="ASQA.json of github.com/google-research/language (with documents: ALCE-data.tar of "
        "huggingface.co/datasets/princeton-nlp/ALCE-data)",
        aliases={"validation": "dev"},
        short_answers=True,
    ),
    "qasper": Dataset(
        hub="allenai/qasper",
        revision="refs/convert/parquet",
        default="qasper",
        layouts=("QASPER",),
        splits=_splits(
            "qasper",
            {"train": "qasper-train-v0.3.json", "validation": "qasper-dev-v0.3.json", "test": "qasper-test-v0.3.json"},
            train=2593,
            validation=1005,
        )
        | {
            "qasper/test": Split(
                1451,
                _parquet("qasper", "test"),
                ("qasper-test-v0.3.json",),
                mirrors=_mirrors("qasper", "test", True),
            )
        },
        origin="allenai.org/data/qasper",
    ),
}


def plain_split(name: str) -> str:
    """The first word of a split's name, "dev" and "val" as "validation"."""
    word = "".join(name.lower().split()[:1])
    return _SPELLINGS.get(word, word)


def find_split(dataset: str, split: str | None = None) -> tuple[str, Split]:
    """A split's full name (`config/split`) and what is known of it; `None` is the evaluation split.

    "dev" and "validation" are one. Raises DataError, naming what there is, for an unknown dataset or split.
    """
    if dataset not in DATASETS:
        close = difflib.get_close_matches(dataset, DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise DataError(f"no dataset {dataset!r} (there are {', '.join(DATASETS)}){hint}")
    known = DATASETS[dataset]
    config, _, name = (split or "validation").rpartition("/")
    for spelling in (name, known.aliases.get(name), _SPELLINGS.get(name)):
        full = f"{config or known.default}/{spelling}"
        if full in known.splits:
            return full, known.splits[full]
    told = next((f"; {words}" for words in known.taken_for.values() if "is the split" in words), "")
    raise DataError(f"{dataset} has no split {split!r}; there are {', '.join(known.splits)}{told}")


def check_count(dataset: str, split: str, found: int) -> str | None:
    """A warning where a split does not have its known number of questions; None where it has, or none is known."""
    name, known = find_split(dataset, split)
    if known.questions in (None, found):
        return None
    told = DATASETS[dataset].taken_for.get(found)
    words = f" ({told})" if told else ""
    return f"{found:,} questions were read, {dataset} {name} is known to have {known.questions:,}{words}"
