"""Does a better score go with better answers? The correlation study with one small model, on a file of your own.

Ten summaries a question, each read by itself and scored by perplexity, LongPPL and SPS with and without the first
token: `python -m experiments.sweep xcompress_correlation --data FILE --dataset triviaqa`.
"""

from experiments.combine import prod
from experiments.experiment import Experiment

MODEL = "smollm2-135m-instruct"
BASE = Experiment(
    method="candidate", compressor=MODEL, reader=MODEL, candidates=10, max_new=48, top_k=3, reader_max_new=16, batch=8
)

POINTS = prod(BASE, draw=range(10))
