"""FaviComp, table 3: compression rates, retrieved over compressed tokens by the target's tokenizer."""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import (
    BASE,
    LLAMA_3B,
    LLAMA_8B,
    TABLE_3,
    compact,
    longllmlingua,
    models,
    on_datasets,
    recomp_abstractive,
)

PAIR = replace(BASE, **models(LLAMA_3B, LLAMA_8B))
METHODS = chain(compact(PAIR), prod(PAIR, method=["zero_shot", "favicomp"]))
POINTS = chain(on_datasets(longllmlingua(PAIR)), recomp_abstractive(PAIR), *(on_datasets(point) for point in METHODS))
PUBLISHED = TABLE_3
