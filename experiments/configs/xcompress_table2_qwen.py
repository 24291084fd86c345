"""xCompress, table 2, Qwen3-8B: CompAct's summary, and the best of five by each selector."""

from experiments.combine import chain, prod
from experiments.published import on_datasets
from experiments.published_xcompress import BASE, SELECTED, TABLE_2, read_by, row_of

READ = read_by(BASE, "Qwen3-8B")
ROWS = chain(prod(READ, method=["no_context", "compact"]), prod(READ, selector=list(SELECTED)))
POINTS = chain(*(on_datasets(point) for point in ROWS))
PUBLISHED = TABLE_2["Qwen3-8B"]
ROW = row_of
