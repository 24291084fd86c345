"""GGUF files: every block type, the order of query and key rows, rope settings, the tokenizer inside."""

import json
import struct
import sys
from dataclasses import replace

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from ragjax import hub
from ragjax.decode.prompt import build_prompt
from ragjax.models.architectures import parse_config
from ragjax.models.layers import inverse_frequencies
from ragjax.models.rope import Rope
from ragjax.testing import disk_tensors, random_params, tiny_config
from ragjax.weights.gguf_reader import dequantize, gguf_config, open_gguf
from ragjax.weights.gguf_tokenizer import gguf_tokenizer
from tests.weights.gguf_files import (
    add_byte_vocabulary,
    add_gemma_vocabulary,
    add_llama2_vocabulary,
    gguf_name,
    write_gguf,
)

CONFIG = tiny_config(hidden_size=64, intermediate_size=96)
PLAIN = ("F32", "F16", "BF16")
QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q8_0")


def same(a, b) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), a, b))


def one_tensor(path, data, kind):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("x", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_gguf(path).tensors["x"]


@pytest.mark.parametrize("kind", PLAIN + QUANTISED)
def test_simple_blocks_decode_to_what_was_stored(tmp_path, kind):
    value = np.random.default_rng(0).standard_normal((7, 64), dtype=np.float32)
    stored = gguf.quants.quantize(value, Kind[kind])
    decoded = dequantize(one_tensor(tmp_path / "x.gguf", stored, Kind[kind]), np.dtype(np.float32))
    assert decoded.shape == value.shape
    assert np.array_equal(decoded, gguf.quants.dequantize(stored, Kind[kind]))
    bits = {"F32": 30, "F16": 10, "BF16": 7, "Q4_0": 2.5, "Q4_1": 3, "Q5_0": 3.5, "Q8_0": 6}[kind]
    assert np.max(np.abs(decoded - value)) <= np.max(np.abs(value)) * 2.0**-bits


def half(data: bytes) -> float:
    return float(np.frombuffer(data, np.float16)[0])


def plain_q4_k(block: bytes) -> list[float]:
    """One block of 256 weights, read byte by byte: two half scales, 12 bytes of 6-bit scales and minima, 128 bytes."""
    scale, minimum, packed, quants = half(block[:2]), half(block[2:4]), block[4:16], block[16:]
    out = []
    for j in range(8):
        if j < 4:
            sc, mn = packed[j] & 63, packed[j + 4] & 63
        else:
            sc = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4)
            mn = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4)
        chunk = quants[32 * (j // 2) : 32 * (j // 2) + 32]
        out += [scale * sc * ((byte >> 4 * (j % 2)) & 15) - minimum * mn for byte in chunk]
    return out


def plain_q6_k(block: bytes) -> list[float]:
    """One block of 256 weights: 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, one half scale."""
    low, high, scales = block[:128], block[128:192], struct.unpack("16b", block[192:208])
    scale, out = half(block[208:210]), [0.0] * 256
    for index in range(256):
        part, rest = divmod(index, 128)
        row, column = divmod(rest, 32)
        nibble = (low[64 * part + 32 * (row % 2) + column] >> 4 * (row // 2)) & 15
        pair = (high[32 * part + column] >> 2 * row) & 3
        out[index] = scale * scales[index // 16] * ((nibble | pair << 4) - 32)
    return out


@pytest.mark.parametrize(
    ("kind", "size", "halves", "plain"), [("Q4_K", 144, (0, 2), plain_q4_k), ("Q6_K", 210, (208,), plain_q6_k)]
)
def test_k_blocks_decode_to_what_their_bytes_say(tmp_path, kind, size, halves, plain):
    rng = np.random.default_rng(0)
    stored = rng.integers(0, 256, (3, 2 * size), dtype=np.uint8)
    blocks = stored.reshape(-1, size)
    for at in halves:
        blocks[:, at : at + 2] = rng.uniform(0.01, 0.1, (6, 1)).astype(np.float16).view(np.uint8)
    decoded = dequantize(one_tensor(tmp_path / "x.gguf", stored, Kind[kind]), np.dtype(np.float32))
    expected = [plain(block.tobytes()) for block in blocks]
    np.testing.assert_allclose(decoded.reshape(-1, 256), expected, rtol=1e-5, atol=1e-6)


def test_decoding_in_blocks_of_rows_changes_nothing(tmp_path, monkeypatch):
    value = np.random.default_rng(0).standard_normal((50, 64), dtype=np.float32)
    tensor = one_tensor(tmp_path / "x.gguf", gguf.quants.quantize(value, Kind.Q8_0), Kind.Q8_0)
    whole = dequantize(tensor, np.dtype(jnp.bfloat16))
    monkeypatch.setattr("ragjax.weights.gguf_reader._BLOCK_BYTES", 4 * 64 * 7)
    assert np.array_equal(dequantize(tensor, np.dtype(jnp.bfloat16)), whole)


@pytest.mark.parametrize(
    "changes", [{}, {"tied_head": True}, {"qkv_bias": True, "output_bias": True, "mlp_bias": True}]
)
def test_A20_a_whole_model_comes_back_bit_for_bit(tmp_path, changes):
    """llama.cpp's row order is undone for weights and biases; names, config and the tied head are found."""
    cfg = tiny_config(**changes)
    params = random_params(cfg)
    model = hub.load(write_gguf(tmp_path / "tiny.gguf", cfg, params))
    assert model.config == cfg
    assert same(model.params, params)
    assert model.stop_ids == (258, 259)


@pytest.mark.parametrize("changes", [{}, {"tied_head": True}])
def test_A04_qwen2_comes_back_bit_for_bit(tmp_path, changes):
    """Its rows are stored as published, its biases on q, k and v alone."""
    cfg = tiny_config("qwen2", **changes)
    params = random_params(cfg)
    model = hub.load(write_gguf(tmp_path / "tiny.gguf", cfg, params))
    assert model.config == cfg
    assert same(model.params, params)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_A06_gemma3_comes_back_with_norms_around_zero(tmp_path, dtype):
    """The file tells the window and the width of a head; the pattern and the local base are the family's."""
    rope = Rope(1e6, "default", 1.0, 1.0, 4.0, 0)
    cfg = tiny_config("gemma3_text", rope=rope, query_scale=16**-0.5)
    params = random_params(cfg)
    path = write_gguf(tmp_path / "tiny.gguf", cfg, params, metadata={"attention.sliding_window": 8})
    model = hub.load(path, dtype=dtype)
    assert model.config == cfg
    # The file holds 1 + w in float32, which rounds w by 2**-24 at most; the cast comes after 1 is taken off again.
    for mine, wanted in zip(jax.tree.leaves(model.params), jax.tree.leaves(params), strict=True):
        rounding = 2**-23 if dtype == "float32" else 2**-23 + 2**-8 * np.abs(wanted)
        assert np.all(np.abs(np.asarray(mine, np.float32) - wanted) <= rounding)


def test_A06_the_27B_is_known_by_its_depth(tmp_path):
    cfg = tiny_config("gemma3_text", num_layers=62, intermediate_size=8, query_scale=12**-0.5)
    metadata = {"attention.sliding_window": 8, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    path = write_gguf(tmp_path / "tiny.gguf", cfg, random_params(cfg), metadata=metadata)
    assert parse_config(gguf_config(open_gguf(path))) == cfg


def gemma_config(path, **metadata):
    """The config of a file of Gemma 3 in seven layers that says this, read without its weights."""
    rope = Rope(1e6)
    cfg = tiny_config("gemma3_text", rope=rope, query_scale=16**-0.5)
    said = {key.replace("__", "."): value for key, value in metadata.items()}
    return cfg, gguf_config(open_gguf(write_gguf(path / "tiny.gguf", cfg, random_params(cfg), metadata=said)))


def test_A06_more_layers_than_any_model_has_are_refused_at_once(tmp_path):
    cfg = tiny_config("gemma3_text", num_layers=1)
    file = open_gguf(write_gguf(tmp_path / "tiny.gguf", cfg, random_params(cfg)))
    damaged = replace(file, metadata={**file.metadata, "gemma3.block_count": 2**32 - 1})
    with pytest.raises(ValueError, match="num_hidden_layers is 4294967295, more than the 10000 that are supported"):
        parse_config(gguf_config(damaged))


FLAGS = [True, False, True, True, False, True, True]


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ({"attention__sliding_window_pattern": 6}, [5]),
        ({"attention__sliding_window_pattern": 3}, [2, 5]),
        ({"attention__sliding_window_pattern": 0}, []),
        ({"attention__sliding_window_pattern": 1}, [0, 1, 2, 3, 4, 5, 6]),
        ({"attention__sliding_window_pattern": FLAGS}, [1, 4]),
        ({"attention__sliding_window": 0}, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_A06_newer_files_say_which_layers_have_a_window(tmp_path, said, full):
    _, raw = gemma_config(tmp_path, **{"attention__sliding_window": 8, **said})
    windows = parse_config(raw).windows
    assert [layer for layer, window in enumerate(windows) if window is None] == full
    assert set(windows) <= {8, None}


def test_A06_newer_files_say_the_base_of_windowed_layers_and_repeat_what_is_neutral(tmp_path):
    cfg, raw = gemma_config(
        tmp_path,
        attention__sliding_window=8,
        attention__causal=True,
        attention__key_length_swa=16,
        attention__value_length_swa=16,
        rope__dimension_count_swa=16,
        rope__freq_base_swa=500.0,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        rope__scaling__attn_factor=1.0,
    )
    parsed = parse_config(raw)
    assert parsed.local_rope == Rope(500.0)
    assert parsed.rope == Rope(1e6, "linear", factor=8.0)
    assert parsed == replace(cfg, rope=parsed.rope, local_rope=parsed.local_rope)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"attention__key_length_swa": 8}, "gemma3.attention.key_length_swa is 8, but heads are 16 wide"),
        ({"rope__dimension_count_swa": 8}, "gemma3.rope.dimension_count_swa is 8, but heads are 16 wide"),
        ({"attention__sliding_window_pattern": FLAGS[:3]}, "layer_types is .* not 7 of"),
        ({"attention__sink_swa": 4}, "gemma3.attention.sink_swa is 4; this attribute is not known"),
        ({"rope__scaling__attn_factor": 2.0}, r"\['rope.scaling.attn_factor'\] is not supported"),
        ({"rope__freq_scale_swa": 0.5}, r"\['rope.freq_scale_swa'\] is not supported"),
        ({"final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping is 30.0; this attribute is not known"),
        ({"attention__causal": False}, "gemma3.attention.causal is False; this attribute is not known"),
    ],
)
def test_A06_what_newer_files_may_say_beyond_that_is_refused_by_name(tmp_path, said, words):
    with pytest.raises(ValueError, match=words):
        parse_config(gemma_config(tmp_path, **{"attention__sliding_window": 8, **said})[1])


@pytest.mark.parametrize("kind", QUANTISED)
def test_a_quantised_model_holds_the_decoded_weights(tmp_path, kind):
    params = random_params(CONFIG)
    model = hub.load(write_gguf(tmp_path / "tiny.gguf", CONFIG, params, Kind[kind]))
    for name, value in disk_tensors(CONFIG, params).items():
        mine = disk_tensors(CONFIG, model.params)[name]
        wanted = (
            gguf.quants.dequantize(gguf.quants.quantize(value, Kind[kind]), Kind[kind]) if value.ndim == 2 else value
        )
        assert np.array_equal(mine, wanted), name


def scaled(rope: Rope, **metadata):
    cfg = tiny_config(num_layers=1, rope=rope)
    plain = inverse_frequencies(Rope(rope.theta, "default", 1.0, 1.0, 4.0, 0), cfg.head_dim)
    return cfg, [("rope_freqs.weight", plain / inverse_frequencies(rope, cfg.head_dim))], metadata


def test_A01_stored_frequencies_of_llama3_become_its_settings(tmp_path):
    rope = Rope(500000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    cfg, extra, metadata = scaled(rope)
    path = write_gguf(tmp_path / "x.gguf", cfg, random_params(cfg), extra=extra, metadata=metadata)
    assert hub.load(path).config.rope == rope


def test_A01_stored_frequencies_of_no_known_kind_are_refused(tmp_path):
    cfg, extra, _ = scaled(Rope(500000.0, "llama3", 32.0, 1.5, 4.0, 8192))
    path = write_gguf(tmp_path / "x.gguf", cfg, random_params(cfg), extra=extra)
    with pytest.raises(ValueError, match=r"x\.gguf: rope_freqs\.weight holds frequencies"):
        hub.load(path)


def test_a_linear_factor_is_read(tmp_path):
    cfg = tiny_config(num_layers=1)
    metadata = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    rope = hub.load(write_gguf(tmp_path / "x.gguf", cfg, random_params(cfg), metadata=metadata)).config.rope
    assert (rope.kind, rope.factor) == ("linear", 4.0)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "rope scaling 'yarn'"),
        ({"expert_count": 8}, "llama.expert_count is 8"),
        ({"attention.sliding_window": 4096}, "sliding_window is 4096; this attribute is not known"),
        ({"rope.dimension_count": 8}, "llama.rope.dimension_count is 8, but heads are 16 wide"),
        ({"attention.key_length_swa": 8}, "llama.attention.key_length_swa is 8, but heads are 16 wide"),
        ({"attention.causal": False}, "llama.attention.causal is False; this attribute is not known"),
        ({"rope.freq_base_swa": 1e4}, r"\['rope.freq_base_swa'\] is not supported"),
    ],
)
def test_metadata_that_would_change_the_model_is_refused(tmp_path, metadata, words):
    cfg = tiny_config(num_layers=1)
    path = write_gguf(tmp_path / "x.gguf", cfg, random_params(cfg), metadata=metadata)
    with pytest.raises(ValueError, match=words) as error:
        hub.load(path)
    assert "x.gguf" in str(error.value)


def test_another_architecture_is_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "falcon")
    writer.add_block_count(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="'falcon' is not supported"):
        hub.load(tmp_path / "x.gguf")


def test_a_block_type_that_is_not_read_is_named(tmp_path):
    data = gguf.quants.quantize(np.ones((2, 32), np.float32), Kind.Q5_1)
    with pytest.raises(ValueError, match=r"not x \(Q5_1\)"):
        one_tensor(tmp_path / "x.gguf", data, Kind.Q5_1)


@pytest.mark.parametrize("kept", [0.9, 0.3, 0.0001])
def test_a_file_cut_short_is_refused(tmp_path, kept):
    path = write_gguf(tmp_path / "x.gguf", CONFIG, random_params(CONFIG))
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ValueError, match=r"x\.gguf: not a whole GGUF file"):
        hub.load(path)


def test_without_the_package_the_message_says_what_to_install(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "x.gguf", CONFIG, random_params(CONFIG))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"pip install 'ragjax\[gguf\]'"):
        hub.load(path)


def vocabulary(path, cutting):
    writer = gguf.GGUFWriter(path, "llama")
    add_byte_vocabulary(writer, cutting)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return gguf_tokenizer(open_gguf(path))


def test_B04_digits_are_cut_before_the_merges_where_the_file_says_so(tmp_path):
    """`smollm` cuts digits off first, so white space before one stays whole and merges."""
    smol = vocabulary(tmp_path / "a.gguf", "smollm")
    plain = vocabulary(tmp_path / "b.gguf", "gpt-2")
    assert smol.tokenize("a  12") == ["a", "\u0120\u0120", "1", "2"]
    assert plain.tokenize("a  12") == ["a", "\u0120", "\u0120", "1", "2"]


def test_B04_bos_follows_the_kind_of_vocabulary(tmp_path):
    assert vocabulary(tmp_path / "a.gguf", "smollm").encode("<s>") == [257]
    assert vocabulary(tmp_path / "b.gguf", "llama-bpe").encode("<s>") == [257, 257]


def test_the_tokenizer_keeps_texts_specials_and_template(tmp_path):
    tokenizer = vocabulary(tmp_path / "a.gguf", "smollm")
    text = "caf\u00e9 \u2014 12 \u00e9t\u00e9s, 'quoted' .\n\n \U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("<end_of_turn><tool>") == [259, 260]
    assert tokenizer.decode([259, 260], skip_special_tokens=True) == "<tool>"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "<s>x"


def test_B04_qwen2_cuts_digits_one_by_one_and_adds_no_bos(tmp_path):
    tokenizer = vocabulary(tmp_path / "a.gguf", "qwen2")
    assert tokenizer.tokenize("a  12  ") == ["a", "\u0120", "\u0120", "1", "2", "\u0120\u0120"]
    assert tokenizer.encode("<s>") == [257]
    assert tokenizer.encode("e\u0301") == tokenizer.encode("\u00e9")


def gemma_vocabulary(path):
    writer = gguf.GGUFWriter(path, "gemma3")
    add_gemma_vocabulary(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return gguf_tokenizer(open_gguf(path))


def test_B04_gemma_starts_with_bos_and_merges_in_the_order_of_its_tokens(tmp_path):
    tokenizer = gemma_vocabulary(tmp_path / "a.gguf")
    assert tokenizer.tokenize("abc") == ["abc"]
    assert tokenizer.tokenize("bc abc") == ["bc", "\u2581ab", "c"]  # "ab" comes before "bc", "\u2581ab" before "abc"
    assert tokenizer.tokenize("a  a") == ["a", "\u2581\u2581", "a"]
    assert tokenizer.tokenize("\u00e9") == ["<0xC3>", "<0xA9>"]
    assert tokenizer.encode("a") == [2, tokenizer.convert_tokens_to_ids("a")]
    assert tokenizer.encode("<end_of_turn><mark>")[1:] == [4, 279]
    for text in (" a  b", "\u00e9\n\n\u4e2d a", "a "):
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_B04_a_chat_and_its_text_give_gemma_one_bos(tmp_path):
    tokenizer = gemma_vocabulary(tmp_path / "a.gguf")
    data = {"word": "a <end_of_turn> c"}
    chat = build_prompt(tokenizer, "", "b {word}", data)
    plain = build_prompt(tokenizer, "", "b {word}", data, prompt_format="plain")
    for prompt in (chat, plain):
        assert prompt.ids.count(2) == 1
        assert prompt.ids[0] == 2
    assert chat.ids.count(4) == 1  # the template's own, not the one that the text spells
    assert plain.ids.count(4) == 0


def llama2_tokenizer(path, pieces, **flags):
    writer = gguf.GGUFWriter(path, "llama")
    add_llama2_vocabulary(writer, pieces)
    for name, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return gguf_tokenizer(open_gguf(path))


def merged(pieces, text: str) -> list[int]:
    """SentencePiece's own rule: of all neighbours that make a token, those of the best score first, from the left."""
    ids, scores = ({p[0]: v for v, p in enumerate(pieces)}, {p[0]: p[1] for p in pieces if p[2] == 1})
    parts = list("\u2581" + text.replace(" ", "\u2581"))
    while pairs := [i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in scores]:
        best = max(pairs, key=lambda i: (scores[parts[i] + parts[i + 1]], -i))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    spelled = [[ids[p]] if p in ids else [ids[f"<0x{byte:02X}>"] for byte in p.encode()] for p in parts]
    return [token for tokens in spelled for token in tokens]


BYTES = [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
LETTERS = [(letter, -100.0 - rank, 1) for rank, letter in enumerate("\u2581abcd<>s/")]
LLAMA2 = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *BYTES, *LETTERS]
LLAMA2 += [("bc", -1.0, 1), ("ab", -2.0, 1), ("\u2581\u2581", -3.0, 1), ("abc", -9.0, 1), ("\u2581a", -4.0, 1)]
TEXTS = ["abcd", "abc abc", " a", "a  b", "   ", "bca ab", "\u00e9 a\n\u4e2d", "<s>a</s>", "aabbcc dcba"]


@pytest.mark.parametrize("text", TEXTS)
def test_B04_llama2_merges_by_score_with_a_space_in_front(tmp_path, text):
    tokenizer = llama2_tokenizer(tmp_path / "a.gguf", LLAMA2)
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert ids == merged(LLAMA2, text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, split_special_tokens=True) == [1, *ids]


def test_B04_llama2_keeps_its_special_tokens_and_the_files_flags(tmp_path):
    tokenizer = llama2_tokenizer(tmp_path / "a.gguf", LLAMA2)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == ("<s>", "</s>", "<unk>")
    assert tokenizer.encode("<s>", add_special_tokens=False) == [1]
    plain = llama2_tokenizer(tmp_path / "b.gguf", LLAMA2, add_space_prefix=False, add_bos_token=False)
    assert plain.tokenize("ab") == ["ab"]
    assert plain.encode("ab") == plain.convert_tokens_to_ids(["ab"])
    assert plain.decode(plain.encode(" ab")) == " ab"


@pytest.mark.shared
def test_B04_a_trained_llama2_vocabulary_spells_its_story(shared, tmp_path):
    """512 trained tokens; the expected ids are those that the trained model itself wrote."""
    data, pieces = (shared / "models" / "tok512.bin").read_bytes()[4:], []
    while data:
        score, size = struct.unpack("<fi", data[:8])
        kind = 1 if len(pieces) > 258 else 6 if len(pieces) > 2 else 3
        pieces.append((data[8 : 8 + size].decode().replace(" ", "\u2581"), score, kind))
        data = data[8 + size :]
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *pieces[3:]]
    tokenizer = llama2_tokenizer(tmp_path / "a.gguf", pieces)
    expected = json.loads((shared / "models" / "stories260K_expected.json").read_text())
    ids = expected["greedy_token_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == expected["text"].strip("\n")
    assert tokenizer.encode(text, add_special_tokens=False) == merged(pieces, text)


def test_an_unknown_way_of_cutting_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="pre-tokenizer 'tekken' is not supported"):
        vocabulary(tmp_path / "a.gguf", "tekken")


def test_the_names_of_the_writer_are_the_readers(tmp_path):
    cfg = tiny_config(num_layers=1, qkv_bias=True, output_bias=True, mlp_bias=True)
    file = open_gguf(write_gguf(tmp_path / "x.gguf", cfg, random_params(cfg)))
    assert set(file.tensors) == {gguf_name(name) for name in disk_tensors(cfg, random_params(cfg))}
    assert gguf_config(file)["rms_norm_eps"] == 1e-5
