"""The ledger: every tensor into one leaf, every leaf from one tensor, and one error that names all that is wrong."""

import json

import numpy as np
import pytest

from ragjax.models.architectures import parse_config
from ragjax.models.decoder import abstract
from ragjax.testing import disk_tensors, random_params, tiny_config
from ragjax.weights.keymap import KeyTable, Rule, TensorInfo, claims, leaf_specs, pair, to_disk, to_leaf
from ragjax.weights.tables import DECODER_TABLES, LLAMA

CONFIG = tiny_config()


def infos(cfg=CONFIG) -> dict[str, TensorInfo]:
    return {name: TensorInfo(value.shape, "float32") for name, value in disk_tensors(cfg, random_params(cfg)).items()}


def refusal(tensors, table=LLAMA, cfg=CONFIG) -> str:
    with pytest.raises(ValueError, match="weights refused") as error:
        pair(table, tensors, leaf_specs(abstract(cfg, np.float32)))
    return str(error.value)


def test_a_whole_checkpoint_pairs_and_buffers_are_listed():
    buffers = ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]
    tensors = infos() | {name: TensorInfo((8,), "float32") for name in buffers}
    specs = leaf_specs(abstract(CONFIG, np.float32))
    ledger = pair(LLAMA, tensors, specs)
    assert [entry.path for entry in ledger.entries] == list(specs)
    assert {entry.name for entry in ledger.entries} == set(infos())
    assert ledger.skipped == tuple(buffers)
    assert ledger.copies == ()


def test_A04_one_error_names_everything_that_is_wrong():
    tensors = infos()
    del tensors["model.norm.weight"]
    del tensors["model.layers.2.mlp.up_proj.weight"]
    tensors["model.layers.1.self_attn.q_proj.bias"] = TensorInfo((64,), "float32")
    tensors["model.layers.3.input_layernorm.weight"] = TensorInfo((48,), "float32")
    tensors["model.layers.0.self_attn.k_proj.weight"] = TensorInfo((48, 32), "float32")
    tensors["lm_head.weight"] = TensorInfo((272, 48), "I8")
    message = refusal(tensors)
    for words in (
        "model.norm.weight is missing (leaf final_norm)",
        "model.layers.2.mlp.up_proj.weight is missing",
        "model.layers.1.self_attn.q_proj.bias [64] fills no leaf",
        "model.layers.3.input_layernorm.weight [48] fills no leaf",
        "model.layers.0.self_attn.k_proj.weight has shape [48, 32], not [32, 48]",
        "lm_head.weight is stored as I8",
    ):
        assert words in message


def test_A05_missing_biases_are_named_each():
    cfg = tiny_config(num_layers=1, qkv_bias=True, output_bias=True, mlp_bias=True)
    message = refusal(infos(tiny_config(num_layers=1)), cfg=cfg)
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert all(f"{name}.bias is missing" in message for name in names)


def test_a_leaf_that_two_rules_claim_is_refused():
    table = KeyTable((*LLAMA.rules, Rule("other.weight", "final_norm", "d -> d")), (), {})
    assert "leaf final_norm is claimed by model.norm.weight, other.weight" in refusal(infos(), table)


def test_a_tensor_that_two_leaves_claim_is_refused():
    rules = [rule for rule in LLAMA.rules if rule.path != "final_norm"]
    table = KeyTable((*rules, Rule("lm_head.weight", "final_norm", "d -> d")), (), {})
    assert "two leaves claim lm_head.weight" in refusal(infos(), table)


def test_a_leaf_without_a_rule_is_refused():
    table = KeyTable(tuple(rule for rule in LLAMA.rules if rule.path != "head"), (), {})
    message = refusal(infos(), table)
    assert "no rule fills leaf head" in message
    assert "lm_head.weight [272, 48] fills no leaf" in message


def test_an_untied_model_without_a_head_is_refused():
    tensors = infos()
    del tensors["lm_head.weight"]
    assert "lm_head.weight is missing (leaf head)" in refusal(tensors)


def test_a_tied_model_with_a_stored_head_asks_for_a_comparison():
    cfg = tiny_config(tied_head=True)
    tensors = infos(cfg) | {"lm_head.weight": TensorInfo((272, 48), "float32")}
    ledger = pair(LLAMA, tensors, leaf_specs(abstract(cfg, np.float32)))
    assert ledger.copies == (("lm_head.weight", "model.embed_tokens.weight"),)


@pytest.mark.parametrize("path", ["layers.1.attention.q", "layers.1.attention.o", "layers.2.mlp.down", "embedding"])
def test_layouts_run_both_ways(path):
    spec = leaf_specs(abstract(CONFIG, np.float32))[path]
    layout = claims(LLAMA, path, spec, [])[0].layout
    value = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
    stored = to_disk(value, layout)
    assert np.array_equal(to_leaf(stored, layout, spec.shape, np.dtype(np.float32)), value)


def test_projections_mean_what_they_do_on_disk():
    """A stored matrix is [out, in]: `stored @ x` and the leaf contracted over its input axes agree."""
    rng = np.random.default_rng(1)
    x, heads = rng.standard_normal(48), rng.standard_normal((4, 16))
    q, o = rng.standard_normal((64, 48)), rng.standard_normal((48, 64))
    q_leaf = to_leaf(q, "(n h) d -> d n h", (48, 4, 16), np.dtype(np.float64))
    o_leaf = to_leaf(o, "d (n h) -> n h d", (4, 16, 48), np.dtype(np.float64))
    np.testing.assert_allclose(np.einsum("d,dnh->nh", x, q_leaf).ravel(), q @ x, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("nh,nhd->d", heads, o_leaf), o @ heads.ravel(), rtol=1e-12)


NAMES = {
    "llama": "llama",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3_text",
    "gemma3": "gemma3_mm",
}


@pytest.mark.shared
@pytest.mark.parametrize("family", DECODER_TABLES)
def test_the_table_knows_the_names_and_shapes_of_real_models(shared, family):
    configs, seen = shared / "models" / "configs", 0
    for section in (configs / f"names_{NAMES[family]}.txt").read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        raw = json.loads((configs / f"{title.split()[0].replace('/', '__')}.json").read_text())
        rows = [line.split("\t") for line in lines if "\t" in line]
        tensors = {name: TensorInfo(tuple(json.loads(shape)), "bfloat16") for name, shape in rows}
        cfg = parse_config(raw)
        assert cfg.family == family
        ledger = pair(DECODER_TABLES[family], tensors, leaf_specs(abstract(cfg, np.float32)))
        images = [name for name in tensors if not name.startswith(("model.", "lm_head.", "language_model."))]
        rotary = [name for name in tensors if name.endswith("inv_freq")]
        assert sorted(ledger.skipped) == sorted(images + rotary)
        assert ledger.copies == ((("lm_head.weight", "model.embed_tokens.weight"),) if family == "qwen3" else ())
        assert len(ledger.entries) == len(tensors) - len(ledger.skipped) - len(ledger.copies)
        seen += 1
    assert seen
