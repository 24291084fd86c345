"""The attribution-compression frontier (2609.14245) as its author ran it: models, budgets, data sets.

What the part of the paper that we have leaves open is settled here: rerankers and extractors score by
all-MiniLM-L6-v2, RECOMP is the model trained on NQ, five retrieved passages of ASQA and all paragraphs of QASPER are
compressed.
"""

from dataclasses import replace

from experiments.combine import chain, prod
from experiments.experiment import Experiment
from experiments.families import BUDGETS, at_budgets, without_budget

QWEN = "Qwen/Qwen2.5-7B-Instruct"
DEBERTA = "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"
TRUE = "google/t5_xxl_true_nli_mixture"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
LLMLINGUA_2 = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"
RECOMP = {"asqa": "fangyuan/nq_abstractive_compressor", "qasper": "fangyuan/nq_abstractive_compressor"}

BASE = Experiment(
    task="cite",
    citer="model",
    judge=DEBERTA,
    reader=QWEN,
    target=QWEN,
    encoder=MINILM,
    scorer="bi_encoder",
    reader_max_new=300,
)
DATA = (
    replace(BASE, dataset="asqa", split="default/dev", data="retrieved/asqa.json", top_k=5),
    replace(BASE, dataset="qasper", split="qasper/validation", data="hub", top_k=1000),
)


def at_every_budget() -> list[Experiment]:
    """Identity, and reranking, extraction, abstraction, token pruning and ECR at every budget."""
    return chain(*(chain(without_budget(base, ["raw"]), families(base, BUDGETS)) for base in DATA))


def families(base: Experiment, budgets: tuple[float, ...]) -> list[Experiment]:
    """The paper's five families at some budgets."""
    pruned = replace(base, method="llmlingua2", compressor=LLMLINGUA_2)
    written = replace(base, method="recomp_abstractive", compressor=RECOMP[base.dataset], max_new=512)
    scored = at_budgets(base, method=["rerank", "extract", "ecr"])
    rows = prod([written, pruned], budget=list(budgets))
    return chain([point for point in scored if point.budget in budgets], rows)


def recovered_check() -> list[Experiment]:
    """RECOMP and LLMLingua-2 at 0.25, whose claims are checked against recovered sources."""
    points = [point for base in DATA for point in families(base, (0.25,))]
    return [point for point in points if point.method in ("recomp_abstractive", "llmlingua2")]


def true_audit() -> list[Experiment]:
    """RECOMP at 0.25 on 200 questions of ASQA, judged by TRUE."""
    points = [replace(point, judge=TRUE, limit=200) for point in recovered_check()]
    return [point for point in points if (point.method, point.dataset) == ("recomp_abstractive", "asqa")]
