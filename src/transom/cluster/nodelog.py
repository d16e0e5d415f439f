"""The log of one program of a simulated node, as klog writes it: to standard error, or to files of a folder on the node.

A file for each severity has the lines of that severity and of those above it; it is made with its first line. Knows nothing
of who speaks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from transom.cluster.flags.klog import SEVERITIES, Logging
from transom.hosts.api import Files
from transom.kit.clock import rfc3339_micro

INFO, WARNING, ERROR, FATAL = range(4)
DEBUG_VERBOSITY: Final = 4  # from here on there are lines that are only for who looks closely
_KEPT: Final = 500
_TEMPORARY: Final = r"C:\Windows\Temp"
_BUILT: Final = "Binary: Built with gc go1.15.15 for windows/amd64 (simulated)"


class NodeLog:
    def __init__(
        self, program: str, pid: int, wanted: Logging, files: Files, now: Callable[[], float], machine: str,
        environment: Mapping[str, str], output: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        self.wanted = wanted
        self._program = program
        self._pid = pid
        self._files = files
        self._now = now
        self._machine = machine.partition(".")[0]
        self._user = _user(environment)
        self._temporary = environment.get("TEMP") or _TEMPORARY
        self._output = output
        self._open: dict[int, Callable[[bytes], None]] = {}
        self._lines: deque[bytes] = deque(maxlen=_KEPT)

    @property
    def verbosity(self) -> int:
        return self.wanted.verbosity

    def info(self, where: str, text: str, verbosity: int = 0) -> None:
        if verbosity <= self.wanted.verbosity:
            self.line(INFO, where, text)

    def line(self, severity: int, where: str, text: str, at: float | None = None) -> None:
        """`where` is the place in the program's source, `server.go:155`."""
        time = self._now() if at is None else at
        stamp = rfc3339_micro(time)
        head = f"{SEVERITIES[severity][0]}{stamp[5:7]}{stamp[8:10]} {stamp[11:26]} {self._pid:7d} {where}] "
        data = f"{head if self.wanted.headers else ''}{text}\n".encode()
        self._lines.append(data)
        wanted = self.wanted
        if wanted.to_stderr or wanted.also_stderr or severity >= wanted.threshold:
            self._output(data)
        if not wanted.to_stderr:
            self._to_files(severity, data, time)

    def content(self) -> bytes:
        """The last lines, wherever they went."""
        return b"".join(self._lines)

    def _to_files(self, severity: int, data: bytes, time: float) -> None:
        try:
            for level in (INFO,) if self.wanted.file else range(severity, INFO - 1, -1):
                if level not in self._open:
                    self._open[level] = self._create(SEVERITIES[level], time)
                self._open[level](data)
        except OSError as problem:
            self._output(f"log: exiting because of error: log: cannot create log: {problem.strerror}\n".encode())

    def _create(self, severity: str, time: float) -> Callable[[bytes], None]:
        stamp = rfc3339_micro(time)
        day, clock = stamp[:10], stamp[11:19]
        name = (
            f"{self._program}.{self._machine}.{self._user}.log.{severity}.{day.replace('-', '')}-{clock.replace(':', '')}"
            f".{self._pid}"
        )
        header = (
            f"Log file created at: {day.replace('-', '/')} {clock}\nRunning on machine: {self._machine}\n{_BUILT}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )
        if self.wanted.file:
            writer = self._files.appender(self.wanted.file)
            writer(header.encode())
            return writer
        directory = self.wanted.directory
        if not directory or not self._files.exists(directory):  # klog makes no folder
            directory = self._temporary
        directory = directory.rstrip("\\/")
        writer = self._files.appender(f"{directory}\\{name}")
        writer(header.encode())
        link = f"{directory}\\{self._program}.{severity}"
        self._files.remove(link, recursive=True)
        self._files.symlink(name, link)
        return writer


def _user(environment: Mapping[str, str]) -> str:
    """A folder must not come of a backslash in it."""
    given = {name.upper(): value for name, value in environment.items()}
    user = given.get("USERNAME", "").replace("\\", "_")
    if not user:
        return "unknownuser"
    domain = given.get("USERDOMAIN", "")
    return f"{domain}_{user}" if domain else user


class Lines(logging.Handler):
    """What our own modules log, as lines of a program; what is at home in the cluster's log goes there, too."""

    def __init__(self, log: NodeLog, onward: logging.Logger | None = None) -> None:
        super().__init__(logging.DEBUG)
        self._log = log
        self._onward = onward

    def emit(self, record: logging.LogRecord) -> None:
        if self._onward is not None and self._onward.isEnabledFor(record.levelno):
            self._onward.handle(record)
        if record.levelno < logging.INFO and self._log.verbosity < DEBUG_VERBOSITY:
            return
        severity = INFO if record.levelno < logging.WARNING else WARNING if record.levelno < logging.ERROR else ERROR
        self._log.line(severity, f"{record.module}.go:{record.lineno}", record.getMessage())
