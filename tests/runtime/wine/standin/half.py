"""The Win32 half of a stand-in, played by a thread: it records frames and answers them."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from transom.runtime.wine.standin.channel import (
    FrameReader,
    encode_numbers,
    encode_texts,
    encode_variables,
)
from transom.runtime.wine.standin.main import serve_stand_in

POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
CONSOLE = 7


class Started(NamedTuple):
    flags: int
    line: str
    directory: str
    env: list[str]


class Half(threading.Thread):
    """`children`: by command line, the exit code and the output of each program that may be
    started.
    """

    def __init__(
        self,
        connection: socket.socket,
        line: str,
        program: str,
        *,
        env: Mapping[str, str],
        given: Sequence[bytes],
        children: Mapping[str, tuple[int, bytes]],
        console: bool,
        service_manager_error: int = 0,
        spooler: Sequence[int] = (1,),
    ) -> None:
        super().__init__(daemon=True)
        self.output, self.error, self.fed = bytearray(), bytearray(), bytearray()
        self.code = -1
        self.started: list[Started] = []
        self.killed: list[int] = []
        self.service_manager_error = service_manager_error
        # the states that the service has, one for each question, the last one from then on
        self.spooler = list(spooler)
        self._connection = connection
        self._given = list(given)
        self._children = children
        hello = (
            encode_numbers(100, CONSOLE if console else 0, 120, 30)
            + encode_texts(line, program, "C:\\")
            + encode_variables(env.items())
        )
        self._send("H", hello)

    def _send(self, letter: str, content: bytes = b"") -> None:
        self._connection.sendall(struct.pack("<I", 1 + len(content)) + letter.encode() + content)

    def control_c(self) -> None:
        self._send("C", encode_numbers(0))

    def run(self) -> None:
        stream = self._connection.makefile("rb")
        while head := stream.read(4):
            content = stream.read(struct.unpack("<I", head)[0])
            if self._act(chr(content[0]), content[1:]):
                break
        self._connection.close()

    def _act(self, letter: str, content: bytes) -> bool:
        reader = FrameReader(content)
        if letter == "o":
            self.output += content
        elif letter == "e":
            self.error += content
        elif letter == "r":
            self._send("I", self._given.pop(0) if self._given else b"")
        elif letter == "s":
            self._start(reader)
        elif letter == "i":
            reader.number()
            self.fed += reader.rest()
        elif letter == "l":
            started = (1600000000 + 11644473600) * 10_000_000
            entry = (
                encode_numbers(100, 32, 5)
                + struct.pack("<QQQ", 9 << 20, started, 15_000_000)
                + encode_texts("powershell.exe")
            )
            self._send("L", entry)
        elif letter == "v":
            web = encode_numbers(4) + encode_texts("Web", "World Wide Web")
            state = self.spooler.pop(0) if len(self.spooler) > 1 else self.spooler[0]
            listed = (
                b""
                if self.service_manager_error
                else web + encode_numbers(state) + encode_texts("Spooler", "Print Spooler")
            )
            self._send("V", encode_numbers(self.service_manager_error) + listed)
        elif letter == "k":
            self.killed.append(reader.number())
            self._send("K", encode_numbers(0 if self.killed[-1] == 100 else 87))
        elif letter == "x":
            self.code = reader.number()
        return letter == "x"

    def _start(self, reader: FrameReader) -> None:
        number, flags, line, directory = (
            reader.number(),
            reader.number(),
            reader.text(),
            reader.text(),
        )
        env = []
        while variable := reader.text():
            env.append(variable)
        self.started.append(Started(flags, line, directory, env))
        if line not in self._children:
            self._send("F", encode_numbers(number, 193))
            return
        code, printed = self._children[line]
        self._send("P", encode_numbers(number, 200))
        for stream in (1, 2):
            if flags & stream:
                if stream == 1:
                    self._send("O", encode_numbers(number) + b"\1" + printed)
                self._send("O", encode_numbers(number) + bytes([stream]))
        if not flags & 1:
            self.output += printed
        self._send("X", encode_numbers(number, code))


def run(
    prefix: Path,
    line: str,
    program: str = POWERSHELL,
    *,
    env: Mapping[str, str] | None = None,
    given: Sequence[bytes] = (),
    children: Mapping[str, tuple[int, bytes]] | None = None,
    console: bool = False,
    service_manager_error: int = 0,
    spooler: Sequence[int] = (1,),
) -> Half:
    """A stand-in from its start to its end."""

    async def both() -> Half:
        ours, theirs = socket.socketpair()
        half = Half(
            theirs,
            line,
            program,
            env=env or {},
            given=given,
            children=children or {},
            console=console,
            service_manager_error=service_manager_error,
            spooler=spooler,
        )
        half.start()
        await asyncio.wait_for(serve_stand_in(ours, prefix), 20)
        half.join(5)
        return half

    return asyncio.run(both())
