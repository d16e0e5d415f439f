"""New-Object and the constructors of .NET types."""

from __future__ import annotations

from calendar import timegm
from typing import Any

from transom.userland.powershell import cmdlets_acl, listener
from transom.userland.powershell.arrays import allocate
from transom.userland.powershell.casts import convert_value
from transom.userland.powershell.dotnet_collections import create_collection, is_collection
from transom.userland.powershell.dotnet_objects import create_dotnet
from transom.userland.powershell.members import credential
from transom.userland.powershell.operators import time_span
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    OrderedDictionary,
    PowerShellError,
    PsObject,
    to_number,
    to_text,
)
from transom.userland.powershell.web_client import tcp_connect

_CREATED = {
    "net.webclient": "System.Net.WebClient",
    "net.sockets.tcpclient": "System.Net.Sockets.TcpClient",
    "random": "System.Random",
    "diagnostics.stopwatch": "System.Diagnostics.Stopwatch",
}


def create_powershell_object(evaluator: PowerShellSession, kind: str, arguments: list[Any]) -> Any:
    """Implements New-Object."""
    kind = kind.lower().removeprefix("system.")
    if kind.endswith("[]"):
        return allocate(evaluator, arguments, kind[:-2])
    if is_collection(kind):
        return create_collection(kind, arguments[0] if arguments else None, convert_value)
    if kind in ("collections.hashtable", "hashtable"):
        return Hashtable()
    if kind == "collections.specialized.ordereddictionary":
        return OrderedDictionary()
    if kind in ("psobject", "pscustomobject", "object", "management.automation.psobject"):
        return PsObject("System.Management.Automation.PSCustomObject", {})
    if kind == "datetime":
        pieces = [int(to_number(one)) for one in arguments] + [1, 1, 0, 0, 0]
        return DateTime(float(timegm((*(pieces[:6]), 0, 0, 0))))
    if kind == "security.accesscontrol.filesystemaccessrule":
        return cmdlets_acl.new_rule(
            evaluator, arguments[0] if arguments and isinstance(arguments[0], list) else arguments
        )
    if kind == "security.principal.ntaccount":
        name = "\\".join(to_text(one) for one in arguments)
        return cmdlets_acl.account_object(name)
    if kind == "security.principal.securityidentifier":
        return cmdlets_acl.identifier_object(arguments[0])
    if kind == "net.httplistener":
        return listener.HttpListener()
    if kind in ("management.automation.pscredential", "pscredential"):
        given = (
            arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list) else arguments
        )
        return credential(to_text(given[0]), given[1] if len(given) > 1 else None)
    own = create_dotnet(evaluator, kind, arguments)
    return own if own is not None else _create_known(evaluator, kind, arguments)


def _create_known(evaluator: PowerShellSession, kind: str, arguments: list[Any]) -> Any:
    known = _CREATED.get(kind)
    if known is None:
        raise PowerShellError(
            f"Cannot find type [{kind}]: verify that the assembly containing this type is loaded.",
            "InvalidType: (:) [New-Object], PSArgumentException",
            "TypeNotFound,Microsoft.PowerShell.Commands.NewObjectCommand",
            where="New-Object",
        )
    made = PsObject(known, {})
    if known == "System.Net.Sockets.TcpClient":
        made.properties["Connected"] = False
        if len(arguments) > 1:
            return _connected(evaluator, made, arguments)
    if known == "System.Diagnostics.Stopwatch":
        made.properties |= {
            "start": evaluator.process.context.clock.monotonic(),
            "IsRunning": False,
            "Elapsed": time_span(0),
            "ElapsedMilliseconds": 0,
            "ElapsedTicks": 0,
        }
        made.hidden = frozenset(("start", "before"))
    return made


async def _connected(
    evaluator: PowerShellSession, made: PsObject, arguments: list[Any]
) -> PsObject:
    await tcp_connect(evaluator, made, arguments)
    return made
