"""flanneld's backends on Windows: the HNS networks and endpoints that they create, and the routes
to other nodes.

host-gw creates an L2Bridge network, the host's endpoint in it, and routes on the host. vxlan
creates an Overlay network whose policies map remote subnets to nodes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from transom.machines.windows.hns import HnsError
from transom.network.cni import flannelconf
from transom.network.cni.flannelconf import (
    ENCAPSULATION,
    FlannelBackend,
    FlannelConf,
    FlannelError,
    VxlanSettings,
    WindowsAgentBehaviour,
)
from transom.network.cni.hostlocal import DATA
from transom.network.cni.leases import SubnetLease
from transom.network.cni.paths import join_cni_path
from transom.network.cni.plugin import CniNode
from transom.network.cni.windows import shim
from transom.network.stacks import NetworkLink

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

_SCHEMA = {"Major": 2, "Minor": 0}
_EXPIRED = "context deadline exceeded"
_ATTACHED = "This endpoint is already attached to the switch."
NO_HOST_ROUTE = (
    "Could not apply HostRoute policy for local host to local pod connectivity. "
    "This policy requires Windows 18321.1000.19h1_release.190117-1502 or newer"
)
WAITING = "Waiting for the Network to be created"


def windows_backend(
    conf: FlannelConf, machine: CniNode, link: NetworkLink, behaviour: WindowsAgentBehaviour
) -> FlannelBackend:
    if machine.hns is None:
        raise FlannelError("The specified module could not be found.")
    if not behaviour.backends:
        behaviour.log(f"{conf.backend.replace('-', '')} is not supported on this platform")
        raise FlannelError(f"unknown backend type: {conf.backend}")
    if conf.backend == "host-gw":
        return WindowsHostGateway(machine, machine.hns, link, conf.settings, behaviour)
    return WindowsVxlan(machine.hns, link, flannelconf.vxlan_settings(conf, "windows"), behaviour)


class WindowsHostGateway:
    kind = "host-gw"

    def __init__(
        self,
        machine: CniNode,
        hns: HostNetworkService,
        link: NetworkLink,
        settings: Mapping[str, Any],
        behaviour: WindowsAgentBehaviour,
    ) -> None:
        self._behaviour = behaviour
        self._machine = machine
        self._hns = hns
        self._name = settings.get("name") or "cbr0"
        self._servers = settings.get("dnsserverlist") or ""
        self._link = link.name  # has a different name once a switch exists
        self.mtu = link.mtu

    def register(self, lease: SubnetLease) -> SubnetLease:
        subnet = ipaddress.ip_network(lease.subnet)
        network = self._ensure_network(str(subnet), str(subnet[1]))
        endpoint = self._ensure_endpoint(network["ID"], str(subnet[2]))
        self._attach(endpoint)
        self._hold(str(subnet[2]))
        management = network.get("ManagementIP", "")
        for address in (management, str(subnet[2])):
            name = self._interface(address)
            if name is None:
                raise FlannelError(
                    f"failed to find interface for IP Address {address}: no interface with "
                    "given IP found"
                )
            if address == management:
                self._link = name
        self._machine.stack.set_forwarding(True)
        return lease

    def _ensure_network(self, prefix: str, gateway: str) -> dict[str, Any]:
        name = self._name
        existing = shim.v1_network(self._hns, name)
        if existing is not None:
            for subnet in existing.get("Subnets") or ():
                if (subnet.get("AddressPrefix"), subnet.get("GatewayAddress")) == (prefix, gateway):
                    return existing
            self._v1(
                f"failed to delete existing HNSNetwork {name}",
                "DELETE",
                f"/networks/{existing['ID']}",
            )
        wanted: dict[str, Any] = {
            "Name": name,
            "Type": "L2Bridge",
            "Subnets": [{"AddressPrefix": prefix, "GatewayAddress": gateway}],
        }
        if self._servers:
            wanted["DNSServerList"] = self._servers
        made = self._v1(f"failed to create HNSNetwork {name}", "POST", "/networks/", wanted)
        late = f"timeout, failed to get management IP from HNSNetwork {name}"
        network: dict[str, Any] = self._v1(late, "GET", f"/networks/{made['ID']}")
        self._behaviour.log(WAITING)
        address = network.get("ManagementIP")
        if not address or self._behaviour.late:
            raise FlannelError(f"{late}: {_EXPIRED}")
        if self._interface(address) is None:
            raise FlannelError(
                f"timeout, failed to get net interface for HNSNetwork {name} ({address}): no "
                "interface with given IP found"
            )
        return network

    def _ensure_endpoint(self, network: str, address: str) -> str:
        name = f"{self._name}_ep"
        existing = shim.v1_endpoint(self._hns, name)
        if existing is not None:
            if existing.get("IPAddress") == address:
                return str(existing["ID"])
            self._v1(
                f"failed to delete existing bridge HNSEndpoint {name}",
                "DELETE",
                f"/endpoints/{existing['ID']}",
            )
        wanted = {"Name": name, "IPAddress": address, "VirtualNetwork": network}
        made = self._v1(
            f"failed to create bridge HNSEndpoint {name}", "POST", "/endpoints/", wanted
        )
        return str(made["ID"])

    def _attach(self, endpoint: str) -> None:
        try:
            self._hns.attach_to_host(endpoint, 1)
        except HnsError as error:
            if _ATTACHED not in error.text:
                text = (
                    f"failed to hot attach bridge HNSEndpoint {self._name}_ep to host "
                    f"compartment: {error.text}"
                )
                raise FlannelError(text) from error

    def _hold(self, address: str) -> None:
        """Prevents host-local from giving a pod the address of the host's endpoint, which HNS would
        refuse. flanneld itself does not do this: on a real node the first pod fails once.
        """
        directory = join_cni_path("windows", DATA, self._name)
        self._machine.files.mkdir(directory)
        self._machine.files.write(
            join_cni_path("windows", directory, address), f"{self._name}_ep\r\nhost".encode()
        )

    def _v1(self, words: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            return shim.v1(self._hns, method, path, body)
        except shim.HcsshimFailed as error:
            raise FlannelError(f"{words}: {error}") from error

    def _interface(self, address: str) -> str | None:
        for link in self._machine.stack.links.values():
            if any(str(held.ip) == address for held in link.addresses):
                return link.name
        return None

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        stack = self._machine.stack
        for lease in removed:
            if lease.subnet:
                stack.delete_route(lease.subnet)
        for lease in added:
            if lease.subnet:
                stack.replace_route(lease.subnet, self._link, lease.public_ip)


class WindowsVxlan:
    kind = "vxlan"

    def __init__(
        self,
        hns: HostNetworkService,
        link: NetworkLink,
        conf: VxlanSettings,
        behaviour: WindowsAgentBehaviour,
    ) -> None:
        self._hns = hns
        self._conf = conf
        self._behaviour = behaviour
        self._log = behaviour.log
        self._adapter = link.name
        self._network = ""
        self._applied: dict[str, dict[str, Any]] = {}  # policies by remote subnet
        self.mtu = link.mtu - ENCAPSULATION

    def register(self, lease: SubnetLease) -> SubnetLease:
        if not self._hns.supports("Remote Subnet"):
            raise FlannelError("platform does not support feature Remote Subnet")
        network = self._ensure(lease.subnet)
        self._network = network["ID"]
        mac = ""
        for policy in network.get("Policies") or ():
            if policy["Type"] == "DrMacAddress":
                mac = policy["Settings"]["Address"]
            elif policy["Type"] == "RemoteSubnetRoute":
                self._applied[policy["Settings"]["DestinationPrefix"]] = policy
        parts = mac.replace("-", ":").lower()
        if parts.count(":") != 5:
            raise FlannelError(f"cannot parse DR MAC {mac}: address {mac}: invalid MAC address")
        data = orjson.dumps({"VNI": self._conf.vni, "VtepMAC": parts}).decode()
        return replace(lease, backend_data=data, backend_type=self.kind, subnet6="", public_ip6="")

    def _ensure(self, prefix: str) -> dict[str, Any]:
        """Ensures that the network exists, with the node's address in it and the policy that lets
        the node reach its own pods.
        """
        conf, hns = self._conf, self._hns
        found = shim.find_by_name(hns.networks, conf.name)
        failed = "failed to create VXLAN network: "
        if found is not None and (
            found.get("Type"),
            shim.subnet_of(found).get("IpAddressPrefix"),
        ) != ("Overlay", prefix):
            try:
                hns.delete("network", found["ID"])
            except HnsError as error:
                raise FlannelError(
                    f"{failed}failed to delete existing HostComputeNetwork {conf.name}: "
                    f"{error.text}"
                ) from error
            found = None
        if found is None:
            gateway = str(ipaddress.ip_network(prefix)[1])
            wanted = {
                "Name": conf.name,
                "Type": "Overlay",
                "Flags": 0 if self._behaviour.persistent else 8,
                "SchemaVersion": _SCHEMA,
                "Policies": [
                    {"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": self._adapter}}
                ],
                "Ipams": [
                    {
                        "Type": "Static",
                        "Subnets": [
                            {
                                "IpAddressPrefix": prefix,
                                "Routes": [{"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}],
                                "Policies": [
                                    {"Type": "VSID", "Settings": {"IsolationId": conf.vni}}
                                ],
                            }
                        ],
                    }
                ],
            }
            try:
                found = hns.create("network", wanted)
            except HnsError as error:
                raise FlannelError(
                    f"{failed}failed to create HostComputeNetwork {conf.name}: {error.text}"
                ) from error
            found = hns.query("network", found["ID"])
            self._log(WAITING)
            if not hns.management_ip(found["ID"]) or self._behaviour.late:
                raise FlannelError(
                    f"{failed}timeout, failed to get management IP from HostComputeNetwork "
                    f"{conf.name}: {_EXPIRED}"
                )
        if self._behaviour.host_route and all(
            policy["Type"] != "HostRoute" for policy in found.get("Policies") or ()
        ):
            try:
                self._modify("Add", [{"Type": "HostRoute", "Settings": {}}], found["ID"])
            except HnsError:
                self._log(NO_HOST_ROUTE)
        return hns.query("network", found["ID"])

    def _modify(self, what: str, policies: Sequence[Mapping[str, Any]], network: str = "") -> None:
        request = {
            "ResourceType": "Policy",
            "RequestType": what,
            "Settings": {"Policies": list(policies)},
        }
        self._hns.modify("network", network or self._network, request)

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        if self._network not in self._hns.networks:
            self._log(
                f"Unable to find network {self._conf.name}, error: Network name "
                f'"{self._conf.name}" not found'
            )
            return
        remove = [
            self._applied.pop(lease.subnet) for lease in removed if lease.subnet in self._applied
        ]
        add = []
        for lease in added:
            vni, mac = lease.vtep()
            if not self._behaviour.reads_vni:
                vni = flannelconf.WINDOWS_VNI
            if vni < flannelconf.WINDOWS_VNI:
                self._log(
                    f"VNI is {vni} but it is required to be greater than or equal to 4096 on "
                    "Windows."
                )
                continue
            if not mac:
                continue  # the other agent is not ready yet
            if lease.subnet in self._applied:
                remove.append(self._applied[lease.subnet])
            policy = {
                "Type": "RemoteSubnetRoute",
                "Settings": {
                    "DestinationPrefix": lease.subnet,
                    "IsolationId": vni,
                    "ProviderAddress": lease.public_ip,
                    "DistributedRouterMacAddress": mac,
                },
            }
            self._applied[lease.subnet] = policy
            add.append(policy)
        for what, policies in (("Remove", remove), ("Add", add)):
            if policies:
                try:
                    self._modify(what, policies)
                except HnsError as error:
                    self._log(error.text)
