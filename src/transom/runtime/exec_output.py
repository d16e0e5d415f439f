"""The complete output of a command, for probes and lifecycle hooks.

A container decides how much its command writes, and this process keeps all of it in memory until
the command ends. As with containerd, output beyond 16 MiB per stream is read and dropped
(CVE-2022-31030, CVE-2022-1708).
"""

from __future__ import annotations

from typing import Final, Literal

from transom.runtime.api import ExecResult

LARGEST_OUTPUT: Final = 16 << 20


class ExecOutput:
    """An `Output` that keeps the beginning of both streams."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        kept = self._kept[stream]
        kept += data[: LARGEST_OUTPUT - len(kept)]

    def result(self, exit_code: int) -> ExecResult:
        return ExecResult(bytes(self._kept["stdout"]), bytes(self._kept["stderr"]), exit_code)
