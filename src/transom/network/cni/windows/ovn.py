"""ovn-k8s-cni-overlay: pods of ovn-kubernetes on a Transparent network whose switch has the Open vSwitch extension.

Addresses are ovn-kubernetes' own business: its controller writes them to the pod (`k8s.ovn.org/pod-networks`), where the
plugin reads them. A pod without that gets what the logical switch would give next: addresses from the node's subnet, but
for the gateway (the first) and the node's own port (the second), and a MAC address made of it. Tunnels, ACLs and load
balancing are OVN's: the service knows nothing of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.network.cni.plugin import Call, Delegate, Machine, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.shim import Failed, annotate, value

if TYPE_CHECKING:
    from transom.hosts.windows.hns import Hns

ANNOTATION: Final = "k8s.ovn.org/pod-networks"
CAPABILITY: Final = "io.kubernetes.cri.pod-annotations"  # by which runtimes hand over a pod's annotations
EXTENSION: Final = "583CC151-73EC-4A6A-8B47-578297AD7623"  # Open vSwitch, as a part of Windows' switch
MTU: Final = 1400  # what GENEVE leaves


def plugin(call: Call, machine: Machine, delegate: Delegate) -> Result | None:
    namespace, pod = call.args.get("K8S_POD_NAMESPACE", ""), call.args.get("K8S_POD_NAME", "")
    if call.command == "ADD":
        with shim.told(words=f"[{namespace}/{pod}]"):
            if not namespace or not pod:
                raise Failed("required CNI variable missing")
            return _add(call, shim.service(machine), f"{namespace}_{pod}")
    if call.command == "DEL" and namespace and pod:
        with shim.told(words=f"[{namespace}/{pod}]"):
            hns = shim.service(machine)
            endpoint = shim.named(hns.endpoints, f"{namespace}_{pod}")
            if endpoint is not None:
                shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
    return None


def _add(call: Call, hns: Hns, name: str) -> Result:
    """Again and again: an endpoint is named after the pod, and the calls for its containers find it."""
    endpoint = shim.named(hns.endpoints, name)
    given = _annotated(call)
    with annotate("failed to configure pod interface"):
        if given is not None and len(given["ips"]) != 1:
            raise Failed("dual-stack is not supported in Windows")
        network = _network(hns, call.config, given["gateway"] if given else "")
        subnet = shim.subnet_of(network)
        if given is None:
            own = endpoint["IpConfigurations"][0]["IpAddress"] if endpoint is not None else ""
            given = _next(hns, network, subnet, own)
        if endpoint is None:
            address, _, bits = given["ips"][0].partition("/")
            dns = value(call.config, "dns", {})
            endpoint = shim.v1_create(hns, {
                "Name": name, "VirtualNetwork": network["ID"], "IPAddress": address, "PrefixLength": int(bits),
                "MacAddress": given["mac"].replace(":", "-"), "GatewayAddress": given["gateway"],
                "DNSServerList": ",".join(value(dns, "nameservers", [])), "DNSSuffix": ",".join(value(dns, "search", [])),
            })  # fmt: skip
        try:
            inside = call.netns.upper()
            if inside in hns.namespaces:
                if hns.attachment(endpoint["ID"]) != ("namespace", inside):
                    shim.join_namespace(hns, inside, endpoint["ID"])
            else:
                shim.hot_attach(hns, call.container_id, endpoint["ID"])
        except Failed:
            shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
            raise
    ips = [
        {"version": "6" if ":" in text else "4", "interface": 1, "address": text, "gateway": given["gateway"]}
        for text in given["ips"]
    ]
    return {"interfaces": [], "ips": ips, "dns": {}}


def _annotated(call: Call) -> dict[str, Any] | None:
    """What the controller gave to the pod."""
    annotations = value(value(call.config, "runtimeConfig", {}), CAPABILITY, {})
    text = annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        network: dict[str, Any] = orjson.loads(text)["default"]
    except (ValueError, KeyError) as error:
        raise Failed(f"failed to unmarshal ovn annotation: {error}") from error
    gateways = network.get("gateway_ips") or [network.get("gateway_ip", "")]
    ips = network.get("ip_addresses") or [network["ip_address"]]
    return {"ips": ips, "mac": network.get("mac_address", ""), "gateway": gateways[0]}


def _network(hns: Hns, config: Mapping[str, Any], gateway: str) -> dict[str, Any]:
    """The one that the configuration names, or whose gateway the pod was given, or the only one of its kind."""
    wanted = str(value(config, "win-hnsnetwork-id", ""))
    if wanted:
        try:
            return hns.networks[wanted.upper()]
        except KeyError as error:
            raise Failed(f'Network ID "{wanted}" not found') from error
    fitting = [
        network for network in hns.networks.values()
        if (shim.gateway_of(shim.subnet_of(network)) == gateway if gateway else network.get("Type") == "Transparent")
    ]  # fmt: skip
    if len(fitting) > 1:
        raise Failed("found more than one network suitable for containers, please specify win-hnsnetwork-id in config")
    if not fitting:
        raise Failed("could not find any suitable network to attach the container")
    return fitting[0]


def _next(hns: Hns, network: Mapping[str, Any], subnet: Mapping[str, Any], own: str) -> dict[str, Any]:
    prefix = ipaddress.ip_network(subnet["IpAddressPrefix"])
    address = own
    if not address:
        taken = {
            config["IpAddress"]
            for endpoint in hns.endpoints.values() if endpoint["HostComputeNetwork"] == network["ID"]
            for config in endpoint.get("IpConfigurations") or ()
        }  # fmt: skip
        spare = (str(prefix[i]) for i in range(3, prefix.num_addresses - 1))
        address = next((text for text in spare if text not in taken), "")
        if not address:
            raise Failed("failed to get pod annotation: timed out waiting for the condition")
    return {"ips": [f"{address}/{prefix.prefixlen}"], "mac": mac(address), "gateway": shim.gateway_of(subnet)}


def mac(address: str) -> str:
    """As OVN makes them."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(address).packed[-4:])


def conflist() -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0", "name": "ovn-kubernetes",
        "plugins": [{"type": "ovn-k8s-cni-overlay", "capabilities": {CAPABILITY: True}, "ipam": {}, "dns": {}}],
    }  # fmt: skip

