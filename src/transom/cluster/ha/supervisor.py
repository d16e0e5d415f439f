"""The first process of a cluster with several API servers: it starts all others, restarts those that
end, and forwards connections to the servers that are ready.

It does nothing else, so that no failure of a component ends it. When it ends, the kernel ends the
others. Its control socket takes one JSON request per connection and answers with lines of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from transom.cluster.config import ClusterConfig
from transom.cluster.ha import layout
from transom.cluster.ha.balancer import ServerBackend, TcpBalancer
from transom.cluster.ha.members import MEMBER_STOP_SECONDS, make_members
from transom.cluster.ha.processes import ManagedProcess
from transom.cluster.ha.sockets import connect_unix, listen_unix
from transom.cluster.pki import ClusterPki
from transom.kit.process import run_event_loop
from transom.kit.user_errors import UserError

log = logging.getLogger("transom.cluster")

CONTROL: Final = "supervisor.sock"
# As in `ha.worker`, which is not imported here: the supervisor needs little of it.
_READY: Final = "ready"
_ERROR: Final = "error "
_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 8.0
_DRAIN_SECONDS: Final = 0.3  # connections that are being opened reach the old process

Report = Callable[[str], None]


def run_supervisor(
    config: ClusterConfig, pki: ClusterPki, sockets: Sequence[socket.socket], report: Report
) -> None:
    """Serves until SIGTERM or SIGINT."""
    run_event_loop(_supervise(config, pki, sockets, report))


async def _supervise(
    config: ClusterConfig, pki: ClusterPki, sockets: Sequence[socket.socket], report: Report
) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    group = ServerGroup(config, pki, sockets, report)
    control = asyncio.create_task(_serve_control(config, group))
    try:
        starting = asyncio.create_task(group.start())
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            report("")
            await stopped
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        log.info("stopping")
    finally:
        control.cancel()
        await asyncio.gather(control, return_exceptions=True)
        await group.stop()
        (config.state / CONTROL).unlink(missing_ok=True)
    log.info("stopped")


class ServerGroup:
    """All processes of the cluster and the load balancer in front of its servers."""

    def __init__(
        self,
        config: ClusterConfig,
        pki: ClusterPki,
        sockets: Sequence[socket.socket],
        report: Report,
    ) -> None:
        self._config = config
        self._sockets = sockets
        self._report = report
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._nodes_ready = asyncio.Event()
        self._restarting = asyncio.Lock()
        self._is_starting = True
        tls = ssl.create_default_context(cafile=pki.ca)
        names = [f"server-{number}" for number in range(1, config.servers + 1)]
        self.balancer = TcpBalancer(
            [
                ServerBackend(name, layout.LOCAL, port)
                for name, port in zip(names, config.server_ports, strict=True)
            ],
            tls,
        )
        self.servers = [self._worker(name) for name in names]
        self.nodes = None if config.no_nodes else self._worker("nodes")
        self.members = make_members(config)

    def _worker(self, role: str) -> ManagedProcess:
        command = [sys.executable, "-P", "-m", "transom.cluster.ha.worker", role, self._config.name]
        return ManagedProcess(role, command, on_line=lambda line: self._line(role, line))

    def _line(self, role: str, line: str) -> None:
        if line.startswith(_ERROR) and self._is_starting:
            if not self._failed.done():
                self._failed.set_exception(UserError(*json.loads(line.removeprefix(_ERROR))))
        elif line == _READY:
            if role == "nodes":
                self._nodes_ready.set()
        elif self._is_starting:
            self._report(line)

    async def start(self) -> None:
        """Returns when all servers and nodes are ready."""
        await self.balancer.start(self._sockets)
        for process in (*self.members, *self.servers):
            await process.start()
        if self.nodes is not None:
            await self.nodes.start()
        members = f" and {len(self.members)} etcd members" if self.members else ""
        self._report(f"starting {len(self.servers)} API servers{members}")
        ready = asyncio.create_task(self._all_ready())
        await asyncio.wait((ready, self._failed), return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            ready.cancel()
            self._failed.result()
        await ready
        self._is_starting = False

    async def _all_ready(self) -> None:
        waiting = [self.balancer.wait_ready(server.name, _START_SECONDS) for server in self.servers]
        if not all(await asyncio.gather(*waiting)):
            late = [one.name for one in self.balancer.backends if not one.ready]
            raise UserError(f"{', '.join(late)} did not become ready", f"see {self._config.log}")
        if self.nodes is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await self._nodes_ready.wait()

    async def stop(self) -> None:
        if self.nodes is not None:
            await self.nodes.stop(_STOP_SECONDS)
        await asyncio.gather(*(server.stop(_STOP_SECONDS) for server in self.servers))
        await self.balancer.stop()
        # A leader that ends waits 7 s for another member to lead, and none stays. Their logs are
        # synced: ending them at once loses nothing.
        await asyncio.gather(*(member.stop(MEMBER_STOP_SECONDS) for member in self.members))

    def status(self) -> dict[str, Any]:
        ready = {one.name: one.status() for one in self.balancer.backends}
        return {
            "servers": [{**one.status(), **ready[one.name]} for one in self.servers],
            "etcd": [one.status() for one in self.members],
            "nodes": None if self.nodes is None else self.nodes.status(),
        }

    async def restart_servers(self, progress: Callable[[str], None]) -> None:
        """Restarts the servers one after the other. The others serve meanwhile."""
        async with self._restarting:
            for server in self.servers:
                await self.balancer.drain(server.name)
                await asyncio.sleep(_DRAIN_SECONDS)
                await server.restart(_STOP_SECONDS)
                await self.balancer.restarted(server.name)
                if not await self.balancer.wait_ready(server.name, _START_SECONDS):
                    raise UserError(
                        f"{server.name} is not ready after its restart; the others still serve",
                        f"see {self._config.log}",
                    )
                progress(f"{server.name} is restarted")

    async def restart_nodes(self, progress: Callable[[str], None]) -> None:
        """Restarts the process of the nodes, and with it all their containers."""
        if self.nodes is None:
            return
        async with self._restarting:
            self._nodes_ready.clear()
            await self.nodes.restart(_STOP_SECONDS)
            async with asyncio.timeout(_START_SECONDS):
                await self._nodes_ready.wait()
            progress("the process of the nodes is restarted")


# ---- control ----


async def _serve_control(config: ClusterConfig, group: ServerGroup) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def answer(value: Any) -> None:
            writer.write(json.dumps(value).encode() + b"\n")

        try:
            request = json.loads(await reader.readline() or b"{}")
            if not isinstance(request, dict):
                raise ValueError("a command is a mapping")
            match request.get("command"):
                case "status":
                    answer(group.status())
                case "restart":
                    # A client of the version before names no parts.
                    parts = request.get("parts", ["servers", "nodes"])
                    if "servers" in parts:
                        await group.restart_servers(lambda text: answer({"progress": text}))
                    if "nodes" in parts:
                        await group.restart_nodes(lambda text: answer({"progress": text}))
                    answer({})
                case other:
                    answer({"error": f"unknown command {other!r}"})
        except UserError as problem:
            answer({"error": problem.message, "hint": problem.hint})
        except TimeoutError:
            answer({"error": "the nodes are not ready after their restart"})
        except (OSError, ValueError, RecursionError) as problem:
            answer({"error": str(problem)})
        finally:
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

    server = await asyncio.start_unix_server(serve, sock=listen_unix(config.state / CONTROL))
    async with server:
        await server.serve_forever()


def ask_supervisor(
    config: ClusterConfig,
    command: str,
    on_progress: Callable[[str], None] = lambda _text: None,
    timeout: float = 5.0,
    **options: Any,
) -> dict[str, Any]:
    """Sends a command to the supervisor of a running cluster. Raises UserError."""
    try:
        with connect_unix(config.state / CONTROL, timeout) as sock:
            sock.sendall(json.dumps({"command": command, **options}).encode() + b"\n")
            with sock.makefile("rb") as lines:
                for line in lines:
                    found: dict[str, Any] = json.loads(line)
                    if "progress" in found:
                        on_progress(found["progress"])
                        continue
                    if "error" in found:
                        raise UserError(found["error"], found.get("hint", ""))
                    return found
    except OSError as problem:
        text = problem.strerror or os.strerror(problem.errno or 0)
        raise UserError(f"cluster {config.name!r} does not respond: {text}") from problem
    raise UserError(f"cluster {config.name!r} ended the request")
