"""FaviComp, table 7: seconds a question on NQ. Ours are those of this machine, compilation and measuring aside.

Each method is decoded by itself: points that share a decode would share its time.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_7, compact, models, on_datasets
from experiments.published import PENDING as ALL_PENDING

PAIR = replace(BASE, alone=True, **models(LLAMA_3B, LLAMA_8B))
METHODS = chain(compact(PAIR), prod(PAIR, method=["zero_shot", "favicomp"]))
POINTS = chain(*(on_datasets(point, ["nq"]) for point in METHODS))
PENDING = {"RECOMP-abstractive": ALL_PENDING["RECOMP-abstractive"]}
PUBLISHED = TABLE_7
