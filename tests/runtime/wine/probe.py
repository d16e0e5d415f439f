"""The Windows program that tests run: how it is built (`python -m tests.runtime.wine.probe`) and
where it is.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from transom.runtime.wine import helpers

FOLDER = Path(__file__).parent / "programs"
PROBE = dataclasses.replace(
    helpers.HELPERS["winrun.exe"],
    name="probe.exe",
    sources=("probe.c",),
    libraries=("-lkernel32", "-lntdll", "-lws2_32", "-ladvapi32", "-lshell32", "-luser32"),
)

PATH = r"C:\app\probe.exe"  # where `layer` has it


def layer(folder: Path) -> Path:
    """A layer of an image that has the program."""
    if not (folder / "app").is_dir():
        (folder / "app").mkdir(parents=True)
        shutil.copy(FOLDER / "probe.exe", folder / "app")
    return folder


if __name__ == "__main__":
    helpers.rebuild_helpers(FOLDER, (PROBE,), FOLDER)
