"""FaviComp, table 7: seconds a question on NQ. Ours are those of this machine, compilation and measuring aside.

Each method is decoded by itself: points that share a decode would share its time.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_7, compact, models, on_datasets, recomp_abstractive

PAIR = replace(BASE, alone=True, **models(LLAMA_3B, LLAMA_8B))
METHODS = chain(compact(PAIR), prod(PAIR, method=["zero_shot", "favicomp"]))
POINTS = chain(recomp_abstractive(PAIR, ["nq"]), *(on_datasets(point, ["nq"]) for point in METHODS))
PUBLISHED = TABLE_7
