"""The papers of the quickstart of citations at two budgets, without the methods that read a paper many times.

For whole papers of your own: `--dataset qasper --data FILE`. A paper has to fit the model that summarises it.
"""

from experiments.configs.frontier_quickstart import SAMPLES, every_family

BUDGETS, LEFT_OUT = (None, 0.25, 0.1), ("compact", "xcompress")
POINTS = [
    point
    for sample in SAMPLES
    for point in every_family(sample)
    if point.dataset == "qasper" and point.budget in BUDGETS and point.method not in LEFT_OUT
]
