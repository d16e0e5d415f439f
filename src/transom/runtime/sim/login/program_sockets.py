"""The sockets of a simulated machine, with those of the node's own programs, which are not in its table
of processes by a number of their own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Final

from transom.runtime.sim.connections import ESTABLISHED
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.machine import WindowsMachine
from transom.userland.api import OpenSocket

_EPHEMERAL: Final = {"windows": (49152, 16384), "linux": (32768, 28232)}  # the first, and how many
_NAME: Final = re.compile(r"[^\\\\/]+$")


def node_sockets(core: SimCore, machine: WindowsMachine | None) -> list[OpenSocket]:
    """Listeners and connections of all programs on the machine."""
    linux = core.linux_machine
    processes = machine.processes if machine is not None else linux.processes if linux else None
    pids: dict[str, int] = {}
    for row in processes.list() if processes is not None else ():
        match = _NAME.search(row.argv[0]) if row.argv else None
        if match is not None:
            pids.setdefault(match[0].lower().removesuffix(".exe"), row.pid)
    rows = [*core.node_namespace.sockets(), *_api_connections(core, machine, pids)]
    return [
        row if row.pid or not row.program else row._replace(pid=pids.get(row.program, 0))
        for row in rows
    ]


def _api_connections(
    core: SimCore, machine: WindowsMachine | None, pids: Mapping[str, int]
) -> list[OpenSocket]:
    """The clients of the node's programs are in this process and have no sockets."""
    binaries = machine.binaries if machine is not None else None
    units = core.linux_machine.units if core.linux_machine is not None else None
    source = binaries or units
    addresses = core.node_namespace.addresses
    if source is None or not addresses:
        return []
    first, count = _EPHEMERAL[core.os]
    out: list[OpenSocket] = []
    for program, host, port in source.api_connections():
        digest = zlib.crc32(f"{core.host.name}/{program}/{pids.get(program)}".encode())
        own = first + digest % count
        out.append(OpenSocket("tcp", addresses[0], own, 0, host, port, ESTABLISHED, program))
    return out
