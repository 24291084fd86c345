"""Every family that small packaged models can run, at four budgets, on sixteen of the shipped questions.

What needs a model that no package holds is listed with its command, and is never run with random weights.
"""

from experiments.combine import chain
from experiments.experiment import Experiment
from experiments.families import at_budgets, scored, without_budget

MODEL, ENCODER = "smollm2-135m-instruct", "all-minilm-l6-v2"
BASE = Experiment(
    compressor=MODEL, target=MODEL, reader=MODEL, encoder=ENCODER, data="questions", limit=16, max_new=64, batch=8
)

POINTS = chain(
    without_budget(BASE),
    at_budgets(BASE, method=["prefix", "random_sentences"]),
    scored(BASE, {"bi_encoder": ENCODER}),
    at_budgets(BASE, method=["longllmlingua", "zero_shot", "favicomp", "compact"]),
    at_budgets(BASE, method=["xcompress"], candidates=[3]),
)
OTHERS = {
    "RECOMP-extractive": "recomp_extractive",
    "RECOMP-abstractive": "recomp_abstractive",
    "LLMLingua-2": "llmlingua2",
    "reranked passages (cross-encoder)": "rerank",
    "extracted sentences (cross-encoder)": "extract",
    "ECR (cross-encoder)": "ecr",
}
PENDING = {title: f"python -m experiments.sweep families --method {name}" for title, name in OTHERS.items()}
