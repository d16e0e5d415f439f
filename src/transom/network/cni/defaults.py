"""The CNI configuration that a cluster setup tool gives a node with flannel: data only; the caller
writes it.

On Windows it includes the policies of a pod's switch port: the destinations that see the pod's own
address (ExceptionList), and that services and the node itself are reached through the host (ROUTE
with NeedEncap).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson

from transom.network.cni.config import (
    CONTAINERD_WINDOWS_DIRECTORY,
    LINUX_DIRECTORY,
    WINDOWS_DIRECTORY,
)

LINUX_FILE = "10-flannel.conflist"
WINDOWS_FILE = "cni.conf"
OVERLAY_NAME = "vxlan0"
BRIDGE_NAME = "cbr0"
Runtime = Literal["docker", "containerd"]


def config_file_place(os: str, runtime: Runtime) -> tuple[str, str]:
    """The directory and name of the node's configuration file."""
    if os == "linux":
        return LINUX_DIRECTORY, LINUX_FILE
    return (
        WINDOWS_DIRECTORY if runtime == "docker" else CONTAINERD_WINDOWS_DIRECTORY
    ), WINDOWS_FILE


def linux_conflist(name: str = BRIDGE_NAME) -> bytes:
    return _written(
        {
            "name": name,
            "cniVersion": "0.3.1",
            "plugins": [
                {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
    )


def windows_conflist(
    mode: Literal["l2bridge", "overlay"],
    *,
    clusters: Sequence[str],
    services: Sequence[str],
    management: Sequence[str],
    node_ip: str,
    node_ip6: str = "",
    dns: Sequence[str],
    domain: str = "cluster.local",
    runtime: Runtime = "docker",
    name: str = "",
) -> bytes:
    """For flannel. With docker the policies are those of HNS version 1; containerd passes a version
    2 namespace, so they are those of version 2, and sdnoverlay replaces win-overlay, which does not
    support them. An overlay has no management network of its own to exclude.
    """
    bridge = mode == "l2bridge"
    exceptions = [*clusters, *services, *(management if bridge else ())]
    nodes = [f"{ip}/{128 if ':' in ip else 32}" for ip in (node_ip, node_ip6) if ip and bridge]
    routes = [*services, *nodes]
    newer = runtime == "containerd"
    policies = [_outbound(exceptions, newer), *(_route(prefix, newer) for prefix in routes)]
    if newer and not bridge:
        policies.append({"Type": "ProviderAddress", "Settings": {"ProviderAddress": node_ip}})
    listed = [{"Name": "EndpointPolicy", "Value": policy} for policy in policies]
    servers = {"dns": {"Nameservers": list(dns), "Search": [f"svc.{domain}"]}}
    delegate: dict[str, Any]
    if bridge:
        delegate = {
            "type": "win-bridge",
            **({"ApiVersion": 2} if newer else {}),
            **servers,
            "policies": listed,
        }
    else:
        kind, key = ("sdnoverlay", "AdditionalArgs") if newer else ("win-overlay", "policies")
        delegate = {"type": kind, **servers, key: listed}
    return _written(
        {
            "cniVersion": "0.3.0" if newer else "0.2.0",
            "name": name or (BRIDGE_NAME if bridge else OVERLAY_NAME),
            "type": "flannel",
            "capabilities": {"portMappings": True, "dns": True},
            "delegate": delegate,
        }
    )


def sdnbridge(
    subnets: Sequence[str], policies: Sequence[Mapping[str, Any]], dns: Mapping[str, Any]
) -> dict[str, Any]:
    """For containerd on Windows, for pods with one address or one of each family. The gateway is
    the host's endpoint at the third address of the subnet; the second address is the network's own.
    """
    networks = [ipaddress.ip_network(subnet) for subnet in subnets]
    return {
        "cniVersion": "0.3.0",
        "name": BRIDGE_NAME,
        "type": "sdnbridge",
        "capabilities": {"portMappings": True, "dns": True},
        "dns": dict(dns),
        "ipam": {
            "type": "host-local",
            "ranges": [
                [{"subnet": str(n), "rangeStart": str(n[3]), "gateway": str(n[2])}]
                for n in networks
            ],
        },
        "optionalFlags": {
            "localRoutedPortMapping": True,
            "allowAclPortMapping": True,
            "enableDualStack": len(networks) > 1,
        },
        "AdditionalArgs": [dict(policy) for policy in policies],
    }


def net_conf(network: str, backend: Mapping[str, Any], network6: str = "") -> bytes:
    """net-conf.json, which the flanneld of all nodes reads from one ConfigMap."""
    conf: dict[str, Any] = {"Network": network}
    if network6:
        conf |= {"EnableIPv6": True, "IPv6Network": network6}
    return _written({**conf, "Backend": dict(backend)})


def host_gw_net_conf() -> dict[str, Any]:
    return {"Type": "host-gw", "Name": BRIDGE_NAME}


def vxlan_net_conf(name: str = OVERLAY_NAME) -> dict[str, Any]:
    """With the values that Windows requires; Linux nodes use the same."""
    return {"Type": "vxlan", "Name": name, "VNI": 4096, "Port": 4789}


def _outbound(exceptions: Sequence[str], newer: bool) -> dict[str, Any]:
    if newer:
        return {"Type": "OutBoundNAT", "Settings": {"Exceptions": list(exceptions)}}
    return {"Type": "OutBoundNAT", "ExceptionList": list(exceptions)}


def _route(prefix: str, newer: bool) -> dict[str, Any]:
    if newer:
        return {"Type": "SDNRoute", "Settings": {"DestinationPrefix": prefix, "NeedEncap": True}}
    return {"Type": "ROUTE", "DestinationPrefix": prefix, "NeedEncap": True}


def _written(conf: Mapping[str, Any]) -> bytes:
    return orjson.dumps(conf, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
