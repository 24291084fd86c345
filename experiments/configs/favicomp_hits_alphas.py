"""FaviComp, figure 4: accuracy at Hits 0 and at Hits 1 as the target's weight grows.

`python -m experiments.figures RESULTS` draws it.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import ALPHAS, BASE, FIGURE_4, LLAMA_3B, LLAMA_8B, MULTI_DOCUMENT, models, on_datasets

SWEEP = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), alpha=ALPHAS)
POINTS = chain(*(on_datasets(point, MULTI_DOCUMENT) for point in SWEEP))
PUBLISHED = FIGURE_4
