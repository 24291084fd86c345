"""A mesh changes where arrays lie and no result: `eight_devices.py`, in a process that has them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("eight_devices.py")
NAMES = re.findall(r"^def (test_\w+)", FILE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def told() -> str:
    """What pytest tells of the file, its compiler quick and its devices eight."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=FILE.parents[1])
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_on_eight_devices(told, name):
    outcomes = re.findall(rf"^([A-Z]+) \S+::{name}\b", told, re.MULTILINE)
    assert outcomes, told
    assert set(outcomes) == {"PASSED"}, told
