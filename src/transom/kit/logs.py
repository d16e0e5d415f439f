"""How a process writes its log: klog-like lines for people, JSON for machines; to stderr or to a file.

Knows nothing of what is logged. Whoever logs keeps secrets (tokens, keys, bodies of requests) out of the message.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import IO, Any, Literal

from transom.kit.clock import rfc3339_micro

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LETTERS = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class TextFormatter(logging.Formatter):
    """`I0102 03:04:05.123456    4242 handler.py:17] message`, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = rfc3339_micro(record.created)
        letter = _LETTERS.get(record.levelno, "I")
        line = (
            f"{letter}{stamp[5:7]}{stamp[8:10]} {stamp[11:26]} {record.process or 0:7d} "
            f"{record.filename}:{record.lineno}] {record.getMessage()}"
        )
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
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
        return json.dumps(line, ensure_ascii=False)


class OwnLogger(logging.Logger):
    """One of many below a known logger, each for itself, that may come and go: it is not registered. It keeps no cache of
    levels, because only those of registered loggers are ever cleared."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.getEffectiveLevel()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)


class _FileHandler(logging.FileHandler):
    def _open(self) -> IO[str]:  # type: ignore[override]
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=_open_private)


def setup(*, level: str = "info", form: Literal["text", "json"] = "text", path: Path | None = None) -> logging.Handler:
    """Send everything under the root logger to one handler, replacing the handlers that were there. Returns it."""
    handler: logging.Handler = logging.StreamHandler() if path is None else _FileHandler(path, delay=False)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    return handler
