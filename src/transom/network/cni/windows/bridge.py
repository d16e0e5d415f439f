"""win-bridge: pods on an L2Bridge or L2Tunnel HNS network.

The pod's gateway is the third address of the subnet (x.x.x.2), the host's own endpoint on the
bridge, regardless of the IPAM plugin's result. Without an IPAM plugin HNS assigns address and
gateway.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transom.network.cni.plugin import CniCall, CniError, CniNode, Delegate, Plugin, Result
from transom.network.cni.windows import endpoints, netconf, shim
from transom.network.cni.windows.netconf import NetConf, Release
from transom.network.cni.windows.shim import HcsshimCrashed, HcsshimFailed, annotate_errors

if TYPE_CHECKING:
    from transom.machines.windows.hns import HostNetworkService

_TYPES: Final = ("L2Bridge", "L2Tunnel")


def win_bridge_plugin(release: Release) -> Plugin:
    return partial(_run, release)


def _run(release: Release, call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    conf = netconf.load_net_conf(call.config, release)
    if call.command == "ADD":
        return _add(call, conf, machine, delegate)
    if call.command == "DEL":
        _delete(call, conf, machine, delegate)
    return None  # CHECK does nothing


def _add(call: CniCall, conf: NetConf, machine: CniNode, delegate: Delegate) -> Result:
    try:
        with shim.plugin_errors(words="" if conf.one_list else "error while executing ADD command"):
            hns = shim.hns_of_machine(machine)
            return (
                _add_v2(call, conf, hns, delegate)
                if conf.api == 2
                else _add_v1(call, conf, hns, delegate)
            )
    except HcsshimCrashed:
        raise
    except CniError:
        shim.give_back(delegate, call)
        raise


def _add_v1(call: CniCall, conf: NetConf, hns: HostNetworkService, delegate: Delegate) -> Result:
    newer = conf.one_list
    network = shim.v1_network(hns, conf.name)
    if network is None:
        words = (
            f"error while getting network {conf.name}"
            if newer
            else f"error while GETHNSNewtorkByName({conf.name})"
        )
        raise HcsshimFailed(f"{words}: Network {conf.name} not found")
    if network["Type"].lower() not in ("l2bridge", "l2tunnel"):
        raise HcsshimFailed(
            f"network {conf.name} is of {'' if newer else 'an '}unexpected type: {network['Type']}"
        )
    name = endpoints.endpoint_name(call, conf.name)

    def make() -> dict[str, Any]:
        try:
            with annotate_errors("error while processing endpoint args"):
                address, gateway = _prepare(call, conf, delegate)
        except HcsshimFailed as error:
            if newer:
                raise
            shim.crash_plugin(error)  # it dereferences a nil endpoint before it checks the error
        if conf.loopback_dsr and (not newer or hns.supports("Direct Server Return (DSR)")):
            conf.reach_itself(address)
        return {
            "Name": name,
            "VirtualNetwork": network["ID"],
            "DNSServerList": ",".join(conf.dns["nameservers"]),
            "DNSSuffix": ",".join(conf.dns["search"]),
            "GatewayAddress": gateway,
            "IPAddress": address,
            "Policies": conf.rendered,
        }

    words = "error while adding HNSEndpoint"
    if not newer:
        words = f"error while ProvisionEndpoint({name},{network['ID']},{call.container_id})"
    with annotate_errors(words):
        endpoint = endpoints.provision_endpoint(hns, name, network["ID"], call, make, conf.release)
    with annotate_errors(
        "error while constructing HNSEndpoint addition result"
        if newer
        else "error while constructResult"
    ):
        return endpoints.endpoint_result(network, endpoint)


def _add_v2(call: CniCall, conf: NetConf, hns: HostNetworkService, delegate: Delegate) -> Result:
    newer = conf.one_list
    network = shim.find_by_name(hns.networks, conf.name)
    if network is None:
        words = (
            f"error while getting network {conf.name}"
            if newer
            else f"error while GetNetworkByName({conf.name})"
        )
        raise HcsshimFailed(f'{words}: Network name "{conf.name}" not found')
    kind = network.get("Type", "NAT")
    if kind not in _TYPES:
        raise HcsshimFailed(f"network {conf.name} is of unexpected type: {kind}")
    name = endpoints.endpoint_name(call, conf.name)

    def make() -> dict[str, Any]:
        with annotate_errors(
            "error while processing endpoint args" if newer else "error while ProcessEndpointArgs"
        ):
            address, gateway = _prepare(call, conf, delegate)
        with annotate_errors(
            "error while generating HostComputeEndpoint"
            if newer
            else "error while GenerateHcnEndpoint"
        ):
            before = shim.find_by_name(hns.endpoints, name)
            if before is not None and not newer:
                if shim.same_id(before["HostComputeNetwork"], network["ID"]):
                    raise HcsshimFailed(f'endpoint "{name}" already exits')
                with annotate_errors(f"failed to delete endpoint {name}"):
                    shim.v2_delete(hns, "endpoint", before["ID"])
                return dict(before)  # then recreates it unchanged on the other network
        if conf.loopback_dsr and (not newer or hns.supports("Direct Server Return (DSR)")):
            conf.reach_itself(address)
        settings = endpoints.hcn_settings(
            name, network["ID"], address, gateway, conf.dns, newer=newer
        )
        return {**settings, "Policies": conf.rendered}

    words = "error while adding HostComputeEndpoint"
    if not newer:
        words = f"error while AddHcnEndpoint({name},{network['ID']},{call.netns})"
    with annotate_errors(words):
        endpoint = endpoints.add_hcn(hns, name, network["ID"], call, make, conf.release)
    return endpoints.hcn_result(network, endpoint)


def _prepare(call: CniCall, conf: NetConf, delegate: Delegate) -> tuple[str, str]:
    """The pod's address and gateway, "" if HNS assigns them; adds policies that other settings
    require.
    """
    address, gateway = "", ""
    kind = shim.ipam_type(call)
    if kind:
        with annotate_errors(
            "error while executing IPAM addition" if conf.one_list else "error while ipam.ExecAdd"
        ):
            given = shim.run_ipam(delegate, call, kind)
        if given is None or not given.get("ips"):
            raise HcsshimFailed("IPAM plugin return is missing IP config")
        interface = ipaddress.ip_interface(given["ips"][0]["address"])
        address, gateway = str(interface.ip), bridge_gateway(interface)
    conf.snat_except(str(shim.config_value(call.config, "ipMasqNetwork", "")))
    conf.map_ports()
    return address, gateway


def bridge_gateway(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> str:
    """The subnet's address with two added to its last byte, without carry."""
    base = int(interface.network.network_address)
    return str(type(interface.ip)((base & ~0xFF) | ((base + 2) & 0xFF)))


def _delete(call: CniCall, conf: NetConf, machine: CniNode, delegate: Delegate) -> None:
    kind = shim.ipam_type(call)
    if kind:
        delegate(kind, call)
    name = endpoints.endpoint_name(call, conf.name)
    with shim.plugin_errors():
        hns = shim.hns_of_machine(machine)
        if conf.api == 2:
            endpoints.remove_hcn(hns, name, conf.release)
        else:
            endpoints.deprovision_endpoint(hns, name, call)
