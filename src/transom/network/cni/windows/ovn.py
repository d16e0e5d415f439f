"""ovn-k8s-cni-overlay: pods of ovn-kubernetes on a Transparent network whose switch has the Open
vSwitch extension.

ovn-kubernetes manages addresses itself: its controller annotates the pod
(`k8s.ovn.org/pod-networks`), and the plugin reads the annotation. A pod without it gets what the
logical switch would assign next: an address of the node's subnet, except the gateway (the first)
and the node's own port (the second), and a MAC address derived from it. Tunnels, ACLs and load
balancing belong to OVN: HNS is not involved.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result
from transom.network.cni.windows import shim
from transom.network.cni.windows.shim import HcsshimFailed, annotate_errors, config_value

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

ANNOTATION: Final = "k8s.ovn.org/pod-networks"
CAPABILITY: Final = (
    "io.kubernetes.cri.pod-annotations"  # through which runtimes pass a pod's annotations
)
EXTENSION: Final = (
    "583CC151-73EC-4A6A-8B47-578297AD7623"  # Open vSwitch, as an extension of the Windows switch
)
MTU: Final = 1400  # reduced by the GENEVE header


def ovn_plugin(call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    namespace, pod = call.args.get("K8S_POD_NAMESPACE", ""), call.args.get("K8S_POD_NAME", "")
    if call.command == "ADD":
        with shim.plugin_errors(words=f"[{namespace}/{pod}]"):
            if not namespace or not pod:
                raise HcsshimFailed("required CNI variable missing")
            return _add(call, shim.hns_of_machine(machine), f"{namespace}_{pod}")
    if call.command == "DEL" and namespace and pod:
        with shim.plugin_errors(words=f"[{namespace}/{pod}]"):
            hns = shim.hns_of_machine(machine)
            endpoint = shim.find_by_name(hns.endpoints, f"{namespace}_{pod}")
            if endpoint is not None:
                shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
    return None


def _add(call: CniCall, hns: HostNetworkService, name: str) -> Result:
    """May be repeated: an endpoint is named after the pod, and the calls for its containers find
    it.
    """
    endpoint = shim.find_by_name(hns.endpoints, name)
    given = _annotated(call)
    with annotate_errors("failed to configure pod interface"):
        if given is not None and len(given["ips"]) != 1:
            raise HcsshimFailed("dual-stack is not supported in Windows")
        network = _network(hns, call.config, given["gateway"] if given else "")
        subnet = shim.subnet_of(network)
        if given is None:
            own = endpoint["IpConfigurations"][0]["IpAddress"] if endpoint is not None else ""
            given = _next(hns, network, subnet, own)
        if endpoint is None:
            address, _, bits = given["ips"][0].partition("/")
            dns = config_value(call.config, "dns", {})
            endpoint = shim.v1_create(
                hns,
                {
                    "Name": name,
                    "VirtualNetwork": network["ID"],
                    "IPAddress": address,
                    "PrefixLength": int(bits),
                    "MacAddress": given["mac"].replace(":", "-"),
                    "GatewayAddress": given["gateway"],
                    "DNSServerList": ",".join(config_value(dns, "nameservers", [])),
                    "DNSSuffix": ",".join(config_value(dns, "search", [])),
                },
            )
        try:
            inside = call.netns.upper()
            if inside in hns.namespaces:
                if hns.attachment(endpoint["ID"]) != ("namespace", inside):
                    shim.join_namespace(hns, inside, endpoint["ID"])
            else:
                shim.hot_attach(hns, call.container_id, endpoint["ID"])
        except HcsshimFailed:
            shim.v1(hns, "DELETE", f"/endpoints/{endpoint['ID']}")
            raise
    ips = [
        {
            "version": "6" if ":" in text else "4",
            "interface": 1,
            "address": text,
            "gateway": given["gateway"],
        }
        for text in given["ips"]
    ]
    return {"interfaces": [], "ips": ips, "dns": {}}


def _annotated(call: CniCall) -> dict[str, Any] | None:
    """The addresses that the controller assigned to the pod."""
    annotations = config_value(config_value(call.config, "runtimeConfig", {}), CAPABILITY, {})
    text = annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        network: dict[str, Any] = orjson.loads(text)["default"]
    except (ValueError, KeyError) as error:
        raise HcsshimFailed(f"failed to unmarshal ovn annotation: {error}") from error
    gateways = network.get("gateway_ips") or [network.get("gateway_ip", "")]
    ips = network.get("ip_addresses") or [network["ip_address"]]
    return {"ips": ips, "mac": network.get("mac_address", ""), "gateway": gateways[0]}


def _network(hns: HostNetworkService, config: Mapping[str, Any], gateway: str) -> dict[str, Any]:
    """The network that the configuration names, or whose gateway the pod has, or the only one of
    its kind.
    """
    wanted = str(config_value(config, "win-hnsnetwork-id", ""))
    if wanted:
        try:
            return hns.networks[wanted.upper()]
        except KeyError as error:
            raise HcsshimFailed(f'Network ID "{wanted}" not found') from error
    fitting = [
        network
        for network in hns.networks.values()
        if (
            shim.gateway_of(shim.subnet_of(network)) == gateway
            if gateway
            else network.get("Type") == "Transparent"
        )
    ]
    if len(fitting) > 1:
        raise HcsshimFailed(
            "found more than one network suitable for containers, please specify "
            "win-hnsnetwork-id in config"
        )
    if not fitting:
        raise HcsshimFailed("could not find any suitable network to attach the container")
    return fitting[0]


def _next(
    hns: HostNetworkService, network: Mapping[str, Any], subnet: Mapping[str, Any], own: str
) -> dict[str, Any]:
    prefix = ipaddress.ip_network(subnet["IpAddressPrefix"])
    address = own
    if not address:
        taken = {
            config["IpAddress"]
            for endpoint in hns.endpoints.values()
            if endpoint["HostComputeNetwork"] == network["ID"]
            for config in endpoint.get("IpConfigurations") or ()
        }
        spare = (str(prefix[i]) for i in range(3, prefix.num_addresses - 1))
        address = next((text for text in spare if text not in taken), "")
        if not address:
            raise HcsshimFailed("failed to get pod annotation: timed out waiting for the condition")
    return {
        "ips": [f"{address}/{prefix.prefixlen}"],
        "mac": ovn_endpoint_mac(address),
        "gateway": shim.gateway_of(subnet),
    }


def ovn_endpoint_mac(address: str) -> str:
    """Derives the MAC address like OVN."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(address).packed[-4:])


def ovn_conflist() -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": "ovn-kubernetes",
        "plugins": [
            {
                "type": "ovn-k8s-cni-overlay",
                "capabilities": {CAPABILITY: True},
                "ipam": {},
                "dns": {},
            }
        ],
    }
