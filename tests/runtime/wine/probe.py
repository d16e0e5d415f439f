"""The Windows program that tests run: how it is built (`python -m tests.runtime.wine.probe`) and where it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from transom.runtime.wine import helpers

FOLDER = Path(__file__).parent / "programs"
PROBE = dataclasses.replace(
    helpers.HELPERS["winrun.exe"],
    name="probe.exe",
    sources=("probe.c",),
    libraries=("-lkernel32", "-lntdll", "-lws2_32", "-ladvapi32", "-lshell32"),
)

if __name__ == "__main__":
    helpers.rebuild(FOLDER, (PROBE,), FOLDER)
