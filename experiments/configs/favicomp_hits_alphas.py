"""FaviComp, figure 4: accuracy at Hits 0 and at Hits 1 as the target's weight grows.

Reported: Hits 0 is best at 0.5 or 0.7; Hits 1 is level up to 0.5 and falls beyond. `python -m experiments.figures
RESULTS` draws it.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import ALPHAS, BASE, LLAMA_3B, LLAMA_8B, MULTI_DOCUMENT, models, on_datasets

SWEEP = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), alpha=ALPHAS)
POINTS = chain(*(on_datasets(point, MULTI_DOCUMENT) for point in SWEEP))
