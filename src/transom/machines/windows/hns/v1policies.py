"""Converts between policies of the v1 schema, which are flat, and of the v2 schema, which have
settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.machines.windows.hns.store import Object

_NEW_NAMES: Final = {
    "NAT": "PortMapping",
    "ROUTE": "SDNRoute",
    "PA": "ProviderAddress",
    "PROXY": "L4Proxy",
}
_OLD_NAMES: Final = {new: old for old, new in _NEW_NAMES.items()}
# Fields by the v2 name of their policy: v1 name -> v2 name.
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "OutBoundNAT": {"VIP": "VirtualIP", "ExceptionList": "Exceptions"},
    "ProviderAddress": {"PA": "ProviderAddress"},
    "L4Proxy": {"ExceptionList": "Exceptions", "OutboundNat": "OutboundNAT"},
    "VLAN": {"VLAN": "IsolationId"},
    "VSID": {"VSID": "IsolationId"},
}
_OLD_FIELDS: Final = {
    kind: {new: old for old, new in fields.items()} for kind, fields in _FIELDS.items()
}
_PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17, "sctp": 132}
_PROTOCOL_NAMES: Final = {number: name for name, number in _PROTOCOLS.items()}
# One number in v1, a text list in v2.
_SINGLE: Final = {
    "Protocol": "Protocols",
    "LocalPort": "LocalPorts",
    "RemotePort": "RemotePorts",
    "InternalPort": "LocalPorts",
}


def policy_to_v2(policy: Mapping[str, Any]) -> Object:
    old = str(policy.get("Type") or "")
    kind = _NEW_NAMES.get(old, old)
    names = _FIELDS.get(kind, {})
    settings = {names.get(name, name): value for name, value in policy.items() if name != "Type"}
    if kind == "PortMapping":
        protocol = settings.get("Protocol")
        if isinstance(protocol, str):
            settings["Protocol"] = (
                int(protocol) if protocol.isdigit() else _PROTOCOLS.get(protocol.lower(), 0)
            )
        settings.pop("ExternalPortReserved", None)
    elif kind == "ACL":
        for single, many in _SINGLE.items():
            value = settings.pop(single, 0)
            if value and not settings.get(many):
                settings[many] = str(value)
    return {"Type": kind, "Settings": settings}


def policy_to_v1(policy: Mapping[str, Any]) -> Object:
    kind = policy["Type"]
    names = _OLD_FIELDS.get(kind, {})
    flat = {names.get(name, name): value for name, value in (policy.get("Settings") or {}).items()}
    if kind == "PortMapping":
        flat["Protocol"] = _PROTOCOL_NAMES.get(flat["Protocol"], str(flat["Protocol"]))
    return {"Type": _OLD_NAMES.get(kind, kind), **flat}
