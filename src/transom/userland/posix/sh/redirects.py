"""Redirections: the streams of a shell by descriptor number."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from transom.userland.files import error_text
from transom.userland.posix.sh import words
from transom.userland.posix.sh.tree import ShellRedirect
from transom.userland.process import Process
from transom.userland.streams import ByteSink, ByteSource, BytesSource, CallSink

if TYPE_CHECKING:
    from transom.userland.posix.sh.shell import Shell

_OWN_STREAMS = {
    "/dev/stdin": 0,
    "/dev/stdout": 1,
    "/dev/stderr": 2,
    "/dev/fd/0": 0,
    "/dev/fd/1": 1,
    "/dev/fd/2": 2,
    "/proc/self/fd/0": 0,
    "/proc/self/fd/1": 1,
    "/proc/self/fd/2": 2,
    "/dev/tty": 1,
}


class RedirectFault(Exception):
    """Its text follows the shell's name."""


class SavedDescriptors(NamedTuple):
    sources: dict[int, ByteSource]
    sinks: dict[int, ByteSink]


class Descriptors:
    """The streams of a shell by number; the first three are the process's own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._sources: dict[int, ByteSource] = {0: process.stdin}
        self._sinks: dict[int, ByteSink] = {1: process.stdout, 2: process.stderr}

    def copy(self, process: Process) -> Descriptors:
        new = Descriptors(process)
        new.restore(self.save())
        return new

    def set_source(self, number: int, stream: ByteSource) -> None:
        self._sinks.pop(number, None)
        self._sources[number] = stream

    def set_sink(self, number: int, stream: ByteSink) -> None:
        self._sources.pop(number, None)
        self._sinks[number] = stream

    def close(self, number: int) -> None:
        self._sources.pop(number, None)
        self._sinks.pop(number, None)

    def duplicate(self, number: int, other: int) -> bool:
        """False when `other` is not open."""
        source, sink = self._sources.get(other), self._sinks.get(other)
        if source is not None:
            self.set_source(number, source)
        elif sink is not None:
            self.set_sink(number, sink)
        return source is not None or sink is not None

    def take_from(self, process: Process) -> None:
        self.set_source(0, process.stdin)
        self.set_sink(1, process.stdout)
        self.set_sink(2, process.stderr)

    def give_to(self, process: Process) -> None:
        process.stdin = self._sources.get(0) or BytesSource()
        process.stdout = self._sinks.get(1) or CallSink(_closed)
        process.stderr = self._sinks.get(2) or CallSink(_closed)

    def save(self) -> SavedDescriptors:
        return SavedDescriptors(dict(self._sources), dict(self._sinks))

    def restore(self, saved: SavedDescriptors) -> None:
        self._sources, self._sinks = saved
        self.give_to(self._process)

    async def apply(self, shell: Shell, redirects: Sequence[ShellRedirect]) -> None:
        for redirect in redirects:
            await self._apply(shell, redirect)
        self.give_to(self._process)

    async def _apply(self, shell: Shell, redirect: ShellRedirect) -> None:
        operator, number = redirect.operator, redirect.fd
        target = await words.expand_text(shell, redirect.target)
        if operator in ("<<", "<<-"):
            self.set_source(number, BytesSource(target.encode("utf-8", "surrogateescape")))
        elif operator == "<<<":
            text = target.encode("utf-8", "surrogateescape") + b"\n"
            self.set_source(number, BytesSource(text))
        elif operator in (">&", "<&") and (target == "-" or target.isdigit()):
            if target == "-":
                self.close(number)
            elif not self.duplicate(number, int(target)):
                raise RedirectFault(f"{target}: Bad file descriptor")
        elif operator in ("&>", "&>>") or (operator == ">&" and number == 1):
            sink = self._open(shell, target, operator.endswith(">>"))
            self.set_sink(1, sink)
            self.set_sink(2, sink)
        elif operator in ("<", "<>"):
            self.set_source(number, self._read(shell, target))
        else:
            self.set_sink(number, self._open(shell, target, operator == ">>"))

    def _read(self, shell: Shell, target: str) -> ByteSource:
        own = self._sources.get(_OWN_STREAMS.get(target, -1))
        if own is not None:
            return own
        try:
            return self._process.files.source(target)
        except OSError as error:
            if shell.bash:
                raise RedirectFault(f"{target}: {error_text(error)}") from None
            missing = error.errno == errno.ENOENT
            raise RedirectFault(
                f"can't open {target}: {'no such file' if missing else error_text(error)}"
            ) from None

    def _open(self, shell: Shell, target: str, append: bool) -> ByteSink:
        own = self._sinks.get(_OWN_STREAMS.get(target, -1))
        if own is not None:
            return own
        try:
            return self._process.files.sink(target, append)
        except OSError as error:
            if shell.bash:
                raise RedirectFault(f"{target}: {error_text(error)}") from None
            missing = error.errno == errno.ENOENT
            raise RedirectFault(
                f"can't create {target}: {'nonexistent directory' if missing else error_text(error)}"
            ) from None


def _closed(data: bytes) -> None:
    return


@asynccontextmanager
async def redirected(shell: Shell, redirects: Sequence[ShellRedirect]) -> AsyncIterator[None]:
    if not redirects:
        yield
        return
    saved = shell.descriptors.save()
    try:
        await shell.descriptors.apply(shell, redirects)
        yield
    finally:
        shell.descriptors.restore(saved)
