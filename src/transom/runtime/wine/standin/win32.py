"""The services of the Win32 half: reading the console, starting programs, listing and ending the
container's processes.
"""

from __future__ import annotations

import asyncio
import itertools
import ntpath
from collections.abc import Callable, Sequence
from typing import Final

from transom.kit.argv import join_arguments
from transom.runtime.wine.standin.channel import (
    FrameReader,
    StandInChannel,
    encode_numbers,
    encode_texts,
    encode_variables,
)
from transom.userland.api import NativeService, ProcessEntry, ProgramContext
from transom.userland.powershell.values import PowerShellError
from transom.userland.process import Command, Process
from transom.userland.streams import ByteSink, ByteSource
from transom.userland.termination import TASKKILL, termination_code

_OUTPUT, _ERROR, _INPUT = 1, 2, 4  # which of a child's streams are ours
_LAST_OUTPUT: Final = 1.0  # after its end, when another process keeps the pipe open
_BETWEEN_1601_AND_1970: Final = 11644473600
_TICKS: Final = 10_000_000
_EXTENSIONS: Final = (".com", ".exe", ".bat", ".cmd")
_SHELL: Final = r"C:\Windows\System32\cmd.exe"
_BATCH: Final = (".bat", ".cmd")
_CONNECTION_LOST: Final = 109  # ERROR_BROKEN_PIPE
_STATES: Final = (
    "",
    "Stopped",
    "StartPending",
    "StopPending",
    "Running",
    "ContinuePending",
    "PausePending",
    "Paused",
)


class StandardInput:
    """Standard input. Nothing is read before it is needed: it may be for a child."""

    def __init__(self, channel: StandInChannel) -> None:
        self._channel = channel
        self._unread = bytearray()
        self._ended = False
        self._requested = False
        self._waiting: asyncio.Future[None] | None = None
        channel.handlers["I"] = self._on_message

    def _on_message(self, data: bytes) -> None:
        self._requested = False
        self._unread += data
        self._ended = not data
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _more(self, size: int) -> bool:
        if self._ended:
            return False
        self._waiting = asyncio.get_running_loop().create_future()
        if not self._requested:  # by a reader that was interrupted
            self._requested = True
            self._channel.send("r", encode_numbers(size))
        await self._waiting
        return not self._ended

    async def read(self, size: int = 65536) -> bytes:
        if not self._unread:
            await self._more(size)
        return self._take(min(size, len(self._unread)))

    async def readline(self) -> bytes:
        while not (end := self._unread.find(b"\n") + 1):
            if not await self._more(65536):
                return self._take(len(self._unread))
        return self._take(end)

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


_UNKNOWN_TO_WINDOWS: Final = ("winedevice.exe",)  # runs Wine's drivers, in Windows the kernel does
_OF_SYSTEM: Final = ("services.exe",)


class Win32Processes:
    """The Win32 processes of the container, as a `ProcessTable`."""

    def __init__(self, channel: StandInChannel, user: str) -> None:
        self._channel = channel
        self._user = user

    def list(self) -> Sequence[ProcessEntry]:
        reader = FrameReader(self._channel.ask("l", "L"))
        found = []
        while reader:
            pid, parent, handles = reader.number(), reader.number(), reader.number()
            memory, started, used = reader.number(8), reader.number(8), reader.number(8)
            since = started / _TICKS - _BETWEEN_1601_AND_1970 if started else 0.0
            name = reader.text()
            if ntpath.basename(name).lower() in _UNKNOWN_TO_WINDOWS:
                continue
            found.append(
                ProcessEntry(
                    pid,
                    parent,
                    self._user,
                    (name,),
                    since,
                    memory,
                    handles,
                    used / _TICKS,
                    ntpath.basename(name).lower() in _OF_SYSTEM,
                )
            )
        return found

    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        return 0  # Windows assigns it once it exists

    def remove(self, pid: int) -> None:
        """It is removed when it has ended."""

    def output(self, pid: int, number: int) -> None:
        return None

    def signal(self, pid: int, name: str) -> bool:
        code = termination_code(name, windows=True)
        answer = self._channel.ask(
            "k", "K", encode_numbers(pid, TASKKILL if code is None else code)
        )
        return FrameReader(answer).number() == 0 if answer else False


class _Child:
    def __init__(self, process: Process, streams: dict[int, Callable[[bytes], None]]) -> None:
        loop = asyncio.get_running_loop()
        self.process = process
        self.streams = streams
        self.code: asyncio.Future[int] = loop.create_future()
        self.output_ended: asyncio.Future[None] = loop.create_future()
        if not streams:
            self.output_ended.set_result(None)

    def output(self, stream: int, data: bytes) -> None:
        if data:
            self.streams[stream](data)
            return
        self.streams.pop(stream, None)
        if not self.streams and not self.output_ended.done():
            self.output_ended.set_result(None)


class Win32Programs:
    """Programs of the container, found in its directories and started by the Win32 half, and its
    services: `NativeSystem`.
    """

    def __init__(self, channel: StandInChannel) -> None:
        self._channel = channel
        self._children: dict[int, _Child] = {}
        self._numbers = itertools.count(1)
        self._own: tuple[ByteSource, ByteSink, ByteSink] | None = None
        channel.handlers |= {
            "P": _ignore,
            "F": self._failed,
            "X": self._ended,
            "O": self._on_output,
        }

    def inherit(self, process: Process) -> None:
        """A child that still uses this process's streams shares its handles; all other streams go
        through this half.
        """
        self._own = process.stdin, process.stdout, process.stderr

    def services(self) -> list[NativeService]:
        """Name, display name and state of each Wine service. Raises PowerShellError when the
        service manager does not respond.
        """
        reader = FrameReader(self._channel.ask("v", "V"))
        problem = reader.number() if reader else _CONNECTION_LOST
        if problem:
            raise PowerShellError(
                "Cannot open Service Control Manager on computer '.'. This operation might "
                "require other privileges."
                f" (Win32 error {problem})",
                "NotSpecified: (:) [], InvalidOperationException",
                "System.InvalidOperationException",
            )
        found = []
        while reader:
            state, name, shown = reader.number(), reader.text(), reader.text()
            found.append(
                NativeService(name, shown, _STATES[state] if state < len(_STATES) else str(state))
            )
        return found

    @property
    def running(self) -> bool:
        """Whether there is a foreground process that receives the console's keys."""
        return bool(self._children)

    def find(self, context: ProgramContext, name: str, cwd: str) -> Command:
        """Raises FileNotFoundError when it does not exist."""
        path = _find(context, name.strip('"').replace("/", "\\"), cwd)

        async def run(process: Process) -> int:
            return await self._run(process, path)

        return run

    async def _run(self, process: Process, path: str) -> int:
        number = next(self._numbers)
        given, output, error = self._own or (None, None, None)
        streams: dict[int, Callable[[bytes], None]] = {}
        if process.stdout is not output:
            streams[1] = process.stdout.write
        if process.stderr is not error:
            streams[2] = process.stderr.write
        flags = (_OUTPUT if 1 in streams else 0) | (_ERROR if 2 in streams else 0)
        with_input = process.stdin is not given
        child = self._children[number] = _Child(process, streams)
        words = [path, *process.argv[1:]]
        line = join_arguments(
            words if ntpath.splitext(path)[1].lower() not in _BATCH else [_SHELL, "/c", *words]
        )
        head = encode_numbers(number, flags | (_INPUT if with_input else 0))
        self._channel.send(
            "s", head + encode_texts(line, process.cwd) + encode_variables(process.env.items())
        )
        try:
            if with_input:
                while data := await process.stdin.read():
                    self._channel.send("i", encode_numbers(number) + data)
                    await self._channel.drain()
                self._channel.send("i", encode_numbers(number))
            code = await child.code
            await asyncio.wait([child.output_ended], timeout=_LAST_OUTPUT)
            return (code + 0x80000000) % 0x100000000 - 0x80000000
        finally:
            del self._children[number]

    def _failed(self, content: bytes) -> None:
        reader = FrameReader(content)
        child, code = self._children.get(reader.number()), reader.number()
        if child is not None and not child.code.done():
            child.code.set_exception(_cannot_run(child.process.argv[0], code))

    def _ended(self, content: bytes) -> None:
        reader = FrameReader(content)
        child, code = self._children.get(reader.number()), reader.number()
        if child is not None and not child.code.done():
            child.code.set_result(code)

    def _on_output(self, content: bytes) -> None:
        reader = FrameReader(content)
        child, stream = self._children.get(reader.number()), reader.number(1)
        if child is not None:
            child.output(stream, reader.rest())


def _ignore(content: bytes) -> None:
    """Windows' pid of a process, which is not used."""


def _cannot_run(name: str, code: int) -> PowerShellError:
    reason = _REASONS.get(code, f"Win32 error {code}")
    return PowerShellError(
        f"Program '{name}' failed to run: {reason}",
        "ResourceUnavailable: (:) [], ApplicationFailedException",
        "NativeCommandFailed",
    )


_REASONS: Final = {
    2: "The system cannot find the file specified",
    3: "The system cannot find the path specified",
    5: "Access is denied",
    193: "The specified executable is not a valid application for this OS platform.",
    267: "The directory name is invalid",
}


def _find(context: ProgramContext, name: str, cwd: str) -> str:
    directory, base = ntpath.split(name)
    names = (
        [base]
        if ntpath.splitext(base)[1]
        else [base + extension for extension in (*_EXTENSIONS, "")]
    )
    path = next((value for key, value in context.env.items() if key.lower() == "path"), "")
    folders = (
        [ntpath.join(cwd, directory)]
        if directory
        else [folder for folder in path.split(";") if folder]
    )
    for folder in folders:
        for candidate in names:
            whole = ntpath.normpath(ntpath.join(folder, candidate))
            try:
                if context.files.stat(whole).kind == "file":
                    return whole
            except OSError:
                continue
    raise FileNotFoundError(name)
