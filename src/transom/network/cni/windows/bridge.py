"""win-bridge: pods on an L2Bridge or L2Tunnel network of the service.

The pod's gateway is the third address of the subnet (x.x.x.2), where the host's own endpoint of the bridge is, whatever the
IPAM plugin says. Without an IPAM plugin the service gives address and gateway.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transom.network.cni.plugin import Call, CniError, Delegate, Machine, Plugin, Result
from transom.network.cni.windows import endpoints, netconf, shim
from transom.network.cni.windows.netconf import NetConf, Release
from transom.network.cni.windows.shim import Crashed, Failed, annotate

if TYPE_CHECKING:
    from transom.hosts.windows.hns import Hns

_TYPES: Final = ("L2Bridge", "L2Tunnel")


def plugin(release: Release) -> Plugin:
    return partial(_run, release)


def _run(release: Release, call: Call, machine: Machine, delegate: Delegate) -> Result | None:
    conf = netconf.load(call.config, release)
    if call.command == "ADD":
        return _add(call, conf, machine, delegate)
    if call.command == "DEL":
        _delete(call, conf, machine, delegate)
    return None  # CHECK looks at nothing


def _add(call: Call, conf: NetConf, machine: Machine, delegate: Delegate) -> Result:
    try:
        with shim.told(words="" if conf.one_list else "error while executing ADD command"):
            hns = shim.service(machine)
            return _add_v2(call, conf, hns, delegate) if conf.api == 2 else _add_v1(call, conf, hns, delegate)
    except Crashed:
        raise
    except CniError:
        shim.give_back(delegate, call)
        raise


def _add_v1(call: Call, conf: NetConf, hns: Hns, delegate: Delegate) -> Result:
    newer = conf.one_list
    network = shim.v1_network(hns, conf.name)
    if network is None:
        words = f"error while getting network {conf.name}" if newer else f"error while GETHNSNewtorkByName({conf.name})"
        raise Failed(f"{words}: Network {conf.name} not found")
    if network["Type"].lower() not in ("l2bridge", "l2tunnel"):
        raise Failed(f"network {conf.name} is of {'' if newer else 'an '}unexpected type: {network['Type']}")
    name = endpoints.endpoint_name(call, conf.name)

    def make() -> dict[str, Any]:
        try:
            with annotate("error while processing endpoint args"):
                address, gateway = _prepare(call, conf, delegate)
        except Failed as error:
            if newer:
                raise
            shim.crash(error)  # it writes to what was not made before it looks at the error
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
    with annotate(words):
        endpoint = endpoints.provision(hns, name, network["ID"], call, make, conf.release)
    with annotate("error while constructing HNSEndpoint addition result" if newer else "error while constructResult"):
        return endpoints.result(network, endpoint)


def _add_v2(call: Call, conf: NetConf, hns: Hns, delegate: Delegate) -> Result:
    newer = conf.one_list
    network = shim.named(hns.networks, conf.name)
    if network is None:
        words = f"error while getting network {conf.name}" if newer else f"error while GetNetworkByName({conf.name})"
        raise Failed(f'{words}: Network name "{conf.name}" not found')
    kind = network.get("Type", "NAT")
    if kind not in _TYPES:
        raise Failed(f"network {conf.name} is of unexpected type: {kind}")
    name = endpoints.endpoint_name(call, conf.name)

    def make() -> dict[str, Any]:
        with annotate("error while processing endpoint args" if newer else "error while ProcessEndpointArgs"):
            address, gateway = _prepare(call, conf, delegate)
        with annotate("error while generating HostComputeEndpoint" if newer else "error while GenerateHcnEndpoint"):
            before = shim.named(hns.endpoints, name)
            if before is not None and not newer:
                if shim.same_id(before["HostComputeNetwork"], network["ID"]):
                    raise Failed(f'endpoint "{name}" already exits')
                with annotate(f"failed to delete endpoint {name}"):
                    shim.v2_delete(hns, "endpoint", before["ID"])
                return dict(before)  # and it is made again as it was, on the other network
        if conf.loopback_dsr and (not newer or hns.supports("Direct Server Return (DSR)")):
            conf.reach_itself(address)
        settings = endpoints.hcn_settings(name, network["ID"], address, gateway, conf.dns, newer=newer)
        return {**settings, "Policies": conf.rendered}

    words = "error while adding HostComputeEndpoint"
    if not newer:
        words = f"error while AddHcnEndpoint({name},{network['ID']},{call.netns})"
    with annotate(words):
        endpoint = endpoints.add_hcn(hns, name, network["ID"], call, make, conf.release)
    return endpoints.hcn_result(network, endpoint)


def _prepare(call: Call, conf: NetConf, delegate: Delegate) -> tuple[str, str]:
    """Address and gateway of the pod, "" for what the service gives; policies that follow from other settings."""
    address, gateway = "", ""
    kind = shim.ipam_type(call)
    if kind:
        with annotate("error while executing IPAM addition" if conf.one_list else "error while ipam.ExecAdd"):
            given = shim.run_ipam(delegate, call, kind)
        if given is None or not given.get("ips"):
            raise Failed("IPAM plugin return is missing IP config")
        interface = ipaddress.ip_interface(given["ips"][0]["address"])
        address, gateway = str(interface.ip), bridge_gateway(interface)
    conf.snat_except(str(shim.value(call.config, "ipMasqNetwork", "")))
    conf.map_ports()
    return address, gateway


def bridge_gateway(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> str:
    """The subnet's address with two added to its last byte, which does not carry."""
    base = int(interface.network.network_address)
    return str(type(interface.ip)((base & ~0xFF) | ((base + 2) & 0xFF)))


def _delete(call: Call, conf: NetConf, machine: Machine, delegate: Delegate) -> None:
    kind = shim.ipam_type(call)
    if kind:
        delegate(kind, call)
    name = endpoints.endpoint_name(call, conf.name)
    with shim.told():
        hns = shim.service(machine)
        if conf.api == 2:
            endpoints.remove_hcn(hns, name, conf.release)
        else:
            endpoints.deprovision(hns, name, call)
