"""The mounts for the Unix half of stand-ins: this package and the Python that runs it,
read-only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import transom

FOLDER: Final = "standin"  # in the container's root
_PACKAGE: Final = f"/{FOLDER}/transom"
START: Final = f"{FOLDER}/start"


def _python() -> Path:
    """The interpreter itself: in a virtual environment it is a link."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def binds(seen: Iterable[str]) -> list[tuple[str, str]]:
    """Sources and destinations, in addition to the directories that a container sees anyway."""
    prefix, package = os.path.realpath(sys.base_prefix), Path(transom.__file__).parent
    # in an archive, which cannot be mounted: stand-ins report that they cannot be started
    if not package.is_dir():
        return []
    there = any(Path(prefix).is_relative_to(folder) for folder in seen)
    return [(str(package), _PACKAGE), *([] if there else [(prefix, prefix)])]


def script() -> str:
    """The command that the Win32 half starts."""
    return (
        f"#!{_python()} -IS\n"
        f"import sys\n"
        f"sys.path.insert(0, '/{FOLDER}')\n"
        f"from transom.runtime.wine.standin.main import main\n"
        f"main()\n"
    )
