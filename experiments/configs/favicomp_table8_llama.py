"""FaviComp, table 8: one model as compressor and target, Llama-3-8B-Instruct."""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_8B, TABLE_8_LLAMA, models, on_datasets

METHODS = prod(replace(BASE, **models(LLAMA_8B, LLAMA_8B)), method=["zero_shot", "favicomp"])
POINTS = chain(*(on_datasets(point) for point in METHODS))
PUBLISHED = TABLE_8_LLAMA
