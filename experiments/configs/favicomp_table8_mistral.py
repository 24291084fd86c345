"""FaviComp, table 8: one model as compressor and target, Mistral-7B-Instruct, which reads the context first."""

from dataclasses import replace

from experiments.published import BASE, MISTRAL_V3, TABLE_8_MISTRAL, all_methods, models

POINTS = all_methods(replace(BASE, reader_order="context_first", **models(MISTRAL_V3, MISTRAL_V3)))
PUBLISHED = TABLE_8_MISTRAL
