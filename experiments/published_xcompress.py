"""The studies of xCompress (2508.05909): models, data, settings, and the numbers it reports for its score SPS.

Facts from the paper's tables. The number of questions is not stated; all EMs are multiples of 0.2, which 500 would
give. The fourth reader of table 2 is an xRAG model, whose compressor writes no text: it is no study here.
"""

from collections.abc import Mapping
from dataclasses import replace

from experiments.experiment import Experiment
from experiments.published import COMPACT_7B, Published, read_rows

READERS = {
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Gemma3-12B": "google/gemma-3-12b-it",
}

# 30 documents, 5 a segment, 6 iterations, 900 new tokens; the filter is fixed on questions that are not evaluated.
BASE = Experiment(
    method="xcompress",
    compressor=COMPACT_7B,
    writer="compact",
    max_new=900,
    top_k=30,
    shots=5,
    limit=500,
    filter="calibrated",
    calibration=200,
)


def read_by(point: Experiment, reader: str) -> Experiment:
    """A point with one of the paper's readers."""
    return replace(point, reader=READERS[reader])


def row_of(point: Experiment) -> str:
    """The row of table 2 that a point makes again."""
    if point.method != "xcompress":
        return {"no_context": "direct", "compact": "CompAct"}.get(point.method, point.title)
    return f"CompAct + {SELECTED[point.selector]}"


SELECTED = {"ppl": "PPL", "longppl": "LongPPL", "sps": "SPS"}

_MAIN = ("hotpotqa", "2wikimultihopqa", "musique", "nq", "triviaqa")
QUALITY = ("em", "f1")

TABLE_1 = Published(
    "xCompress, table 1, Llama-3.1-8B: Pearson's r over 10 rank bins, AUROC over questions",
    ("pearson_em", "pearson_f1", "auroc"),
    read_rows(
        ("hotpotqa", "2wikimultihopqa", "nq", "triviaqa", "musique"),
        """
        PPL     | .022/-.067/.504  -.318/.295/.487 .202/.452/.508 .244/.127/.497   .182/.094/.443
        LongPPL | -.087/-.002/.495 -.065/.269/.482 .281/.498/.500 -.083/-.210/.478 -.186/.008/.488
        SPS     | .643/.753/.553   .557/.503/.565  .650/.628/.525 .563/.432/.531   .508/.505/.504
        """,
        3,
    ),
)


def _main(reader: str, text: str) -> Published:
    """The part of table 2 that one reader has."""
    return Published(f"xCompress, table 2, {reader}", QUALITY, read_rows(_MAIN, text, 2))


TABLE_2: Mapping[str, Published] = {
    "Llama-3.1-8B": _main(
        "Llama-3.1-8B",
        """
        direct            | 19.6/28.85 9.4/18.22  2.0/7.57  17.4/29.58 49.4/57.64
        CompAct           | 34.0/43.17 27.2/31.83 6.6/13.76 35.2/47.49 62.4/71.25
        CompAct + PPL     | 33.0/43.52 25.0/29.58 7.6/14.49 35.0/46.53 62.6/71.76
        CompAct + LongPPL | 32.0/42.48 24.2/28.16 6.8/14.71 35.6/46.78 62.4/71.72
        CompAct + SPS     | 37.6/47.87 29.6/34.21 9.0/17.63 39.4/51.18 65.4/73.11
        """,
    ),
    "Qwen3-8B": _main(
        "Qwen3-8B",
        """
        direct            | 21.4/32.29 12.2/22.19 3.8/12.49 17.8/27.70 51.8/59.64
        CompAct           | 26.8/38.84 22.2/26.69 6.0/13.36 25.8/36.50 55.4/63.22
        CompAct + PPL     | 29.6/40.86 21.8/25.63 5.0/13.48 30.0/45.88 54.8/63.57
        CompAct + LongPPL | 22.8/31.90 20.8/26.33 7.0/15.40 25.0/36.44 57.8/68.02
        CompAct + SPS     | 28.8/41.84 25.6/30.71 8.6/17.07 28.0/38.75 59.6/68.84
        """,
    ),
    "Gemma3-12B": _main(
        "Gemma3-12B",
        """
        direct            | 10.8/16.47 3.4/6.49   1.2/3.92  16.6/26.15 27.4/37.27
        CompAct           | 19.2/29.69 23.8/28.97 5.4/12.78 27.6/40.86 52.8/64.44
        CompAct + PPL     | 19.4/31.56 23.0/28.46 5.4/13.93 28.8/39.07 52.0/64.10
        CompAct + LongPPL | 22.6/33.82 18.2/23.70 3.8/10.93 29.4/40.90 53.0/64.06
        CompAct + SPS     | 25.2/35.66 25.0/29.31 6.4/14.60 31.6/42.27 57.4/65.39
        """,
    ),
    "Mistral-7B": _main(
        "Mistral-7B",
        """
        direct     | 1.0/8.23  1.2/11.73 0.2/3.41 1.0/5.53  2.0/14.91
        xRAG       | 5.2/16.63 2.2/14.09 0.4/5.69 3.0/13.56 16.0/40.09
        xRAG + SPS | 7.6/20.06 2.8/15.82 0.6/6.15 3.8/17.70 29.2/46.76
        """,
    ),
}
TABLE_3 = Published(
    "xCompress, table 3, pooling, Llama-3.1-8B (EM is 0.2 off table 2 on four datasets, F1 is not)",
    QUALITY,
    read_rows(
        _MAIN,
        """
        max  | 37.6/47.87 29.8/34.21 9.2/17.63 39.6/51.18 65.6/73.11
        mean | 36.2/47.65 28.2/33.63 7.8/15.63 37.2/49.36 64.2/72.62
        last | 33.6/43.37 23.6/28.10 5.8/10.49 35.8/47.58 63.0/72.24
        """,
        2,
    ),
)
TABLE_4 = Published(
    "xCompress, table 4, entropy of the answers",
    ("answer_entropy",),
    read_rows(
        ("hotpotqa", "nq"),
        """
        Llama-3.1-8B | 1.49 1.16
        Qwen3-8B     | .46  .38
        """,
        1,
    ),
)
