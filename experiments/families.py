"""Every family of compressors at every budget, for studies that differ in models and data alone."""

from collections.abc import Mapping, Sequence

from experiments.combine import chain, prod
from experiments.experiment import Experiment

BUDGETS = (0.5, 0.25, 0.1, 0.05)


def at_budgets(base: Experiment, **lists: Sequence) -> list[Experiment]:
    """Every combination of the lists' values at every budget."""
    return prod(base, **lists, budget=list(BUDGETS))


def without_budget(base: Experiment, methods: Sequence[str] = ("no_context", "raw")) -> list[Experiment]:
    """What the others lie between."""
    return prod(base, method=list(methods))


def scored(base: Experiment, encoders: Mapping[str, str]) -> list[Experiment]:
    """Reranking, extraction and ECR by BM25 and by each kind of encoder that there is, with its model."""
    methods = {"method": ["rerank", "extract", "ecr"]}
    by_model = [at_budgets(base, **methods, scorer=[kind], encoder=[model]) for kind, model in encoders.items()]
    return chain(at_budgets(base, **methods, scorer=["bm25"]), *by_model)
