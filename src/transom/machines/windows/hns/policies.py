"""Policies of endpoints, networks and subnets: their types, valid settings, and the builds that
support them.

One row per type. An invalid settings field, an unknown type and missing settings are all the same
error to the service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from transom.kit.ip_addresses import is_ip_address, is_ip_network
from transom.kit.lazy import lazy_pattern
from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.hns import errors
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.features import hns_supports, require_hns_feature
from transom.machines.windows.hns.names import is_mac
from transom.windows.builds import WindowsBuild

Settings = Mapping[str, Any]
_PORTS: Final = lazy_pattern(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
_PROTOCOLS: Final = lazy_pattern(r"\d{1,3}(?:,\d{1,3})*")
TRANSLATED_PROTOCOLS: Final = (1, 6, 17, 58, 132)


def is_ip(text: object) -> bool:
    return isinstance(text, str) and is_ip_address(text)


def is_prefix(text: object) -> bool:
    """A prefix, or an address, which counts as a prefix of full length."""
    return isinstance(text, str) and is_ip_network(text)


def is_port(value: object, *, zero: bool = False) -> bool:
    return type(value) is int and (0 if zero else 1) <= value <= 65535


def _optional(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value in (None, "") or test(value)


def _each(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or (isinstance(value, list) and all(map(test, value)))


def _one_of(*values: object) -> Callable[[object], bool]:
    return lambda value: value in values


def _number(limit: int, first: int = 0) -> Callable[[object], bool]:
    return lambda value: type(value) is int and first <= value <= limit


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _addresses(value: object) -> bool:
    """Addresses and prefixes; where address sets exist, also their identifiers (the caller checks
    them against the network).
    """
    return isinstance(value, str)


_UINT16: Final = _number(0xFFFF)
_UINT32: Final = _number(0xFFFFFFFF)
_ACL: Final = {
    "Protocols": _optional(_matches(_PROTOCOLS)),
    "Action": _one_of("Allow", "Block", "Pass"),
    "Direction": _one_of("In", "Out"),
    "LocalAddresses": _optional(_addresses),
    "RemoteAddresses": _optional(_addresses),
    "LocalPorts": _optional(_matches(_PORTS)),
    "RemotePorts": _optional(_matches(_PORTS)),
    "RuleType": _optional(_one_of("Host", "Switch")),
    "Priority": _optional(_UINT16),
}
_INTERFACE: Final = {
    "InterfaceGuid": _optional(_text),
    "InterfaceLuid": _optional(_number((1 << 64) - 1)),
    "InterfaceIndex": _optional(_UINT32),
    "InterfaceMediaType": _optional(_UINT32),
    "InterfaceAlias": _optional(_text),
    "InterfaceDescription": _optional(_text),
}
_PROXY: Final = {
    "IP": _optional(is_ip),
    "Port": _optional(_text),
    "Protocol": _optional(_number(255)),
    "Exceptions": _each(is_prefix),
    "Destination": _optional(_text),
    "OutboundNAT": _flag,
}
_ISOLATION: Final = {"IsolationId": _UINT32}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    fields: Mapping[str, Callable[[object], bool]]
    feature: str = ""
    networks: tuple[str, ...] = ()  # network types that may have it; empty: all
    bare: bool = False  # settings are optional
    special: Callable[[WindowsBuild, Settings], None] | None = None


def _mapping(build: WindowsBuild, settings: Settings) -> None:
    if not is_port(settings.get("InternalPort")):
        raise HnsError(errors.INVALID_INTERNAL_PORT)


def _route(build: WindowsBuild, settings: Settings) -> None:
    if not settings.get("NextHop") and not settings.get("NeedEncap"):
        raise HnsError(errors.INVALID_POLICY)


def _acl(build: WindowsBuild, settings: Settings) -> None:
    protocols = settings.get("Protocols") or ""
    if any(int(number) > 255 for number in protocols.split(",") if number):
        raise HnsError(errors.INVALID_POLICY)
    if "252" in protocols.split(","):
        require_hns_feature(build, "HNS ACL Policies to support protocol 252 for VXLAN")
    for name in ("LocalPorts", "RemotePorts"):
        for ports in (settings.get(name) or "").split(","):
            first, _, last = ports.partition("-")
            if first and not int(first) <= int(last or first) <= 65535:
                raise HnsError(errors.INVALID_POLICY)
    if not hns_supports(build, "SetPolicy"):
        for name in ("LocalAddresses", "RemoteAddresses"):
            if not all(is_prefix(a.strip()) for a in (settings.get(name) or "").split(",") if a):
                raise HnsError(errors.INVALID_POLICY)


def _set(build: WindowsBuild, settings: Settings) -> None:
    if settings.get("PolicyType") == "NESTEDIPSET":
        require_hns_feature(build, "NestedIpSet")
    elif not all(is_prefix(a.strip()) for a in (settings.get("Values") or "").split(",") if a):
        raise HnsError(errors.INVALID_POLICY)


def _tier(build: WindowsBuild, settings: Settings) -> None:
    for rule in settings.get("TierAclRules") or ():
        if not isinstance(rule, dict) or rule.get("TierAclRuleAction") not in (
            "Allow",
            "Block",
            "Pass",
        ):
            raise HnsError(errors.INVALID_POLICY)


_BRIDGED: Final = ("NAT", "ICS", "L2Bridge", "L2Tunnel", "Overlay")
ENDPOINT: Final[Mapping[str, PolicyRule]] = {
    "PortMapping": PolicyRule(
        {
            "Protocol": _one_of(*TRANSLATED_PROTOCOLS),
            "InternalPort": _optional(_UINT16),
            "ExternalPort": _optional(_UINT16),
            "VIP": _optional(is_ip),
            "Flags": _optional(_UINT32),
        },
        special=_mapping,
    ),
    "ACL": PolicyRule(_ACL, special=_acl),
    "QOS": PolicyRule({"MaximumOutgoingBandwidthInBytes": _number((1 << 64) - 1, 1)}),
    "L2Driver": PolicyRule({}, bare=True),
    "OutBoundNAT": PolicyRule(
        {
            "VirtualIP": _optional(is_ip),
            "Exceptions": _each(is_prefix),
            "Destinations": _each(is_prefix),
            "Flags": _optional(_UINT32),
            "MaxPortPoolUsage": _optional(_UINT16),
        },
    ),
    "SDNRoute": PolicyRule(
        {"DestinationPrefix": is_prefix, "NextHop": _optional(is_ip), "NeedEncap": _flag},
        special=_route,
    ),
    "L4Proxy": PolicyRule(_PROXY),
    "L4WFPPROXY": PolicyRule(
        {
            "InboundProxyPort": _optional(_text),
            "OutboundProxyPort": _optional(_text),
            "UserSID": _optional(_text),
        },
        "L4WfpProxyPolicy",
    ),
    "PortName": PolicyRule({"Name": _text}),
    "EncapOverhead": PolicyRule({"Overhead": _UINT16}),
    "Iov": PolicyRule(
        {
            name: _optional(_UINT32)
            for name in ("IovOffloadWeight", "QueuePairsRequested", "InterruptModeration")
        }
    ),
    "ProviderAddress": PolicyRule({"ProviderAddress": is_ip}),
    "InterfaceConstraint": PolicyRule(_INTERFACE),
    "TierAcl": PolicyRule(
        {"Name": _text, "Direction": _one_of("In", "Out"), "Order": _UINT16},
        "TierAcl",
        special=_tier,
    ),
    "VLAN": PolicyRule(_ISOLATION),
    "VSID": PolicyRule(_ISOLATION),
}
NETWORK: Final[Mapping[str, PolicyRule]] = {
    "SourceMacAddress": PolicyRule({"SourceMacAddress": is_mac}),
    "NetAdapterName": PolicyRule({"NetworkAdapterName": _text}),
    "VSwitchExtension": PolicyRule({"ExtensionID": _text, "Enable": _flag}),
    "DrMacAddress": PolicyRule({"Address": is_mac}),
    "AutomaticDNS": PolicyRule({"Enable": _flag}),
    "InterfaceConstraint": PolicyRule(_INTERFACE),
    "ProviderAddress": PolicyRule({"ProviderAddress": is_ip}),
    "RemoteSubnetRoute": PolicyRule(
        {
            "DestinationPrefix": is_prefix,
            "IsolationId": _UINT16,
            "ProviderAddress": is_ip,
            "DistributedRouterMacAddress": is_mac,
        },
        "Remote Subnet",
        ("Overlay",),
    ),
    "VxlanPort": PolicyRule({"Port": _number(0xFFFF, 1)}, "VXLAN port configuration", ("Overlay",)),
    "HostRoute": PolicyRule({}, "Host Route", bare=True),
    "SetPolicy": PolicyRule(
        {
            "Id": _text,
            "Name": _text,
            "PolicyType": _one_of("IPSET", "NESTEDIPSET"),
            "Values": _optional(_addresses),
        },
        "SetPolicy",
        special=_set,
    ),
    "L4Proxy": PolicyRule(_PROXY, "L4ProxyPolicy"),
    "LayerConstraint": PolicyRule({"LayerId": _text}),
    "NetworkACL": PolicyRule(_ACL, "NetworkACL", special=_acl),
    "VLAN": PolicyRule(_ISOLATION),
    "VSID": PolicyRule(_ISOLATION),
}
SUBNET: Final[Mapping[str, PolicyRule]] = {
    "VLAN": PolicyRule(_ISOLATION),
    "VSID": PolicyRule(_ISOLATION),
}


def checked_policy(
    table: Mapping[str, PolicyRule], policies: object, build: WindowsBuild, network_type: str
) -> list[dict[str, Any]]:
    """The policies with their known settings; raises HnsError for an invalid one."""
    if policies is None:
        return []
    if not isinstance(policies, list):
        raise HnsError(errors.INVALID_POLICY)
    return [_checked(table, policy, build, network_type) for policy in policies]


def _checked(
    table: Mapping[str, PolicyRule], policy: object, build: WindowsBuild, network_type: str
) -> dict[str, Any]:
    if not isinstance(policy, dict):
        raise HnsError(errors.INVALID_POLICY)
    rule = table.get(policy.get("Type", ""))
    if rule is None:
        raise HnsError(errors.INVALID_POLICY)
    if rule.feature:
        require_hns_feature(build, rule.feature)
    settings = policy.get("Settings")
    if rule.bare and not settings:
        return {"Type": policy["Type"]}
    if not isinstance(settings, dict) or (rule.networks and network_type not in rule.networks):
        raise HnsError(errors.INVALID_POLICY)
    if policy["Type"] == "PortMapping" and network_type not in _BRIDGED:
        raise HnsError(errors.MAPPING_NOT_SUPPORTED)
    for name, test in rule.fields.items():
        if not test(settings.get(name)):
            raise HnsError(errors.INVALID_POLICY)
    if rule.special is not None:
        rule.special(build, settings)
    return {"Type": policy["Type"], "Settings": dict(settings)}


def policies_of_type(obj: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The settings of an object's policies of a type."""
    return [
        policy.get("Settings") or {} for policy in obj.get("Policies", ()) if policy["Type"] == kind
    ]


# What identifies a policy, where it is not all of its settings.
_KEYS: Final = {"RemoteSubnetRoute": ("DestinationPrefix",), "SetPolicy": ("Id",)}


def _same_as(policy: Mapping[str, Any]) -> Any:
    """Policies are the same if they have this in common. Nodes have thousands of them, so this must
    be hashable.
    """
    kind, settings = policy["Type"], policy.get("Settings") or {}
    keys = _KEYS.get(kind)
    if keys is not None:
        return (kind, *(settings.get(key) for key in keys))
    return kind, orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)


def with_policies(present: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An existing policy is replaced in place."""
    out = list(present)
    places = {_same_as(policy): at for at, policy in reversed(list(enumerate(out)))}
    for policy in new:
        at = places.setdefault(_same_as(policy), len(out))
        out[at : at + 1] = [policy]
    return out


def without_policies(
    present: list[dict[str, Any]], old: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    places: dict[Any, list[int]] = {}
    for at in range(len(present) - 1, -1, -1):
        places.setdefault(_same_as(present[at]), []).append(at)
    gone = set()
    for policy in old:
        found = places.get(_same_as(policy))
        if not found:
            raise HnsError(errors.POLICY_NOT_FOUND)
        gone.add(found.pop())
    return [policy for at, policy in enumerate(present) if at not in gone]
