"""win-overlay: pods on an Overlay network of the service, with version 1 of its interface, IPv4 alone.

The MAC address is made of the pod's address, so that other nodes know it without asking; the gateway is the network's. The
exception from SNAT is the node's own subnet: those of the cluster and of services must be in the configuration.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import Any, Final

from transom.network.cni.plugin import Call, Delegate, Machine, Plugin, Result
from transom.network.cni.windows import endpoints, netconf, shim
from transom.network.cni.windows.netconf import NetConf, Release
from transom.network.cni.windows.shim import Failed, annotate

MAC_PREFIX: Final = "0E-2A"


def plugin(release: Release) -> Plugin:
    return partial(_run, release)


def _run(release: Release, call: Call, machine: Machine, delegate: Delegate) -> Result | None:
    conf = netconf.load(call.config, release)
    conf.api = 1
    if call.command == "ADD":
        with shim.told():
            return _add(call, conf, machine, delegate)
    if call.command == "DEL":
        shim.run_delete(delegate, call)
        with shim.told():
            endpoints.deprovision(shim.service(machine), endpoints.endpoint_name(call, conf.name), call)
    return None  # CHECK looks at nothing


def _add(call: Call, conf: NetConf, machine: Machine, delegate: Delegate) -> Result:
    prefix = str(shim.value(call.config, "endpointMacPrefix", "")) or MAC_PREFIX
    if len(prefix) != 5 or prefix[2] != "-":
        raise Failed(f"endpointMacPrefix [{prefix}] is invalid, value must be of the format xx-xx")
    hns = shim.service(machine)
    network = shim.v1_network(hns, conf.name)
    if network is None:
        raise Failed(f"error while GETHNSNewtorkByName({conf.name}): Network {conf.name} not found")
    if network["Type"].lower() != "overlay":
        raise Failed(f"network {conf.name} is of an unexpected type: {network['Type']}")
    name = endpoints.endpoint_name(call, conf.name)
    subnet = network["Subnets"][0]

    def make() -> dict[str, Any]:
        with annotate("error while ipam.ExecAdd"):
            given = shim.run_ipam(delegate, call, shim.ipam_type(call))
        if given is None or not given.get("ips"):
            raise Failed("IPAM plugin return is missing IP config")
        address = ipaddress.ip_interface(given["ips"][0]["address"]).ip
        if address.version != 4:
            raise Failed("win-overlay doesn't support IPv6 now")
        conf.provider_address(network.get("ManagementIP", ""))
        if shim.value(call.config, "ipMasq", False):
            conf.snat_except(subnet["AddressPrefix"])
        if conf.loopback_dsr and (not conf.one_list or hns.supports("Direct Server Return (DSR)")):
            conf.reach_itself(str(address))
        return {
            "Name": name,
            "VirtualNetwork": network["ID"],
            "DNSServerList": ",".join(conf.dns["nameservers"]),
            "DNSSuffix": ",".join(conf.dns["search"]),
            "GatewayAddress": subnet.get("GatewayAddress", ""),
            "IPAddress": str(address),
            "MacAddress": mac(prefix, address),
            "Policies": conf.policies,
        }

    try:
        step = "AddHnsEndpoint" if conf.one_list else "ProvisionEndpoint"
        with annotate(f"error while {step}({name},{network['ID']},{call.container_id})"):
            endpoint = endpoints.provision(hns, name, network["ID"], call, make, conf.release)
        with annotate("error while constructResult"):
            return endpoints.result(network, endpoint)
    except Failed:
        shim.give_back(delegate, call)
        raise


def mac(prefix: str, address: ipaddress.IPv4Address) -> str:
    return "-".join((prefix, *(f"{byte:02x}" for byte in address.packed)))
