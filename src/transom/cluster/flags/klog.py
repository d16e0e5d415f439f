"""klog's flags, which kubelet and kube-proxy have among their own, and what they say about where lines go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transom.cluster.flags.golang import BOOL, DURATION, LEVEL, STRING, UINT64, Parsed, Table

TABLE: Final[Table] = {
    "add-dir-header": BOOL,
    "alsologtostderr": BOOL,
    "log-backtrace-at": STRING,
    "log-dir": STRING,
    "log-file": STRING,
    "log-file-max-size": UINT64,
    "log-flush-frequency": DURATION,
    "logtostderr": BOOL,
    "one-output": BOOL,
    "skip-headers": BOOL,
    "skip-log-headers": BOOL,
    "stderrthreshold": STRING,
    "v": LEVEL,
    "vmodule": STRING,
}
SEVERITIES: Final = ("INFO", "WARNING", "ERROR", "FATAL")
_THRESHOLD: Final = 2


@dataclass(frozen=True, slots=True)
class Logging:
    to_stderr: bool = True
    also_stderr: bool = False
    directory: str = ""
    file: str = ""
    verbosity: int = 0
    threshold: int = _THRESHOLD  # lines of this severity and above are on stderr although there are files
    headers: bool = True


def logging_of(parsed: Parsed) -> Logging:
    wanted = str(parsed.get("stderrthreshold", ""))
    named = SEVERITIES.index(wanted.upper()) if wanted.upper() in SEVERITIES else _THRESHOLD
    return Logging(
        to_stderr=parsed.get("logtostderr", True),
        also_stderr=parsed.get("alsologtostderr", False),
        directory=parsed.get("log-dir", ""),
        file=parsed.get("log-file", ""),
        verbosity=parsed.get("v", 0),
        threshold=int(wanted) if wanted.isdigit() else named,
        headers=not parsed.get("skip-headers", False),
    )
