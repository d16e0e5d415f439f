r"""The Windows Defender Firewall of a machine: rules and profiles are registry values, as on Windows,
and `WindowsFirewall` decides about connections by them. It knows no packets and no commands.

A rule that blocks wins over one that allows; without a matching rule, the default action of the
active profile decides. The networks of a node are never identified, so that profile is Public.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import Hive, WindowsRegistry

POLICY: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy"
RULES: Final = POLICY + r"\FirewallRules"
PROFILES: Final = {
    "Domain": "DomainProfile",
    "Private": "StandardProfile",
    "Public": "PublicProfile",
}
ACTIVE_PROFILE: Final = "Public"
ANY: Final = "Any"
PROTOCOLS: Final = {"TCP": 6, "UDP": 17, "ICMPv4": 1, "ICMPv6": 58}
_SCTP: Final = "132"
_NUMBERS: Final = {str(number): name for name, number in PROTOCOLS.items()}
_VERSION: Final = "v2.28"
_PORT_NAMES: Final = {"rpcepmap": (135, 135), "rpc": (49664, 49679)}
_ECHO_REQUEST: Final = {"ICMPv4": "8", "ICMPv6": "128"}
_SYSTEM_VARIABLES: Final = {
    "%systemroot%": r"c:\windows",
    "%windir%": r"c:\windows",
    "%systemdrive%": "c:",
    "%programfiles%": r"c:\program files",
}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class FirewallRule:
    id: str
    name: str
    enabled: bool = True
    inbound: bool = True
    allow: bool = True
    protocol: str = ANY  # a key of PROTOCOLS, or a number
    local_port: str = ANY  # numbers, ranges and names, separated by commas
    remote_port: str = ANY
    remote_address: str = ANY
    program: str = ANY
    profiles: tuple[str, ...] = ()  # () for all
    group: str = ""
    description: str = ""
    local_address: str = ANY
    icmp_type: str = ANY  # TYPE:CODE, separated by commas

    @property
    def profile(self) -> str:
        return ",".join(self.profiles) or ANY


def _windows_rule(
    id_: str, name: str, group: str, protocol: str, port: str = ANY, **more: bool | str
) -> FirewallRule:
    inbound = bool(more.get("inbound", True))
    return FirewallRule(
        id_,
        name,
        enabled=bool(more.get("enabled", True)),
        inbound=inbound,
        protocol=protocol,
        local_port=port if inbound else ANY,
        remote_port=ANY if inbound else port,
        program=str(more.get("program", ANY)),
        group=group,
        description=str(more.get("description", "")),
    )


_SHARING: Final = "File and Printer Sharing"
_CORE: Final = "Core Networking"
_REMOTE: Final = "Windows Remote Management"
KUBELET_RULE: Final = "KubeletAllow10250"
OVERLAY_RULE: Final = FirewallRule(
    "OverlayTraffic4789UDP",
    "Overlay Traffic 4789 UDP",
    protocol="UDP",
    local_port="4789",
    description="Overlay network traffic UDP",
)
GENEVE_RULE: Final = FirewallRule(
    "OverlayTraffic6081UDP",
    "Overlay Traffic 6081 UDP",
    protocol="UDP",
    local_port="6081",
    description="GENEVE tunnels of OVN",
)
# The common rules of a fresh Windows Server.
FRESH_RULES: Final = (
    _windows_rule(
        "FPS-ICMP4-ERQ-In",
        "File and Printer Sharing (Echo Request - ICMPv4-In)",
        _SHARING,
        "ICMPv4",
    ),
    _windows_rule(
        "FPS-ICMP6-ERQ-In",
        "File and Printer Sharing (Echo Request - ICMPv6-In)",
        _SHARING,
        "ICMPv6",
    ),
    _windows_rule("FPS-SMB-In-TCP", "File and Printer Sharing (SMB-In)", _SHARING, "TCP", "445"),
    _windows_rule(
        "CoreNet-DNS-Out-UDP", "Core Networking - DNS (UDP-Out)", _CORE, "UDP", "53", inbound=False
    ),
    _windows_rule(
        "RemoteDesktop-UserMode-In-TCP",
        "Remote Desktop - User Mode (TCP-In)",
        "Remote Desktop",
        "TCP",
        "3389",
        enabled=False,
    ),
    _windows_rule(
        "WINRM-HTTP-In-TCP", "Windows Remote Management (HTTP-In)", _REMOTE, "TCP", "5985"
    ),
    _windows_rule(
        "WMI-RPCSS-In-TCP",
        "Windows Management Instrumentation (DCOM-In)",
        "Windows Management Instrumentation (WMI)",
        "TCP",
        "135",
        enabled=False,
    ),
)
# What the set-up of a node adds.
_NODE_RULES: Final = (
    FirewallRule(
        KUBELET_RULE,
        KUBELET_RULE,
        protocol="TCP",
        local_port="10250",
        description="Kubelet Allow 10250",
    ),
    FirewallRule(
        "KubeProxy",
        "kube-proxy",
        program=r"C:\k\kube-proxy.exe",
        description="Health checks and proxied services",
    ),
)


@cache
def node_firewall_keys() -> Hive:
    """The registry keys of the firewall on a machine that is a node."""
    profile = {"EnableFirewall": 1, "DisableNotifications": 1}
    return {
        POLICY: {},
        **{rf"{POLICY}\{key}": dict(profile) for key in PROFILES.values()},
        RULES: {rule.id: _format(rule) for rule in (*FRESH_RULES, *_NODE_RULES)},
    }


# ---- the registry ----


def firewall_rules(registry: WindowsRegistry) -> list[FirewallRule]:
    values = registry.values(RULES)
    if values is None:
        return list(FRESH_RULES)
    found = (_parse(name, str(value)) for name, value in values.items())
    return sorted((rule for rule in found if rule is not None), key=lambda rule: rule.name.lower())


def _materialise(registry: WindowsRegistry) -> None:
    if registry.values(RULES) is None:
        for rule in FRESH_RULES:
            registry.set(RULES, rule.id, _format(rule))


def put_rule(registry: WindowsRegistry, rule: FirewallRule) -> None:
    _materialise(registry)
    registry.set(RULES, rule.id, _format(rule))


def add_missing_rule(registry: WindowsRegistry, rule: FirewallRule) -> None:
    if (registry.values(RULES) or {}).get(rule.id) is None:
        put_rule(registry, rule)


def delete_rule(registry: WindowsRegistry, rule: FirewallRule) -> None:
    _materialise(registry)
    registry.delete(RULES, rule.id)


def reset_firewall(registry: WindowsRegistry) -> None:
    """The rules and profiles of a fresh Windows: those of the node's set-up are gone, too."""
    registry.delete(POLICY)
    for rule in FRESH_RULES:
        registry.set(RULES, rule.id, _format(rule))


def _format(rule: FirewallRule) -> str:
    fields = [
        _VERSION,
        f"Action={'Allow' if rule.allow else 'Block'}",
        f"Active={'TRUE' if rule.enabled else 'FALSE'}",
        f"Dir={'In' if rule.inbound else 'Out'}",
    ]
    if rule.protocol != ANY:
        fields.append(f"Protocol={PROTOCOLS.get(rule.protocol, rule.protocol)}")
    fields += [f"Profile={profile}" for profile in rule.profiles]
    for key, value in (("LPort", rule.local_port), ("RPort", rule.remote_port)):
        fields += [f"{key}={port}" for port in value.split(",")] if value != ANY else []
    if rule.icmp_type != ANY:
        key = "ICMP6" if rule.protocol == "ICMPv6" else "ICMP4"
        fields += [f"{key}={kind}" for kind in rule.icmp_type.split(",")]
    for key, value in (("LA", rule.local_address), ("RA", rule.remote_address)):
        for address in value.split(",") if value != ANY else ():
            fields.append(f"{key}{6 if ':' in address else 4}={address}")
    if rule.program != ANY:
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

    def one(key: str, default: str = ANY) -> str:
        return ",".join(found.get(key, ())) or default

    def both(key: str) -> str:
        return ",".join((*found.get(f"{key}4", ()), *found.get(f"{key}6", ()))) or ANY

    return FirewallRule(
        id_,
        one("name", id_),
        one("active", "TRUE").upper() == "TRUE",
        one("dir").lower() == "in",
        one("action", "Allow").lower() == "allow",
        _NUMBERS.get(one("protocol"), one("protocol")),
        one("lport"),
        one("rport"),
        both("ra"),
        one("app"),
        tuple(found.get("profile", ())),
        one("embedctxt", ""),
        one("desc", ""),
        both("la"),
        both("icmp"),
    )


Setting = Literal[
    "EnableFirewall", "DefaultInboundAction", "DefaultOutboundAction", "DoNotAllowExceptions"
]


def _profile_key(profile: str) -> str:
    return rf"{POLICY}\{PROFILES[profile]}"


def profile_setting(registry: WindowsRegistry, profile: str, setting: Setting) -> int | None:
    """None if it is not configured."""
    found = registry.get(_profile_key(profile), setting)
    return found if isinstance(found, int) else None


def set_profile(
    registry: WindowsRegistry, profile: str, setting: Setting, value: int | None
) -> None:
    if value is None:
        registry.delete(_profile_key(profile), setting)
    else:
        registry.set(_profile_key(profile), setting, value)


def profile_enabled(registry: WindowsRegistry, profile: str) -> bool:
    return profile_setting(registry, profile, "EnableFirewall") != 0


def blocks_inbound(registry: WindowsRegistry, profile: str) -> bool:
    return profile_setting(registry, profile, "DefaultInboundAction") != 0


def blocks_outbound(registry: WindowsRegistry, profile: str) -> bool:
    return profile_setting(registry, profile, "DefaultOutboundAction") == 1


# ---- values of rules ----


def parse_port_ranges(text: str) -> tuple[tuple[int, int], ...] | None:
    """Ranges of ports, () for any. None if it is not valid."""
    if text.lower() == "any":
        return ()
    ranges: list[tuple[int, int]] = []
    for word in text.split(","):
        named = _PORT_NAMES.get(word.strip().lower().replace("-", ""))
        first, dash, last = word.strip().partition("-")
        if named is not None:
            ranges.append(named)
        elif first.isdecimal() and (last.isdecimal() if dash else not last):
            ranges.append((int(first), int(last or first)))
        else:
            return None
        if not 0 <= ranges[-1][0] <= ranges[-1][1] <= 65535:
            return None
    return tuple(ranges)


_AddressRange = tuple[int, int, int]  # version, first and last
_NAMED_ADDRESSES: Final = ("localsubnet", "localsubnet4", "localsubnet6", "defaultgateway", "dns")


def parse_addresses(text: str) -> tuple[str | _AddressRange, ...] | None:
    """Names and ranges, () for any. None if it is not valid."""
    if text.lower() == "any":
        return ()
    found: list[str | _AddressRange] = []
    for word in text.split(","):
        name = word.strip().lower()
        if name in _NAMED_ADDRESSES:
            found.append(name)
            continue
        first, dash, last = name.partition("-")
        try:
            if dash:
                low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
            else:
                network = ipaddress.ip_network(name, strict=False)
                low, high = network[0], network[-1]
        except ValueError:
            return None
        if low.version != high.version or int(low) > int(high):
            return None
        found.append((low.version, int(low), int(high)))
    return tuple(found)


def expand_program(path: str) -> str:
    lower = path.strip('"').lower().replace("/", "\\")
    for variable, value in _SYSTEM_VARIABLES.items():
        lower = lower.replace(variable, value)
    return lower


# ---- decisions ----


class FirewallConnection(NamedTuple):
    """A new connection, as the machine sees it."""

    inbound: bool
    protocol: str  # tcp, udp, icmp, sctp
    local_address: str
    local_port: int
    remote_address: str
    remote_port: int


class FirewallDecision(NamedTuple):
    allowed: bool
    explanation: str = ""


class LocalNetwork(NamedTuple):
    """What the names of addresses in rules stand for."""

    subnets: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()
    gateways: Sequence[str] = ()
    name_servers: Sequence[str] = ()


class _CompiledRule(NamedTuple):
    rule: FirewallRule
    local_ports: tuple[tuple[int, int], ...]
    remote_ports: tuple[tuple[int, int], ...]
    local_addresses: tuple[str | _AddressRange, ...]
    remote_addresses: tuple[str | _AddressRange, ...]
    program: str  # "" for any


class _Policy(NamedTuple):
    on: bool
    shielded: bool  # no exceptions: all inbound connections are blocked
    default_block: Mapping[bool, bool]  # by whether it is inbound
    block: Mapping[bool, Sequence[_CompiledRule]]
    allow: Mapping[bool, Sequence[_CompiledRule]]


ProgramOf = Callable[[str, int], str]
"""The path of the program that has a local port of a protocol; "" if it is not known."""


def _unknown_program(_protocol: str, _port: int) -> str:
    return ""


def _no_network() -> LocalNetwork:
    return LocalNetwork()


class WindowsFirewall:
    """Decides about new connections of one machine. Replies always pass."""

    def __init__(
        self,
        registry: WindowsRegistry,
        program_of: ProgramOf = _unknown_program,
        network: Callable[[], LocalNetwork] = _no_network,
    ) -> None:
        self._registry = registry
        self._program_of = program_of
        self._network = network
        self._revision = -1
        self._policy = _Policy(False, False, {}, {}, {})

    def filters_outbound(self) -> bool:
        """Whether an outbound connection can be blocked at all."""
        policy = self._current()
        return policy.on and (policy.default_block[False] or bool(policy.block[False]))

    def decide(self, connection: FirewallConnection) -> FirewallDecision:
        policy, inbound = self._current(), connection.inbound
        if not policy.on:
            return FirewallDecision(True)
        way = "inbound" if inbound else "outbound"
        if inbound and policy.shielded:
            return FirewallDecision(False, "its firewall blocks all inbound connections")
        for one in policy.block[inbound]:
            if self._matches(one, connection):
                return FirewallDecision(
                    False, f'its firewall blocks it by the rule "{one.rule.name}"'
                )
        if not policy.default_block[inbound]:
            return FirewallDecision(True)
        for one in policy.allow[inbound]:
            if self._matches(one, connection):
                return FirewallDecision(True)
        return FirewallDecision(False, f"its firewall has no {way} rule that allows it")

    def _current(self) -> _Policy:
        if self._registry.revision != self._revision:
            self._policy = _compile(self._registry)
            self._revision = self._registry.revision
        return self._policy

    def _matches(self, one: _CompiledRule, connection: FirewallConnection) -> bool:
        v6 = ":" in connection.remote_address
        if one.rule.protocol != ANY and one.rule.protocol != _protocol_of(connection.protocol, v6):
            return False
        if one.rule.icmp_type != ANY and not _is_echo(one.rule):
            return False
        if not _port_matches(one.local_ports, connection.local_port) or not _port_matches(
            one.remote_ports, connection.remote_port
        ):
            return False
        if not self._address_matches(
            one.local_addresses, connection.local_address
        ) or not self._address_matches(one.remote_addresses, connection.remote_address):
            return False
        return not one.program or one.program == expand_program(
            self._program_of(connection.protocol, connection.local_port)
            if connection.inbound
            else ""
        )

    def _address_matches(self, wanted: Sequence[str | _AddressRange], text: str) -> bool:
        if not wanted:
            return True
        address = ipaddress.ip_address(text)
        return any(
            self._named_address(one, address)
            if isinstance(one, str)
            else one[0] == address.version and one[1] <= int(address) <= one[2]
            for one in wanted
        )

    def _named_address(self, name: str, address: Address) -> bool:
        network = self._network()
        if name.startswith("localsubnet"):
            family = name.removeprefix("localsubnet")
            return family in ("", str(address.version)) and any(
                address in subnet for subnet in network.subnets
            )
        known = network.gateways if name == "defaultgateway" else network.name_servers
        return str(address) in known


def _protocol_of(protocol: str, v6: bool) -> str:
    if protocol == "icmp":
        return "ICMPv6" if v6 else "ICMPv4"
    return _SCTP if protocol == "sctp" else protocol.upper()


def _is_echo(rule: FirewallRule) -> bool:
    """The only ICMP messages of the network model are echo requests and their replies."""
    echo = _ECHO_REQUEST.get(rule.protocol, "")
    return any(kind.partition(":")[0] == echo for kind in rule.icmp_type.split(","))


def _port_matches(ranges: Sequence[tuple[int, int]], port: int) -> bool:
    return not ranges or any(first <= port <= last for first, last in ranges)


def _compile(registry: WindowsRegistry) -> _Policy:
    found = [
        rule
        for rule in firewall_rules(registry)
        if rule.enabled and (not rule.profiles or ACTIVE_PROFILE in rule.profiles)
    ]
    rules = [made for rule in found if (made := _compile_rule(rule)) is not None]

    def by_direction(allow: bool) -> dict[bool, list[_CompiledRule]]:
        return {inbound: list(_select(rules, inbound, allow)) for inbound in (True, False)}

    return _Policy(
        profile_enabled(registry, ACTIVE_PROFILE),
        profile_setting(registry, ACTIVE_PROFILE, "DoNotAllowExceptions") == 1,
        {
            True: blocks_inbound(registry, ACTIVE_PROFILE),
            False: blocks_outbound(registry, ACTIVE_PROFILE),
        },
        by_direction(False),
        by_direction(True),
    )


def _select(rules: Iterable[_CompiledRule], inbound: bool, allow: bool) -> Iterable[_CompiledRule]:
    """Those of a program come last: to find it takes longer than to compare numbers."""
    found = [one for one in rules if one.rule.inbound == inbound and one.rule.allow == allow]
    return sorted(found, key=lambda one: bool(one.program))


def _compile_rule(rule: FirewallRule) -> _CompiledRule | None:
    """None for a rule that Windows would ignore: one of its values is not valid."""
    local_ports, remote_ports = (
        parse_port_ranges(rule.local_port),
        parse_port_ranges(rule.remote_port),
    )
    local, remote = parse_addresses(rule.local_address), parse_addresses(rule.remote_address)
    if local_ports is None or remote_ports is None or local is None or remote is None:
        return None
    program = "" if rule.program in (ANY, "") else expand_program(rule.program)
    return _CompiledRule(rule, local_ports, remote_ports, local, remote, program)
