"""Published shapes: what they say of a model is what its files say."""

import json

import numpy as np
import pytest

from ragjax.models.architectures import parse_config
from ragjax.models.config import DECODER_PARSERS
from ragjax.models.decoder import abstract
from ragjax.models.published import SHAPES, published_config
from ragjax.weights.keymap import leaf_specs


def count(name: str) -> int:
    return sum(int(np.prod(spec.shape)) for spec in leaf_specs(abstract(published_config(name), np.float32)).values())


@pytest.mark.parametrize("name", SHAPES)
def test_the_tree_of_a_published_shape_has_its_parameters(name):
    unloaded = SHAPES[name].parameters - count(name)
    multimodal = SHAPES[name].config["model_type"] == "gemma3"
    assert unloaded > 0 if multimodal else unloaded == 0


def test_both_multimodal_models_have_one_vision_tower():
    rest = {n: SHAPES[n].parameters - count(n) for n in ("google/gemma-3-4b-it", "google/gemma-3-12b-it")}
    assert rest["google/gemma-3-12b-it"] - rest["google/gemma-3-4b-it"] == 1152 * (3840 - 2560)


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(KeyError, match="Llama-4 is not among the published shapes: meta-llama/Llama-2-7b-hf"):
        published_config("meta-llama/Llama-4")


@pytest.mark.shared
def test_the_published_shapes_are_the_decoders_configs(shared):
    """Each name that a config is there for, and no other; re-saved variants repeat a name."""
    published = {}
    for path in (shared / "models" / "configs").glob("*.json"):
        raw = json.loads(path.read_text())
        if raw.get("model_type") in DECODER_PARSERS and not path.name.startswith("variant_"):
            published[path.stem.replace("__", "/")] = parse_config(raw)
    assert {name: published_config(name) for name in SHAPES} == published
