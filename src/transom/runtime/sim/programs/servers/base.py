"""What every program that serves has in common: how it ends, and how it writes its log."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from typing import Any

from transom.runtime.sim.program_api import ProgramContext
from transom.runtime.sim.programs.process import CONTROL_C_EXIT, IGNORED_BY_DEFAULT, SIGNAL_NUMBERS
from transom.runtime.sim.programs.servers.http import Handler, HttpServer, Raw, Tls


class Server:
    """A program that waits for connections. `on_signal` may answer True: it has taken care of a signal."""

    def __init__(self, context: ProgramContext) -> None:
        self.context = context
        self._http: list[HttpServer] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closers: list[Callable[[], None]] = []
        self.on_signal: Callable[[str], bool] = self.as_handled
        self.ended = False

    # Ends
    def exit(self, code: int) -> None:
        if not self.ended:
            self.ended = True
            self.context.exit(code)
            self.kill()

    def signal(self, name: str) -> None:
        if not self.on_signal(name) and name == "SIGKILL":
            self.exit(137)

    def kill(self) -> None:
        self.ended = True
        for close in self._closers:
            close()
        for server in self._http:
            server.close(but_current=bool(self._http))
        current = asyncio.current_task() if self._tasks else None
        for task in tuple(self._tasks):
            if task is not current:
                task.cancel()

    def as_handled(self, name: str) -> bool:
        """A server that ends with 0 when it is told to."""
        if name in ("SIGTERM", "SIGINT", "SIGQUIT") or name.startswith("CTRL_"):
            self.exit(0)
            return True
        return False

    def as_go(self, name: str) -> bool:
        """A Go program without handlers: its runtime ends it with 2 where the kernel spares pid 1."""
        if self.context.os == "windows":
            self.exit(CONTROL_C_EXIT)
        elif name in IGNORED_BY_DEFAULT:
            return True
        else:
            self.exit(2 if self.context.pid == 1 else 128 + SIGNAL_NUMBERS.get(name, 15))
        return True

    def as_unhandled(self, name: str) -> bool:
        """A C program without handlers: pid 1 does not notice."""
        if self.context.os == "windows":
            self.exit(CONTROL_C_EXIT)
        elif self.context.pid != 1 and name not in IGNORED_BY_DEFAULT:
            self.exit(128 + SIGNAL_NUMBERS.get(name, 15))
        return True

    # Parts
    def serve(
        self,
        port: int,
        handler: Handler,
        *,
        server: str = "",
        raw: Raw | None = None,
        address: str = "",
        certificate: Tls | None = None,
    ) -> None:
        """OSError when the port cannot be had."""
        http = HttpServer(self.context, handler, server, raw, certificate)
        http.listen(port, address)
        self._http.append(http)

    def listen(self, port: int, accept: Callable[[Any], Coroutine[Any, Any, None]], address: str = "") -> None:
        """Connections that do not speak HTTP: a coroutine for each."""
        self._closers.append(self.context.listen(port, lambda connection: self._accepted(accept, connection), address))

    def _accepted(self, accept: Callable[[Any], Coroutine[Any, Any, None]], connection: Any) -> None:
        connection.setblocking(False)
        self.spawn(accept(connection))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def at_end(self, function: Callable[[], None]) -> None:
        self._closers.append(function)

    def later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> None:
        timer = self.context.clock.call_later(seconds, function, *arguments)
        self._closers.append(timer.cancel)

    # Output
    def out(self, line: str) -> None:
        self.context.out(f"{line}\n".encode("utf-8", "surrogateescape"))

    def err(self, line: str) -> None:
        self.context.err(f"{line}\n".encode("utf-8", "surrogateescape"))

    def go_log(self, line: str) -> None:
        """Go's log package: the time in front, on standard error."""
        moment = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(self.context.clock.time()))
        self.err(f"{moment} {line}")


def why_not(error: OSError) -> str:
    """Why a port could not be had."""
    return {errno.EADDRINUSE: "address already in use", errno.EACCES: "permission denied"}.get(error.errno or 0, str(error))
