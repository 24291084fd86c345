"""Key tables of the encoders: the names of published files in each of their spellings, and nothing beside them."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from ragjax import hub
from ragjax.models.architectures import abstract, parse_config
from ragjax.testing import (
    disk_tensors,
    encoder_tokenizer,
    random_encoder_params,
    raw_config,
    tiny_encoder,
    tiny_encoder_config,
    write_checkpoint,
)
from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model
from ragjax.weights.keymap import TensorInfo, leaf_specs, pair
from ragjax.weights.tables import table_of
from tests.oracle import auto_class

FAMILIES = ("bert", "roberta", "xlm-roberta", "deberta-v2")
SKIPPED = ("position_ids", "pooler.dense.weight", "pooler.dense.bias")


def ledger_of(cfg, tensors):
    return pair(table_of(cfg, tensors), tensors, leaf_specs(abstract(cfg, np.float32)))


@pytest.mark.shared
@pytest.mark.parametrize("family", ["bert", "xlm_roberta", "deberta_v2"])
def test_the_table_knows_the_names_and_shapes_of_real_models(shared, family):
    configs, seen = shared / "models" / "configs", 0
    for section in (configs / f"names_{family}.txt").read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        cfg = parse_config(json.loads((configs / f"{title.split()[0].replace('/', '__')}.json").read_text()))
        rows = [line.split("\t") for line in lines if "\t" in line]
        kinds = {True: "int64", False: "float32"}
        tensors = {
            name: TensorInfo(tuple(json.loads(shape.removesuffix(" I64"))), kinds["I64" in shape])
            for name, shape in rows
        }
        ledger = ledger_of(cfg, tensors)
        unused = SKIPPED if cfg.head != "sequence" else SKIPPED[:1]
        assert sorted(ledger.skipped) == sorted(name for name in tensors if name.endswith(unused))
        assert len(ledger.entries) == len(tensors) - len(ledger.skipped)
        seen += 1
    assert seen > 1


@pytest.mark.parametrize("head", [None, "sequence", "token"])
@pytest.mark.parametrize("family", FAMILIES)
def test_our_names_are_those_that_transformers_writes(tmp_path, family, head):
    from safetensors import safe_open
    from transformers import AutoConfig

    cfg = tiny_encoder_config(family, head, num_layers=1)
    (tmp_path / "config.json").write_text(json.dumps(raw_config(cfg)))
    auto_class(head).from_config(AutoConfig.from_pretrained(tmp_path)).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    ours = {name: value.shape for name, value in disk_tensors(cfg, random_encoder_params(cfg)).items()}
    unused = {name for name in stored if "pooler" in name} if head is None else set()
    assert ours == {name: shape for name, shape in stored.items() if name not in unused}


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_or_none_older_norms_and_extras_of_pretraining(tmp_path, family, caplog):
    cfg = tiny_encoder_config(family, num_layers=1)
    params = random_encoder_params(cfg)
    write_checkpoint(tmp_path, cfg, params, encoder_tokenizer(family))
    prefix = {"bert": "bert.", "deberta-v2": "deberta."}.get(family, "roberta.")
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {}
    for name, value in disk_tensors(cfg, params).items():
        for new, old in older.items():
            name = name.replace(new, old)
        tensors[prefix + name] = value
    one = np.zeros(1, np.float32)
    extras = {prefix + "embeddings.position_ids": np.arange(3), "cls.predictions.bias": one, "lm_head.bias": one}
    extras |= {"lm_predictions.lm_head.bias": one, prefix + "pooler.dense.bias": one}
    if family == "deberta-v2":
        extras[prefix + "embeddings.position_embeddings.weight"] = one
    save_file(tensors | extras, tmp_path / "model.safetensors")
    with caplog.at_level("INFO", logger="ragjax"):
        model = hub.load(tmp_path, dtype="float32")
    assert f"{len(extras)} stored tensors are no part of the model" in caplog.text
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), model.params, params))


@pytest.mark.parametrize(
    ("head", "extra"),
    [
        (None, "classifier.weight"),
        ("token", "classifier.dense.weight"),
        ("sequence", "roberta.dense.weight"),
        ("token", "roberta.encoder.layer.7.output.dense.bias"),
    ],
)
def test_a_tensor_that_nobody_asked_for_is_refused(head, extra):
    cfg = tiny_encoder_config("roberta", head, num_layers=1)
    tensors = {
        name: TensorInfo(value.shape, "float32")
        for name, value in disk_tensors(cfg, random_encoder_params(cfg)).items()
    }
    with pytest.raises(ValueError, match=rf"tensor {extra} \[48\] fills no leaf"):
        ledger_of(cfg, tensors | {extra: TensorInfo((48,), "float32")})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pooler_is_left_alone_where_the_head_reads_none(family):
    """As older files of RoBERTa have it; the sequence heads of BERT and DeBERTa read theirs, wherever it lies."""
    cfg = tiny_encoder_config(family, "sequence", num_layers=1)
    params = random_encoder_params(cfg)
    tensors = {name: TensorInfo(value.shape, "float32") for name, value in disk_tensors(cfg, params).items()}
    prefix = {"bert": "bert.", "deberta-v2": ""}.get(family, "roberta.")
    extra = {f"{prefix}pooler.dense.weight": TensorInfo((48, 48), "float32")}
    reads = family in ("bert", "deberta-v2")
    assert (set(extra) <= set(tensors)) == reads
    assert ledger_of(cfg, tensors | extra).skipped == (() if reads else tuple(extra))


def test_A16_rows_beyond_the_tokenizer_are_kept_and_its_class_is_recorded(tmp_path):
    cfg = tiny_encoder_config("deberta-v2", "sequence", num_layers=1)
    params = random_encoder_params(cfg)
    source = write_checkpoint(tmp_path / "published", cfg, params, encoder_tokenizer("deberta-v2"))
    folder, _ = convert_model(str(source), str(tmp_path / "converted"))
    for model in (hub.load(source), hub.load(folder)):
        assert isinstance(model, hub.Encoder)
        assert len(model.tokenizer) < cfg.vocab_size == model.params.embedding.shape[0]
        np.testing.assert_array_equal(model.params.embedding, params.embedding)
        assert model.labels == ("contradiction", "entailment", "neutral")
        assert model.tokenizer_class == type(model.tokenizer).__name__
    assert checkpoint.read_manifest(folder)["tokenizer_class"] == model.tokenizer_class


@pytest.mark.shared
def test_a_published_folder_without_a_prefix_loads(shared):
    model = hub.load(shared / "models" / "tiny_bert_random")
    assert (model.config.num_layers, model.config.hidden_size, model.config.head) == (1, 32, None)
    assert np.isfinite(np.asarray(model.params.layers[0].mlp.up)).all()


def test_a_tiny_encoder_is_reproducible():
    one, two = tiny_encoder("bert", seed=3), tiny_encoder("bert", seed=3)
    assert one.fingerprint == two.fingerprint != tiny_encoder("bert", seed=4).fingerprint
