"""xCompress, table 1: does a better score go with better answers? Ten summaries a question, each read by itself.

`python -m experiments.correlation RESULTS` makes the table and its figure: Pearson's r over rank bins and, what the
bins hide, AUROC and Spearman over single summaries.
"""

from experiments.combine import chain, prod
from experiments.published import on_datasets
from experiments.published_xcompress import BASE, read_by

DRAWN = prod(read_by(BASE, "Llama-3.1-8B"), method=["candidate"], candidates=[10], draw=range(10))
POINTS = chain(*(on_datasets(point) for point in DRAWN))
