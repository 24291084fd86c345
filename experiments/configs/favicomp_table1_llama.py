"""FaviComp, table 1, first half: Llama-3.2-3B-Instruct compresses for Llama-3-8B-Instruct, on five datasets."""

from dataclasses import replace

from experiments.published import BASE, LLAMA_3B, LLAMA_8B, TABLE_1_LLAMA, all_methods, models

POINTS = all_methods(replace(BASE, **models(LLAMA_3B, LLAMA_8B)))
PUBLISHED = TABLE_1_LLAMA
