"""FaviComp and its baselines on eight shipped questions, with one small model in all three roles."""

from experiments.combine import chain, prod
from experiments.experiment import Experiment

MODEL = "smollm2-135m-instruct"
BASE = Experiment(compressor=MODEL, target=MODEL, reader=MODEL, data="questions", limit=8, max_new=48, batch=8)

POINTS = chain(
    prod(BASE, method=["no_context", "raw", "zero_shot", "generated", "concat"]),
    prod(BASE, alpha=[0.3, 0.5, 0.7]),
)
