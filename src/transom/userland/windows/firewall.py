r"""The firewall of a Windows system: its rules and profiles are in the registry, as on Windows, and
netsh and the NetFirewallRule cmdlets read and write them there. Simulated packets are not filtered
by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from transom.machines.windows.registry import WindowsRegistry
from transom.userland.process import Process

POLICY: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy"
RULES: Final = POLICY + r"\FirewallRules"
PROFILES: Final = {
    "Domain": "DomainProfile",
    "Private": "StandardProfile",
    "Public": "PublicProfile",
}
_PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "ICMPv4": 1, "ICMPv6": 58}
_NUMBERS: Final = {str(number): name for name, number in _PROTOCOLS.items()}
_VERSION: Final = "v2.28"
NOT_FILTERED: Final = "The rule is stored, but simulated packets are not filtered by it."


@dataclass(frozen=True, slots=True)
class FirewallRule:
    id: str
    name: str
    enabled: bool = True
    inbound: bool = True
    allow: bool = True
    protocol: str = "Any"
    local_port: str = "Any"
    remote_port: str = "Any"
    remote_address: str = "Any"
    program: str = "Any"
    profiles: tuple[str, ...] = ()  # () for all
    group: str = ""
    description: str = ""

    @property
    def profile(self) -> str:
        return ",".join(self.profiles) or "Any"


# The common rules of a fresh Windows Server.
_FRESH: Final = (
    FirewallRule(
        "FPS-ICMP4-ERQ-In",
        "File and Printer Sharing (Echo Request - ICMPv4-In)",
        protocol="ICMPv4",
        group="File and Printer Sharing",
    ),
    FirewallRule(
        "FPS-SMB-In-TCP",
        "File and Printer Sharing (SMB-In)",
        protocol="TCP",
        local_port="445",
        group="File and Printer Sharing",
    ),
    FirewallRule(
        "CoreNet-DNS-Out-UDP",
        "Core Networking - DNS (UDP-Out)",
        inbound=False,
        protocol="UDP",
        remote_port="53",
        group="Core Networking",
    ),
    FirewallRule(
        "RemoteDesktop-UserMode-In-TCP",
        "Remote Desktop - User Mode (TCP-In)",
        enabled=False,
        protocol="TCP",
        local_port="3389",
        group="Remote Desktop",
    ),
    FirewallRule(
        "WINRM-HTTP-In-TCP",
        "Windows Remote Management (HTTP-In)",
        protocol="TCP",
        local_port="5985",
        group="Windows Remote Management",
    ),
)


def firewall_rules(registry: WindowsRegistry) -> list[FirewallRule]:
    values = registry.values(RULES)
    if values is None:
        return list(_FRESH)
    found = (_parse(name, str(value)) for name, value in values.items())
    return sorted((rule for rule in found if rule is not None), key=lambda rule: rule.name.lower())


def _materialise(registry: WindowsRegistry) -> None:
    if registry.values(RULES) is None:
        for rule in _FRESH:
            registry.set(RULES, rule.id, _format(rule))


def put_rule(registry: WindowsRegistry, rule: FirewallRule) -> None:
    _materialise(registry)
    registry.set(RULES, rule.id, _format(rule))


def delete_rule(registry: WindowsRegistry, rule: FirewallRule) -> None:
    _materialise(registry)
    registry.delete(RULES, rule.id)


def _format(rule: FirewallRule) -> str:
    fields = [
        _VERSION,
        f"Action={'Allow' if rule.allow else 'Block'}",
        f"Active={'TRUE' if rule.enabled else 'FALSE'}",
        f"Dir={'In' if rule.inbound else 'Out'}",
    ]
    if rule.protocol != "Any":
        fields.append(f"Protocol={_PROTOCOLS.get(rule.protocol, rule.protocol)}")
    fields += [f"Profile={profile}" for profile in rule.profiles]
    for key, value in (("LPort", rule.local_port), ("RPort", rule.remote_port)):
        fields += [f"{key}={port}" for port in value.split(",")] if value != "Any" else []
    if rule.remote_address != "Any":
        fields.append(f"RA4={rule.remote_address}")
    if rule.program != "Any":
        fields.append(f"App={rule.program}")
    fields += [f"Name={rule.name}", f"Desc={rule.description}", f"EmbedCtxt={rule.group}"]
    return "|".join(fields) + "|"


def _parse(id_: str, text: str) -> FirewallRule | None:
    pairs = [field.partition("=") for field in text.split("|")[1:] if "=" in field]
    found: dict[str, list[str]] = {}
    for key, _, value in pairs:
        found.setdefault(key.lower(), []).append(value)
    if "name" not in found or "dir" not in found:
        return None

    def one(key: str, default: str = "Any") -> str:
        return ",".join(found.get(key, ())) or default

    return FirewallRule(
        id_,
        one("name", id_),
        one("active", "TRUE") == "TRUE",
        one("dir") == "In",
        one("action", "Allow") == "Allow",
        _NUMBERS.get(one("protocol"), one("protocol")),
        one("lport"),
        one("rport"),
        one("ra4"),
        one("app"),
        tuple(found.get("profile", ())),
        one("embedctxt", ""),
        one("desc", ""),
    )


def profile_enabled(registry: WindowsRegistry, profile: str) -> bool:
    return registry.get(rf"{POLICY}\{PROFILES[profile]}", "EnableFirewall") != 0


def enable_profile(registry: WindowsRegistry, profile: str, on: bool) -> None:
    registry.set(rf"{POLICY}\{PROFILES[profile]}", "EnableFirewall", int(on))


# ---- netsh advfirewall


def _named(words: Iterable[str]) -> dict[str, str]:
    return {
        key.lower(): value.strip('"')
        for key, _, value in (word.partition("=") for word in words if "=" in word)
    }


def _protocol(text: str) -> str:
    return next(
        (name for name in _PROTOCOLS if name.lower() == text.lower()),
        _NUMBERS.get(text, text.upper()),
    )


def advfirewall(process: Process, words: Sequence[str]) -> int:
    lower = [word.lower() for word in words]
    registry = process.context.windows.system.registry
    if lower[:1] == ["show"] and len(lower) > 1:
        wanted = _profiles(lower[1])
        if wanted:
            return _show_profiles(process, wanted)
    if (
        lower[:1] == ["set"]
        and len(lower) > 3
        and lower[2] == "state"
        and lower[3] in ("on", "off")
    ):
        wanted = _profiles(lower[1])
        if wanted and _allowed(process):
            for profile in wanted:
                enable_profile(registry, profile, lower[3] == "on")
            process.print_line("Ok.\r\n")
            return 0
        return 1
    if lower[:1] == ["firewall"] and len(lower) > 2 and lower[2] == "rule":
        named = _named(words[3:])
        match lower[1]:
            case "show":
                return _show_rules(process, named)
            case "add":
                return _add_rule(process, named)
            case "delete":
                return _delete_rules(process, named)
            case "set":
                return _set_rules(process, words[3:])
    process.print_line(f"The following command was not found: advfirewall {' '.join(words)}.")
    return 1


def _profiles(word: str) -> list[str]:
    if word == "allprofiles":
        return list(PROFILES)
    if word == "currentprofile":
        return ["Public"]
    return [name for name in PROFILES if f"{name.lower()}profile" == word]


def _allowed(process: Process) -> bool:
    if process.context.windows.account.administrator:
        return True
    process.print_line("The requested operation requires elevation (Run as administrator).\r\n")
    return False


def _show_profiles(process: Process, wanted: Sequence[str]) -> int:
    for profile in wanted:
        on = profile_enabled(process.context.windows.system.registry, profile)
        process.print_line(f"\r\n{profile} Profile Settings: \r\n{'-' * 70}")
        process.print_line(f"{'State':<38}{'ON' if on else 'OFF'}")
        process.print_line(f"{'Firewall Policy':<38}BlockInbound,AllowOutbound")
        process.print_line(f"{'LocalFirewallRules':<38}N/A (GPO-store only)")
        process.print_line(f"{'InboundUserNotification':<38}Disable")
    process.print_line("Ok.\r\n")
    return 0


def _matching(process: Process, named: Mapping[str, str]) -> list[FirewallRule]:
    wanted = named.get("name", "")
    found = firewall_rules(process.context.windows.system.registry)
    if wanted.lower() != "all":
        found = [rule for rule in found if rule.name.lower() == wanted.lower()]
    if "dir" in named:
        found = [rule for rule in found if rule.inbound == (named["dir"].lower() == "in")]
    if "protocol" in named:
        found = [rule for rule in found if rule.protocol == _protocol(named["protocol"])]
    if "localport" in named:
        found = [rule for rule in found if rule.local_port == named["localport"]]
    return found


def _show_rules(process: Process, named: Mapping[str, str]) -> int:
    if "name" not in named:
        process.print_line("A required parameter is missing: name.\r\n")
        return 1
    found = _matching(process, named)
    if not found:
        process.print_line("\r\nNo rules match the specified criteria.\r\n")
        return 1
    for rule in found:
        rows = [
            ("Enabled", "Yes" if rule.enabled else "No"),
            ("Direction", "In" if rule.inbound else "Out"),
            ("Profiles", "Domain,Private,Public" if not rule.profiles else rule.profile),
            ("Grouping", rule.group),
            ("LocalIP", "Any"),
            ("RemoteIP", rule.remote_address),
            ("Protocol", rule.protocol),
        ]
        if rule.protocol in ("TCP", "UDP"):
            rows += [("LocalPort", rule.local_port), ("RemotePort", rule.remote_port)]
        rows += [("Edge traversal", "No"), ("Action", "Allow" if rule.allow else "Block")]
        process.print_line(f"\r\n{'Rule Name:':<38}{rule.name}\r\n{'-' * 70}")
        for key, value in rows:
            process.print_line(f"{key + ':':<38}{value}")
    process.print_line("Ok.\r\n")
    return 0


def _add_rule(process: Process, named: Mapping[str, str]) -> int:
    for name in ("name", "dir", "action"):
        if name not in named:
            process.print_line(f"A required parameter is missing: {name}.\r\n")
            return 1
    if not _allowed(process):
        return 1
    protocol = (
        _protocol(named.get("protocol", "Any"))
        if named.get("protocol", "any").lower() != "any"
        else "Any"
    )
    if protocol == "Any" and ("localport" in named or "remoteport" in named):
        process.print_line("A port can be specified only if the protocol is TCP or UDP.\r\n")
        return 1
    rule = FirewallRule(
        new_id(process),
        named["name"],
        named.get("enable", "yes").lower() == "yes",
        named["dir"].lower() == "in",
        named["action"].lower() == "allow",
        protocol,
        named.get("localport", "Any"),
        named.get("remoteport", "Any"),
        named.get("remoteip", "Any"),
        named.get("program", "Any"),
        description=named.get("description", ""),
    )
    put_rule(process.context.windows.system.registry, rule)
    if not rule.allow:
        process.complain(f"WARNING: {NOT_FILTERED}")
    process.print_line("Ok.\r\n")
    return 0


def new_id(process: Process) -> str:
    number = process.context.rng.getrandbits(128)
    text = f"{number:032X}"
    return f"{{{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}}}"


def _delete_rules(process: Process, named: Mapping[str, str]) -> int:
    if not _allowed(process):
        return 1
    found = _matching(process, named)
    if not found:
        process.print_line("\r\nNo rules match the specified criteria.\r\n")
        return 1
    for rule in found:
        delete_rule(process.context.windows.system.registry, rule)
    process.print_line(f"\r\nDeleted {len(found)} rule(s).\r\nOk.\r\n")
    return 0


def _set_rules(process: Process, words: Sequence[str]) -> int:
    at = next((i for i, word in enumerate(words) if word.lower() == "new"), len(words))
    found, new = _matching(process, _named(words[:at])), _named(words[at + 1 :])
    if not _allowed(process):
        return 1
    if not found:
        process.print_line("\r\nNo rules match the specified criteria.\r\n")
        return 1
    for rule in found:
        put_rule(
            process.context.windows.system.registry,
            replace(
                rule,
                enabled=new.get("enable", "yes" if rule.enabled else "no").lower() == "yes",
                allow=new.get("action", "allow" if rule.allow else "block").lower() == "allow",
                local_port=new.get("localport", rule.local_port),
                remote_port=new.get("remoteport", rule.remote_port),
                remote_address=new.get("remoteip", rule.remote_address),
            ),
        )
    process.print_line(f"\r\nUpdated {len(found)} rule(s).\r\nOk.\r\n")
    return 0
