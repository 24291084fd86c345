"""FaviComp, figures 2 and 6: quality and perplexity as the target's weight grows.

`python -m experiments.figures RESULTS` draws both.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import ALPHAS, BASE, FIGURE_2, LLAMA_3B, LLAMA_8B, models, on_datasets

SWEEP = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), alpha=ALPHAS)
POINTS = chain(*(on_datasets(point) for point in SWEEP))
PUBLISHED = FIGURE_2
