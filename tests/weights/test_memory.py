"""Converting and loading stay within: converted bytes + 2.5 x the largest tensor + 100 MiB of anonymous memory."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from ragjax.models.config import DecoderConfig
from ragjax.models.decoder import abstract
from ragjax.testing import byte_tokenizer, raw_config, tiny_config
from ragjax.weights.keymap import claims, leaf_specs, to_disk
from ragjax.weights.safetensors_reader import SAFETENSORS
from ragjax.weights.tables import table_of

MIB = 2**20
WIDE = {"vocab_size": 4096, "hidden_size": 1024, "num_heads": 16, "num_kv_heads": 4, "head_dim": 64}
CONFIGS = {
    "llama": tiny_config(num_layers=5, intermediate_size=4096, tied_head=True, **WIDE),
    "mixtral": tiny_config("mixtral", num_layers=3, intermediate_size=1024, num_experts=6, **WIDE),
}


def save_torch(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    torch.save({name: torch.from_numpy(t.view(np.int16)).view(torch.bfloat16) for name, t in tensors.items()}, path)


FORMATS = {"model.safetensors": save_file, "pytorch_model.bin": save_torch}


@pytest.fixture(
    scope="module",
    params=[("llama", "model.safetensors"), ("mixtral", "model.safetensors"), ("llama", "pytorch_model.bin")],
    ids="-".join,
)
def large(request, tmp_path_factory) -> tuple[DecoderConfig, Path]:
    """A model of about 300 MB in float32, stored as bfloat16 in one shard per layer."""
    family, file = request.param
    cfg, folder = CONFIGS[family], tmp_path_factory.mktemp("large")
    generator = np.random.default_rng(0)  # noise throughout: what compresses well would hide copies in flight
    shards: dict[str, dict[str, np.ndarray]] = {}
    for path, spec in leaf_specs(abstract(cfg, np.float32)).items():
        shard = f"{path.split('.')[1] if path.startswith('layers') else 'rest'}-{file}"
        for entry in claims(table_of(cfg, ()), path, spec, []):
            stored = to_disk(np.broadcast_to(np.int8(0), entry.shape), entry.layout).shape
            values = generator.standard_normal(stored, dtype=np.float32)
            shards.setdefault(shard, {})[entry.name] = values.astype(ml_dtypes.bfloat16)
    weight_map = {name: shard for shard, tensors in shards.items() for name in tensors}
    for shard, tensors in shards.items():
        FORMATS[file](tensors, folder / shard)
    (folder / f"{file}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(raw_config(cfg)))
    byte_tokenizer().save_pretrained(folder)
    return cfg, folder


def _peak(what: str, source: Path, out: Path, dtype: str) -> int:
    script = Path(__file__).with_name("measure_memory.py")
    command = [sys.executable, str(script), what, str(source), str(out), dtype]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])["peak"]


def _bound(cfg: DecoderConfig, dtype: str) -> float:
    sizes = [int(np.prod(spec.shape)) * np.dtype(dtype).itemsize for spec in jax.tree.leaves(abstract(cfg, dtype))]
    return sum(sizes) + 2.5 * max(sizes) + 100 * MIB


def test_conversion_and_loading_stay_within_the_memory_bound(large, tmp_path):
    cfg, folder = large
    out = tmp_path / "converted"
    runs = [("convert", folder, "float32"), ("load", folder, "bfloat16")]
    if SAFETENSORS.is_in(folder):  # A checkpoint is the same, whatever it was converted from.
        runs.append(("load", out, "float32"))
    for what, source, dtype in runs:
        peak, bound = _peak(what, source, out, dtype), _bound(cfg, dtype)
        print(f"{what} {source.name} {dtype}: {peak / MIB:.0f} MiB, bound {bound / MIB:.0f} MiB")
        assert peak <= bound
