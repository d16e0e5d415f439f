"""The log of one program of a node, as klog writes it: to standard error, or to files in a
directory of the node. The file of a severity has the lines of that severity and above.

The log of a program that was started at boot is quiet: it keeps only the last lines until a reader
attaches (`attach`). So a thousand nodes write no unread logs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Final

from transom.kit.clock import rfc3339_micro
from transom.kit.escaping import escape_line
from transom.kit.named_tuple import NamedTuple
from transom.machines.api import Files
from transom.node.programs.flags.klog import SEVERITIES, KlogSettings

INFO, WARNING, ERROR, FATAL = range(4)
DEBUG_VERBOSITY: Final = 4  # the verbosity at which debug lines of our own modules are logged
LOG_EXIT_CODE: Final = 2  # of a program whose log file cannot be created or written
_KEPT_LINES: Final = 500
_KEPT_QUIET_LINES: Final = 20
_TEMPORARY: Final = r"C:\Windows\Temp"
_BUILT: Final = "Binary: Built with gc go1.15.15 for windows/amd64 (simulated)"


class LogLine(NamedTuple):
    severity: int
    source: str
    text: str
    time: float


class ProgramLog:
    def __init__(
        self,
        program: str,
        pid: int,
        logging: KlogSettings,
        files: Files,
        now: Callable[[], float],
        hostname: str,
        environment: Mapping[str, str],
        output: Callable[[bytes], None],
        *,
        quiet: bool = False,
        exit: Callable[[int], None] = lambda _code: None,
    ) -> None:
        """`exit` ends the program when a log file cannot be created or written."""
        self.logging = logging
        self.quiet = quiet
        self._program = program
        self._pid = pid
        self._files = files
        self._now = now
        self._hostname = hostname.partition(".")[0]
        self._environment = environment
        self._output = output
        self._exit = exit
        self.failed = False
        self._open: dict[int, Callable[[bytes], None]] = {}
        self._lines: deque[bytes] | None = None
        self._quiet_lines: deque[LogLine] | None = None

    @property
    def verbosity(self) -> int:
        return self.logging.verbosity

    def info(self, source: str, text: str, verbosity: int = 0) -> None:
        if verbosity <= self.logging.verbosity:
            self.line(INFO, source, text)

    def line(self, severity: int, source: str, text: str, at: float | None = None) -> None:
        """`source` is the place in the program's source code: `server.go:155`."""
        time = self._now() if at is None else at
        if self.quiet:
            if self._quiet_lines is None:
                self._quiet_lines = deque(maxlen=_KEPT_QUIET_LINES)
            self._quiet_lines.append(LogLine(severity, source, text, time))
        else:
            self._write(severity, source, text, time)

    def attach(self, first: Iterable[LogLine] = ()) -> None:
        """A reader has attached: from now on the log is written, beginning with `first` and the
        kept lines.
        """
        if self.quiet:
            self.quiet = False
            kept, self._quiet_lines = self._quiet_lines or (), None
            for line in (*first, *kept):
                self._write(*line)

    def last_line(self) -> str:
        if self._quiet_lines:
            return self._quiet_lines[-1].text
        return self._lines[-1].decode(errors="replace").strip() if self._lines else ""

    def content(self) -> bytes:
        """The last lines, wherever they were written."""
        return b"".join(self._lines or ())

    def _write(self, severity: int, source: str, text: str, time: float) -> None:
        stamp = rfc3339_micro(time)
        date = f"{stamp[5:7]}{stamp[8:10]} {stamp[11:26]}"
        head = f"{SEVERITIES[severity][0]}{date} {self._pid:7d} {source}] "
        data = f"{head if self.logging.headers else ''}{escape_line(text)}\n".encode()
        if self._lines is None:
            self._lines = deque(maxlen=_KEPT_LINES)
        self._lines.append(data)
        settings = self.logging
        if settings.to_stderr or settings.also_stderr or severity >= settings.threshold:
            self._output(data)
        if not settings.to_stderr and not self.failed:
            self._write_to_files(severity, data, time)

    def _write_to_files(self, severity: int, data: bytes, time: float) -> None:
        levels = (INFO,) if self.logging.file else range(severity, INFO - 1, -1)
        action = ""
        try:
            for level in levels:
                action = "log: cannot create log: open"
                if level not in self._open:
                    self._open[level] = self._create(SEVERITIES[level], time)
                action = "write"
                self._open[level](data)
        except OSError as problem:
            reason = f"{action} {problem.filename}: {problem.strerror}"
            self._output(f"log: exiting because of error: {reason}\n".encode())
            self.failed = True
            self._exit(LOG_EXIT_CODE)

    def _create(self, severity: str, time: float) -> Callable[[bytes], None]:
        stamp = rfc3339_micro(time)
        day, clock = stamp[:10], stamp[11:19]
        user = _user(self._environment)
        name = (
            f"{self._program}.{self._hostname}.{user}.log.{severity}"
            f".{day.replace('-', '')}-{clock.replace(':', '')}.{self._pid}"
        )
        header = (
            f"Log file created at: {day.replace('-', '/')} {clock}\n"
            f"Running on machine: {self._hostname}\n{_BUILT}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )
        if self.logging.file:
            writer = self._files.appender(self.logging.file)
            writer(header.encode())
            return writer
        directory = self.logging.directory
        if not directory or not self._files.exists(directory):  # klog does not create the directory
            directory = self._environment.get("TEMP") or _TEMPORARY
        directory = directory.rstrip("\\/")
        writer = self._files.appender(f"{directory}\\{name}")
        writer(header.encode())
        link = f"{directory}\\{self._program}.{severity}"
        self._files.remove(link, recursive=True)
        self._files.symlink(name, link)
        return writer


def _user(environment: Mapping[str, str]) -> str:
    """A backslash in a user name must not become a directory separator."""
    variables = {name.upper(): value for name, value in environment.items()}
    user = variables.get("USERNAME", "").replace("\\", "_")
    if not user:
        return "unknownuser"
    domain = variables.get("USERDOMAIN", "")
    return f"{domain}_{user}" if domain else user


class ProgramLogHandler(logging.Handler):
    """Writes the records of our own modules as lines of a program. `onward` gets the records
    too.
    """

    def __init__(self, log: ProgramLog, parent: logging.Logger | None = None) -> None:
        super().__init__(logging.DEBUG)
        self._log = log
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        if self._parent is not None and self._parent.isEnabledFor(record.levelno):
            self._parent.handle(record)
        write_record(self._log, record)


def write_record(log: ProgramLog, record: logging.LogRecord) -> None:
    if record.levelno < logging.INFO and log.verbosity < DEBUG_VERBOSITY:
        return
    severity = (
        INFO
        if record.levelno < logging.WARNING
        else WARNING
        if record.levelno < logging.ERROR
        else ERROR
    )
    log.line(severity, f"{record.module}.go:{record.lineno}", record.getMessage())


# All kubelets of a process share one logger. Each runs in its own tasks, so a context variable
# identifies the kubelet of a task.
_current_log: ContextVar[ProgramLog | None] = ContextVar("_current_log", default=None)


class _KubeletLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = _current_log.get()
        if log is not None and not log.quiet:
            write_record(log, record)


_kubelet_log_handler: Final = _KubeletLogHandler()


def use_kubelet_log(log: ProgramLog) -> None:
    """This task and those that it starts belong to the kubelet with this log."""
    _current_log.set(log)


def attach_kubelet_log(log: ProgramLog) -> None:
    log.attach()
    logger = logging.getLogger("transom.kubelet")
    if _kubelet_log_handler not in logger.handlers:
        logger.addHandler(_kubelet_log_handler)
