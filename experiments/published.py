"""The studies of FaviComp (2409.12468) as its authors ran them: models, data, settings, and the numbers they report.

A config takes its points from here. The numbers are facts from the paper's tables; its figures state none, and of them
the findings are kept. What the paper leaves open is settled below, and `experiments/README.md` says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.combine import chain, zip_
from experiments.experiment import Experiment

LLAMA_3B = "meta-llama/Llama-3.2-3B-Instruct"
LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"
# The paper writes Mistral-7B-Instruct. v0.2 shares Mixtral's vocabulary, v0.3 has another; its table 5 names v0.3.
MISTRAL_V2 = "mistralai/Mistral-7B-Instruct-v0.2"
MISTRAL_V3 = "mistralai/Mistral-7B-Instruct-v0.3"
MIXTRAL = "mistralai/Mixtral-8x7B-Instruct-v0.1"

# The splits with the questions that the paper counts (table 6): 3610, 11313, 7405, 12576, 4834.
SPLITS = {
    "nq": "nq_open/validation",
    "triviaqa": "unfiltered.nocontext/validation",
    "hotpotqa": "distractor/validation",
    "2wikimultihopqa": "default/validation",
    "musique": "full/validation",
}
COMPACT_7B = "cwyoon99/CompAct-7b"
# The paper names no Sentence-BERT model but its size (110M), and no number of sentences: ours are RECOMP's.
SENTENCE_BERT = "sentence-transformers/bert-base-nli-mean-tokens"
LLAMA_2 = "NousResearch/Llama-2-7b-hf"
SENTENCES = {"nq": 1, "triviaqa": 1, "hotpotqa": 2, "2wikimultihopqa": 2, "musique": 2}
_TRAINED_ON = {"nq": "nq", "triviaqa": "tqa"}
_ABSTRACTIVE = {"nq": "fangyuan/nq_abstractive_compressor", "triviaqa": "fangyuan/tqa_abstractive_compressor"}
RECOMP_EXTRACTIVE = {name: f"fangyuan/{_TRAINED_ON.get(name, 'hotpotqa')}_extractive_compressor" for name in SENTENCES}
RECOMP_ABSTRACTIVE = {name: _ABSTRACTIVE.get(name, "fangyuan/hotpotqa_abstractive") for name in SENTENCES}
RIVALS = (
    *(SENTENCE_BERT, LLAMA_2, COMPACT_7B),
    *dict.fromkeys((*RECOMP_EXTRACTIVE.values(), *RECOMP_ABSTRACTIVE.values())),
)
"""The models of the compressors that the paper compares with."""

MULTI_DOCUMENT = ("hotpotqa", "2wikimultihopqa", "musique")
ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)

BASE = Experiment(preset="paper", shots=5, max_new=128, reader_max_new=32, top_k=5, normalizer="squad")


@dataclass(frozen=True)
class Published:
    """A table or a figure of a paper: for each row and dataset, the values of `metrics` in the paper's own scale.

    A figure's rows may state nothing, or None for a metric; `findings` are what the paper reads from it, in our words.
    `models` are those of the rows that can be run here.
    """

    source: str
    metrics: tuple[str, ...]
    rows: Mapping[str, Mapping[str, tuple[float | None, ...]]]
    models: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


def models(compressor: str, target: str) -> dict[str, Any]:
    """The fields of a pair; the target reads its own evidence.

    Llama 3.2 gives names to added tokens that Llama 3 reserves: that pair is admitted, and never writes them.
    """
    pair = {"compressor": compressor, "target": target, "reader": target}
    return {**pair, "admit_added": (compressor, target) == (LLAMA_3B, LLAMA_8B)}


def on_datasets(point: Experiment, datasets: Sequence[str] = tuple(SPLITS)) -> list[Experiment]:
    """A point on the paper's splits, over retrieved documents in `retrieved/NAME.jsonl` (any layout with ctxs)."""
    files = [f"retrieved/{name}.jsonl" for name in datasets]
    return zip_(point, dataset=list(datasets), split=[SPLITS[name] for name in datasets], data=files)


def all_methods(point: Experiment) -> list[Experiment]:
    """Table 1's rows, on the datasets that each has."""
    gold = zip_(point, method=["gold"], golds=["hub"])
    plain, decoded = (
        zip_(point, method=names) for names in (["no_context", "raw", "generated"], ["zero_shot", "favicomp"])
    )
    return chain(
        *(on_datasets(row, MULTI_DOCUMENT) for row in gold),
        *(on_datasets(row) for row in plain),
        sentence_bert(point),
        recomp_extractive(point),
        on_datasets(longllmlingua(point)),
        recomp_abstractive(point),
        *(on_datasets(row) for row in (compact(point), *decoded)),
    )


def sentence_bert(point: Experiment) -> list[Experiment]:
    """The row of Sentence-BERT: as many sentences as RECOMP takes."""
    rows = on_datasets(replace(point, method="sentence_bert", encoder=SENTENCE_BERT))
    return [replace(row, most=SENTENCES[row.dataset]) for row in rows]


def recomp_extractive(point: Experiment) -> list[Experiment]:
    """The row of RECOMP-extractive: 1 sentence on NQ and TriviaQA, 2 elsewhere, by the model trained for it.

    That of HotpotQA stands in for 2Wiki and MuSiQue.
    """
    rows = on_datasets(replace(point, method="recomp_extractive"))
    return [replace(row, encoder=RECOMP_EXTRACTIVE[row.dataset], most=SENTENCES[row.dataset]) for row in rows]


def recomp_abstractive(point: Experiment, datasets: Sequence[str] = tuple(SPLITS)) -> list[Experiment]:
    """The row of RECOMP-abstractive: T5-large by the same rule; new tokens as in its released code."""
    rows = on_datasets(replace(point, method="recomp_abstractive", compressor="", max_new=512), datasets)
    return [replace(row, compressor=RECOMP_ABSTRACTIVE[row.dataset]) for row in rows]


def longllmlingua(point: Experiment) -> Experiment:
    """The row of LongLLMLingua: Llama-2-7B, dynamic rate 0.3, and half of the tokens."""
    return replace(point, method="longllmlingua", compressor=LLAMA_2, dynamic=0.3, budget=0.5)


def compact(point: Experiment) -> Experiment:
    """The row of CompAct: its own model, 5 documents a segment, 1 iteration; new tokens as in its released code."""
    return replace(point, method="compact", compressor=COMPACT_7B, segment=5, iterations=1, max_new=900)


def row_of(point: Experiment) -> str:
    """The published row that a point makes again; FaviComp's own is at alpha 0.5, other weights are named."""
    return point.title if point.alpha in (None, 0.5) else f"{point.title} alpha {point.alpha:g}"


def read_rows(datasets: Sequence[str], text: str, width: int) -> dict[str, dict[str, tuple[float, ...]]]:
    """A table from lines of "row | numbers", `width` numbers a dataset; a dash is a dataset without a value."""
    table = {}
    for line in text.strip().splitlines():
        name, numbers = (part.strip() for part in line.split("|"))
        cells = [tuple(map(float, cell.split("/"))) if cell != "-" else None for cell in numbers.split()]
        if len(cells) != len(datasets) or any(cell is not None and len(cell) != width for cell in cells):
            raise ValueError(f"a published row has {len(datasets)} cells of {width} numbers: {line!r}")
        table[name] = {dataset: cell for dataset, cell in zip(datasets, cells, strict=True) if cell is not None}
    return table


QUALITY = ("acc", "f1")
TABLE_1_LLAMA = Published(
    "FaviComp, table 1, Llama-3.2-3B-Instruct with Llama-3-8B-Instruct",
    QUALITY,
    read_rows(
        tuple(SPLITS),
        """
        gold documents     | -         -         42.3/51.3 35.7/40.0 10.2/17.7
        no context         | 26.9/31.9 57.2/61.2 19.1/25.5 20.5/25.0 5.4/13.0
        raw documents      | 42.6/47.1 67.6/70.8 30.3/38.7 22.0/26.8 8.2/15.0
        generated context  | 32.3/36.6 59.7/62.4 22.7/29.7 24.8/28.7 7.6/14.8
        Sentence-BERT      | 30.3/35.4 59.2/62.9 22.4/29.6 18.1/22.9 7.7/14.8
        RECOMP-extractive  | 33.7/38.1 59.4/62.8 22.5/29.8 18.0/22.4 8.1/15.5
        LongLLMLingua      | 35.4/40.9 64.8/67.6 25.9/34.7 19.2/24.2 7.7/14.4
        RECOMP-abstractive | 39.3/43.3 62.9/66.1 27.0/34.8 20.5/25.0 7.3/14.8
        CompAct            | 42.3/46.1 67.0/69.7 29.8/37.5 21.4/26.6 9.2/16.9
        zero-shot summary  | 39.4/43.2 64.2/67.1 30.1/38.5 25.7/31.1 7.7/15.3
        FaviComp           | 42.8/46.8 68.0/70.9 33.0/41.6 29.6/35.2 10.8/19.9
        """,
        2,
    ),
    models=(LLAMA_3B, LLAMA_8B, *RIVALS),
)
TABLE_1_MIXTRAL = Published(
    "FaviComp, table 1, Mistral-7B-Instruct with Mixtral-8x7B-Instruct",
    QUALITY,
    read_rows(
        tuple(SPLITS),
        """
        gold documents     | -         -         48.2/55.1 49.9/51.9 12.9/18.6
        no context         | 36.7/38.4 68.9/72.0 25.1/31.6 32.5/35.9 6.4/11.8
        raw documents      | 46.3/42.1 72.1/71.1 34.0/39.0 32.9/36.3 10.1/15.6
        generated context  | 33.6/33.9 61.4/62.9 26.5/32.9 30.2/34.3 7.2/13.4
        Sentence-BERT      | 36.8/36.8 67.0/68.7 28.3/34.5 32.5/36.2 9.9/15.2
        RECOMP-extractive  | 38.0/37.9 66.7/68.0 28.7/34.3 31.8/34.9 9.4/15.6
        LongLLMLingua      | 40.1/39.4 70.5/71.0 32.0/38.3 31.9/36.1 9.7/15.9
        RECOMP-abstractive | 42.1/41.3 68.4/69.4 32.3/38.5 32.2/36.2 7.9/13.6
        CompAct            | 44.1/43.4 70.3/71.4 35.2/41.6 35.9/39.5 11.2/16.9
        zero-shot summary  | 42.1/40.6 65.9/67.0 31.4/38.1 28.5/32.8 8.4/13.8
        FaviComp           | 43.6/44.5 72.6/73.9 36.3/44.4 40.5/45.2 13.4/19.9
        """,
        2,
    ),
    models=(MISTRAL_V2, MIXTRAL, *RIVALS),
)
TABLE_2 = Published(
    "FaviComp, table 2",
    ("f1",),
    read_rows(
        tuple(SPLITS),
        """
        generated context | 36.6 62.4 29.7 28.7 14.8
        zero-shot summary | 43.2 67.1 38.5 31.1 15.3
        concatenation     | 42.5 66.7 36.5 29.0 15.6
        FaviComp          | 46.8 70.9 41.6 35.2 19.9
        """,
        1,
    ),
    models=(LLAMA_3B, LLAMA_8B),
)
TABLE_3 = Published(
    "FaviComp, table 3",
    ("rate",),
    read_rows(
        tuple(SPLITS),
        """
        LongLLMLingua      | 1.87  1.84  1.83  1.83  1.83
        RECOMP-abstractive | 17.96 17.79 19.72 32.06 32.05
        CompAct            | 8.85  8.92  9.45  10.71 8.96
        zero-shot summary  | 14.12 17.12 18.75 21.39 16.19
        FaviComp           | 16.43 22.40 22.55 23.10 18.95
        """,
        1,
    ),
    models=(LLAMA_3B, LLAMA_8B, LLAMA_2, COMPACT_7B, *dict.fromkeys(RECOMP_ABSTRACTIVE.values())),
)
TABLE_4 = Published(
    "FaviComp, table 4 (two questions of HotpotQA)",
    ("perplexity",),
    {"raw documents": {}, "zero-shot summary": {}, "FaviComp": {}},
    models=(LLAMA_3B, LLAMA_8B),
    findings=(
        "first question: perplexity 12.429 of the raw documents, 1.959 of FaviComp's text",
        "second question: perplexity 3.196 of the zero-shot summary, 1.345 of FaviComp's text",
        "the raw documents lead to a wrong answer in both, the zero-shot summary in the second",
    ),
)
TABLE_5 = Published(
    "FaviComp, table 5, Mistral-7B-Instruct reads",
    QUALITY,
    read_rows(
        ("nq", "triviaqa", "hotpotqa"),
        """
        RECOMP-abstractive, T5-large                | 38.0/37.8 62.1/65.0 27.4/34.3
        RECOMP-abstractive, Mistral-7B-v0.3 trained | 38.3/38.2 63.0/65.4 29.5/36.6
        FaviComp                                    | 40.3/40.4 65.9/68.9 32.0/40.5
        """,
        2,
    ),
    models=(MISTRAL_V3,),
)
TABLE_7 = Published(
    "FaviComp, table 7 (hardware and batch are not stated)",
    ("seconds", "acc", "f1"),
    read_rows(
        ("nq",),
        """
        RECOMP-abstractive | 0.22/39.3/43.3
        CompAct            | 8.72/42.3/46.1
        zero-shot summary  | 3.99/39.4/43.2
        FaviComp           | 6.43/42.8/46.8
        """,
        3,
    ),
    models=(LLAMA_3B, LLAMA_8B, COMPACT_7B, RECOMP_ABSTRACTIVE["nq"]),
)
TABLE_8_LLAMA = Published(
    "FaviComp, table 8, Llama-3-8B-Instruct as both",
    QUALITY,
    read_rows(
        tuple(SPLITS),
        """
        zero-shot summary | 41.3/45.1 66.3/69.5 30.2/38.6 22.3/28.1 8.3/16.3
        FaviComp          | 42.3/46.6 68.4/71.5 32.3/41.0 27.6/33.6 11.4/20.1
        """,
        2,
    ),
    models=(LLAMA_8B,),
)
TABLE_8_MISTRAL = Published(
    "FaviComp, table 8, Mistral-7B-Instruct as both",
    QUALITY,
    read_rows(
        tuple(SPLITS),
        """
        gold documents     | -         -         41.0/50.5 38.1/40.3 9.6/15.2
        no context         | 28.1/27.5 58.8/60.9 19.7/24.8 21.9/22.8 5.2/9.7
        raw documents      | 40.2/39.3 66.2/68.6 30.3/37.2 26.6/28.5 7.5/13.1
        generated context  | 30.1/31.7 57.3/60.7 23.7/30.6 25.1/29.5 7.1/12.8
        Sentence-BERT      | 29.8/30.1 57.8/60.7 23.8/30.3 22.9/24.7 7.5/12.3
        RECOMP-extractive  | 31.7/32.2 57.2/60.0 24.1/30.2 23.2/24.4 7.4/12.5
        LongLLMLingua      | 34.3/36.4 63.8/66.9 27.0/34.7 25.5/28.0 7.1/13.0
        RECOMP-abstractive | 38.0/37.8 62.1/65.0 27.4/34.3 25.1/27.4 6.4/12.0
        CompAct            | 38.8/38.9 65.1/67.1 30.2/37.1 24.9/27.6 8.2/13.6
        zero-shot summary  | 38.4/38.2 62.3/64.8 28.2/35.2 23.2/27.1 6.8/11.8
        FaviComp           | 40.3/40.4 65.9/68.9 32.0/40.5 29.7/35.1 9.2/15.2
        """,
        2,
    ),
    models=(MISTRAL_V3, *RIVALS),
)
SWEPT = (
    "zero-shot summary",
    *(f"FaviComp{name}" for name in (" alpha 0.1", " alpha 0.3", "", " alpha 0.7", " alpha 0.9")),
    "generated context",
)
FIGURE_2 = Published(
    "FaviComp, figures 2 and 6 (Acc and F1 at alpha 0, 0.5 and 1 as in table 1)",
    (*QUALITY, "perplexity"),
    {row: {name: (*cell, None) for name, cell in TABLE_1_LLAMA.rows.get(row, {}).items()} for row in SWEPT},
    models=(LLAMA_3B, LLAMA_8B),
    findings=(
        "quality is best at alpha 0.5 on all five datasets",
        "up to 0.5 quality rises as perplexity falls, beyond it both fall",
        "at 0.9 or 1 perplexity rises a little again",
    ),
)
BY_HITS = ("acc_hits_0", "acc_hits_1")
FIGURE_3 = Published(
    "FaviComp, figure 3",
    BY_HITS,
    {"zero-shot summary": {}, "CompAct": {}, "FaviComp": {}},
    models=(LLAMA_3B, LLAMA_8B, COMPACT_7B),
    findings=("at Hits 0 FaviComp is above both rivals", "at Hits 1 the three are about level"),
)
FIGURE_4 = Published(
    "FaviComp, figure 4",
    BY_HITS,
    {row: {} for row in SWEPT},
    models=(LLAMA_3B, LLAMA_8B),
    findings=(
        "at Hits 0 Acc is best at alpha 0.5 or 0.7 and falls away from there on both sides",
        "at Hits 1 Acc is level up to alpha 0.5 and falls much beyond",
    ),
)
