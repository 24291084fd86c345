"""Every family at four budgets with the published models, for Qwen2.5-7B-Instruct, over retrieved NQ documents."""

from dataclasses import replace

from experiments.combine import chain
from experiments.experiment import Experiment
from experiments.families import at_budgets, scored, without_budget
from experiments.published import LLAMA_2, RECOMP_ABSTRACTIVE, RECOMP_EXTRACTIVE, SPLITS

QWEN = "Qwen/Qwen2.5-7B-Instruct"
CONTRIEVER = "facebook/contriever-msmarco"
CROSS_ENCODER = "cross-encoder/ms-marco-MiniLM-L-6-v2"
LLMLINGUA_2 = "microsoft/llmlingua-2-xlm-roberta-large-meetingbank"

BASE = Experiment(
    compressor=QWEN, target=QWEN, reader=QWEN, dataset="nq", split=SPLITS["nq"], data="retrieved/nq.jsonl"
)

POINTS = chain(
    without_budget(BASE),
    at_budgets(BASE, method=["prefix", "random_sentences"]),
    scored(replace(BASE, similarity="dot"), {"bi_encoder": CONTRIEVER, "cross_encoder": CROSS_ENCODER}),
    at_budgets(BASE, method=["recomp_extractive"], encoder=[RECOMP_EXTRACTIVE["nq"]]),
    at_budgets(BASE, method=["llmlingua2"], compressor=[LLMLINGUA_2]),
    at_budgets(BASE, method=["longllmlingua"], compressor=[LLAMA_2]),
    at_budgets(BASE, method=["recomp_abstractive"], compressor=[RECOMP_ABSTRACTIVE["nq"]], max_new=[512]),
    at_budgets(BASE, method=["zero_shot", "favicomp", "compact", "xcompress"]),
)
