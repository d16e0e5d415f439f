"""The ports that the programs of a node listen on.

On a simulated machine they are sockets of the machine, which its commands show. Elsewhere they
exist at the node's addresses and at its loopback address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from transom.http.messages import Handler
from transom.http.server import HttpServer
from transom.kit.task_set import TaskSet
from transom.network.api import Accept
from transom.node.programs.host import ProgramHost
from transom.runtime.sim.engine import SimRuntime

_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_LOOPBACK: Final = "127.0.0.1"


class ProgramListener:
    """Listens for one program of a node."""

    def __init__(self, node: ProgramHost, program: str) -> None:
        self._node = node
        self._program = program

    def listen(self, address: str, port: int, accept: Accept) -> Callable[[], None]:
        """`address` is empty for all addresses. Raises OSError."""
        node, runtime = self._node, self._node.runtime
        wanted = "" if address in _EVERYWHERE else address
        if isinstance(runtime, SimRuntime):
            namespace = runtime.core.node_namespace
            return namespace.listen(port, accept, wanted, program=self._program)
        reachable = [one for one in node.network.addresses if wanted in ("", one)]
        listen = node.cluster.dataplane.listen
        closers = [listen(one, port, accept) for one in reachable]
        if wanted in ("", _LOOPBACK):
            closers.append(listen(_LOOPBACK, port, accept, node.spec.name))

        def close() -> None:
            for closer in closers:
                closer()

        return close

    def serve(
        self, address: str, port: int, make_handler: Callable[[], Handler]
    ) -> Callable[[], None]:
        """Serves plain HTTP, with a handler that is made for the first connection. Raises OSError."""
        servers: list[HttpServer] = []
        tasks = TaskSet()

        def accept(connection: socket.socket) -> None:
            if not servers:
                servers.append(HttpServer(make_handler(), None))
            tasks.start(servers[0].adopt(connection))

        stop = self.listen(address, port, accept)

        def end() -> None:
            stop()
            tasks.cancel()

        return end
