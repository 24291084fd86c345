"""FaviComp, figure 3: accuracy where the documents hold the answer (Hits 1) and where they do not, against its rivals.

`python -m experiments.figures RESULTS` draws it.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, FIGURE_3, LLAMA_3B, LLAMA_8B, MULTI_DOCUMENT, models, on_datasets
from experiments.published import PENDING as ALL_PENDING

METHODS = prod(replace(BASE, **models(LLAMA_3B, LLAMA_8B)), method=["zero_shot", "favicomp"])
POINTS = chain(*(on_datasets(point, MULTI_DOCUMENT) for point in METHODS))
PENDING = {"CompAct": ALL_PENDING["CompAct"]}
PUBLISHED = FIGURE_3
