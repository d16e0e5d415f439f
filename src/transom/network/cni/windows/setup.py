"""The networks that must exist on a node before the first pod, if no agent of a network solution
creates them.

flanneld creates its own (see `flanneld.py`), azure-vnet creates one with the first pod. For
win-bridge without flannel, for ovn-kubernetes and for nat an administrator runs a script on the
node; these functions do the same and are idempotent.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transom.network.cni.windows import ovn, shim

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

_SCHEMA = {"Major": 2, "Minor": 0}


def make_l2bridge_network(
    hns: HostNetworkService, name: str, subnets: Sequence[str], adapter: str = ""
) -> dict[str, Any]:
    """A bridge for the node's pods (one subnet for each family), with the host's endpoint `NAME_ep`
    at the third address of each, which connects pods and the node.
    """
    networks = [ipaddress.ip_network(text) for text in subnets]
    network = _network(
        hns,
        name,
        "L2Bridge",
        {
            "Ipams": [
                {"Type": "Static", "Subnets": [_subnet(str(n), str(n[1])) for n in networks]}
            ],
            "Policies": _adapter(adapter),
        },
    )
    endpoint = shim.find_by_name(hns.endpoints, f"{name}_ep") or hns.create(
        "endpoint",
        {
            "Name": f"{name}_ep",
            "HostComputeNetwork": network["ID"],
            "SchemaVersion": _SCHEMA,
            "IpConfigurations": [
                {"IpAddress": str(n[2]), "PrefixLength": n.prefixlen} for n in networks
            ],
            "Routes": [
                {
                    "NextHop": "0.0.0.0" if n.version == 4 else "::",
                    "DestinationPrefix": "0.0.0.0/0" if n.version == 4 else "::/0",
                }
                for n in networks
            ],
        },
    )
    if hns.attachment(endpoint["ID"])[0] != "host":
        hns.attach_to_host(endpoint["ID"])
    return network


def make_transparent_network(
    hns: HostNetworkService, name: str, subnet: str, adapter: str = ""
) -> dict[str, Any]:
    """For ovn-kubernetes: a switch with Open vSwitch. The gateway is OVN's logical router."""
    gateway = str(ipaddress.ip_network(subnet)[1])
    extension = {
        "Type": "VSwitchExtension",
        "Settings": {"ExtensionID": ovn.EXTENSION, "Enable": True},
    }
    return _network(
        hns,
        name,
        "Transparent",
        {
            "Ipams": [{"Type": "Static", "Subnets": [_subnet(subnet, gateway)]}],
            "Policies": [extension, *_adapter(adapter)],
        },
    )


def make_nat_network(
    hns: HostNetworkService, name: str = "nat", subnet: str = "172.28.16.0/20"
) -> dict[str, Any]:
    """What Docker creates during installation: an internal switch behind WinNAT."""
    gateway = str(ipaddress.ip_network(subnet)[1])
    return _network(
        hns, name, "NAT", {"Ipams": [{"Type": "Static", "Subnets": [_subnet(subnet, gateway)]}]}
    )


def _network(
    hns: HostNetworkService, name: str, kind: str, settings: dict[str, Any]
) -> dict[str, Any]:
    found = shim.find_by_name(hns.networks, name)
    return found or hns.create(
        "network", {"Name": name, "Type": kind, "SchemaVersion": _SCHEMA, **settings}
    )


def _subnet(prefix: str, gateway: str) -> dict[str, Any]:
    default = "::/0" if ":" in prefix else "0.0.0.0/0"
    return {
        "IpAddressPrefix": prefix,
        "Routes": [{"NextHop": gateway, "DestinationPrefix": default}],
    }


def _adapter(name: str) -> list[dict[str, Any]]:
    return [{"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": name}}] if name else []
