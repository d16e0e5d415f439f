"""Get-NetTCPConnection and Get-NetUDPEndpoint: the sockets of the container or the machine."""

from __future__ import annotations

from collections.abc import Iterable

from transom.userland.api import OpenSocket
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import DateTime, PsObject, to_items, to_text

_STATES = {"": "Listen", "ESTABLISHED": "Established", "CLOSE_WAIT": "CloseWait"}
_FILTERS = ("LocalAddress", "LocalPort", "RemoteAddress", "RemotePort", "State", "OwningProcess")


def _connection(call: CmdletCall, one: OpenSocket) -> PsObject:
    anywhere = "::" if ":" in one.address else "0.0.0.0"
    state = _STATES.get(one.state, one.state)
    return PsObject(
        "MSFT_NetTCPConnection",
        {
            "LocalAddress": one.address,
            "LocalPort": one.port,
            "RemoteAddress": one.peer or anywhere,
            "RemotePort": one.peer_port,
            "State": state,
            "AppliedSetting": "Internet" if one.peer else "",
            "OwningProcess": one.pid,
            "CreationTime": DateTime(_started(call, one.pid)),
        },
    )


def _endpoint(call: CmdletCall, one: OpenSocket) -> PsObject:
    return PsObject(
        "MSFT_NetUDPEndpoint",
        {
            "LocalAddress": one.address,
            "LocalPort": one.port,
            "OwningProcess": one.pid,
            "CreationTime": DateTime(_started(call, one.pid)),
        },
    )


def _started(call: CmdletCall, pid: int) -> float:
    context = call.process.context
    found = (entry.started for entry in context.processes.list() if entry.pid == pid)
    return next(found, context.windows.resources.boot_time)


def _emit(call: CmdletCall, found: Iterable[PsObject]) -> None:
    """Writes the sockets that match all parameters; reports a value without a wildcard that does
    not match.
    """
    rows = list(found)
    for name in _FILTERS:
        wanted = [to_text(value) for value in to_items(call.get(name))]
        if not wanted:
            continue
        for value in wanted:
            there = any(matches_wildcard(to_text(row.get(name)), value) for row in rows)
            if not there and "*" not in value:
                kind = call.cmdlet.name.replace("Get-", "MSFT_")
                call.fail(
                    f"No {kind} objects found with property '{name}' equal to '{value}'.  Verify "
                    "the value of the property and retry.",
                    f"ObjectNotFound: ({value}:String) [{call.cmdlet.name}], CimJobException",
                    f"CmdletizationQuery_NotFound_{name},{call.cmdlet.name}",
                )
        rows = [
            row
            for row in rows
            if any(matches_wildcard(to_text(row.get(name)), value) for value in wanted)
        ]
    for row in rows:
        call.emit(row)


def _connections(call: CmdletCall) -> None:
    sockets = sorted(call.process.context.network.sockets())
    _emit(call, (_connection(call, one) for one in sockets if one.protocol == "tcp"))


def _endpoints(call: CmdletCall) -> None:
    sockets = sorted(call.process.context.network.sockets())
    _emit(call, (_endpoint(call, one) for one in sockets if one.protocol == "udp"))


CMDLETS = (
    cmdlet_row(
        "Get-NetTCPConnection",
        _connections,
        "LocalAddress LocalPort",
        "",
        "RemoteAddress RemotePort State OwningProcess AppliedSetting",
    ),
    cmdlet_row("Get-NetUDPEndpoint", _endpoints, "LocalAddress LocalPort", "", "OwningProcess"),
)
