"""The cases that real control planes were asked, where the recordings lie beside the project."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

GOLDEN: Final = Path(__file__).parents[2] / "shared" / "golden"


@cache
def recorded_cases(file: Path) -> list[dict[str, Any]]:
    """The cases of a file, for reading only: several test modules share them. Parsed by libyaml,
    which takes a tenth of the time: every worker of a test run reads all files.
    """
    found: list[dict[str, Any]] = yaml.load(file.read_text(), yaml.CSafeLoader)
    return found
