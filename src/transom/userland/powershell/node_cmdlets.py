"""The cmdlets that only machines have."""

from __future__ import annotations

from transom.userland.powershell import cmdlets_hns, cmdlets_storage
from transom.userland.powershell.cmdlets import Cmdlet


def node_cmdlet_rows() -> tuple[Cmdlet, ...]:
    return (*cmdlets_hns.CMDLETS, *cmdlets_storage.CMDLETS)
