"""The state files of Azure's plugins: one key, one object, and whether the machine has rebooted
since it was written.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from transom.machines.smallfiles import read_small_file
from transom.network.cni.plugin import CniNode
from transom.network.cni.windows.shim import HcsshimFailed

FOLDER: Final = r"C:\k"


def read_state(machine: CniNode, path: str, key: str) -> tuple[dict[str, Any], bool]:
    files = machine.files
    if not files.exists(path):
        return {}, False
    try:
        state = orjson.loads(read_small_file(files, path)).get(key, {})
    except ValueError as error:
        raise HcsshimFailed(str(error)) from error
    return state, machine.booted() > files.stat(path).mtime


def write_state(machine: CniNode, path: str, key: str, state: dict[str, Any]) -> None:
    machine.files.mkdir(FOLDER)
    machine.files.write(path, orjson.dumps({key: state}))
