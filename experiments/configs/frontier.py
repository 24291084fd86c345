"""The attribution-compression frontier (2609.14245): published models on ASQA and QASPER, every family at four budgets.

Put ALCE's `asqa_eval_gtr_top100.json` in `retrieved/asqa.json`; QASPER comes from the hub. `python -m
experiments.report results/frontier` makes the page.
"""

from experiments.published_frontier import at_every_budget

POINTS = at_every_budget()
