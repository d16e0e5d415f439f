"""How control leaves a block of a script: jumps, and errors that stop it."""

from __future__ import annotations

from transom.userland.powershell.values import PowerShellError


class Break(Exception):
    def __init__(self, label: str = "") -> None:
        super().__init__(label)
        self.label = label


class Continue(Exception):
    def __init__(self, label: str = "") -> None:
        super().__init__(label)
        self.label = label


class Return(Exception):
    pass


class Thrown(PowerShellError):
    """By `throw`, or by a terminating error."""


def call_depth_error() -> Thrown:
    """Of a function that calls itself too often."""
    return Thrown(
        "The script failed due to call depth overflow.",
        "InvalidOperation: (:) [], ParentContainsErrorRecordException",
        "CallDepthOverflow",
    )
