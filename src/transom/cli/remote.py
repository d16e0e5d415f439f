"""The user's side of a command on a node: connects this terminal with the cluster.

Uses threads and a plain socket like the rest of the command line: one thread reads the input, the
other does everything else.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from transom.cluster.config import ClusterConfig
from transom.cluster.lifecycle import no_nodes_error
from transom.cluster.probe import ClusterProbe, ClusterUnreachable
from transom.kit.streaming import channels, remotecommand, websocket
from transom.kit.streaming.channels import STDIN
from transom.kit.streaming.remotecommand import CommandData, CommandStreams, WebSocketCommandClient
from transom.kit.user_errors import UserError
from transom.node.settings import name_option

_BROKEN: Final = 255  # the exit code that ssh uses for a lost connection


def run_remote_command(
    config: ClusterConfig, node: str, command: Sequence[str], *, stdin: bool, tty: bool
) -> int:
    """Returns the command's exit code."""
    streams = CommandStreams(stdin, True, not tty, tty)
    words = "".join(f"&command={quote(word, safe='')}" for word in command)
    path = f"/transom/nodes/{quote(node, safe='')}/exec?output=1&error={int(not tty)}&input={int(stdin)}&tty={int(tty)}{words}"
    try:
        sock, early = _connect(config, path)
    except ClusterUnreachable as error:
        hint = f"see transom logs{name_option(config.name)}"
        raise UserError(f"cluster {config.name!r} does not respond: {error}", hint) from error
    session = _Session(sock, WebSocketCommandClient(streams, channels.V5))
    with sock, _raw() if tty else contextlib.nullcontext():
        return session.run(early)


def _connect(config: ClusterConfig, path: str) -> tuple[ssl.SSLSocket, bytes]:
    probe = ClusterProbe(config)
    found = probe.upgrade(path, websocket.request_headers(websocket.make_key(), [channels.V5]))
    if isinstance(found[0], int):
        try:
            problem: Any = json.loads(found[1])
        except ValueError:
            problem = {}
        if found[0] == 404:
            raise no_nodes_error(config.name)
        raise UserError(problem.get("message") or f"answer {found[0]}", problem.get("hint", ""))
    return found


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Sends every key to the node. Without a suitable terminal, sends whole lines."""
    try:
        import termios
        import tty
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setraw(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


class _Session:
    def __init__(self, sock: ssl.SSLSocket, session: WebSocketCommandClient) -> None:
        self._sock = sock
        self._session = session
        self._todo: deque[Callable[[], None]] = deque()  # raised by the other threads
        self._bell, self._ring = socket.socketpair()
        self._code: int | None = None

    def run(self, early: bytes) -> int:
        sock, session = self._sock, self._session
        sock.settimeout(None)
        session.start()
        if session.streams.stdin:
            threading.Thread(target=self._type, daemon=True).start()
        if session.streams.tty:
            self._resize()
            if hasattr(signal, "SIGWINCH"):
                signal.signal(signal.SIGWINCH, lambda *_: self._call_threadsafe(self._resize))
        self._react(session.receive_data(early) if early else [])
        while self._code is None:
            out = session.data_to_send()
            if out:
                sock.sendall(out)
                continue
            if not sock.pending():
                ready, _, _ = select.select((sock, self._bell), (), ())
                if self._bell in ready:
                    self._bell.recv(4096)
                    while self._todo:
                        self._todo.popleft()()
                    continue
            data = sock.recv(65536)
            self._react(session.receive_data(data) if data else session.receive_eof())
        return self._code

    # ---- from the node ----

    def _react(self, events: Sequence[remotecommand.Event]) -> None:
        for event in events:
            match event:
                case CommandData(stream, data):
                    out = sys.stderr.buffer if stream == channels.STDERR else sys.stdout.buffer
                    out.write(data)
                    out.flush()
                case remotecommand.CommandFinished(status):
                    self._code = _exit_code(status)
                case remotecommand.CommandClosed(error):
                    if self._code is None:
                        print(
                            f"error: {error or 'the cluster closed the connection'}",
                            file=sys.stderr,
                        )
                        self._code = _BROKEN

    # ---- to the node ----

    def _call_threadsafe(self, act: Callable[[], None]) -> None:
        self._todo.append(act)
        self._ring.send(b"!")

    def _type(self) -> None:
        number = sys.stdin.fileno()
        while True:
            try:
                data = os.read(number, 65536)
            except OSError:
                data = b""
            self._call_threadsafe(partial(self._typed, data))
            if not data:
                return

    def _typed(self, data: bytes) -> None:
        if data:
            self._session.write(STDIN, data)
        else:
            self._session.end(STDIN)

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            size = os.get_terminal_size()
            self._session.resize(size.columns, size.lines)


def _exit_code(status: dict[str, Any]) -> int:
    """Windows exit codes can be larger than a shell here supports: those become 1."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    code = next(
        (
            int(c["message"])
            for c in causes
            if c.get("reason") == "ExitCode" and c["message"].isdigit()
        ),
        None,
    )
    if code is None:
        raise UserError(str(status.get("message") or "the command could not be run"))
    return code if code < 256 else 1
