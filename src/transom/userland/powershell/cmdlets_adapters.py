"""Cmdlets that change network adapters, and their statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from transom.userland.network_view import NetworkInterface, NetworkView
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PsObject, to_items, to_text
from transom.userland.windows.adapter_state import set_adapter_mtu, set_adapter_state

_KIND: Final = "MSFT_NetAdapter"


def _view(call: CmdletCall) -> NetworkView:
    return call.process.context.windows.network


def _chosen(call: CmdletCall) -> list[NetworkInterface]:
    """The adapters that a call names, or that are piped in; reports names that do not exist."""
    rows = _view(call).interfaces()
    piped = [to_text(one.get("Name")) for one in call.input or () if isinstance(one, PsObject)]
    names = [to_text(one) for one in (*to_items(call.get("Name")), *piped)]
    names += [to_text(one) for one in to_items(call.get("InterfaceAlias"))]
    indexes = [to_text(one) for one in to_items(call.get("InterfaceIndex"))]
    found = [
        row
        for row in rows
        if any(matches_wildcard(row.name, name) for name in names) or str(row.index) in indexes
    ]
    if not found:
        wanted = (names or indexes or ["*"])[0]
        key = "Name" if names else "InterfaceIndex"
        call.fail(
            f"No {_KIND} objects found with property '{key}' equal to '{wanted}'.  Verify the value "
            "of the property and retry.",
            f"ObjectNotFound: ({wanted}:String) [{call.cmdlet.name}], CimJobException",
            f"CmdletizationQuery_NotFound_{key},{call.cmdlet.name}",
        )
    return found


def _denied(call: CmdletCall) -> bool:
    if call.process.context.windows.account.administrator:
        return False
    call.fail(
        "Access is denied. ",
        f"PermissionDenied: ({_KIND}:ROOT/StandardCimv2/{_KIND}) [{call.cmdlet.name}], CimException",
        f"Windows System Error 5,{call.cmdlet.name}",
    )
    return True


def _switch(*states: bool) -> Callable[[CmdletCall], None]:
    def run(call: CmdletCall) -> None:
        if _denied(call):
            return
        for interface in _chosen(call):
            for up in states:
                set_adapter_state(_view(call), interface, up=up)

    return run


def _statistics(call: CmdletCall) -> None:
    received, sent = call.process.context.network.traffic()
    wanted = [to_text(one) for one in to_items(call.get("Name"))]
    for interface in _view(call).interfaces():
        if wanted and not any(matches_wildcard(interface.name, name) for name in wanted):
            continue
        own = (received, sent) if interface.gateways or interface.endpoint else (0, 0)
        call.emit(
            PsObject(
                "MSFT_NetAdapterStatisticsSettingData",
                {"Name": interface.name, "ReceivedBytes": own[0], "SentBytes": own[1]},
                interface.name,
            )
        )


def _set_interface(call: CmdletCall) -> None:
    if _denied(call):
        return
    mtu = call.text("NlMtuBytes")
    for interface in _chosen(call):
        if mtu.isdigit():
            set_adapter_mtu(_view(call), interface, int(mtu))


CMDLETS = (
    cmdlet_row("Disable-NetAdapter", _switch(False), "Name", "Confirm PassThru", "InterfaceIndex"),
    cmdlet_row("Enable-NetAdapter", _switch(True), "Name", "Confirm PassThru", "InterfaceIndex"),
    cmdlet_row("Restart-NetAdapter", _switch(False, True), "Name", "Confirm PassThru"),
    cmdlet_row("Get-NetAdapterStatistics", _statistics, "Name"),
    cmdlet_row(
        "Set-NetIPInterface",
        _set_interface,
        "InterfaceAlias InterfaceIndex",
        "",
        "NlMtuBytes AddressFamily",
    ),
)
