"""Redirections: which stream stands behind which number while a command runs."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from transom.runtime.sim.programs.fileview import problem
from transom.runtime.sim.programs.process import Process
from transom.runtime.sim.programs.sh import words
from transom.runtime.sim.programs.sh.tree import Redirect
from transom.runtime.sim.programs.streams import BytesSource, CallSink, Sink, Source

if TYPE_CHECKING:
    from transom.runtime.sim.programs.sh.shell import Shell

_OWN_STREAMS = {
    "/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/0": 0, "/dev/fd/1": 1, "/dev/fd/2": 2,
    "/proc/self/fd/0": 0, "/proc/self/fd/1": 1, "/proc/self/fd/2": 2, "/dev/tty": 1,
}  # fmt: skip


class RedirectFault(Exception):
    """The text follows the shell's name."""


class Descriptors:
    """The streams of a shell by number; the first three are the process's own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._table: dict[int, Source | Sink] = {0: process.stdin, 1: process.stdout, 2: process.stderr}

    def copy(self, process: Process) -> Descriptors:
        new = Descriptors(process)
        new._table = dict(self._table)
        new.give_to(process)
        return new

    def put(self, number: int, stream: Source | Sink) -> None:
        self._table[number] = stream
        self.give_to(self._process)

    def take_from(self, process: Process) -> None:
        self._table.update({0: process.stdin, 1: process.stdout, 2: process.stderr})

    def give_to(self, process: Process) -> None:
        table = self._table
        process.stdin = cast(Source, table.get(0) or BytesSource())
        process.stdout = cast(Sink, table.get(1) or CallSink(_closed))
        process.stderr = cast(Sink, table.get(2) or CallSink(_closed))

    def save(self) -> dict[int, Source | Sink]:
        return dict(self._table)

    def restore(self, saved: dict[int, Source | Sink]) -> None:
        self._table = saved
        self.give_to(self._process)

    async def apply(self, shell: Shell, redirects: Sequence[Redirect]) -> None:
        for redirect in redirects:
            await self._apply(shell, redirect)
        self.give_to(self._process)

    async def _apply(self, shell: Shell, redirect: Redirect) -> None:
        operator, number = redirect.operator, redirect.fd
        target = await words.text(shell, redirect.target)
        table = self._table
        if operator in ("<<", "<<-"):
            table[number] = BytesSource(target.encode("utf-8", "surrogateescape"))
        elif operator == "<<<":
            table[number] = BytesSource(target.encode("utf-8", "surrogateescape") + b"\n")
        elif operator in (">&", "<&") and (target == "-" or target.isdigit()):
            if target == "-":
                table.pop(number, None)
            elif int(target) in table:
                table[number] = table[int(target)]
            else:
                raise RedirectFault(f"{target}: Bad file descriptor")
        elif operator in ("&>", "&>>") or (operator == ">&" and number == 1):
            table[1] = table[2] = self._open(shell, target, operator.endswith(">>"))
        elif operator in ("<", "<>"):
            table[number] = self._read(shell, target)
        else:
            table[number] = self._open(shell, target, operator == ">>")

    def _read(self, shell: Shell, target: str) -> Source:
        own = _OWN_STREAMS.get(target)
        if own is not None and own in self._table:
            return cast(Source, self._table[own])
        try:
            return self._process.files.source(target)
        except OSError as error:
            if shell.bash:
                raise RedirectFault(f"{target}: {problem(error)}") from None
            missing = error.errno == errno.ENOENT
            raise RedirectFault(f"can't open {target}: {'no such file' if missing else problem(error)}") from None

    def _open(self, shell: Shell, target: str, append: bool) -> Sink:
        own = _OWN_STREAMS.get(target)
        if own is not None and own in self._table:
            return cast(Sink, self._table[own])
        try:
            return self._process.files.sink(target, append)
        except OSError as error:
            if shell.bash:
                raise RedirectFault(f"{target}: {problem(error)}") from None
            missing = error.errno == errno.ENOENT
            raise RedirectFault(f"can't create {target}: {'nonexistent directory' if missing else problem(error)}") from None


def _closed(data: bytes) -> None:
    return


@asynccontextmanager
async def redirected(shell: Shell, redirects: Sequence[Redirect]) -> AsyncIterator[None]:
    if not redirects:
        yield
        return
    saved = shell.descriptors.save()
    try:
        await shell.descriptors.apply(shell, redirects)
        yield
    finally:
        shell.descriptors.restore(saved)
