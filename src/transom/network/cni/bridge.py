"""bridge: a bridge on the node, a veth pair for each sandbox, addresses from an IPAM plugin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from transom.network.cni import masquerade, results, values
from transom.network.cni.plugin import CniCall, CniNode, Delegate, Result, fail_plugin
from transom.network.stacks import NetworkLink, NetworkStack, stable_mac

_DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}


def bridge(call: CniCall, machine: CniNode, delegate: Delegate) -> Result | None:
    conf = call.config
    vlan = conf.get("vlan") or 0
    if not 0 <= vlan <= 4094:
        fail_plugin(f"invalid VLAN ID {vlan} (must be between 0 and 4094)")
    kind = (conf.get("ipam") or {}).get("type") or ""
    if call.command == "DEL":
        _delete(call, machine, delegate, kind)
        return None
    if call.command == "CHECK":
        _check(call, machine, delegate, kind)
        return None
    if conf.get("hairpinMode") and conf.get("promiscMode"):
        fail_plugin("cannot set hairpin mode and promiscous mode at the same time.")
    port = _ensure_bridge(machine, conf)
    sandbox = machine.namespace(call.netns)
    near, far = _veth(machine, sandbox, call, port)
    result: Result = {
        "cniVersion": "0.4.0",
        "interfaces": [
            {"name": port.name, "mac": port.mac},
            {"name": near.name, "mac": near.mac},
            {"name": far.name, "mac": far.mac, "sandbox": call.netns},
        ],
    }
    if kind:
        given = delegate(kind, call) or {}
        try:
            _layer3(call, machine, sandbox, port, result, given)
        except BaseException:
            _released(call, delegate, kind)
            raise
    result["dns"] = conf.get("dns") or {}
    return result


def _released(call: CniCall, delegate: Delegate, kind: str) -> None:
    delegate(kind, _as(call, "DEL"))


def _as(call: CniCall, command: Any) -> CniCall:
    return CniCall(
        command, call.container_id, call.netns, call.ifname, call.args, call.path, call.config
    )


# ---- links ----


def _ensure_bridge(machine: CniNode, conf: Mapping[str, Any]) -> NetworkLink:
    name = conf.get("bridge") or "cni0"
    if conf.get("vlan"):  # data planes here do not tag frames
        fail_plugin(
            f'failed to create bridge "{name}": could not add "{name}": operation not supported'
        )
    found = machine.stack.links.get(name)
    if found is None:
        mac = stable_mac(machine.stack.name, name)
        found = machine.stack.add_link(
            NetworkLink(name, "bridge", mac=mac, mtu=conf.get("mtu") or 1500)
        )
    if found.kind != "bridge":
        fail_plugin(
            f'failed to create bridge "{name}": "{name}" already exists but is not a bridge'
        )
    if conf.get("promiscMode"):
        machine.memory.setdefault("promiscuous", set()).add(name)
    return found


def _veth(
    machine: CniNode, sandbox: NetworkStack, call: CniCall, bridge: NetworkLink
) -> tuple[NetworkLink, NetworkLink]:
    """The node's end, attached to the bridge from the start, and the sandbox's end."""
    if call.ifname in sandbox.links:
        fail_plugin(f"container veth name provided ({call.ifname}) already exists")
    mtu = call.config.get("mtu") or 1500
    name = host_veth(machine.stack, call.container_id, call.ifname)
    far = NetworkLink(
        call.ifname,
        "veth",
        mac=stable_mac(sandbox.name, call.ifname),
        mtu=mtu,
        peer=(machine.stack.name, name),
    )
    near = NetworkLink(
        name,
        "veth",
        mac=stable_mac(machine.stack.name, name),
        mtu=mtu,
        peer=(sandbox.name, call.ifname),
    )
    near.master = bridge.name
    near.hairpin = bool(call.config.get("hairpinMode"))
    sandbox.add_link(far)
    machine.stack.add_link(near)
    return near, far


def host_veth(stack: NetworkStack, container_id: str, ifname: str) -> str:
    salt = 0
    while True:
        name = (
            "veth"
            + hashlib.blake2b(f"{container_id}/{ifname}/{salt}".encode(), digest_size=4).hexdigest()
        )
        if name not in stack.links:
            return name
        salt += 1


# ---- addresses and routes ----


def _layer3(
    call: CniCall,
    machine: CniNode,
    sandbox: NetworkStack,
    port: NetworkLink,
    result: Result,
    given: Result,
) -> None:
    conf = call.config
    ips = given.get("ips")
    if not ips:
        fail_plugin("IPAM plugin returned missing IP config")
    gateway = bool(conf.get("isGateway") or conf.get("isDefaultGateway"))
    result["ips"] = [_placed(ip, gateway) for ip in ips]
    routes = list(given.get("routes") or ())
    if conf.get("isDefaultGateway"):
        for ip in result["ips"]:
            default = _DEFAULT[6 if ip["version"] == "6" else 4]
            if all(route["dst"] != default or not route.get("gw") for route in routes):
                routes.append({"dst": default, "gw": ip["gateway"]})
    if routes:
        result["routes"] = routes
    configure_bridge(sandbox, call.ifname, result)
    if gateway:
        for ip in result["ips"]:
            _ensure_address(
                machine.stack, port, f"{ip['gateway']}/{ip['address'].split('/')[1]}", conf
            )
        machine.stack.set_forwarding(True)
    if conf.get("ipMasq"):
        masquerade.add_masquerade_rules(
            machine.stack, conf["name"], call.container_id, [ip["address"] for ip in result["ips"]]
        )


def _placed(ip: Mapping[str, Any], gateway: bool) -> dict[str, Any]:
    placed = {"version": ip["version"], "interface": 2, "address": ip["address"]}
    if ip.get("gateway"):
        placed["gateway"] = ip["gateway"]
    elif gateway:
        placed["gateway"] = str(values.parse_cidr_value(ip["address"]).network[1])
    return placed


def configure_bridge(sandbox: NetworkStack, ifname: str, result: Result) -> None:
    """Adds the addresses of a result to the sandbox's interface, and the routes to its table."""
    gateways: dict[str, str] = {}
    for ip in result["ips"]:
        sandbox.add_address(ifname, ip["address"])
        if ip.get("gateway"):
            gateways.setdefault(ip["version"], ip["gateway"])
    for route in result.get("routes") or ():
        if sandbox.has_route(route["dst"]):
            continue  # the first one wins
        via = route.get("gw") or gateways.get(results.result_family(route["dst"]), "")
        sandbox.replace_route(route["dst"], ifname, via)


def _ensure_address(
    stack: NetworkStack, port: NetworkLink, address: str, conf: Mapping[str, Any]
) -> None:
    wanted = values.parse_cidr_value(address)
    for held in tuple(port.addresses):
        if held == wanted:
            return
        if held.version != wanted.version:
            continue
        if wanted.version == 4 or wanted.ip in held.network or held.ip in wanted.network:
            if not conf.get("forceAddress"):
                fail_plugin(
                    f'failed to set bridge addr: "{port.name}" already has an IP address '
                    f"different from {wanted}"
                )
            stack.delete_address(port.name, str(held))
    stack.add_address(port.name, address)


# ---- DEL and CHECK ----


def _delete(call: CniCall, machine: CniNode, delegate: Delegate, kind: str) -> None:
    if kind:
        delegate(kind, call)
    if not call.netns:
        return
    sandbox = machine.namespace(call.netns, prefix="")
    link = sandbox.links.get(call.ifname)
    if link is not None:
        sandbox.delete_link(call.ifname)
        if link.peer is not None and link.peer[0] == machine.stack.name:
            machine.stack.delete_link(link.peer[1])
    if kind and call.config.get("ipMasq"):
        masquerade.remove_masquerade_rules(machine.stack, call.config["name"], call.container_id)


def _check(call: CniCall, machine: CniNode, delegate: Delegate, kind: str) -> None:
    sandbox = machine.namespace(call.netns)
    if kind:
        delegate(kind, call)
    previous = call.config.get("prevResult")
    if previous is None:
        fail_plugin("Required prevResult missing")
    result = results.to_current(previous, call.config.get("cniVersion") or "")
    name = call.config.get("bridge") or "cni0"
    interfaces = result.get("interfaces") or []
    on_host = next((i for i in interfaces if i["name"] == name), {"name": ""})
    inside = next(
        (i for i in interfaces if i["name"] == call.ifname and i.get("sandbox") == call.netns),
        {"name": ""},
    )
    port = _checked(on_host, machine.stack, within=False)
    if port.kind != "bridge":
        fail_plugin(f"Interface {port.name} does not have link type of bridge")
    if on_host.get("mac") and on_host["mac"] != port.mac:
        fail_plugin(f"Bridge interface {port.name} Mac doesn't match: {on_host['mac']}")
    promiscuous = name in machine.memory.get("promiscuous", ())
    if promiscuous != bool(call.config.get("promiscMode")):
        wanted, is_so = str(not promiscuous).lower(), str(promiscuous).lower()
        fail_plugin(
            f"Bridge interface {name} configured Promisc Mode {wanted} doesn't match current "
            f"state: {is_so} "
        )
    if call.netns != inside.get("sandbox"):
        fail_plugin(
            f"Sandbox in prevResult {inside.get('sandbox', '')} doesn't match configured "
            f"netns: {call.netns}"
        )
    link = _checked(inside, sandbox, within=True)
    if link.kind != "veth":
        fail_plugin(f"Error: Container interface {link.name} not of type veth")
    if inside.get("mac") and inside["mac"] != link.mac:
        fail_plugin(
            f"Interface {link.name} Mac {inside['mac']} doesn't match container Mac: {link.mac}"
        )
    peer = machine.stack.links.get(link.peer[1]) if link.peer is not None else None
    listed = {i["name"]: i for i in interfaces if i["name"] not in (name, call.ifname)}
    for other in listed.values():
        _checked(other, machine.stack, within=False)
    if peer is None or peer.name not in listed or peer.master != name:
        fail_plugin(f"CNI veth created for bridge {name} was not found")
    if listed[peer.name].get("mac") not in (None, "", peer.mac):
        fail_plugin(
            f"Interface {peer.name} Mac doesn't match: {listed[peer.name]['mac']} not found"
        )
    _check_layer3(sandbox, link, result)


def _checked(interface: Mapping[str, Any], stack: NetworkStack, *, within: bool) -> NetworkLink:
    name = interface["name"]
    if not name:
        fail_plugin("Interface name missing ")
    link = stack.links.get(name)
    if link is None:
        fail_plugin(f"Interface name {name} not found")
    if within and not interface.get("sandbox"):
        fail_plugin(f"Interface {name} is expected to be in a sandbox")
    if not within and interface.get("sandbox"):
        fail_plugin(f"Interface {name} should not be in sandbox")
    return link


def _check_layer3(sandbox: NetworkStack, link: NetworkLink, result: Result) -> None:
    held = {str(address) for address in link.addresses}
    for ip in result.get("ips") or ():
        if ip["address"] not in held:
            fail_plugin(f"Failed to match addr {ip['address']} on interface {link.name}")
    there = {str(route.destination): route for route in sandbox.routes()}
    for route in result.get("routes") or ():
        found = there.get(route["dst"])
        default = route["dst"] in _DEFAULT.values()
        # also if IPAM returned no gateway
        if found is None or (not default and found.via != route.get("gw", "")):
            shown = f"{{Dst:{_go_network(route['dst'])} GW:{route.get('gw') or '<nil>'}}}"
            fail_plugin(f"Expected Route {shown} not found in routing table")


def _go_network(text: str) -> str:
    """Formats it like Go prints a net.IPNet inside a struct."""
    network = values.parse_network(text)
    width = 8 if network.version == 4 else 32
    return f"{{IP:{network.network_address} Mask:{int(network.netmask):0{width}x}}}"
