"""The sockets that kubelet.exe and kube-proxy.exe of a Windows machine listen on."""

from __future__ import annotations

from typing import Final, NamedTuple

from transom.runtime.sim.login.machine import WindowsMachine, binary_of
from transom.userland.api import OpenSocket


class _Listener(NamedTuple):
    flag: str  # the flag for the port, or for an address with a port
    port: int  # the default


_LISTENERS: Final = {
    "kubelet": _Listener("--port", 10250),
    "kube-proxy": _Listener("--healthz-bind-address", 10256),
}


def program_sockets(machine: WindowsMachine) -> list[OpenSocket]:
    """A program holds its port until it has ended, even after its process was killed."""
    out: list[OpenSocket] = []
    for binary, listener in _LISTENERS.items():
        if machine.binaries.running(binary) is None:
            continue
        rows = [row for row in machine.processes.list() if row.argv]
        row = next((row for row in rows if binary_of(row.argv[0]) == binary), None)
        address, port = "0.0.0.0", listener.port
        for word in row.argv if row is not None else ():
            name, equals, value = word.partition("=")
            host, _, digits = value.rpartition(":")
            if name == listener.flag and equals and digits.isdigit():
                address, port = host or address, int(digits)
        if port:
            out.append(OpenSocket("tcp", address, port, row.pid if row is not None else 0))
    return out
