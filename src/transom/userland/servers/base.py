"""What all server programs have in common: how they end, and how they write their log."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from typing import Any

from transom.kit.task_set import TaskSet
from transom.userland.api import ProgramContext
from transom.userland.preemption import start_preemptible
from transom.userland.process import CONTROL_C_EXIT, IGNORED_BY_DEFAULT, SIGNAL_NUMBERS
from transom.userland.servers.http import Handler, ProgramHttpServer, Raw, Tls
from transom.userland.termination import termination_code


class ServerProgram:
    """A program that waits for connections. `on_signal` returns True if it has handled a signal."""

    def __init__(self, context: ProgramContext) -> None:
        self.context = context
        self._http: list[ProgramHttpServer] = []
        self._tasks = TaskSet()
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
        code = termination_code(name, windows=self.context.os == "windows")
        if code is not None:
            self.exit(code)
        else:
            self.on_signal(name)

    def kill(self) -> None:
        self.ended = True
        for close in self._closers:
            close()
        for server in self._http:
            server.close(but_current=bool(self._http))
        self._tasks.cancel_others()

    def as_handled(self, name: str) -> bool:
        """A server that exits with 0 on signals."""
        if name in ("SIGTERM", "SIGINT", "SIGQUIT") or name.startswith("CTRL_"):
            self.exit(0)
            return True
        return False

    def as_go(self, name: str) -> bool:
        """A Go program without handlers: its runtime exits with 2 where the kernel protects pid 1."""
        if self.context.os == "windows":
            self.exit(CONTROL_C_EXIT)
        elif name in IGNORED_BY_DEFAULT:
            return True
        else:
            self.exit(2 if self.context.pid == 1 else 128 + SIGNAL_NUMBERS.get(name, 15))
        return True

    def as_unhandled(self, name: str) -> bool:
        """A C program without handlers: pid 1 ignores signals."""
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
        """Raises OSError if the port is not available."""
        http = ProgramHttpServer(self.context, handler, server, raw, certificate)
        http.listen(port, address)
        self._http.append(http)

    def listen(
        self, port: int, accept: Callable[[Any], Coroutine[Any, Any, None]], address: str = ""
    ) -> None:
        """Serves connections that are not HTTP: one coroutine for each."""
        self._closers.append(
            self.context.network.listen(
                port, lambda connection: self._accepted(accept, connection), address
            )
        )

    def _accepted(
        self, accept: Callable[[Any], Coroutine[Any, Any, None]], connection: Any
    ) -> None:
        connection.setblocking(False)
        self.spawn(accept(connection))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return start_preemptible(self._tasks, coroutine)

    def at_end(self, function: Callable[[], None]) -> None:
        self._closers.append(function)

    def later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> None:
        timer = self.context.clock.call_later(seconds, function, *arguments)
        self._closers.append(timer.cancel)

    # Output
    def out(self, line: str) -> None:
        self.context.terminal.out(f"{line}\n".encode("utf-8", "surrogateescape"))

    def err(self, line: str) -> None:
        self.context.terminal.err(f"{line}\n".encode("utf-8", "surrogateescape"))

    def go_log(self, line: str) -> None:
        """The format of Go's log package: the time, on standard error."""
        moment = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(self.context.clock.time()))
        self.err(f"{moment} {line}")


def why_not(error: OSError) -> str:
    """The reason why a port is not available."""
    return {errno.EADDRINUSE: "address already in use", errno.EACCES: "permission denied"}.get(
        error.errno or 0, str(error)
    )
