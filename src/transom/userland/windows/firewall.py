"""netsh advfirewall. The rules and profiles are in the registry (`machines.windows.firewall`), where
the NetFirewallRule cmdlets find them, too. Those of a machine filter its packets; a container has
no firewall, and what is stored there changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from transom.machines.windows.firewall import (
    ACTIVE_PROFILE,
    ANY,
    PROFILES,
    PROTOCOLS,
    FirewallRule,
    blocks_inbound,
    blocks_outbound,
    delete_rule,
    firewall_rules,
    parse_addresses,
    parse_port_ranges,
    profile_enabled,
    profile_setting,
    put_rule,
    reset_firewall,
    set_profile,
)
from transom.userland.process import Process

NOT_FILTERED: Final = "The rule is stored, but a container has no firewall that applies it."
_NUMBERS: Final = {str(number): name for name, number in PROTOCOLS.items()}
_SYNTAX: Final = (
    "The syntax supplied for this command is not valid. Check help for the correct syntax.\r\n"
)
_NO_MATCH: Final = "\r\nNo rules match the specified criteria.\r\n"
_FILTERS: Final = frozenset(
    [
        "name",
        "dir",
        "profile",
        "program",
        "localip",
        "remoteip",
        "localport",
        "remoteport",
        "protocol",
    ]
)
_VALUES: Final = frozenset(["action", "description", "enable"])
# Parameters of rules that have no effect here with these values, and are refused with others.
_USUAL: Final = {
    "service": ("any",),
    "interfacetype": ("any", "lan"),
    "edge": ("no", "yes", "deferapp", "deferuser"),
    "security": ("notrequired",),
    "rmtcomputergrp": ("any",),
    "rmtusrgrp": ("any",),
}


class _BadRule(Exception):
    """What netsh prints about a rule that it does not accept."""


def filtered(process: Process) -> bool:
    """Whether the firewall of this system filters packets."""
    return process.context.node is not None


def _named(words: Iterable[str]) -> dict[str, str]:
    return {
        key.lower(): value.strip('"')
        for key, _, value in (word.partition("=") for word in words if "=" in word)
    }


def protocol_name(text: str) -> str | None:
    """As rules have it; None if it is not a protocol."""
    if text.lower() in ("", "any"):
        return ANY
    known = next((name for name in PROTOCOLS if name.lower() == text.lower()), None)
    if known is not None:
        return known
    return _NUMBERS.get(text, text) if text.isdecimal() and int(text) < 256 else None


def profile_names(text: str) -> tuple[str, ...] | None:
    """() for all; None if one is not a profile."""
    words = [word.strip().lower() for word in text.split(",")]
    if "any" in words:
        return ()
    found = [name for name in PROFILES if name.lower() in words]
    return tuple(found) if len(found) == len(set(words)) else None


def advfirewall(process: Process, words: Sequence[str]) -> int:
    lower = [word.lower() for word in words]
    if lower[:1] == ["show"] and len(lower) > 1 and _profiles(lower[1]):
        return _show_profiles(process, _profiles(lower[1]), lower[2:])
    if lower[:1] == ["set"] and len(lower) > 1 and _profiles(lower[1]):
        return _set_profiles(process, _profiles(lower[1]), lower[2:])
    if lower == ["reset"]:
        if not _allowed(process):
            return 1
        reset_firewall(process.context.windows.system.registry)
        process.print_line("Ok.\r\n")
        return 0
    if lower[:1] == ["firewall"] and len(lower) > 2 and lower[2] == "rule":
        command = {
            "show": _show_rules,
            "add": _add_rule,
            "delete": _delete_rules,
            "set": _set_rules,
        }.get(lower[1])
        if command is not None:
            try:
                return command(process, words[3:])
            except _BadRule as problem:
                process.print_line(f"\r\n{problem}\r\n")
                return 1
    process.print_line(f"The following command was not found: advfirewall {' '.join(words)}.")
    return 1


def _profiles(word: str) -> list[str]:
    if word == "allprofiles":
        return list(PROFILES)
    if word == "currentprofile":
        return [ACTIVE_PROFILE]
    return [name for name in PROFILES if f"{name.lower()}profile" == word]


def _allowed(process: Process) -> bool:
    if process.context.windows.account.administrator:
        return True
    process.print_line("The requested operation requires elevation (Run as administrator).\r\n")
    return False


# ---- profiles ----

_INBOUND: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # DefaultInboundAction, DoNotAllowExceptions
    "blockinbound": (1, 0),
    "blockinboundalways": (1, 1),
    "allowinbound": (0, 0),
    "notconfigured": (None, None),
}
_OUTBOUND: Final[Mapping[str, int | None]] = {
    "allowoutbound": 0,
    "blockoutbound": 1,
    "notconfigured": None,
}
_STATES: Final[Mapping[str, int | None]] = {"on": 1, "off": 0, "notconfigured": None}


def _set_profiles(process: Process, wanted: Sequence[str], words: Sequence[str]) -> int:
    registry = process.context.windows.system.registry
    setting, value = words[0] if words else "", words[1] if len(words) > 1 else ""
    inbound, _, outbound = value.partition(",")
    valid = (setting == "state" and value in _STATES) or (
        setting == "firewallpolicy" and inbound in _INBOUND and outbound in _OUTBOUND
    )
    if setting not in ("state", "firewallpolicy") or not value:
        process.print_line(f"\r\n{_SYNTAX}")
        return 1
    if not valid:
        process.print_line("\r\nA specified value is not valid.\r\n")
        return 1
    if not _allowed(process):
        return 1
    for profile in wanted:
        if setting == "state":
            set_profile(registry, profile, "EnableFirewall", _STATES[value])
            continue
        action, shielded = _INBOUND[inbound]
        set_profile(registry, profile, "DefaultInboundAction", action)
        set_profile(registry, profile, "DoNotAllowExceptions", shielded)
        set_profile(registry, profile, "DefaultOutboundAction", _OUTBOUND[outbound])
    process.print_line("Ok.\r\n")
    return 0


def _policy(process: Process, profile: str) -> str:
    registry = process.context.windows.system.registry
    if profile_setting(registry, profile, "DoNotAllowExceptions") == 1:
        inbound = "BlockInboundAlways"
    else:
        inbound = "BlockInbound" if blocks_inbound(registry, profile) else "AllowInbound"
    outbound = "BlockOutbound" if blocks_outbound(registry, profile) else "AllowOutbound"
    return f"{inbound},{outbound}"


_LOG_FILE: Final = r"%systemroot%\system32\LogFiles\Firewall\pfirewall.log"


def _show_profiles(process: Process, wanted: Sequence[str], words: Sequence[str]) -> int:
    part = words[0] if words else ""
    if part not in ("", "state", "firewallpolicy", "settings", "logging"):
        process.print_line(f"\r\n{_SYNTAX}")
        return 1
    for profile in wanted:
        on = profile_enabled(process.context.windows.system.registry, profile)
        process.print_line(f"\r\n{profile} Profile Settings: \r\n{'-' * 70}")
        if part in ("", "state"):
            process.print_line(f"{'State':<38}{'ON' if on else 'OFF'}")
        if part in ("", "firewallpolicy"):
            process.print_line(f"{'Firewall Policy':<38}{_policy(process, profile)}")
        if part in ("", "settings"):
            process.print_line(f"{'LocalFirewallRules':<38}N/A (GPO-store only)")
            process.print_line(f"{'LocalConSecRules':<38}N/A (GPO-store only)")
            process.print_line(f"{'InboundUserNotification':<38}Disable")
            process.print_line(f"{'RemoteManagement':<38}Disable")
            process.print_line(f"{'UnicastResponseToMulticast':<38}Enable")
        if part in ("", "logging"):
            process.print_line("\r\nLogging:")
            process.print_line(f"{'LogAllowedConnections':<38}Disable")
            process.print_line(f"{'LogDroppedConnections':<38}Disable")
            process.print_line(f"{'FileName':<38}{_LOG_FILE}")
            process.print_line(f"{'MaxFileSize':<38}4096\r\n")
    process.print_line("Ok.\r\n")
    return 0


# ---- rules ----


def _arguments(words: Sequence[str], known: Iterable[str], *flags: str) -> dict[str, str]:
    """name=value; `flags` stand alone. Raises _BadRule."""
    valid = set(known)
    for word in words:
        name, equals, _ = word.partition("=")
        if (not equals and word.lower() not in flags) or (equals and name.lower() not in valid):
            raise _BadRule(f"'{name}' is not a valid argument for this command.\r\n{_SYNTAX}")
    return _named(words)


def _matching(process: Process, named: Mapping[str, str]) -> list[FirewallRule]:
    if "name" not in named:
        raise _BadRule(f"One or more essential parameters were not specified.\r\n{_SYNTAX}")
    wanted = named["name"].lower()
    profiles = profile_names(named.get("profile", "any"))
    if profiles is None or named.get("dir", "in").lower() not in ("in", "out"):
        raise _BadRule(f"A specified value is not valid.\r\n{_SYNTAX}")
    found = []
    for rule in firewall_rules(process.context.windows.system.registry):
        values = {
            "localport": rule.local_port,
            "remoteport": rule.remote_port,
            "localip": rule.local_address,
            "remoteip": rule.remote_address,
            "program": rule.program,
            "protocol": rule.protocol,
        }
        same = all(named.get(key, value).lower() == value.lower() for key, value in values.items())
        inbound = named.get("dir", "in" if rule.inbound else "out").lower() == "in"
        if (
            wanted in ("all", rule.name.lower())
            and same
            and inbound == rule.inbound
            and (not profiles or set(profiles) & set(rule.profiles or PROFILES))
        ):
            found.append(rule)
    return found


def _show_rules(process: Process, words: Sequence[str]) -> int:
    known = {"name", "profile", "type", "dir", "status"}
    named = _arguments(words, known, "verbose")
    found = _matching(process, named)
    if not found:
        process.print_line(_NO_MATCH)
        return 1
    verbose = any(word.lower() == "verbose" for word in words)
    for rule in found:
        rows = [
            ("Enabled", "Yes" if rule.enabled else "No"),
            ("Direction", "In" if rule.inbound else "Out"),
            ("Profiles", "Domain,Private,Public" if not rule.profiles else rule.profile),
            ("Grouping", rule.group),
            ("LocalIP", rule.local_address),
            ("RemoteIP", rule.remote_address),
            ("Protocol", rule.protocol),
        ]
        if verbose:
            rows.insert(0, ("Description", rule.description))
        if rule.protocol in ("TCP", "UDP"):
            rows += [("LocalPort", rule.local_port), ("RemotePort", rule.remote_port)]
        rows.append(("Edge traversal", "No"))
        if verbose:
            rows += [
                ("Program", rule.program if rule.program != ANY else ""),
                ("InterfaceTypes", ANY),
                ("Security", "NotRequired"),
                ("Rule source", "Local Setting"),
            ]
        rows.append(("Action", "Allow" if rule.allow else "Block"))
        process.print_line(f"\r\n{'Rule Name:':<38}{rule.name}\r\n{'-' * 70}")
        for key, value in rows:
            process.print_line(f"{key + ':':<38}{value}")
        if rule.icmp_type != ANY:
            process.print_line(f"{'':<38}Type    Code")
            for kind in rule.icmp_type.split(","):
                number, _, code = kind.partition(":")
                process.print_line(f"{'':<38}{number:<8}{'Any' if code in ('', '*') else code}")
    process.print_line("Ok.\r\n")
    return 0


def _changed(rule: FirewallRule, named: Mapping[str, str]) -> FirewallRule:
    """The rule with other values. Raises _BadRule."""
    for name, usual in _USUAL.items():
        if named.get(name, usual[0]).lower() not in usual:
            raise _BadRule("The request is not supported.")
    words, _, kinds = named.get("protocol", rule.protocol).partition(":")
    protocol, profiles = protocol_name(words), profile_names(named.get("profile", rule.profile))
    direction = named.get("dir", "in" if rule.inbound else "out").lower()
    action = named.get("action", "allow" if rule.allow else "block").lower()
    enable = named.get("enable", "yes" if rule.enabled else "no").lower()
    if protocol is None:
        raise _BadRule("A specified protocol value is not valid.")
    if (
        profiles is None
        or direction not in ("in", "out")
        or action not in ("allow", "block")
        or enable not in ("yes", "no")
    ):
        raise _BadRule(f"A specified value is not valid.\r\n{_SYNTAX}")
    made = replace(
        rule,
        enabled=enable == "yes",
        inbound=direction == "in",
        allow=action == "allow",
        protocol=protocol,
        local_port=any_value(named.get("localport", rule.local_port)),
        remote_port=any_value(named.get("remoteport", rule.remote_port)),
        local_address=any_value(named.get("localip", rule.local_address)),
        remote_address=any_value(named.get("remoteip", rule.remote_address)),
        program=any_value(named.get("program", rule.program)),
        profiles=profiles,
        description=named.get("description", rule.description),
        icmp_type=kinds.replace(",", ":").replace("any", "*") if kinds else rule.icmp_type,
    )
    if made.protocol not in ("TCP", "UDP") and (made.local_port != ANY or made.remote_port != ANY):
        raise _BadRule("A port can be specified only if the protocol is TCP or UDP.")
    if parse_port_ranges(made.local_port) is None or parse_port_ranges(made.remote_port) is None:
        raise _BadRule("A specified port value is not valid.")
    if parse_addresses(made.local_address) is None or parse_addresses(made.remote_address) is None:
        raise _BadRule("A specified IP address or address keyword is not valid.")
    return made


def any_value(text: str) -> str:
    return ANY if text.lower() == "any" else text


def _add_rule(process: Process, words: Sequence[str]) -> int:
    named = _arguments(words, {*_FILTERS, *_VALUES, *_USUAL})
    if not {"name", "dir", "action"} <= set(named):
        raise _BadRule(f"One or more essential parameters were not specified.\r\n{_SYNTAX}")
    if named["name"].lower() == "all":
        raise _BadRule(f"A specified value is not valid.\r\n{_SYNTAX}")
    rule = _changed(FirewallRule(new_id(process), named["name"]), named)
    if not _allowed(process):
        return 1
    put_rule(process.context.windows.system.registry, rule)
    if not rule.allow and not filtered(process):
        process.complain(f"WARNING: {NOT_FILTERED}")
    process.print_line("Ok.\r\n")
    return 0


def new_id(process: Process) -> str:
    number = process.context.rng.getrandbits(128)
    text = f"{number:032X}"
    return f"{{{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}}}"


def _delete_rules(process: Process, words: Sequence[str]) -> int:
    found = _matching(process, _arguments(words, {*_FILTERS, "service"}))
    if not _allowed(process):
        return 1
    if not found:
        process.print_line(_NO_MATCH)
        return 1
    for rule in found:
        delete_rule(process.context.windows.system.registry, rule)
    process.print_line(f"\r\nDeleted {len(found)} rule(s).\r\nOk.\r\n")
    return 0


def _set_rules(process: Process, words: Sequence[str]) -> int:
    at = next((i for i, word in enumerate(words) if word.lower() == "new"), len(words))
    wanted = _arguments(words[:at], {*_FILTERS, "group", "service"})
    new = _arguments(words[at + 1 :], {*_FILTERS, *_VALUES, *_USUAL})
    if at == len(words) or not new:
        raise _BadRule(f"One or more essential parameters were not specified.\r\n{_SYNTAX}")
    if "group" in wanted:
        rules = firewall_rules(process.context.windows.system.registry)
        found = [rule for rule in rules if rule.group.lower() == wanted["group"].lower()]
    else:
        found = _matching(process, wanted)
    if not _allowed(process):
        return 1
    if not found:
        process.print_line(_NO_MATCH)
        return 1
    changed = [replace(_changed(rule, new), name=new.get("name", rule.name)) for rule in found]
    for rule in changed:
        put_rule(process.context.windows.system.registry, rule)
    process.print_line(f"\r\nUpdated {len(found)} rule(s).\r\nOk.\r\n")
    return 0
