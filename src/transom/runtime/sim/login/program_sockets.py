"""The sockets of a simulated machine, with those of the node's own programs, which are not in its table
of processes by a number of their own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from transom.runtime.sim.connections import ESTABLISHED
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.api import OpenSocket

_EPHEMERAL: Final = {"windows": (49152, 16384), "linux": (32768, 28232)}  # the first, and how many
_NAME: Final = re.compile(r"[^\\\\/]+$")


class ApiClients(Protocol):
    """The node's own programs."""

    def api_connections(self) -> Sequence[tuple[str, str, int]]:
        """Program, host and port of each connection to an API server."""


def node_sockets(
    core: SimCore, clients: ApiClients | None, processes: ProcessIdTable
) -> list[OpenSocket]:
    """Listeners and connections of all programs on the machine."""
    pids: dict[str, int] = {}
    for row in processes.list():
        match = _NAME.search(row.argv[0]) if row.argv else None
        if match is not None:
            pids.setdefault(match[0].lower().removesuffix(".exe"), row.pid)
    rows = [*core.node_namespace.sockets(), *_api_connections(core, clients, pids)]
    return [
        row if row.pid or not row.program else row._replace(pid=pids.get(row.program, 0))
        for row in rows
    ]


def _api_connections(
    core: SimCore, clients: ApiClients | None, pids: Mapping[str, int]
) -> list[OpenSocket]:
    """The clients of the node's programs are in this process and have no sockets."""
    addresses = core.node_namespace.addresses
    if clients is None or not addresses:
        return []
    first, count = _EPHEMERAL[core.os]
    out: list[OpenSocket] = []
    for program, host, port in clients.api_connections():
        digest = zlib.crc32(f"{core.host.name}/{program}/{pids.get(program)}".encode())
        own = first + digest % count
        out.append(OpenSocket("tcp", addresses[0], own, 0, host, port, ESTABLISHED, program))
    return out
