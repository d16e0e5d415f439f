"""The firewall in PowerShell: the rules and profiles that netsh advfirewall has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from transom.machines.windows import firewall
from transom.machines.windows.firewall import ANY, FirewallRule, Setting
from transom.machines.windows.registry import WindowsRegistry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import PowerShellError, PsObject, to_items, to_text
from transom.userland.windows.firewall import (
    NOT_FILTERED,
    any_value,
    filtered,
    new_id,
    profile_names,
    protocol_name,
)

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
            "LooseSourceMapping": False,
            "LocalOnlyMapping": False,
            "Owner": None,
            "PrimaryStatus": "OK",
            "Status": "The rule was parsed successfully from the store. (65536)",
            "EnforcementStatus": "NotApplicable",
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
    return any_value(",".join(to_text(one) for one in to_items(value)) or ANY)


def _invalid(call: CmdletCall, text: str) -> PowerShellError:
    return PowerShellError(
        text,
        f"InvalidArgument: ({_CLASS}:root/standardcimv2/{_CLASS}) [{call.cmdlet.name}], CimException",
        f"HRESULT 0x80070057,{call.cmdlet.name}",
        where=call.cmdlet.name,
    )


def _icmp_types(call: CmdletCall) -> str:
    kinds = [to_text(one) for one in to_items(call.get("IcmpType"))]
    return any_value(",".join(kind if ":" in kind else f"{kind}:*" for kind in kinds))


def _with_values(call: CmdletCall, rule: FirewallRule) -> FirewallRule:
    """The rule with the values of the call. Raises PowerShellError."""
    protocol = protocol_name(call.text("Protocol", rule.protocol))
    given = ",".join(to_text(one) for one in to_items(call.get("Profile"))) or rule.profile
    profiles = profile_names(given)
    if protocol is None or profiles is None:
        raise _invalid(call, "The parameter is incorrect. ")

    def value(parameter: str, now: str) -> str:
        return _joined(call.get(parameter)) if call.has(parameter) else now

    made = replace(
        rule,
        enabled=call.text("Enabled", str(rule.enabled)).lower() == "true",
        inbound=call.text("Direction", "Inbound" if rule.inbound else "Outbound").lower()
        != "outbound",
        allow=call.text("Action", "Allow" if rule.allow else "Block").lower() != "block",
        protocol=protocol,
        local_port=value("LocalPort", rule.local_port),
        remote_port=value("RemotePort", rule.remote_port),
        local_address=value("LocalAddress", rule.local_address),
        remote_address=value("RemoteAddress", rule.remote_address),
        program=any_value(call.text("Program", rule.program)),
        profiles=profiles,
        description=call.text("Description", rule.description),
        icmp_type=_icmp_types(call) if call.has("IcmpType") else rule.icmp_type,
    )
    ports = (made.local_port, made.remote_port)
    if any(port != ANY for port in ports) and made.protocol not in ("TCP", "UDP"):
        raise _invalid(call, "The port is invalid. ")
    if any(firewall.parse_port_ranges(port) is None for port in ports):
        raise _invalid(call, "The port is invalid. ")
    if any(
        firewall.parse_addresses(one) is None for one in (made.local_address, made.remote_address)
    ):
        raise _invalid(call, "The address is invalid. ")
    return made


def _new(call: CmdletCall) -> None:
    _check(call)
    id_ = call.text("Name") or new_id(call.process)
    rule = _with_values(call, FirewallRule(id_, call.text("DisplayName"), group=call.text("Group")))
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
    if not rule.allow and not filtered(call.process):
        call.warn(NOT_FILTERED)
    call.emit(_show(rule))


def _remove(call: CmdletCall) -> None:
    _check(call)
    for rule in _selected(call):
        firewall.delete_rule(_registry(call), rule)


def _set(call: CmdletCall) -> None:
    _check(call)
    for rule in _selected(call):
        made = _with_values(call, replace(rule, name=call.text("NewDisplayName", rule.name)))
        firewall.put_rule(_registry(call), made)


def _switch(call: CmdletCall) -> None:
    _check(call)
    for rule in _selected(call):
        on = call.cmdlet.name.startswith("Enable")
        firewall.put_rule(_registry(call), replace(rule, enabled=on))


def _port_filter(call: CmdletCall) -> None:
    for rule in _selected(call):
        call.emit(
            PsObject(
                "MSFT_NetProtocolPortFilter",
                {
                    "Protocol": rule.protocol,
                    "LocalPort": rule.local_port,
                    "RemotePort": rule.remote_port,
                    "IcmpType": rule.icmp_type,
                    "DynamicTarget": "Any",
                    "InstanceID": rule.id,
                },
            )
        )


def _address_filter(call: CmdletCall) -> None:
    for rule in _selected(call):
        addresses = {"LocalAddress": rule.local_address, "RemoteAddress": rule.remote_address}
        call.emit(PsObject("MSFT_NetAddressFilter", {**addresses, "InstanceID": rule.id}))


def _application_filter(call: CmdletCall) -> None:
    for rule in _selected(call):
        values = {"Program": rule.program, "Package": "", "InstanceID": rule.id}
        call.emit(PsObject("MSFT_NetApplicationFilter", values))


def _profile_names(call: CmdletCall) -> list[str]:
    given = call.get("Name", call.get("Profile"))
    wanted = [to_text(one).lower() for one in to_items(given) if to_text(one).lower() != "any"]
    wanted += [
        to_text(value.get("Name")).lower()
        for value in call.input or []
        if isinstance(value, PsObject)
    ]
    return [name for name in firewall.PROFILES if not wanted or name.lower() in wanted]


_ACTIONS: Final[dict[str, int | None]] = {"allow": 0, "block": 1, "notconfigured": None}
_SETTINGS: Final[dict[str, tuple[Setting, dict[str, int | None]]]] = {
    "Enabled": ("EnableFirewall", {"false": 0, "true": 1, "notconfigured": None}),
    "DefaultInboundAction": ("DefaultInboundAction", _ACTIONS),
    "DefaultOutboundAction": ("DefaultOutboundAction", _ACTIONS),
    "AllowInboundRules": (
        "DoNotAllowExceptions",
        {"true": 0, "false": 1, "notconfigured": None},
    ),
}


def _setting_text(call: CmdletCall, profile: str, parameter: str) -> str:
    setting, values = _SETTINGS[parameter]
    found = firewall.profile_setting(_registry(call), profile, setting)
    names = {"allow": "Allow", "block": "Block", "true": "True", "false": "False"}
    shown = next(
        (names[key] for key, value in values.items() if key in names and value == found), ""
    )
    return shown or "NotConfigured"


def _get_profile(call: CmdletCall) -> None:
    for name in _profile_names(call):
        call.emit(
            PsObject(
                "MSFT_NetFirewallProfile",
                {
                    "Name": name,
                    "Enabled": firewall.profile_enabled(_registry(call), name),
                    "DefaultInboundAction": _setting_text(call, name, "DefaultInboundAction"),
                    "DefaultOutboundAction": _setting_text(call, name, "DefaultOutboundAction"),
                    "AllowInboundRules": _setting_text(call, name, "AllowInboundRules"),
                    "LogFileName": r"%systemroot%\system32\LogFiles\Firewall\pfirewall.log",
                    "LogMaxSizeKilobytes": 4096,
                },
                name,
            )
        )


def _set_profile(call: CmdletCall) -> None:
    _check(call)
    for parameter, (setting, values) in _SETTINGS.items():
        if not call.has(parameter):
            continue
        text = call.text(parameter).lower()
        if text not in values:
            raise _invalid(call, "The parameter is incorrect. ")
        for name in _profile_names(call):
            firewall.set_profile(_registry(call), name, setting, values[text])


_SELECT: Final = "DisplayName DisplayGroup Group InputObject AssociatedNetFirewallRule"
_VALUES: Final = (
    "Action LocalPort RemotePort Protocol LocalAddress RemoteAddress IcmpType Profile Program "
    "Description Enabled Direction"
)

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
    cmdlet_row("Enable-NetFirewallRule", _switch, "Name", "", _SELECT),
    cmdlet_row("Disable-NetFirewallRule", _switch, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallPortFilter", _port_filter, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallAddressFilter", _address_filter, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallApplicationFilter", _application_filter, "Name", "", _SELECT),
    cmdlet_row("Get-NetFirewallProfile", _get_profile, "Name", "All", "Profile"),
    cmdlet_row(
        "Set-NetFirewallProfile", _set_profile, "Name", "All", f"Profile {' '.join(_SETTINGS)}"
    ),
)
