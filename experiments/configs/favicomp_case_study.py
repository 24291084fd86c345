"""FaviComp, table 4: texts with each token in the colour of the model whose choice it was. Run it with `--show 10`.

The two questions of the paper are HotpotQA's, and not named; here the first ten are shown, and the perplexities of raw
documents, zero-shot summary and FaviComp's text stand in the table.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_4, models, on_datasets

METHODS = prod(replace(BASE, limit=10, **models(LLAMA_3B, LLAMA_8B)), method=["raw", "zero_shot", "favicomp"])
POINTS = chain(*(on_datasets(point, ["hotpotqa"]) for point in METHODS))
PUBLISHED = TABLE_4
