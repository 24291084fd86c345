"""What a mesh must not change, on eight virtual CPU devices: `test_sharding.py` runs this file in its own process."""

import contextlib
import dataclasses
import json
import logging
import math
import threading
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint  # noqa: F401  (before the memory that loading takes is measured)
import pytest
from jax.sharding import AxisType, PartitionSpec
from safetensors.numpy import save_file
from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401

from ragjax import FaviComp, LanguageModel, generate, load, make_mesh, perplexity
from ragjax.decode import loop
from ragjax.decode.engine import Execution, Sampling, Voice, decode_prompts
from ragjax.encode import classify, embed, token_probabilities
from ragjax.models import decoder
from ragjax.models.architectures import abstract
from ragjax.sharding import on_mesh, place, replicated, spec_of
from ragjax.testing import (
    byte_tokenizer,
    disk_tensors,
    random_params,
    raw_config,
    tiny_config,
    tiny_encoder,
    tiny_model,
    tiny_t5,
)
from ragjax.weights import checkpoint, stream
from tests.decode.test_ensemble import word_model, word_prompts
from tests.oracle import SHORT, decode, some_prompts, some_sources, tokens_of

MIB = 2**20
TEXTS = ["the lighthouse of Tamsay", "a", "the ferry sails", "no", "cold sound"]


def spread(lm: LanguageModel, **shape: int) -> LanguageModel:
    """The same model on a mesh."""
    placed = place(abstract(lm.config, lm.dtype), make_mesh(**shape))
    return dataclasses.replace(lm, params=jax.device_put(lm.params, jax.tree.map(lambda s: s.sharding, placed)))


def assert_same(found, expected) -> None:
    """Rows of two decodes: the same tokens, log-probabilities within 1e-4."""
    assert tokens_of(found) == tokens_of(expected)
    for mine, theirs in zip(found.rows, expected.rows, strict=True):
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one.log_probs, two.log_probs, atol=1e-4)
            np.testing.assert_allclose(one.member_log_probs, two.member_log_probs, atol=1e-4)


def test_A04_biases_and_two_key_value_heads_on_four_devices(caplog):
    lm = tiny_model(family="qwen2", num_layers=2)
    assert min(float(jnp.abs(b).max()) for b in (layer.attention.k_bias for layer in lm.params.layers)) > 0.1
    with caplog.at_level(logging.WARNING):
        cut = spread(lm, model=4)
    told = "data=1 x model=4: 2 key/value heads are not divisible by model=4: 8 arrays (0.0 MB) are whole on every"
    assert told in caplog.text
    attention = cut.params.layers[1].attention
    shapes = [leaf.addressable_shards[3].data.shape for leaf in (attention.q, attention.q_bias, attention.k_bias)]
    assert shapes == [(48, 1, 16), (1, 16), (2, 16)]

    run = jax.jit(decoder.forward, static_argnames="cfg")
    tokens, valid = (
        np.random.default_rng(0).integers(0, 256, (4, 40)),
        np.arange(40) >= np.array([[0], [3], [30], [39]]),
    )
    expected = decoder.logits(lm.params, run(lm.params, lm.config, tokens, valid)[0], 261)
    with on_mesh(make_mesh(model=4)):
        found = decoder.logits(cut.params, run(cut.params, lm.config, tokens, valid)[0], 261)
    np.testing.assert_allclose(np.asarray(found)[valid], np.asarray(expected)[valid], atol=1e-4)
    for one, two in zip(generate(cut, TEXTS, max_new=16), generate(lm, TEXTS, max_new=16), strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
    mine, theirs = (perplexity(model, TEXTS, given="the") for model in (cut, lm))
    np.testing.assert_allclose([s.nll for s in mine], [s.nll for s in theirs], atol=1e-4)


def test_C01_tables_of_different_height_on_eight_devices():
    pair = word_model(128, 0, num_layers=1), word_model(136, 1, num_layers=1)
    cut = [spread(lm, model=8) for lm in pair]
    prompts = word_prompts(0), word_prompts(1)

    def decode(models):
        voices = [Voice(lm, of) for lm, of in zip(models, prompts, strict=True)]
        return decode_prompts(voices, max_new=8, weights=((0.5, 0.5),))

    assert cut[1].params.head.addressable_shards[0].data.shape == (17, 48)
    assert_same(decode(cut), decode(pair))


def test_C01_favicomp_of_one_model_in_both_roles():
    """Members that share their weights, stacked, with their rows on other devices than their heads."""
    lm = tiny_model(num_layers=1)
    texts = []
    for model in (lm, spread(lm, data=2, model=2)):
        favicomp = FaviComp(compressor=model, target=model, alpha=0.5, max_new=8, prompts=SHORT, prompt_format="plain")
        found = favicomp(["Where?", "Who?", "When?"], [["Tamsay is small."], ["a", "b"], ["lit in 1868"]])
        texts.append([c.trace.tokens.tolist() for c in found])
    assert texts[0] == texts[1]


def test_H10_what_does_not_divide_is_whole_and_reported():
    lm = tiny_model(num_layers=1, vocab_size=265, intermediate_size=72)
    mesh, specs = make_mesh(model=8), abstract(lm.config, jnp.float32)
    assert spec_of(specs.head, mesh) == spec_of(specs.layers[0].attention.q, mesh) == PartitionSpec()
    assert spec_of(specs.layers[0].mlp.down, mesh) == PartitionSpec("model")
    assert replicated(specs, mesh) == [
        "265 vocabulary rows are not divisible by model=8: 2 arrays (0.1 MB) are whole on every device",
        "4 query heads are not divisible by model=8: 2 arrays (0.0 MB) are whole on every device",
        "2 key/value heads are not divisible by model=8: 2 arrays (0.0 MB) are whole on every device",
    ]
    prompts, three = some_prompts(5), Execution(batch=3)
    expected = decode_prompts([Voice(lm, prompts)], max_new=8, execution=three)
    assert_same(decode_prompts([Voice(spread(lm, model=8), prompts)], max_new=8, execution=three), expected)

    rows = spread(lm, data=4)  # three rows on four devices are filled up to four
    found = decode_prompts([Voice(rows, prompts)], max_new=8, execution=Execution(batch=3, compaction=True))
    assert found.stats.padded_tokens == expected.stats.padded_tokens // 3 * 4
    assert_same(found, expected)

    tokens, valid = np.ones((3, 64), np.int32), np.ones((3, 64), bool)
    with on_mesh(make_mesh(data=4)):  # or, by hand, lie whole on every device
        found = loop.prefill(rows.params, lm.config, tokens, valid, width=261)
    np.testing.assert_allclose(
        found.logits, loop.prefill(lm.params, lm.config, tokens, valid, width=261).logits, atol=1e-4
    )


def test_three_candidates_on_two_by_two_devices(monkeypatch):
    """Sampled, over one prompt cache that was read in micro-batches; one program each, whatever the chunks."""
    lm, prompts = tiny_model(num_layers=1), some_prompts(4)
    settings = {"max_new": 16, "weights": ((1.0,),) * 3, "sampling": Sampling(temperature=1.0, top_k=20, seed=5)}
    expected = decode_prompts([Voice(lm, prompts)], **settings)
    monkeypatch.setattr(loop, "PREFILL_TOKENS", 64)
    before = loop._prefill._cache_size(), loop.decode_chunk._cache_size()
    cut = spread(lm, data=2, model=2)
    found = decode_prompts([Voice(cut, prompts)], **settings)
    assert_same(found, expected)
    assert len({str(row.tokens) for rows in found.rows for row in rows}) == 12
    assert (loop._prefill._cache_size(), loop.decode_chunk._cache_size()) == (before[0] + 1, before[1] + 1)


def test_sources_and_texts_of_an_encoder_decoder_on_two_by_two_devices():
    lm = tiny_t5(num_heads=4, num_encoder_layers=2, num_layers=1)
    cut = spread(lm, data=2, model=2)
    assert cut.params.decoder[0].cross.k.addressable_shards[0].data.shape == (40, 2, 16)
    sources = some_sources((60, 33, 40, 8))
    mine, theirs = (decode(model, sources, weights=((1.0,),) * 2) for model in (cut, lm))
    assert_same(mine, theirs)


def write_shards(folder, cfg) -> list[np.ndarray]:
    """A model of four shards; its leaves."""
    folder.mkdir()
    params = random_params(cfg)
    tensors = list(disk_tensors(cfg, params).items())
    parts = {f"model-{n}.safetensors": dict(tensors[n::4]) for n in range(4)}
    for name, part in parts.items():
        save_file(part, folder / name)
    weight_map = {name: shard for shard, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(raw_config(cfg)))
    byte_tokenizer().save_pretrained(folder)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def held() -> dict[jax.Device, int]:
    """Bytes of live arrays on each device; a buffer counts once, whatever arrays look at it."""
    shards = [shard for array in jax.live_arrays() for shard in array.addressable_shards]
    buffers = {(shard.device, shard.data.unsafe_buffer_pointer()): shard.data.nbytes for shard in shards}
    found = dict.fromkeys(jax.devices(), 0)
    for (device, _), size in buffers.items():
        found[device] += size
    return found


@contextlib.contextmanager
def watched(monkeypatch) -> Iterator[dict[str, int]]:
    """The most bytes that a device held after any tensor, and that the process held at any moment, over the start."""
    before, most = held(), {"device": 0, "process": 0}
    start, over = anonymous_bytes(), threading.Event()

    def look(function, *args):
        result = function(*args)
        most["device"] = max(most["device"], *(size - before[device] for device, size in held().items()))
        return result

    def watch() -> None:
        while not over.wait(0.01):
            most["process"] = max(most["process"], anonymous_bytes() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(stream, "_read_leaf", partial(look, stream._read_leaf))
            patch.setattr(checkpoint, "_return_memory", partial(look, checkpoint._return_memory))
            yield most
    finally:
        over.set()
        watcher.join()


def anonymous_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


WIDE = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1536, "num_layers": 1}
WIDE |= {"num_heads": 8, "num_kv_heads": 8, "head_dim": 64}


def check_placement(lm, most, mesh) -> None:
    """Each leaf where the rules put it; no device ever with more than its share and the largest tensor, and the
    process within the bound of loading."""
    specs = place(abstract(lm.config, jnp.float32), mesh)
    assert jax.tree.all(jax.tree.map(lambda leaf, spec: leaf.sharding == spec.sharding, lm.params, specs))
    share = sum(math.prod(s.sharding.shard_shape(s.shape)) * 4 for s in jax.tree.leaves(specs))
    total, largest = (measure(leaf.nbytes for leaf in jax.tree.leaves(lm.params)) for measure in (sum, max))
    assert share < total / 7
    assert most["device"] <= share + largest
    assert most["process"] <= 8 * share + 2.5 * largest + 100 * MIB


def test_H04_experts_go_to_their_devices(tmp_path, monkeypatch):
    mesh, cfg = make_mesh(model=8), tiny_config("mixtral", **WIDE, num_experts=2)
    leaves = write_shards(tmp_path / "published", cfg)
    with watched(monkeypatch) as most:
        lm = load(tmp_path / "published", mesh=mesh)
    check_placement(lm, most, mesh)
    assert all(np.array_equal(one, two) for one, two in zip(jax.tree.leaves(lm.params), leaves, strict=True))


def test_H04_H07_weights_go_to_their_devices_and_to_any_other_mesh(tmp_path, monkeypatch):
    mesh, cfg = make_mesh(model=8), tiny_config(**WIDE)
    leaves = write_shards(tmp_path / "published", cfg)
    with watched(monkeypatch) as most:
        published = load(tmp_path / "published", mesh=mesh)
    check_placement(published, most, mesh)
    provenance = {"fingerprint": "x", "config": raw_config(cfg), "generation_config": {}}
    saved = checkpoint.save(tmp_path / "saved", published.params, published.tokenizer, provenance)
    with watched(monkeypatch) as most:
        restored = load(saved, mesh=mesh)
    check_placement(restored, most, mesh)
    assert restored.params is load(saved, mesh=make_mesh(model=8)).params
    for other in (None, make_mesh(1, 2), make_mesh(2, 4)):
        lm = load(saved, mesh=other)
        assert lm.params is not restored.params
        assert all(np.array_equal(one, two) for one, two in zip(jax.tree.leaves(lm.params), leaves, strict=True))


def test_what_does_not_fit_a_mesh_is_refused():
    with pytest.raises(ValueError, match="data=3 x model=4 does not fit 8 devices"):
        make_mesh(3, 4)
    specs = abstract(tiny_config(), jnp.float32)
    other = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    with pytest.raises(ValueError, match=r"Auto axes data, model, got \{'x': 'Auto'\}"):
        place(specs, other)
    lm = tiny_model(num_layers=1)
    with pytest.raises(ValueError, match="lies on data=1 x model=2 and tiny-llama-0 on no mesh"):
        decode_prompts([Voice(m, some_prompts(1)) for m in (spread(lm, model=2), lm)], max_new=4, weights=((0.5, 0.5),))


@pytest.mark.parametrize("family", ["xlm-roberta", "deberta-v2"])
def test_encoders_on_eight_devices(family):
    """Three texts fill two data shards of four-row batches; the weights are cut in four."""
    for head in ("sequence", "token"):
        plain = tiny_encoder(family, head, num_layers=1)
        cut = spread(plain, data=2, model=4)
        assert cut.params.layers[0].mlp.up.addressable_shards[0].data.shape == (48, 20)
        texts = ["the cat", "of " * 40, "in the house"]
        found, expected = (embed(model, texts).vectors for model in (cut, plain))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        if head == "sequence":
            found, expected = (classify(model, texts, texts[::-1]).logits for model in (cut, plain))
            np.testing.assert_allclose(found, expected, atol=1e-4)
        else:
            for one, two in zip(*(token_probabilities(model, texts) for model in (cut, plain)), strict=True):
                np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-5)
