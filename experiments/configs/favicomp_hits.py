"""FaviComp, figure 3: accuracy where the documents hold the answer (Hits 1) and where they do not, against its rivals.

`python -m experiments.figures RESULTS` draws it.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, FIGURE_3, LLAMA_3B, LLAMA_8B, MULTI_DOCUMENT, compact, models, on_datasets

PAIR = replace(BASE, **models(LLAMA_3B, LLAMA_8B))
METHODS = chain(compact(PAIR), prod(PAIR, method=["zero_shot", "favicomp"]))
POINTS = chain(*(on_datasets(point, MULTI_DOCUMENT) for point in METHODS))
PUBLISHED = FIGURE_3
