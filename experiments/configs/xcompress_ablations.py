"""xCompress, its ablations on two datasets: layer, first token, energy and the number of candidates.

The paper draws the layer (the last but one is best), the energy (0.95 is best) and the number of candidates (five
suffice) as figures without numbers; what becomes of the first token is a question of ours.
`python -m experiments.figures RESULTS` draws them.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import on_datasets
from experiments.published_xcompress import BASE, read_by

READ = replace(read_by(BASE, "Llama-3.1-8B"), filter="none")
CHANGED = chain(
    prod(READ, layer=[0, 8, 16, 24, -2, -1]),
    prod(READ, first_token=["drop", "bos"]),
    prod(READ, energy=[0.5, 0.7, 0.9, 0.99]),
    prod(READ, candidates=[1, 2, 3, 4, 6, 8, 10]),
)
POINTS = chain(*(on_datasets(point, ["hotpotqa", "nq"]) for point in CHANGED))
