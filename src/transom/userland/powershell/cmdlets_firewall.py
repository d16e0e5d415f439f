"""The firewall in PowerShell: rules and profiles of `win/firewall.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from transom.machines.windows.registry import WindowsRegistry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text
from transom.userland.windows import firewall
from transom.userland.windows.firewall import FirewallRule

_CLASS: Final = "MSFT_NetFirewallRule"


def _registry(call: CmdletCall) -> WindowsRegistry:
    return call.process.context.windows.system.registry


def _show(rule: FirewallRule) -> PsObject:
    return PsObject(
        _CLASS,
        {
            "Name": rule.id,
            "DisplayName": rule.name,
            "Description": rule.description,
            "DisplayGroup": rule.group,
            "Group": rule.group,
            "Enabled": "True" if rule.enabled else "False",
            "Profile": rule.profile,
            "Platform": [],
            "Direction": "Inbound" if rule.inbound else "Outbound",
            "Action": "Allow" if rule.allow else "Block",
            "EdgeTraversalPolicy": "Block",
            "PrimaryStatus": "OK",
            "PolicyStoreSource": "PersistentStore",
            "PolicyStoreSourceType": "Local",
        },
        rule.name,
    )


def _selected(call: CmdletCall) -> list[FirewallRule]:
    objects = [
        *(call.input or []),
        *to_items(call.get("InputObject")),
        *to_items(call.get("AssociatedNetFirewallRule")),
    ]
    given = [to_text(value.get("Name")) for value in objects if isinstance(value, PsObject)]
    names = given or [to_text(one) for one in to_items(call.get("Name"))]
    shown = [to_text(one) for one in to_items(call.get("DisplayName"))]
    groups = [to_text(one) for one in to_items(call.get("DisplayGroup", call.get("Group")))]
    found = [
        rule
        for rule in firewall.firewall_rules(_registry(call))
        if (not names or any(matches_wildcard(rule.id, name) for name in names))
        and (not shown or any(matches_wildcard(rule.name, name) for name in shown))
        and (not groups or any(matches_wildcard(rule.group, group) for group in groups))
    ]
    wanted = (names or shown or groups or [""])[0]
    if not found and wanted and "*" not in wanted:
        key = "InstanceID" if names else "DisplayName" if shown else "DisplayGroup"
        call.fail(
            f"No {_CLASS} objects found with property '{key}' equal to '{wanted}'.  Verify the value of the property and "
            "retry.",
            f"ObjectNotFound: ({wanted}:String) [{call.cmdlet.name}], CimJobException",
            f"CmdletizationQuery_NotFound_{key},{call.cmdlet.name}",
        )
    return found


def _get(call: CmdletCall) -> None:
    directions, enabled, action = (
        call.text(key).lower() for key in ("Direction", "Enabled", "Action")
    )
    for rule in _selected(call):
        made = _show(rule)
        if (
            directions in ("", made.properties["Direction"].lower())
            and enabled in ("", made.properties["Enabled"].lower())
            and action in ("", made.properties["Action"].lower())
        ):
            call.emit(made)


def _check(call: CmdletCall) -> None:
    if not call.process.context.windows.account.administrator:
        raise PowerShellError(
            "Access is denied. ",
            f"PermissionDenied: ({_CLASS}:root/standardcimv2/{_CLASS}) [{call.cmdlet.name}], CimException",
            f"Windows System Error 5,{call.cmdlet.name}",
            where=call.cmdlet.name,
        )


def _joined(value: Any) -> str:
    return ",".join(to_text(one) for one in to_items(value)) or "Any"


def _protocol(value: str) -> str:
    return {
        "tcp": "TCP",
        "udp": "UDP",
        "icmpv4": "ICMPv4",
        "icmpv6": "ICMPv6",
        "": "Any",
        "any": "Any",
    }.get(value.lower(), value)


def _new(call: CmdletCall) -> None:
    _check(call)
    protocol, ports = _protocol(call.text("Protocol")), _joined(call.get("LocalPort"))
    if ports != "Any" and protocol not in ("TCP", "UDP"):
        raise PowerShellError(
            "The port is invalid. ",
            f"InvalidArgument: ({_CLASS}:root/standardcimv2/{_CLASS}) [{call.cmdlet.name}], CimException",
            f"HRESULT 0x80070057,{call.cmdlet.name}",
            where=call.cmdlet.name,
        )
    profiles = tuple(
        to_text(one) for one in to_items(call.get("Profile")) if to_text(one).lower() != "any"
    )
    rule = FirewallRule(
        call.text("Name") or firewall.new_id(call.process),
        call.text("DisplayName"),
        call.text("Enabled", "True").lower() == "true",
        call.text("Direction", "Inbound").lower() != "outbound",
        call.text("Action", "Allow").lower() != "block",
        protocol,
        ports,
        _joined(call.get("RemotePort")),
        _joined(call.get("RemoteAddress")),
        call.text("Program", "Any"),
        profiles,
        call.text("Group"),
        call.text("Description"),
    )
    if any(
        known.id.lower() == rule.id.lower() for known in firewall.firewall_rules(_registry(call))
    ):
        raise PowerShellError(
            "Cannot create a file when that file already exists. ",
            f"ResourceExists: ({_CLASS}:root/standardcimv2/{_CLASS}) [{call.cmdlet.name}], CimException",
            f"Windows System Error 183,{call.cmdlet.name}",
            where=call.cmdlet.name,
        )
    firewall.put_rule(_registry(call), rule)
    if not rule.allow:
        call.warn(firewall.NOT_FILTERED)
    call.emit(_show(rule))


def _remove(call: CmdletCall) -> None:
    _check(call)
    for rule in _selected(call):
        firewall.delete_rule(_registry(call), rule)


def _set(call: CmdletCall) -> None:
    _check(call)
    for rule in _selected(call):
        enabled = call.text("Enabled", str(rule.enabled)).lower() == "true"
        if call.cmdlet.name.startswith(("Enable", "Disable")):
            enabled = call.cmdlet.name.startswith("Enable")
        profiles = tuple(map(to_text, to_items(call.get("Profile"))))
        firewall.put_rule(
            _registry(call),
            replace(
                rule,
                enabled=enabled,
                name=call.text("NewDisplayName", rule.name),
                allow=call.text("Action", "Allow" if rule.allow else "Block").lower() != "block",
                local_port=_joined(call.get("LocalPort"))
                if call.has("LocalPort")
                else rule.local_port,
                protocol=_protocol(call.text("Protocol"))
                if call.has("Protocol")
                else rule.protocol,
                remote_port=_joined(call.get("RemotePort"))
                if call.has("RemotePort")
                else rule.remote_port,
                remote_address=_joined(call.get("RemoteAddress"))
                if call.has("RemoteAddress")
                else rule.remote_address,
                program=call.text("Program", rule.program),
                description=call.text("Description", rule.description),
                inbound=call.text("Direction", "Inbound" if rule.inbound else "Outbound").lower()
                != "outbound",
                profiles=tuple(one for one in profiles if one.lower() != "any")
                if profiles
                else rule.profiles,
            ),
        )


def _port_filter(call: CmdletCall) -> None:
    for rule in _selected(call):
        call.emit(
            PsObject(
                "MSFT_NetProtocolPortFilter",
                {
                    "Protocol": rule.protocol,
                    "LocalPort": rule.local_port,
                    "RemotePort": rule.remote_port,
                    "IcmpType": "Any",
                    "DynamicTarget": "Any",
                    "InstanceID": rule.id,
                },
            )
        )


def _profile_names(call: CmdletCall) -> list[str]:
    given = call.get("Name", call.get("Profile"))
    wanted = [to_text(one).lower() for one in to_items(given) if to_text(one).lower() != "any"]
    wanted += [
        to_text(value.get("Name")).lower()
        for value in call.input or []
        if isinstance(value, PsObject)
    ]
    return [name for name in firewall.PROFILES if not wanted or name.lower() in wanted]


def _get_profile(call: CmdletCall) -> None:
    for name in _profile_names(call):
        call.emit(
            PsObject(
                "MSFT_NetFirewallProfile",
                {
                    "Name": name,
                    "Enabled": firewall.profile_enabled(_registry(call), name),
                    "DefaultInboundAction": "NotConfigured",
                    "DefaultOutboundAction": "NotConfigured",
                    "AllowInboundRules": "NotConfigured",
                    "LogFileName": r"%systemroot%\system32\LogFiles\Firewall\pfirewall.log",
                    "LogMaxSizeKilobytes": 4096,
                },
                name,
            )
        )


def _set_profile(call: CmdletCall) -> None:
    _check(call)
    if call.has("Enabled"):
        for name in _profile_names(call):
            firewall.enable_profile(_registry(call), name, call.text("Enabled").lower() == "true")


_SELECT: Final = "DisplayName DisplayGroup Group InputObject AssociatedNetFirewallRule"
_VALUES: Final = "Action LocalPort RemotePort Protocol RemoteAddress Profile Program Description Enabled Direction"

CMDLETS = (
    cmdlet_row(
        "Get-NetFirewallRule",
        _get,
        "Name",
        "All",
        f"{_SELECT} Direction Enabled Action PolicyStore",
    ),
    cmdlet_row(
        "New-NetFirewallRule", _new, "", "", f"Name DisplayName Group {_VALUES} InterfaceAlias"
    ),
    cmdlet_row("Remove-NetFirewallRule", _remove, "Name", "", _SELECT),
    cmdlet_row("Set-NetFirewallRule", _set, "Name", "", f"{_SELECT} NewDisplayName {_VALUES}"),
    cmdlet_row("Enable-NetFirewallRule", _set, "Name", "", _SELECT),
    cmdlet_row("Disable-NetFirewallRule", _set, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallPortFilter", _port_filter, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallProfile", _get_profile, "Name", "All", "Profile"),
    cmdlet_row("Set-NetFirewallProfile", _set_profile, "Name", "All", "Profile Enabled"),
)
