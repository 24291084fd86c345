"""PyTorch's files without PyTorch: every tensor bit for bit, nothing run, and every file that is not taken by name."""

import json
import os
import pickle
import re
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ragjax import hub
from ragjax.testing import (
    byte_tokenizer,
    encoder_tokenizer,
    random_encoder_params,
    random_params,
    tiny_config,
    tiny_encoder_config,
    tiny_t5_config,
    write_checkpoint,
)
from ragjax.weights import checkpoint
from ragjax.weights.convert import convert_model
from ragjax.weights.opening import open_published
from ragjax.weights.shards import open_weights
from ragjax.weights.torch_reader import TORCH

CONFIG = tiny_config()
SHARDS = tuple(f"pytorch_model-0000{n}-of-00003.bin" for n in (1, 2, 3))
INDEX = "pytorch_model.bin.index.json"
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
OTHERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
UNSIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

random = np.random.default_rng(7)


def random_bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Any bits at all: NaNs with payloads, infinities and subnormals among them."""
    if dtype == torch.bool:
        return torch.from_numpy(random.integers(0, 2, shape).astype(bool))
    stored = random.integers(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=np.uint8)
    return torch.from_numpy(stored).view(dtype)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def opened(folder: Path, content: object):
    torch.save(content, folder / "pytorch_model.bin")
    return open_weights(folder, TORCH)


def assert_same(source, tensors: dict[str, torch.Tensor]) -> None:
    assert list(source.tensors) == list(tensors)
    for name, tensor in tensors.items():
        info = source.tensors[name]
        read = source.read(name, np.dtype(info.dtype))
        assert info.dtype == read.dtype.name == str(tensor.dtype).removeprefix("torch.")
        assert info.shape == read.shape == tuple(tensor.shape)
        assert read.tobytes() == bits(tensor)


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_each_dtype_is_read_bit_for_bit(tmp_path, dtype):
    tensors = {"matrix": random_bits(dtype, 9, 14), "cube": random_bits(dtype, 3, 5, 2), "one": random_bits(dtype, 1)}
    tensors |= {"none": torch.empty(0, 3, dtype=dtype), "scalar": random_bits(dtype, 1)[0]}
    assert_same(opened(tmp_path, tensors), tensors)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_views_of_a_shared_storage_are_each_what_they_were(tmp_path, dtype):
    whole = random_bits(dtype, 12, 10)
    tensors = {
        "whole": whole,
        "same": whole,
        "transposed": whole.T,
        "rows": whole[3:7],
        "columns": whole[:, 2:9:3],
        "element": whole[5, 4],
        "permuted": whole.view(3, 4, 10).permute(2, 0, 1),
        "repeated": whole[2].expand(4, 10),
    }
    assert_same(opened(tmp_path, tensors), tensors)
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin") as archive:
        assert sum("/data/" in name for name in archive.namelist()) == 1


def test_what_is_read_cannot_be_written_and_takes_no_copy(tmp_path):
    read = opened(tmp_path, {"a": torch.ones(3, 4)}).read("a", np.dtype(np.float32))
    assert not read.flags.writeable
    assert isinstance(read.base, np.memmap)


@pytest.mark.parametrize("nest", [{}, {"state_dict": 1, "epoch": 3, "name": "x", "loss": 0.5}, {"model": 1}])
def test_the_weights_may_lie_under_a_key(tmp_path, nest):
    weights = torch.nn.Linear(3, 4).state_dict()  # with the `_metadata` that a module adds
    weights["weight"] = torch.nn.Parameter(weights["weight"])
    content = {key: weights if value == 1 else value for key, value in nest.items()} if nest else weights
    assert_same(opened(tmp_path, content), {name: value.detach() for name, value in weights.items()})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([torch.ones(2)], "holds one list, where names with tensors are read"),
        (torch.ones(2), "holds one tensor, where"),
        ({"a": torch.ones(2), "step": 4}, "holds 'step' (int), where only names with tensors are read"),
        ({3: torch.ones(2)}, "holds 3 (tensor)"),
        ({"model": {"a": torch.ones(2)}, "optimizer": {"b": torch.ones(2)}}, "'optimizer' (dict)"),
        ({"model": {"a": torch.ones(2)}, "state_dict": {"a": torch.ones(2)}}, "'model' (dict), 'state_dict' (dict)"),
        ({"module": {"a": torch.ones(2)}}, "'module' (dict)"),
    ],
)
def test_what_is_no_mapping_of_names_to_tensors_is_refused_by_what_it_is(tmp_path, content, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        opened(tmp_path, content)
    assert f"{tmp_path}: pytorch_model.bin holds" in str(error.value)


class Call:
    """What pickles as a call."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def write_pickle(folder: Path, content: object, protocol: int = 2, storages: dict[str, bytes] | None = None) -> None:
    data = content if isinstance(content, bytes) else pickle.dumps(content, protocol)
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for key, stored in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", stored)


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"pytorch_model\.bin") as error:
        open_weights(folder, TORCH)
    return str(error.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "function", [os.system, os.mkdir, eval, getattr, __import__, torch.load], ids=lambda f: f.__name__
)
def test_a_call_of_anything_is_refused_by_name_and_not_made(tmp_path, function, protocol):
    trace = tmp_path / "was-here"
    commands = {os.system: f"mkdir {trace}", eval: f"__import__('os').mkdir({str(trace)!r})"}
    write_pickle(tmp_path, {"a": Call(function, commands.get(function, str(trace)))}, protocol)
    message = refused(tmp_path)
    assert re.search(
        rf"asks for ({function.__module__}|__builtin__)\.{function.__name__}, .*nothing of it was run", message
    )
    assert not trace.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nsystem\n(S'mkdir TRACE'\ntR.",  # GLOBAL and REDUCE
        b"(S'mkdir TRACE'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'mkdir TRACE'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0bmkdir TRACE\x85R.",  # STACK_GLOBAL
        b"\x80\x02cos\nsystem\n)\x81.",  # NEWOBJ
        b"\x80\x02ccollections\nOrderedDict\n)R(Vx\nctorch._utils\n__builtins__\nub.",  # through an admitted module
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",  # a dotted name
    ],
)
def test_no_opcode_reaches_what_is_not_admitted(tmp_path, monkeypatch, opcodes):
    monkeypatch.chdir(tmp_path)
    write_pickle(tmp_path, opcodes)
    assert "asks for" in refused(tmp_path)
    assert not (tmp_path / "TRACE").exists()


def test_a_pickle_cannot_change_what_later_files_are_read_with(tmp_path):
    attributes = b"}S'x'\nS'y'\ns"
    write_pickle(tmp_path, b"ctorch._utils\n_rebuild_tensor_v2\n" + attributes + b"b.")
    assert "holds one function" in refused(tmp_path)
    tensors = {"a": torch.arange(6.0).view(2, 3)}
    assert_same(opened(tmp_path, tensors), tensors)


def test_classes_that_are_no_weights_are_refused_by_name(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "pytorch_model.bin")
    assert "asks for torch.nn.modules.linear.Linear" in refused(tmp_path)
    torch.save({"a": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "pytorch_model.bin")
    assert "asks for torch._utils._rebuild_tensor_v3" in refused(tmp_path)
    torch.save({"a": torch.ones(2, dtype=torch.complex64)}, tmp_path / "pytorch_model.bin")
    assert "asks for torch.ComplexFloatStorage" in refused(tmp_path)


def test_a_file_of_before_1_6_is_refused_with_what_to_do(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    message = refused(tmp_path)
    assert "format of PyTorch before 1.6" in message
    assert "torch.save(torch.load(FILE, weights_only=True), FILE)" in message


def view_pickle(key: str = "0", size=6, offset=0, shape=(2, 3), strides=(3, 1), kind="storage") -> bytes:
    """A data.pkl with one tensor of float32, "a", by hand."""

    def several(numbers) -> str:
        return "(" + "".join(f"I{number}\n" for number in numbers) + "t"

    storage = f"(S'{kind}'\nctorch\nFloatStorage\nS'{key}'\nS'cpu'\nI{size}\ntQ"
    view = f"({storage}I{offset}\n{several(shape)}{several(strides)}I00\n(dt"
    return f"(S'a'\nctorch._utils\n_rebuild_tensor_v2\n{view}Rd.".encode()


def test_the_pickle_that_the_next_tests_spoil_is_read(tmp_path):
    stored = np.arange(6, dtype=np.float32)
    write_pickle(tmp_path, view_pickle(), storages={"0": stored.tobytes()})
    assert_same(open_weights(tmp_path, TORCH), {"a": torch.from_numpy(stored).view(2, 3)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offset": 1}, "a goes beyond its storage"),
        ({"shape": (3, 3)}, "a goes beyond its storage"),
        ({"strides": (4, 1)}, "a goes beyond its storage"),
        ({"strides": (10**30, 1)}, "a goes beyond its storage"),
        ({"strides": (-3, 1)}, "a is no view of a storage"),
        ({"offset": -1}, "a is no view of a storage"),
        ({"shape": (6,)}, "a is no view of a storage"),
        ({"kind": "module"}, "is no storage"),
        ({"size": -6}, "is no storage"),
        ({"key": "1"}, "is not whole: it has no archive/data/1"),
        ({"key": "../data.pkl"}, "is not whole: it has no archive/data/../data.pkl"),
        ({"size": 7}, "is not whole: archive/data/0 should be 28 bytes"),
        ({"size": 5, "shape": (1, 3)}, "is not whole: archive/data/0 should be 20 bytes"),
    ],
)
def test_a_tensor_that_is_not_where_it_is_said_to_be_is_refused_by_name(tmp_path, changes, words):
    write_pickle(tmp_path, view_pickle(**changes), storages={"0": bytes(24)})
    assert f"{tmp_path}: pytorch_model.bin" in refused(tmp_path)
    assert words in refused(tmp_path)


def rewritten(folder: Path, changed: dict[str, bytes | None], compression: int = zipfile.ZIP_STORED) -> None:
    """The same archive with members replaced, or left out."""
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in (members | {f"pytorch_model/{key}": value for key, value in changed.items()}).items():
            if data is not None:
                archive.writestr(name, data)


@pytest.mark.parametrize(
    ("changed", "compression", "words"),
    [
        ({"byteorder": b"big"}, zipfile.ZIP_STORED, "big-endian"),
        ({"data.pkl": None}, zipfile.ZIP_STORED, "it has no data.pkl"),
        ({"data.pkl": b""}, zipfile.ZIP_STORED, "broken data.pkl"),
        ({"data.pkl": b"\x80\x02}q"}, zipfile.ZIP_STORED, "broken data.pkl"),
        ({"data/0": None}, zipfile.ZIP_STORED, "it has no pytorch_model/data/0"),
        ({}, zipfile.ZIP_DEFLATED, "compressed or encrypted at pytorch_model/"),
    ],
)
def test_an_archive_that_is_not_as_pytorch_writes_it_is_refused(tmp_path, changed, compression, words):
    tensors = {"a": torch.arange(600.0)}
    opened(tmp_path, tensors)
    rewritten(tmp_path, {})
    assert_same(open_weights(tmp_path, TORCH), tensors)
    rewritten(tmp_path, changed, compression)
    assert words in refused(tmp_path)


@pytest.mark.parametrize("data", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04" + bytes(99)])
def test_what_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    assert "pytorch_model.bin is no whole file of PyTorch; it should hold the weights" in refused(tmp_path)


def test_a_damaged_file_is_read_or_refused_and_nothing_else(tmp_path):
    """One byte of the description or of the archive's own tables is wrong."""
    path, outcomes = tmp_path / "pytorch_model.bin", set()
    opened(tmp_path, OrderedDict(a=torch.arange(6.0).view(2, 3), b=torch.nn.Parameter(torch.ones(2))))
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            source = open_weights(tmp_path, TORCH)
            outcomes.add(all(source.read(name, None).shape == info.shape for name, info in source.tensors.items()))
        except ValueError:
            outcomes.add("refused")
    assert outcomes == {True, "refused"}


def write_shards(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """A model in three shards of mixed dtypes with an index; its tensors, and the shard of each."""
    write_checkpoint(folder, CONFIG, random_params(CONFIG), byte_tokenizer())
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {name: value.to(FLOATS[1:][i % 3]) for i, (name, value) in enumerate(stored.items())}
    shard_of = {name: SHARDS[3 * i // len(tensors)] for i, name in enumerate(tensors)}
    for shard in SHARDS:
        torch.save({name: tensors[name] for name in tensors if shard_of[name] == shard}, folder / shard)
    write_index(folder, shard_of)
    return tensors, shard_of


def write_index(folder: Path, shard_of: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))


def test_mixed_shards_load_in_the_dtype_that_is_asked_for(tmp_path):
    tensors, _ = write_shards(tmp_path)
    assert_same(open_weights(tmp_path, TORCH), tensors)
    assert set(open_published(tmp_path).files) >= {*SHARDS, "config.json", "tokenizer.json"}
    assert INDEX not in open_published(tmp_path).files
    params = hub.load(tmp_path, dtype=jnp.bfloat16).params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    stored = tensors["model.embed_tokens.weight"].to(torch.bfloat16)
    assert np.asarray(params.embedding).tobytes() == bits(stored)


def test_shards_that_are_missing_doubled_or_cut_are_named_with_keys(tmp_path):
    tensors, shard_of = write_shards(tmp_path)
    first, _, last = ([name for name in tensors if shard_of[name] == shard] for shard in SHARDS)
    write_index(tmp_path, {name: shard for name, shard in shard_of.items() if name != last[0]} | {"ghost": SHARDS[2]})
    torch.save({name: tensors[name] for name in [*last, first[0]]}, tmp_path / SHARDS[2])
    (tmp_path / SHARDS[1]).unlink()
    with pytest.raises(ValueError, match=re.escape(f"{SHARDS[1]} is missing; the index puts ")) as error:
        hub.load(tmp_path)
    message = str(error.value)
    assert f"{first[0]} is stored in both {SHARDS[0]} and {SHARDS[2]}" in message
    assert f"ghost is not in {SHARDS[2]}" in message
    assert f"{last[0]} is in {SHARDS[2]}, but the index does not say so" in message


@pytest.mark.parametrize("kept", [0.99, 0.5, 0.01, 0.0])
def test_a_shard_cut_short_is_named_with_a_key(tmp_path, kept):
    _, shard_of = write_shards(tmp_path)
    data = (tmp_path / SHARDS[0]).read_bytes()
    (tmp_path / SHARDS[0]).write_bytes(data[: int(kept * len(data))])
    with pytest.raises(
        ValueError, match=f"{SHARDS[0]} is no whole file of PyTorch; it should hold {next(iter(shard_of))}"
    ):
        hub.load(tmp_path)


def _decoder(folder: Path) -> Path:
    return write_checkpoint(folder, CONFIG, random_params(CONFIG), byte_tokenizer())


def _encoder(folder: Path) -> Path:
    cfg = tiny_encoder_config("bert")
    return write_checkpoint(folder, cfg, random_encoder_params(cfg), encoder_tokenizer("bert"))


def _t5(folder: Path) -> Path:
    cfg = tiny_t5_config(tied_head=True)
    return write_checkpoint(folder, cfg, random_params(cfg), byte_tokenizer())


MORE = {
    _decoder: lambda tensors: {},
    _encoder: lambda tensors: {"embeddings.position_ids": torch.arange(9).expand(1, -1)},
    _t5: lambda tensors: dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), tensors["shared.weight"]
    ),
}


@pytest.fixture(params=MORE, ids=lambda write: write.__name__.strip("_"))
def twins(request, tmp_path) -> tuple[Path, Path]:
    """A folder of safetensors, and one with the same tensors as PyTorch publishes them: buffers and tied ones too."""
    folder = request.param(tmp_path / "safetensors")
    twin = shutil.copytree(folder, tmp_path / "torch")
    tensors = load_file(twin / "model.safetensors")
    (twin / "model.safetensors").unlink()
    torch.save(tensors | MORE[request.param](tensors), twin / "pytorch_model.bin")
    return folder, twin


def same(a, b) -> bool:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a, b))


def test_a_whole_folder_loads_and_converts_as_its_twin_of_safetensors(twins, tmp_path):
    theirs, mine = (hub.load(folder) for folder in twins)
    assert same(mine.params, theirs.params)
    assert mine.config == theirs.config
    assert mine.fingerprint != theirs.fingerprint
    (first, ledger), (second, other) = (
        convert_model(str(folder), str(tmp_path / f"{folder.name}-converted"), jnp.bfloat16) for folder in twins
    )
    assert other.entries == ledger.entries
    loaded = [hub.load(folder, dtype=jnp.bfloat16) for folder in (second, first)]
    assert same(loaded[0].params, loaded[1].params)
    assert checkpoint.read_manifest(second)["bytes"] == checkpoint.read_manifest(first)["bytes"]


def test_tied_tensors_that_differ_are_refused(tmp_path):
    folder = _t5(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors | {"lm_head.weight": tensors["shared.weight"] + 1}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"ties lm_head\.weight to shared\.weight"):
        hub.load(folder)


def test_a_folder_that_holds_both_is_read_from_safetensors(tmp_path):
    folder = _decoder(tmp_path)
    fingerprint, params = hub.load(folder).fingerprint, hub.load(folder).params
    torch.save({"of another model": torch.zeros(1)}, folder / "pytorch_model.bin")
    write_index(folder, {"of another model": "pytorch_model.bin"})
    again = hub.load(folder)
    assert again.fingerprint == fingerprint
    assert same(again.params, params)


@pytest.mark.parametrize("place", ["torch", "safetensors", "both"])
def test_pytorch_files_are_fetched_only_where_there_are_no_safetensors(twins, tmp_path, monkeypatch, place):
    from huggingface_hub.utils import filter_repo_objects

    hosted = tmp_path / "hosted"
    for folder in twins:
        if place in (folder.name, "both"):
            shutil.copytree(folder, hosted, dirs_exist_ok=True)
    for extra in ("pytorch_model.generator.bin", "tf_model.h5", "training_args.bin"):
        (hosted / extra).touch()
    cache = tmp_path / "cache"
    cache.mkdir()

    def snapshot(name, **patterns):
        for file in filter_repo_objects([path.name for path in hosted.iterdir()], **patterns):
            shutil.copy(hosted / file, cache / file)
        return str(cache)

    monkeypatch.setenv("RAGJAX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert same(hub.load("org/name").params, hub.load(twins[0]).params)
    wanted = "pytorch_model.bin" if place == "torch" else "model.safetensors"
    weights = {path.name for path in cache.iterdir() if path.suffix in (".bin", ".safetensors", ".h5")}
    assert weights == {wanted}
