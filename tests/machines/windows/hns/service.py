"""A host networking service with one adapter, and the settings that tests need again and again."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machines.windows.hns import Adapter, HnsError, HostNetworkService
from transom.windows.builds import BUILDS, WindowsBuild

NODE = "172.18.0.4"


def service(build: int | WindowsBuild = 17763, seed: str = "windows-1") -> HostNetworkService:
    adapter = Adapter("Ethernet", "00-15-5D-0A-0B-0C", f"{NODE}/16", "172.18.0.1")
    return HostNetworkService(BUILDS[build] if isinstance(build, int) else build, [adapter], seed)


def network(
    name: str = "cbr0", kind: str = "L2Bridge", prefix: str = "10.244.1.0/24", **more: Any
) -> dict[str, Any]:
    gateway = prefix.partition("/")[0].rpartition(".")[0] + ".1"
    subnet = {
        "IpAddressPrefix": prefix,
        "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
    }
    if kind == "Overlay":
        subnet["Policies"] = [{"Type": "VSID", "Settings": {"IsolationId": 4096}}]
    return {"Name": name, "Type": kind, "Ipams": [{"Type": "Static", "Subnets": [subnet]}], **more}


def made_network(hns: HostNetworkService, *args: str, **more: Any) -> str:
    return str(hns.create("network", network(*args, **more))["ID"])


def endpoint(net: str, ip: str = "", **more: Any) -> dict[str, Any]:
    addresses = {"IpConfigurations": [{"IpAddress": ip}]} if ip else {}
    return {"HostComputeNetwork": net, **addresses, **more}


def made_endpoint(hns: HostNetworkService, net: str, ip: str = "", **more: Any) -> str:
    return str(hns.create("endpoint", endpoint(net, ip, **more))["ID"])


def remote(hns: HostNetworkService, net: str, ip: str) -> str:
    return made_endpoint(hns, net, ip, Flags=1, MacAddress="02-11-0a-f4-02-05")


def balancer(
    endpoints: list[str], vip: str = "10.96.0.10", port: int = 80, **more: Any
) -> dict[str, Any]:
    mapping = {"Protocol": 6, "InternalPort": 8080, "ExternalPort": port}
    return {
        "HostComputeEndpoints": endpoints,
        "FrontendVIPs": [vip] if vip else [],
        "PortMappings": [mapping],
        **more,
    }


def refused(hns: HostNetworkService, kind: str, settings: dict[str, Any]) -> HnsError:
    with pytest.raises(HnsError) as caught:
        hns.create(kind, settings)
    return caught.value
