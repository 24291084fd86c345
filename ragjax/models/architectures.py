"""Every architecture behind two functions: a raw `config.json` becomes facts, facts become a tree of parameters.

Which architecture a checkpoint belongs to is told by its `model_type` and, from then on, by the type of its config.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ragjax.models import bert, deberta, decoder, t5
from ragjax.models.config import DECODER_PARSERS, DecoderConfig
from ragjax.models.encoder_config import ENCODER_PARSERS, BertConfig, DebertaConfig, EncoderConfig
from ragjax.models.t5_config import T5Config, parse_t5
from ragjax.typing import PyTree

Config = DecoderConfig | EncoderConfig | T5Config

PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Config]] = {
    **DECODER_PARSERS,
    **ENCODER_PARSERS,
    "t5": parse_t5,
}

_ABSTRACT: Mapping[type, Callable[[Any, Any], PyTree]] = {
    DecoderConfig: decoder.abstract,
    BertConfig: bert.abstract,
    DebertaConfig: deberta.abstract,
    T5Config: t5.abstract,
}


def parse_config(config: Mapping[str, Any]) -> Config:
    """The facts of a raw `config.json` (a dict, never a transformers config object).

    Raises:
        ValueError: naming the model type if no parser exists for it, else naming every missing, unknown, non-neutral
            or contradictory attribute.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in PARSERS:
        raise ValueError(f"config refused: model_type {family!r} is not supported (supported: {', '.join(PARSERS)})")
    return PARSERS[family](config)


def abstract(cfg: Config, dtype: Any) -> PyTree:
    """The tree of parameters with a `ParamSpec` at each leaf: initialisation, loading and checks derive from it."""
    return _ABSTRACT[type(cfg)](cfg, dtype)
