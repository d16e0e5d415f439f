"""win-overlay: pods on an Overlay HNS network, IPv4 only.

The MAC address is derived from the pod's address, so that other nodes know it without ARP; the
gateway is the network's. The SNAT exception is the node's own subnet: the cluster's and services'
ranges must be in the configuration. Up to 0.9.1 it supports only version 1 of the HNS API, and so
no namespaces.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transom.network.cni.plugin import CniCall, CniNode, Delegate, Plugin, Result
from transom.network.cni.windows import endpoints, netconf, shim
from transom.network.cni.windows.netconf import NetConf, Release
from transom.network.cni.windows.shim import HcsshimFailed, annotate_errors

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

MAC_PREFIX: Final = "0E-2A"


def win_overlay_plugin(release: Release) -> Plugin:
    return partial(_run, release)


def _run(release: Release, call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    conf = netconf.load_net_conf(call.config, release)
    if not conf.one_list:
        conf.api = 1
    if call.command == "ADD":
        with shim.plugin_errors():
            return _add(call, conf, machine, delegate)
    if call.command == "DEL":
        _delete(call, conf, machine, delegate)
    return None  # CHECK does nothing


def _delete(call: CniCall, conf: NetConf, machine: CniNode, delegate: Delegate) -> None:
    kind = shim.ipam_type(call)
    if kind or not conf.one_list:  # up to 0.9.1 it calls IPAM even without a type
        delegate(kind, call)
    name = endpoints.endpoint_name(call, conf.name)
    with shim.plugin_errors():
        if conf.api == 2:
            endpoints.remove_hcn(shim.hns_of_machine(machine), name, conf.release)
        else:
            endpoints.deprovision_endpoint(shim.hns_of_machine(machine), name, call)


def _add(call: CniCall, conf: NetConf, machine: CniNode, delegate: Delegate) -> Result:
    prefix = str(shim.config_value(call.config, "endpointMacPrefix", "")) or MAC_PREFIX
    if len(prefix) != 5 or prefix[2] != "-":
        raise HcsshimFailed(
            f"endpointMacPrefix [{prefix}] is invalid, value must be of the format xx-xx"
        )
    hns = shim.hns_of_machine(machine)
    network = shim.v1_network(hns, conf.name)
    if network is None:
        if conf.api == 2:
            raise HcsshimFailed(
                f'error while hcn.GetNetworkByName({conf.name}): Network name "{conf.name}" '
                "not found"
            )
        raise HcsshimFailed(
            f"error while GETHNSNewtorkByName({conf.name}): Network {conf.name} not found"
        )
    if network["Type"].lower() != "overlay":
        raise HcsshimFailed(f"network {conf.name} is of an unexpected type: {network['Type']}")
    name = endpoints.endpoint_name(call, conf.name)
    try:
        if conf.api == 2:
            return _add_v2(call, conf, hns, network, name, prefix, delegate)
        return _add_v1(call, conf, hns, network, name, prefix, delegate)
    except HcsshimFailed:
        shim.give_back(delegate, call)
        raise


def _add_v1(
    call: CniCall,
    conf: NetConf,
    hns: HostNetworkService,
    network: dict[str, Any],
    name: str,
    prefix: str,
    delegate: Delegate,
) -> Result:
    def make() -> dict[str, Any]:
        with annotate_errors("error while ipam.ExecAdd"):
            given = shim.run_ipam(delegate, call, shim.ipam_type(call))
        address = _address(given, "win-overlay doesn't support IPv6 now")
        _policies(call, conf, hns, network, address)
        return {
            "Name": name,
            "VirtualNetwork": network["ID"],
            "DNSServerList": ",".join(conf.dns["nameservers"]),
            "DNSSuffix": ",".join(conf.dns["search"]),
            "GatewayAddress": network["Subnets"][0].get("GatewayAddress", ""),
            "IPAddress": str(address),
            "MacAddress": overlay_mac(prefix, address),
            "Policies": conf.rendered,
        }

    step = "AddHnsEndpoint" if conf.one_list else "ProvisionEndpoint"
    with annotate_errors(f"error while {step}({name},{network['ID']},{call.container_id})"):
        endpoint = endpoints.provision_endpoint(hns, name, network["ID"], call, make, conf.release)
    with annotate_errors("error while constructResult"):
        return endpoints.endpoint_result(network, endpoint)


def _add_v2(
    call: CniCall,
    conf: NetConf,
    hns: HostNetworkService,
    network: dict[str, Any],
    name: str,
    prefix: str,
    delegate: Delegate,
) -> Result:
    def make() -> dict[str, Any]:
        address: ipaddress.IPv4Address | None = None
        with annotate_errors("error while processing endpoint args"):
            if shim.ipam_type(call):
                with annotate_errors("error while executing IPAM addition"):
                    given = shim.run_ipam(delegate, call, shim.ipam_type(call))
                address = _address(given, "IPAM plugin return is missing valid IP Address")
        _policies(call, conf, hns, network, address)
        gateway = network["Subnets"][0].get("GatewayAddress", "")
        settings = endpoints.hcn_settings(
            name, network["ID"], str(address or ""), gateway, conf.dns, newer=True
        )
        more = {"MacAddress": overlay_mac(prefix, address)} if address is not None else {}
        return {**settings, **more, "Policies": conf.rendered}

    with annotate_errors("error while adding HostComputeEndpoint"):
        endpoint = endpoints.add_hcn(hns, name, network["ID"], call, make, conf.release)
    with annotate_errors("error while constructing HostComputeEndpoint addition result"):
        return endpoints.hcn_result(hns.networks[network["ID"]], endpoint)


def _address(given: Result | None, words: str) -> ipaddress.IPv4Address:
    if given is None or not given.get("ips"):
        raise HcsshimFailed("IPAM plugin return is missing IP config")
    address = ipaddress.ip_interface(given["ips"][0]["address"]).ip
    if not isinstance(address, ipaddress.IPv4Address):
        raise HcsshimFailed(words)
    return address


def _policies(
    call: CniCall,
    conf: NetConf,
    hns: HostNetworkService,
    network: dict[str, Any],
    address: ipaddress.IPv4Address | None,
) -> None:
    """The policies of every overlay endpoint, and those of the configuration."""
    conf.provider_address(network.get("ManagementIP", ""))
    if shim.config_value(call.config, "ipMasq", False):
        conf.snat_except(network["Subnets"][0]["AddressPrefix"])
    if (
        conf.loopback_dsr
        and address is not None
        and (not conf.one_list or hns.supports("Direct Server Return (DSR)"))
    ):
        conf.reach_itself(str(address))


def overlay_mac(prefix: str, address: ipaddress.IPv4Address) -> str:
    return "-".join((prefix, *(f"{byte:02x}" for byte in address.packed)))
