"""A Win32 named pipe that is connected to a Unix socket, so that containerd of this machine can be
used like one on Windows.

The pipe is of bytes, as containerd's. One Windows program serves each client and the next is
started when one has come; in between all instances of the pipe are busy.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

from tests.runtime.wine.winpython import STREAMS, WindowsPython

from transom.runtime.wine.helpers import BUILT

_PROGRAM = BUILT / "pipeserve.exe"
_BUFFER = 1 << 16
_SECONDS = 30


class NamedPipe:
    def __init__(self, windows: WindowsPython, name: str, path: Path) -> None:
        self.name = name
        self.clients = 0  # that have come
        self._windows = windows
        self._path = path
        self._programs: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._open = False

    def open(self) -> None:
        """Returns when it is there."""
        self._open = True
        there = threading.Event()
        threading.Thread(target=self._serve, args=(there,), daemon=True).start()
        assert there.wait(_SECONDS), "there is no pipe"

    def close(self) -> None:
        """It is gone, and its clients' connections are broken."""
        with self._lock:
            self._open = False
            for program in self._programs:
                program.kill()
        for program in self._programs:
            program.wait()
        self._programs.clear()

    def _serve(self, there: threading.Event) -> None:
        while True:
            with self._lock:
                if not self._open:
                    return
                program = self._windows.start(
                    _PROGRAM, self.name, **dict.fromkeys(STREAMS, subprocess.PIPE)
                )
                self._programs.append(program)
            assert program.stderr is not None
            if program.stderr.read(1) != b".":
                return
            there.set()
            if program.stderr.read(1) != b"+":
                return
            self.clients += 1
            self._join(program)

    def _join(self, program: subprocess.Popen[bytes]) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._path))
        except OSError:
            program.kill()
            return
        for move in (_from_client, _to_client):
            threading.Thread(target=move, args=(program, server), daemon=True).start()


def _from_client(program: subprocess.Popen[bytes], server: socket.socket) -> None:
    assert program.stdout is not None
    try:
        while data := os.read(program.stdout.fileno(), _BUFFER):
            server.sendall(data)
        server.shutdown(socket.SHUT_RDWR)
    except OSError:
        program.kill()


def _to_client(program: subprocess.Popen[bytes], server: socket.socket) -> None:
    assert program.stdin is not None
    try:
        while data := server.recv(_BUFFER):
            program.stdin.write(data)
            program.stdin.flush()
        program.stdin.close()
    except OSError:
        program.kill()
