"""A few seeds for every change; `make simulate SEEDS=1000` runs more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent.parent


def _play(seed: int) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a seed is only the same where the hashes of strings are."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
    env = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("seed", range(1, 8))
def test_it_ends_well(seed: int) -> None:
    played = _play(seed)
    assert played.returncode == 0, (
        f"{played.stdout}{played.stderr}replay it: python -m tests.simulation --seed {seed} -v"
    )


def test_a_seed_is_always_the_same() -> None:
    digests = [re.findall(r"\d+ writes, digest \w+", _play(8).stdout) for _ in range(2)]
    assert digests[0] == digests[1] and len(digests[0]) == 1
