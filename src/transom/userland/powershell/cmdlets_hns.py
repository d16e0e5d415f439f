"""Cmdlets for the networks of a Windows machine: its host networking service and its adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.machines.windows.hns import rest
from transom.userland.api import WindowsNodeAccess
from transom.userland.network_view import adapter_description
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_output import from_plain
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text

_TYPES: Final = (
    "nat",
    "ics",
    "internal",
    "transparent",
    "l2bridge",
    "l2tunnel",
    "overlay",
    "private",
)


def _node(call: CmdletCall) -> WindowsNodeAccess:
    node = call.process.context.node
    assert node is not None and node.windows is not None, "only Windows nodes have these cmdlets"
    return node.windows


def _ask(call: CmdletCall, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = rest.call_hns(_node(call).hns, method, path, body)
    if not answer["Success"]:
        raise PowerShellError(
            f"{answer['Error']}",
            f"NotSpecified: (:) [{call.cmdlet.name}], RuntimeException",
            "RuntimeException",
            where=call.cmdlet.name,
        )
    return answer.get("Output")


def _get(path: str) -> Callable[[CmdletCall], None]:
    def run(call: CmdletCall) -> None:
        wanted = [to_text(one).lower() for one in to_items(call.get("Id"))]
        for thing in _ask(call, "GET", f"/{path}"):
            if not wanted or thing["ID"].lower() in wanted:
                call.emit(from_plain(thing))

    return run


def _remove(path: str) -> Callable[[CmdletCall], None]:
    def run(call: CmdletCall) -> None:
        given = [
            value.get("ID") if isinstance(value, PsObject) else value for value in call.input or []
        ]
        for identifier in (
            *to_items(call.get("Id")),
            *given,
            *(o.get("ID") for o in to_items(call.get("InputObjects"))),
        ):
            _ask(call, "DELETE", f"/{path}/{to_text(identifier)}")

    return run


def _new_network(call: CmdletCall) -> None:
    kind = next((known for known in _TYPES if known == call.text("Type").lower()), "")
    if not kind:
        raise PowerShellError(
            "Cannot validate argument on parameter 'Type'. The argument "
            f'"{call.text("Type")}" does not belong to the set '
            f'"{",".join(_TYPES)}" specified by the ValidateSet attribute.',
            f"InvalidData: (:) [{call.cmdlet.name}], ParameterBindingValidationException",
            "ParameterArgumentValidationError",
        )
    names = {"l2bridge": "L2Bridge", "l2tunnel": "L2Tunnel", "ics": "ICS", "nat": "NAT"}
    body: dict[str, Any] = {"Type": names.get(kind, kind.capitalize()), "Name": call.text("Name")}
    if call.has("AddressPrefix"):
        body["Subnets"] = [
            {"AddressPrefix": call.text("AddressPrefix"), "GatewayAddress": call.text("Gateway")}
        ]
    if call.has("AdapterName"):
        body["NetworkAdapterName"] = call.text("AdapterName")
    call.emit(from_plain(_ask(call, "POST", "/networks", body)))


def _get_switch(call: CmdletCall) -> None:
    """The virtual switches of networks: external ones on a network card, internal ones for NAT."""
    hns = _node(call).hns
    cards = {
        adapter.switch: adapter
        for adapter in hns.adapters.values()
        if adapter.switch and adapter.kind == "physical"
    }
    wanted, shown = call.text("Name", "*"), set()
    for network in rest.call_hns(hns, "GET", "/networks", None)["Output"]:
        switch = str(network.get("SwitchGuid") or network["ID"])
        card = cards.get(switch)
        name = card.name if card is not None else network["Name"]
        if switch in shown or not matches_wildcard(name, wanted):
            continue
        shown.add(switch)
        call.emit(
            PsObject(
                "Microsoft.HyperV.PowerShell.VMSwitch",
                {
                    "Name": name,
                    "SwitchType": "External" if card is not None else "Internal",
                    "NetAdapterInterfaceDescription": adapter_description(card)
                    if card is not None
                    else "",
                    "Id": switch.lower(),
                    "AllowManagementOS": True,
                    "Extensions": [],
                },
                name,
            )
        )
    if not shown and "*" not in wanted:
        call.fail(
            f'Hyper-V was unable to find a virtual switch with name "{wanted}".',
            f"InvalidArgument: ({wanted}:String) [Get-VMSwitch], VirtualizationException",
            "InvalidParameter",
        )


def _get_compute_process(call: CmdletCall) -> None:
    """The compute systems of the host compute service."""
    wanted = [to_text(one).lower() for one in to_items(call.get("ComputeProcessId"))]
    for system in _node(call).compute_systems():
        if wanted and system.id.lower() not in wanted:
            continue
        call.emit(
            PsObject(
                "Microsoft.ContainerPlatform.ComputeProcess",
                {
                    "Id": system.id,
                    "Type": "VirtualMachine" if system.virtual_machine else "Container",
                    "Isolation": "VirtualMachine" if system.virtual_machine else "Process",
                    "IsTemplate": False,
                    "RuntimeId": system.runtime_id.lower(),
                    "RuntimeTemplateId": "",
                    "Owner": system.owner,
                },
                system.id,
            )
        )


CMDLETS = (
    cmdlet_row("Get-HnsNetwork", _get("networks"), "Id"),
    cmdlet_row("Get-HnsEndpoint", _get("endpoints"), "Id"),
    cmdlet_row("Get-HnsPolicyList", _get("policylists"), "Id"),
    cmdlet_row("Get-HnsNamespace", _get("namespaces"), "Id"),
    cmdlet_row("Get-ComputeProcess", _get_compute_process, "ComputeProcessId", "", "Type Owner Id"),
    cmdlet_row("Get-VMSwitch", _get_switch, "Name", "", "SwitchType Id"),
    cmdlet_row(
        "New-HnsNetwork", _new_network, "", "", "Type Name AddressPrefix Gateway AdapterName"
    ),
    cmdlet_row("Remove-HnsNetwork", _remove("networks"), "InputObjects", "", "Id"),
    cmdlet_row("Remove-HnsEndpoint", _remove("endpoints"), "InputObjects", "", "Id"),
    cmdlet_row("Remove-HnsPolicyList", _remove("policylists"), "InputObjects", "", "Id"),
)
