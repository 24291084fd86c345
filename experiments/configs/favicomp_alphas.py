"""FaviComp, figures 2 and 6: quality and perplexity as the target's weight grows.

Reported: perplexity falls with every step of alpha, accuracy is best at 0.5. `python -m experiments.figures RESULTS`
draws both.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import ALPHAS, BASE, LLAMA_3B, LLAMA_8B, models, on_datasets

SWEEP = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), alpha=ALPHAS)
POINTS = chain(*(on_datasets(point) for point in SWEEP))
