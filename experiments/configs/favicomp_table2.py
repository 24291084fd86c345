"""FaviComp, table 2: the ensemble against the concatenation of what its two models write alone."""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_2, models, on_datasets

METHODS = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), method=["generated", "zero_shot", "concat", "favicomp"])
POINTS = chain(*(on_datasets(point) for point in METHODS))
PUBLISHED = TABLE_2
