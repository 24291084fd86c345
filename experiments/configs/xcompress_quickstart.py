"""xCompress on eight shipped questions with one small model: five summaries, each way to choose among them."""

from experiments.combine import chain, prod
from experiments.experiment import Experiment

MODEL = "smollm2-135m-instruct"
BASE = Experiment(
    compressor=MODEL, reader=MODEL, data="questions", limit=8, max_new=48, batch=8, candidates=5, calibration=8
)

POINTS = chain(
    prod(BASE, method=["raw", "zero_shot"]),
    prod(BASE, method=["xcompress"], selector=["first", "random", "ppl", "longppl", "sps", "mixture"]),
    prod(BASE, method=["xcompress"], first_token=["drop"]),
    prod(BASE, method=["xcompress"], filter=["calibrated"]),
)
