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
