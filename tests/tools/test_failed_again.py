"""`make test` runs failed tests once more, alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
from pathlib import Path
def test_fails_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
ALWAYS_FAILS = "def test_always_fails():\n    assert False\n"
MANY = (
    "import pytest\n@pytest.mark.parametrize('n', range(31))\ndef test_many(n):\n    assert False\n"
)


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        (FAILS_ONCE, 0, "Passed only when run alone:\n  test_it.py::test_fails_once"),
        (ALWAYS_FAILS, 1, "Failed again:\n  test_it.py::test_always_fails"),
        (MANY, 1, "31 tests failed; up to 30 are run again."),
    ],
)
def test_failed_tests_run_again_alone(tmp_path: Path, source: str, code: int, text: str) -> None:
    (tmp_path / "test_it.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    again = subprocess.run(
        [sys.executable, "-m", "tools.failed_again"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, text in again.stdout) == (code, True), again.stdout
