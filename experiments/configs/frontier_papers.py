"""The papers of the quickstart of citations at two budgets, without the two methods that take the longest.

For whole papers of your own: `--dataset qasper --data FILE`. A paper has to fit the model that summarises it.
"""

from experiments.configs.frontier_quickstart import SAMPLES, every_family

BUDGETS, LEFT_OUT = (None, 0.25, 0.1), ("compact", "xcompress")
(PAPERS,) = (sample for sample in SAMPLES if sample.dataset == "qasper")
POINTS = [point for point in every_family(PAPERS) if point.budget in BUDGETS and point.method not in LEFT_OUT]
