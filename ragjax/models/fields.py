"""Strict reading of a raw `config.json`, whatever the family.

Every key is honoured, known to be harmless, accepted only at the one value under which it changes nothing, or refused
by name. Problems are gathered and told all at once.
"""

import math
from collections.abc import Mapping
from typing import Any

# Nothing under these keys can change a forward pass or what a caller asks of decoding.
HARMLESS = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "initializer_range",
        "label2id",
        "max_length",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "prefix",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
    }
)

# Neutral at this value; any other changes the model, or asks for a decoding that the caller would not get.
NEUTRAL: dict[str, Any] = {
    "add_cross_attention": False,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "tie_encoder_decoder": False,
    "partial_rotary_factor": 1.0,
    "pruned_heads": {},
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "do_sample": False,
    "min_length": 0,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "num_return_sequences": 1,
    "output_scores": False,
    "return_dict_in_generate": False,
    "remove_invalid_values": False,
}

MOST = 10_000
"""More layers, heads or experts than any model has: beyond it a file is damaged, and would be read without end."""

_MISSING = object()


class Fields:
    """A raw config being read: keys are taken one by one, problems are gathered, `finish` raises them all at once."""

    def __init__(self, config: Mapping[str, Any]):
        self.left = dict(config)
        self.problems: list[str] = []

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """The raw value; null counts as absent; a missing key without a default is a problem (and gives None)."""
        value = self.left.pop(key, None)
        if value is None and default is _MISSING:
            self.problems.append(f"{key} is missing")
            return None
        return default if value is None else value

    def integer(self, key: str, default: Any = _MISSING) -> int:
        """A positive whole number."""
        return self._checked(key, self.take(key, default), int, "a positive whole number", 1)

    def count(self, key: str, default: Any = _MISSING) -> int:
        """A number of layers, heads or experts, from 1 to `MOST`."""
        value = self.integer(key, default)
        if value <= MOST:
            return value
        self.problems.append(f"{key} is {value}, more than the {MOST} that are supported")
        return 1

    def optional_integer(self, key: str) -> int | None:
        """A positive whole number, or None where the key is absent or null."""
        return None if self.left.get(key) is None else self.integer(key)

    def number(self, key: str, default: Any = _MISSING) -> float:
        """A positive number."""
        return float(self._checked(key, self.take(key, default), (int, float), "a positive number", 1.0))

    def flag(self, key: str, default: Any = _MISSING) -> bool:
        """True or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            self.problems.append(f"{key} is {value!r}, not true or false")
        return bool(value)

    def mapping(self, key: str, default: Any = _MISSING) -> dict[str, Any]:
        """An object; an empty one where the file has none of that kind."""
        value = self.take(key, default)
        if value is not None and not isinstance(value, Mapping):
            self.problems.append(f"{key} is {value!r}, not an object")
        return dict(value) if isinstance(value, Mapping) else {}

    def only(self, key: str, usual: Any) -> None:
        """Accept `key` when absent, null or at its usual value."""
        value = self.take(key, usual)
        if value != usual:
            self.problems.append(f"{key} is {value!r}; only {usual!r} is supported")

    def check_rest(self) -> None:
        """Add a problem for every key that nobody took and that may change something (a null says nothing)."""
        for key, usual in NEUTRAL.items():
            self.only(key, usual)
        unknown = {k: v for k, v in self.left.items() if k not in HARMLESS and v is not None}
        self.problems += [f"{key} is {value!r}; this attribute is not known" for key, value in unknown.items()]

    def finish(self) -> None:
        """Raise ValueError with every problem, unknown keys included."""
        self.check_rest()
        if self.problems:
            raise ValueError("config refused: " + "; ".join(self.problems))

    def _checked(self, key: str, value: Any, kinds: type | tuple, wanted: str, stand_in: Any) -> Any:
        """`value` if it is a positive number of the wanted kind, else a stand-in and a problem."""
        if isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < math.inf:
            return value
        if value is not None:
            self.problems.append(f"{key} is {value!r}, not {wanted}")
        return stand_in
