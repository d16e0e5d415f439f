"""The networks of a Windows machine in PowerShell: its host networking service and its adapters."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, Final

from transom.hosts.windows.hns import Adapter, rest
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.cmdlets_output import from_plain
from transom.runtime.sim.programs.powershell.operators import like
from transom.runtime.sim.programs.powershell.values import PowerShellError, PsObject, items, text
from transom.runtime.sim.programs.win.machine import description, shown
from transom.runtime.sim.programs.win.network import link_local

_TYPES: Final = ("nat", "ics", "internal", "transparent", "l2bridge", "l2tunnel", "overlay", "private")


def _machine(call: Call) -> WindowsMachine:
    found: WindowsMachine = call.process.context.machine
    return found


def _ask(call: Call, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = rest.call(_machine(call).hns, method, path, body)
    if not answer["Success"]:
        raise PowerShellError(
            f"{answer['Error']}", f"NotSpecified: (:) [{call.cmdlet.name}], RuntimeException", "RuntimeException",
            where=call.cmdlet.name,
        )  # fmt: skip
    return answer.get("Output")


def _get(path: str) -> Callable[[Call], None]:
    def run(call: Call) -> None:
        wanted = [text(one).lower() for one in items(call.get("Id"))]
        for thing in _ask(call, "GET", f"/{path}"):
            if not wanted or thing["ID"].lower() in wanted:
                call.emit(from_plain(thing))

    return run


def _remove(path: str) -> Callable[[Call], None]:
    def run(call: Call) -> None:
        given = [value.get("ID") if isinstance(value, PsObject) else value for value in call.input or []]
        for identifier in (*items(call.get("Id")), *given, *(o.get("ID") for o in items(call.get("InputObjects")))):
            _ask(call, "DELETE", f"/{path}/{text(identifier)}")

    return run


def _new_network(call: Call) -> None:
    kind = next((known for known in _TYPES if known == call.text("Type").lower()), "")
    if not kind:
        raise PowerShellError(
            f"Cannot validate argument on parameter 'Type'. The argument \"{call.text('Type')}\" does not belong to the set "
            f"\"{','.join(_TYPES)}\" specified by the ValidateSet attribute.",
            f"InvalidData: (:) [{call.cmdlet.name}], ParameterBindingValidationException", "ParameterArgumentValidationError",
        )  # fmt: skip
    names = {"l2bridge": "L2Bridge", "l2tunnel": "L2Tunnel", "ics": "ICS", "nat": "NAT"}
    body: dict[str, Any] = {"Type": names.get(kind, kind.capitalize()), "Name": call.text("Name")}
    if call.has("AddressPrefix"):
        body["Subnets"] = [{"AddressPrefix": call.text("AddressPrefix"), "GatewayAddress": call.text("Gateway")}]
    if call.has("AdapterName"):
        body["NetworkAdapterName"] = call.text("AdapterName")
    call.emit(from_plain(_ask(call, "POST", "/networks", body)))


def _adapter(adapter: Adapter) -> PsObject:
    return PsObject("MSFT_NetAdapter", {
        "Name": adapter.name, "InterfaceDescription": description(adapter), "ifIndex": adapter.index, "Status": "Up",
        "MacAddress": adapter.mac, "LinkSpeed": "10 Gbps", "InterfaceIndex": adapter.index, "InterfaceAlias": adapter.name,
        "Virtual": adapter.kind != "physical",
    }, "MSFT_NetAdapter")  # fmt: skip


def _get_adapter(call: Call) -> None:
    wanted = [text(name) for name in (*items(call.get("Name")), *items(call.get("InterfaceAlias")))]
    adapters = [a for a in _machine(call).hns.adapters.values() if a.compartment == 1]
    for name in wanted or ["*"]:
        found = [adapter for adapter in adapters if like(adapter.name, name)]
        for adapter in found:
            call.emit(_adapter(adapter))
        if not found and "*" not in name:
            call.fail(
                f"No MSFT_NetAdapter objects found with property 'Name' equal to '{name}'.  Verify the value of the property "
                "and retry.",
                f"ObjectNotFound: ({name}:String) [Get-NetAdapter], CimJobException",
                "CmdletizationQuery_NotFound_Name,Get-NetAdapter",
            )


def _get_address(call: Call) -> None:
    family, alias = call.text("AddressFamily").lower(), call.text("InterfaceAlias", "*")
    for adapter in shown(_machine(call)):
        if not adapter.address or not like(adapter.name, alias):
            continue
        length = ipaddress.ip_interface(adapter.address).network.prefixlen
        for address, version, prefix in ((link_local(adapter.ip), "IPv6", 64), (adapter.ip, "IPv4", length)):
            if family in ("", version.lower()) and like(address, call.text("IPAddress", "*")):
                call.emit(PsObject("MSFT_NetIPAddress", {
                    "IPAddress": address, "InterfaceIndex": adapter.index, "InterfaceAlias": adapter.name,
                    "AddressFamily": version, "PrefixLength": prefix,
                }))  # fmt: skip


CMDLETS = (
    row("Get-HnsNetwork", _get("networks"), "Id"),
    row("Get-HnsEndpoint", _get("endpoints"), "Id"),
    row("Get-HnsPolicyList", _get("policylists"), "Id"),
    row("Get-HnsNamespace", _get("namespaces"), "Id"),
    row("New-HnsNetwork", _new_network, "", "", "Type Name AddressPrefix Gateway AdapterName"),
    row("Remove-HnsNetwork", _remove("networks"), "InputObjects", "", "Id"),
    row("Remove-HnsEndpoint", _remove("endpoints"), "InputObjects", "", "Id"),
    row("Remove-HnsPolicyList", _remove("policylists"), "InputObjects", "", "Id"),
    row("Get-NetAdapter", _get_adapter, "Name", "Physical IncludeHidden", "InterfaceAlias InterfaceIndex"),
    row("Get-NetIPAddress", _get_address, "IPAddress", "", "AddressFamily InterfaceAlias InterfaceIndex"),
)
