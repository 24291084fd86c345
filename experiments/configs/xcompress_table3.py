"""xCompress, table 3: how the reader's states are pooled, Llama-3.1-8B."""

from experiments.combine import chain, prod
from experiments.published import on_datasets
from experiments.published_xcompress import BASE, TABLE_3, read_by

POOLED = prod(read_by(BASE, "Llama-3.1-8B"), pooling=["max", "mean", "last"])
POINTS = chain(*(on_datasets(point) for point in POOLED))
PUBLISHED = TABLE_3


def ROW(point):
    """Table 3's rows are named by the pooling alone."""
    return point.pooling
