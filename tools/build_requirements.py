"""What `pip install --no-build-isolation -e .` needs to be installed, one requirement in each line.
For `make lock`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    print(*project["build-system"]["requires"], "editables", sep="\n")
