"""FaviComp, table 7: seconds a question on NQ. Ours are those of this machine, compilation and measuring aside.

Each method is decoded by itself: points that share a decode would share its time.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_7, models, on_datasets
from experiments.published import PENDING as ALL_PENDING

METHODS = prod(replace(BASE, alone=True, **models(LLAMA_3B, LLAMA_8B)), method=["zero_shot", "favicomp"])
POINTS = chain(*(on_datasets(point, ["nq"]) for point in METHODS))
PENDING = {name: ALL_PENDING[name] for name in ("RECOMP-abstractive", "CompAct")}
PUBLISHED = TABLE_7
