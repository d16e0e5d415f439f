"""The state files of Azure's plugins: one key, one object, and whether the machine was started since it was written."""

from __future__ import annotations

from typing import Any, Final

import orjson

from transom.network.cni.plugin import Machine
from transom.network.cni.windows.shim import Failed

FOLDER: Final = r"C:\k"


def read_state(machine: Machine, path: str, key: str) -> tuple[dict[str, Any], bool]:
    files = machine.files
    if not files.exists(path):
        return {}, False
    try:
        state = orjson.loads(files.read(path)).get(key, {})
    except ValueError as error:
        raise Failed(str(error)) from error
    return state, machine.booted() > files.stat(path).mtime


def write_state(machine: Machine, path: str, key: str, state: dict[str, Any]) -> None:
    machine.files.mkdir(FOLDER)
    machine.files.write(path, orjson.dumps({key: state}))
