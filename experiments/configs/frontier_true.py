"""The second evaluator of the frontier: TRUE T5-XXL on 200 questions, with the source map recomputed by it.

`python -m experiments.sensitivity results/frontier --judge google/t5_xxl_true_nli_mixture --limit 200 --tau 0.5
--sources primary` judges the answers of the frontier itself again, with the primary evaluator's source map held fixed.
"""

from experiments.published_frontier import true_audit

POINTS = true_audit()
