"""How a process writes its log: klog-like lines or JSON, to stderr or to a file.

Callers keep secrets (tokens, keys, request bodies) out of messages. Client input needs no escaping
by the caller: every line is escaped here.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import IO, Any, Final, Literal

from transom.kit.clock import rfc3339_micro
from transom.kit.escaping import escape_json, escape_line, escape_lines

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_LETTERS = {
    logging.DEBUG: "D",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}


MULTILINE: Final = {"multiline": True}
"""For multi-line messages without any client input."""


class TextFormatter(logging.Formatter):
    """`I0102 03:04:05.123456 4242 handler.py:17] message`, in UTC. One line for each record; only
    tracebacks, and messages with `extra=MULTILINE` continue on further lines, which are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        stamp = rfc3339_micro(record.created)
        letter = _LETTERS.get(record.levelno, "I")
        message = record.getMessage()
        message = escape_lines(message) if "multiline" in record.__dict__ else escape_line(message)
        line = (
            f"{letter}{stamp[5:7]}{stamp[8:10]} {stamp[11:26]} {record.process or 0:7d} "
            f"{record.filename}:{record.lineno}] {message}"
        )
        if record.exc_info:
            line = f"{line}\n  {escape_lines(self.formatException(record.exc_info))}"
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": rfc3339_micro(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return escape_json(json.dumps(line, ensure_ascii=False))


class OwnLogger(logging.Logger):
    """An unregistered child of a known logger, for many short-lived loggers. It does not cache
    levels, because the caches of unregistered loggers are never cleared.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)


class _FileHandler(logging.FileHandler):
    """Drops lines while the disk is full, without a traceback on standard error. The next line that
    can be written starts on its own.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=False)
        self._incomplete = False  # the last line of the file has no end

    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=_open_private)

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None:  # closed
            return
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        start = "\n" if self._incomplete else ""
        data = f"{start}{line}\n".encode(errors="backslashreplace")
        written = 0
        try:
            while written < len(data):
                written += os.write(self.stream.fileno(), data[written:])
        except OSError:
            if not written:
                return
        self._incomplete = data[written - 1 : written] != b"\n"


def set_up_logging(
    *, level: str = "info", form: Literal["text", "json"] = "text", path: Path | None = None
) -> logging.Handler:
    """Send everything under the root logger to one handler, replacing existing handlers. Returns
    the handler.
    """
    handler: logging.Handler = logging.StreamHandler() if path is None else _FileHandler(path)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    return handler
