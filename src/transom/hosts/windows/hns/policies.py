"""Policies of endpoints, networks and subnets: which there are, what their settings must say, and which build has them.

One row for each type. A settings field that is wrong, a type that does not exist and settings that are missing are all the
same refusal to the service.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from transom.hosts.windows.hns import errors
from transom.hosts.windows.hns.errors import HnsError
from transom.hosts.windows.hns.features import require, supports
from transom.hosts.windows.hns.names import is_mac
from transom.windows.builds import Build

Settings = Mapping[str, Any]
_PORTS: Final = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*")
_PROTOCOLS: Final = re.compile(r"\d{1,3}(?:,\d{1,3})*")
TRANSLATED_PROTOCOLS: Final = (1, 6, 17, 58, 132)


def is_ip(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_prefix(text: object) -> bool:
    """A prefix, or an address, which is a prefix of full length."""
    if not isinstance(text, str):
        return False
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


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
    """Addresses and prefixes; where sets of addresses exist, their identifiers as well (who checks them knows the network)."""
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
    "InterfaceGuid": _optional(_text), "InterfaceLuid": _optional(_number((1 << 64) - 1)), "InterfaceIndex": _optional(_UINT32),
    "InterfaceMediaType": _optional(_UINT32), "InterfaceAlias": _optional(_text), "InterfaceDescription": _optional(_text),
}  # fmt: skip
_PROXY: Final = {
    "IP": _optional(is_ip), "Port": _optional(_text), "Protocol": _optional(_number(255)), "Exceptions": _each(is_prefix),
    "Destination": _optional(_text), "OutboundNAT": _flag,
}  # fmt: skip
_ISOLATION: Final = {"IsolationId": _UINT32}


@dataclass(frozen=True, slots=True)
class Rule:
    fields: Mapping[str, Callable[[object], bool]]
    feature: str = ""
    networks: tuple[str, ...] = ()  # types of network that may have it; empty: all
    bare: bool = False  # may come without settings
    special: Callable[[Build, Settings], None] | None = None


def _mapping(build: Build, settings: Settings) -> None:
    if not is_port(settings.get("InternalPort")):
        raise HnsError(errors.INVALID_INTERNAL_PORT)


def _route(build: Build, settings: Settings) -> None:
    if not settings.get("NextHop") and not settings.get("NeedEncap"):
        raise HnsError(errors.INVALID_POLICY)


def _acl(build: Build, settings: Settings) -> None:
    protocols = settings.get("Protocols") or ""
    if any(int(number) > 255 for number in protocols.split(",") if number):
        raise HnsError(errors.INVALID_POLICY)
    if "252" in protocols.split(","):
        require(build, "HNS ACL Policies to support protocol 252 for VXLAN")
    for name in ("LocalPorts", "RemotePorts"):
        for ports in (settings.get(name) or "").split(","):
            first, _, last = ports.partition("-")
            if first and not int(first) <= int(last or first) <= 65535:
                raise HnsError(errors.INVALID_POLICY)
    if not supports(build, "SetPolicy"):
        for name in ("LocalAddresses", "RemoteAddresses"):
            if not all(is_prefix(a.strip()) for a in (settings.get(name) or "").split(",") if a):
                raise HnsError(errors.INVALID_POLICY)


def _set(build: Build, settings: Settings) -> None:
    if settings.get("PolicyType") == "NESTEDIPSET":
        require(build, "NestedIpSet")
    elif not all(is_prefix(a.strip()) for a in (settings.get("Values") or "").split(",") if a):
        raise HnsError(errors.INVALID_POLICY)


def _tier(build: Build, settings: Settings) -> None:
    for rule in settings.get("TierAclRules") or ():
        if not isinstance(rule, dict) or rule.get("TierAclRuleAction") not in ("Allow", "Block", "Pass"):
            raise HnsError(errors.INVALID_POLICY)


_BRIDGED: Final = ("NAT", "ICS", "L2Bridge", "L2Tunnel", "Overlay")
ENDPOINT: Final[Mapping[str, Rule]] = {
    "PortMapping": Rule(
        {"Protocol": _one_of(*TRANSLATED_PROTOCOLS), "InternalPort": _optional(_UINT16), "ExternalPort": _optional(_UINT16),
         "VIP": _optional(is_ip), "Flags": _optional(_UINT32)},
        special=_mapping,
    ),
    "ACL": Rule(_ACL, special=_acl),
    "QOS": Rule({"MaximumOutgoingBandwidthInBytes": _number((1 << 64) - 1, 1)}),
    "L2Driver": Rule({}, bare=True),
    "OutBoundNAT": Rule(
        {"VirtualIP": _optional(is_ip), "Exceptions": _each(is_prefix), "Destinations": _each(is_prefix),
         "Flags": _optional(_UINT32), "MaxPortPoolUsage": _optional(_UINT16)},
    ),
    "SDNRoute": Rule({"DestinationPrefix": is_prefix, "NextHop": _optional(is_ip), "NeedEncap": _flag}, special=_route),
    "L4Proxy": Rule(_PROXY),
    "L4WFPPROXY": Rule(
        {"InboundProxyPort": _optional(_text), "OutboundProxyPort": _optional(_text), "UserSID": _optional(_text)},
        "L4WfpProxyPolicy",
    ),
    "PortName": Rule({"Name": _text}),
    "EncapOverhead": Rule({"Overhead": _UINT16}),
    "Iov": Rule({name: _optional(_UINT32) for name in ("IovOffloadWeight", "QueuePairsRequested", "InterruptModeration")}),
    "ProviderAddress": Rule({"ProviderAddress": is_ip}),
    "InterfaceConstraint": Rule(_INTERFACE),
    "TierAcl": Rule({"Name": _text, "Direction": _one_of("In", "Out"), "Order": _UINT16}, "TierAcl", special=_tier),
    "VLAN": Rule(_ISOLATION),
    "VSID": Rule(_ISOLATION),
}  # fmt: skip
NETWORK: Final[Mapping[str, Rule]] = {
    "SourceMacAddress": Rule({"SourceMacAddress": is_mac}),
    "NetAdapterName": Rule({"NetworkAdapterName": _text}),
    "VSwitchExtension": Rule({"ExtensionID": _text, "Enable": _flag}),
    "DrMacAddress": Rule({"Address": is_mac}),
    "AutomaticDNS": Rule({"Enable": _flag}),
    "InterfaceConstraint": Rule(_INTERFACE),
    "ProviderAddress": Rule({"ProviderAddress": is_ip}),
    "RemoteSubnetRoute": Rule(
        {"DestinationPrefix": is_prefix, "IsolationId": _UINT16, "ProviderAddress": is_ip,
         "DistributedRouterMacAddress": is_mac},
        "Remote Subnet", ("Overlay",),
    ),
    "VxlanPort": Rule({"Port": _number(0xFFFF, 1)}, "VXLAN port configuration", ("Overlay",)),
    "HostRoute": Rule({}, "Host Route", bare=True),
    "SetPolicy": Rule(
        {"Id": _text, "Name": _text, "PolicyType": _one_of("IPSET", "NESTEDIPSET"), "Values": _optional(_addresses)},
        "SetPolicy", special=_set,
    ),
    "L4Proxy": Rule(_PROXY, "L4ProxyPolicy"),
    "LayerConstraint": Rule({"LayerId": _text}),
    "NetworkACL": Rule(_ACL, "NetworkACL", special=_acl),
    "VLAN": Rule(_ISOLATION),
    "VSID": Rule(_ISOLATION),
}  # fmt: skip
SUBNET: Final[Mapping[str, Rule]] = {"VLAN": Rule(_ISOLATION), "VSID": Rule(_ISOLATION)}


def checked(table: Mapping[str, Rule], policies: object, build: Build, network_type: str) -> list[dict[str, Any]]:
    """The policies with their known settings; HnsError if one is wrong."""
    if policies is None:
        return []
    if not isinstance(policies, list):
        raise HnsError(errors.INVALID_POLICY)
    return [_checked(table, policy, build, network_type) for policy in policies]


def _checked(table: Mapping[str, Rule], policy: object, build: Build, network_type: str) -> dict[str, Any]:
    if not isinstance(policy, dict):
        raise HnsError(errors.INVALID_POLICY)
    rule = table.get(policy.get("Type", ""))
    if rule is None:
        raise HnsError(errors.INVALID_POLICY)
    if rule.feature:
        require(build, rule.feature)
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


def of_type(obj: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The settings of an object's policies of a type."""
    return [policy.get("Settings") or {} for policy in obj.get("Policies", ()) if policy["Type"] == kind]


# What makes two policies the same one, where it is not all they say.
_KEYS: Final = {"RemoteSubnetRoute": ("DestinationPrefix",), "SetPolicy": ("Id",)}


def _same_as(policy: Mapping[str, Any]) -> Any:
    """Policies are the same one if they have this in common. Nodes have thousands of them, so it can be looked up."""
    kind, settings = policy["Type"], policy.get("Settings") or {}
    keys = _KEYS.get(kind)
    if keys is not None:
        return (kind, *(settings.get(key) for key in keys))
    return kind, orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)


def added(present: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A policy that is there already is replaced where it stands."""
    out = list(present)
    places = {_same_as(policy): at for at, policy in reversed(list(enumerate(out)))}
    for policy in new:
        at = places.setdefault(_same_as(policy), len(out))
        out[at : at + 1] = [policy]
    return out


def removed(present: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
