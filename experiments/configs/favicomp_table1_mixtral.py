"""FaviComp, table 1, second half: Mistral-7B-Instruct compresses for Mixtral-8x7B-Instruct, on five datasets.

These readers see the context before the question, as in the released code for all but Llama 3: fixed beforehand here.
"""

from dataclasses import replace

from experiments.published import BASE, MISTRAL_V2, MIXTRAL, TABLE_1_MIXTRAL, all_methods, models

POINTS = all_methods(replace(BASE, reader_order="context_first", **models(MISTRAL_V2, MIXTRAL)))
PUBLISHED = TABLE_1_MIXTRAL
