"""FaviComp, table 4: texts with each token in the colour of the model whose choice it was. Run it with `--show 10`.

The two questions of the paper are HotpotQA's; here the first ten are shown, beside raw documents and the zero-shot
summary, whose perplexities the rows hold (published: raw 12.429, FaviComp 1.959; zero-shot 3.196, FaviComp 1.345).
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.published import BASE, LLAMA_3B, LLAMA_8B, models, on_datasets

METHODS = prod(replace(BASE, limit=10, **models(LLAMA_3B, LLAMA_8B)), method=["raw", "zero_shot", "favicomp"])
POINTS = chain(*(on_datasets(point, ["hotpotqa"]) for point in METHODS))
