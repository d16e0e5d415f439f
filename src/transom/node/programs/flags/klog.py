"""klog's flags, which kubelet and kube-proxy include, and the log destinations that they select."""

from __future__ import annotations

from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.node.programs.flags.golang import (
    BOOL,
    DURATION,
    LEVEL,
    STRING,
    UINT64,
    ParsedFlags,
    Table,
)

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
class KlogSettings:
    to_stderr: bool = True
    also_stderr: bool = False
    directory: str = ""
    file: str = ""
    verbosity: int = 0
    threshold: int = (
        _THRESHOLD  # lines of this severity and above go to stderr in addition to the files
    )
    headers: bool = True


def logging_of(parsed: ParsedFlags) -> KlogSettings:
    wanted = str(parsed.get("stderrthreshold", ""))
    named = SEVERITIES.index(wanted.upper()) if wanted.upper() in SEVERITIES else _THRESHOLD
    return KlogSettings(
        to_stderr=parsed.get("logtostderr", True),
        also_stderr=parsed.get("alsologtostderr", False),
        directory=parsed.get("log-dir", ""),
        file=parsed.get("log-file", ""),
        verbosity=parsed.get("v", 0),
        threshold=int(wanted) if wanted.isdigit() else named,
        headers=not parsed.get("skip-headers", False),
    )
