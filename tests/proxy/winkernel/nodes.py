"""A Windows node with its host networking service, and a proxier on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.proxy.objects import endpoint_slice, endpoints

from transom.kit.clock import VirtualClock
from transom.machines.windows.hns import Adapter, HostNetworkService
from transom.proxy.tracker import ServiceTracker, Source
from transom.proxy.winkernel.options import WinkernelOptions
from transom.proxy.winkernel.proxier import WinkernelProxier
from transom.windows.builds import BUILDS

NODE, NODE_IP = "win1", "172.18.0.4"
OTHER = "win2"
MAC = "00-15-5D-00-00-04"


def make_hns(
    build: int = 17763, *, network: str = "cbr0", kind: str = "L2Bridge", policies: Any = ()
) -> HostNetworkService:
    hns = HostNetworkService(
        BUILDS[build], [Adapter("Ethernet", MAC, f"{NODE_IP}/16", "172.18.0.1")], seed=NODE
    )
    if network:
        add_network(hns, network, kind, policies)
    return hns


def add_network(
    hns: HostNetworkService, name: str = "cbr0", kind: str = "L2Bridge", policies: Any = ()
) -> None:
    if not hns.supports("V2 Api/Schema"):
        body = {
            "Name": name,
            "Type": kind,
            "Subnets": [{"AddressPrefix": "10.244.1.0/24", "GatewayAddress": "10.244.1.1"}],
        }
        answer = hns.call("POST", "/networks/", body)
        assert answer["Success"], answer
        return
    subnet: dict[str, Any] = {
        "IpAddressPrefix": "10.244.1.0/24",
        "Routes": [{"NextHop": "10.244.1.1", "DestinationPrefix": "0.0.0.0/0"}],
    }
    if kind == "Overlay":
        subnet["Policies"] = [{"Type": "VSID", "Settings": {"IsolationId": 4096}}]
    subnets = [subnet]
    if hns.supports("IPv6 DualStack") and kind == "L2Bridge":
        subnets.append(
            {
                "IpAddressPrefix": "fd00:1::/64",
                "Routes": [{"NextHop": "fd00:1::1", "DestinationPrefix": "::/0"}],
            }
        )
    hns.create(
        "network",
        {
            "Name": name,
            "Type": kind,
            "Policies": list(policies),
            "Ipams": [{"Type": "Static", "Subnets": subnets}],
            "SchemaVersion": {"Major": 2, "Minor": 0},
        },
    )


def remote_subnet(prefix: str, provider: str) -> dict[str, Any]:
    settings = {
        "DestinationPrefix": prefix,
        "IsolationId": 4096,
        "ProviderAddress": provider,
        "DistributedRouterMacAddress": "00-15-5D-00-00-99",
    }
    return {"Type": "RemoteSubnetRoute", "Settings": settings}


class Node:
    def __init__(
        self,
        hns: HostNetworkService | None = None,
        *,
        build: int = 17763,
        hostname: str = NODE,
        source: Source = "slices",
        **options: Any,
    ) -> None:
        self.hns = hns or make_hns(build)
        self.clock = VirtualClock()
        self.tracker = ServiceTracker(source)
        self.tracker.mark_synced("services")
        self.tracker.mark_synced("endpoints")
        settings: dict[str, Any] = {
            "network_name": "cbr0",
            "node_ip": NODE_IP,
            "cluster_cidr": "10.244.0.0/16",
            **options,
        }
        self.proxier = WinkernelProxier(
            self.tracker, hostname, self.hns, WinkernelOptions(**settings), self.clock
        )

    def pod(self, address: str) -> str:
        """A pod of this node: its endpoint as a network plugin makes it."""
        network = next(iter(self.hns.networks))
        if self.hns.supports("V2 Api/Schema"):
            made = self.hns.create(
                "endpoint",
                {"HostComputeNetwork": network, "IpConfigurations": [{"IpAddress": address}]},
            )
        else:
            made = self.hns.call(
                "POST", "/endpoints/", {"VirtualNetwork": network, "IPAddress": address}
            )["Output"]
        return str(made["ID"])

    def put(self, service: Mapping[str, Any], *pods: tuple[str, str], **more: Any) -> None:
        self.tracker.put_service(service)
        if pods:
            self.put_pods(service["metadata"]["name"], *pods, **more)

    def put_pods(self, service_name: str, *pods: tuple[str, str], **more: Any) -> None:
        if self.tracker.source == "slices":
            self.tracker.put_slice(endpoint_slice(service_name, pods, **more))
        else:
            self.tracker.put_endpoints(endpoints(service_name, pods, **more))

    def sync(self) -> None:
        self.proxier.sync()

    def balancers(self) -> dict[tuple[str, int], dict[str, Any]]:
        """By first VIP and external port; endpoints as addresses."""
        out = {}
        for balancer in self.hns.loadbalancers.values():
            mapping = balancer["PortMappings"][0]
            vip = (balancer.get("FrontendVIPs") or [""])[0]
            out[vip, mapping["ExternalPort"]] = {
                "to": sorted(self.address(each) for each in balancer["HostComputeEndpoints"]),
                "port": mapping["InternalPort"],
                "protocol": mapping["Protocol"],
                "mapping": mapping.get("Flags", 0),
                "flags": balancer.get("Flags", 0),
                "source": balancer.get("SourceVIP", ""),
                "distribution": mapping.get("DistributionType", 0),
            }
        return out

    def address(self, identifier: str) -> str:
        found = self.hns.endpoints.get(identifier)
        return str(found["IpConfigurations"][0]["IpAddress"]) if found else "gone"

    def remotes(self) -> dict[str, dict[str, Any]]:
        return {
            self.address(key): endpoint
            for key, endpoint in self.hns.endpoints.items()
            if endpoint.get("Flags", 0) & 1
        }
