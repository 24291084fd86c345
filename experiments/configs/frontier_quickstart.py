"""The frontier on the shipped samples with small packaged models: every family that they can run, at four budgets.

A small model cites nothing, so each sentence is given its likest unit afterwards (citer posthoc), and no entailment
model is packaged, so words are compared (judge lexical). It shows that the measurement runs, and measures no method.
"""

from dataclasses import replace

from experiments.combine import chain
from experiments.experiment import Experiment
from experiments.families import at_budgets, without_budget

MODEL, ENCODER = "smollm2-135m-instruct", "all-minilm-l6-v2"
BASE = Experiment(
    task="cite",
    citer="posthoc",
    judge="lexical",
    compressor=MODEL,
    target=MODEL,
    reader=MODEL,
    encoder=ENCODER,
    scorer="bi_encoder",
    max_new=64,
    reader_max_new=64,
    batch=8,
)
SAMPLES = (
    replace(BASE, data="ambiguous", dataset="asqa"),
    replace(BASE, data="papers", dataset="qasper", top_k=100),
)


def every_family(base: Experiment) -> list[Experiment]:
    """The points of one sample."""
    copying = ["prefix", "random_sentences", "rerank", "extract", "ecr", "longllmlingua"]
    return chain(
        without_budget(base, ["raw"]),
        at_budgets(base, method=[*copying, "zero_shot", "favicomp", "compact"]),
        at_budgets(base, method=["xcompress"], candidates=[3]),
    )


POINTS = chain(*map(every_family, SAMPLES))
OTHERS = {"RECOMP-abstractive": "recomp_abstractive", "LLMLingua-2": "llmlingua2"}
PENDING = {title: f"python -m experiments.sweep frontier --method {name}" for title, name in OTHERS.items()}
