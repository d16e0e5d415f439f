"""ovs-vsctl, ovn-nbctl and ovn-sbctl of a node that is an OVN chassis: the content of Open vSwitch
and OVN's databases, in their output format. Read-only: ovn-kubernetes writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Final

from transom.machines.windows.hns import HostNetworkService
from transom.network.cni.windows.ovn import EXTENSION
from transom.network.ovn.database import (
    CLUSTER_ROUTER,
    LogicalLoadBalancer,
    LogicalSwitch,
    OvnDatabase,
    ovn_mac,
)
from transom.userland.process import Command, Process

_VERSION: Final = {"ovs-vsctl": "2.13.1", "ovn-nbctl": "20.06.1", "ovn-sbctl": "20.06.1"}
_ANYTHING: Final = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


Verb = Callable[[OvnDatabase, str, list[str]], Iterable[str]]


def commands_of(hns: HostNetworkService) -> dict[str, Command]:
    """The commands of a machine whose virtual switch has the Open vSwitch extension; other machines
    have none.
    """
    for network in hns.networks.values():
        for policy in network.get("Policies") or ():
            settings = policy.get("Settings") or {}
            if policy["Type"] == "VSwitchExtension" and settings.get("ExtensionID") == EXTENSION:
                return _COMMANDS
    return {}


def _command(name: str, verbs: dict[str, Verb]) -> Command:
    def run(process: Process) -> int:
        stack = process.context.windows.network.stack
        words = [word for word in process.argv[1:] if not word.startswith("-")]
        if {"-V", "--version"} & set(process.argv[1:]):
            process.write(f"{name} (Open vSwitch) {_VERSION[name]}\r\n")
            return 0
        if stack.ovn is None or stack.name not in stack.ovn.switches:
            return process.fail("database connection failed (No such file or directory)")
        if not words:
            return process.fail("missing command name (use --help for help)")
        verb = verbs.get(words[0])
        if verb is None:
            return process.fail(f"unknown command '{words[0]}'; use --help for help")
        try:
            lines = list(verb(stack.ovn, stack.name, words[1:]))
        except LookupError as problem:
            return process.fail(str(problem.args[0]))
        process.write("".join(f"{line}\r\n" for line in lines))
        return 0

    return run


def _id(*parts: str) -> str:
    return str(uuid.uuid5(_ANYTHING, "/".join(parts)))


# ---- ovs-vsctl ----


def _tunnel(switch: LogicalSwitch) -> str:
    return f"ovn-{_id('chassis', switch.node)[:6]}-0"


def _ports_of_bridge(database: OvnDatabase, node: str) -> list[tuple[str, str, str]]:
    """The ports of br-int: name, type, options."""
    own = database.switches.get(node)
    rows = [("br-int", "internal", "")]
    if own is not None:
        local = [port.name for port in database.ports(own) if port.type != "router"]
        rows += [(name, "internal", "") for name in local]
    for switch in database.switches.values():
        if switch.node != node:
            options = f'{{csum="true", key=flow, remote_ip="{switch.chassis}"}}'
            rows.append((_tunnel(switch), "geneve", options))
    return rows


def _show_bridge(database: OvnDatabase, node: str, _words: list[str]) -> Iterable[str]:
    yield _id("Open_vSwitch", node)
    yield "    Bridge br-int"
    yield "        fail_mode: secure"
    for name, kind, options in sorted(_ports_of_bridge(database, node)):
        yield f"        Port {name}"
        yield f"            Interface {name}"
        yield f"                type: {kind}"
        if options:
            yield f"                options: {options}"
    yield f'    ovs_version: "{_VERSION["ovs-vsctl"]}"'


def _bridges(_database: OvnDatabase, _node: str, _words: list[str]) -> Iterable[str]:
    return ["br-int"]


def _bridge_ports(database: OvnDatabase, node: str, words: list[str]) -> Iterable[str]:
    if words != ["br-int"]:
        raise LookupError(f"no bridge named {words[0] if words else ''}")
    return sorted(name for name, _, _ in _ports_of_bridge(database, node) if name != "br-int")


def _get(database: OvnDatabase, node: str, words: list[str]) -> Iterable[str]:
    """`get Open_vSwitch . external_ids[:KEY]`."""
    own = database.switches[node]
    ids = {
        "hostname": node,
        "ovn-encap-ip": own.chassis,
        "ovn-encap-type": "geneve",
        "system-id": _id("chassis", node),
    }
    if len(words) != 3 or words[0].lower() != "open_vswitch":
        raise LookupError("'get' command requires at least 2 arguments")
    column, _, key = words[2].partition(":")
    column = column.replace("-", "_")
    if column != "external_ids":
        raise LookupError(
            f'table Open_vSwitch does not contain a column whose name matches "{column}"'
        )
    if not key:
        return ["{" + ", ".join(f'{k}="{v}"' for k, v in ids.items()) + "}"]
    if key not in ids:
        raise LookupError(f'no key "{key}" in Open_vSwitch record "." column external_ids')
    return [f'"{ids[key]}"']


# ---- ovn-nbctl ----


def _show_logical(database: OvnDatabase, _node: str, words: list[str]) -> Iterable[str]:
    for switch in database.switches.values():
        if not words or switch.node in words:
            yield f"switch {_id('switch', switch.node)} ({switch.node})"
            for port in database.ports(switch):
                yield f"    port {port.name}"
                if port.type:
                    yield f"        type: {port.type}"
                    yield f"        router-port: rtos-{switch.node}"
                else:
                    yield f'        addresses: ["{port.addresses}"]'
    if not words or CLUSTER_ROUTER in words:
        yield f"router {_id('router', CLUSTER_ROUTER)} ({CLUSTER_ROUTER})"
        for switch in database.switches.values():
            length = switch.subnet.rpartition("/")[2]
            yield f"    port rtos-{switch.node}"
            yield f'        mac: "{ovn_mac(switch.gateway)}"'
            yield f'        networks: ["{switch.gateway}/{length}"]'
    for switch in database.switches.values():
        name = switch.gateway_router
        if not words or name in words:
            yield f"router {_id('router', name)} ({name})"
            yield f"    nat {_id('nat', name)}"
            yield f'        external ip: "{switch.chassis}"'
            yield f'        logical ip: "{switch.subnet}"'
            yield '        type: "snat"'


def _switches(database: OvnDatabase, _node: str, _words: list[str]) -> Iterable[str]:
    return [f"{_id('switch', name)} ({name})" for name in database.switches]


def _switch_ports(database: OvnDatabase, _node: str, words: list[str]) -> Iterable[str]:
    found = database.switches.get(words[0]) if words else None
    if found is None:
        raise LookupError(f"{words[0] if words else ''}: switch name not found")
    return [f"{_id('port', port.name)} ({port.name})" for port in database.ports(found)]


def _routers(database: OvnDatabase, _node: str, _words: list[str]) -> Iterable[str]:
    names = [CLUSTER_ROUTER, *(switch.gateway_router for switch in database.switches.values())]
    return [f"{_id('router', name)} ({name})" for name in names]


def _balancers(rows: Iterable[LogicalLoadBalancer]) -> Iterable[str]:
    yield f"{'UUID':<37} {'LB':<20} {'PROTO':<10} {'VIP':<25} IPs"
    for row in rows:
        id, name, protocol = _id("lb", row.of, row.name), row.name[:20], row.protocol
        for vip, backends in sorted(row.vips.items()):
            yield f"{id:<37} {name:<20} {protocol:<10} {vip:<25} {backends}"
            id = name = protocol = ""


def _all_balancers(database: OvnDatabase, _node: str, _words: list[str]) -> Iterable[str]:
    return _balancers(database.load_balancers())


def _switch_balancers(database: OvnDatabase, _node: str, words: list[str]) -> Iterable[str]:
    if not words or words[0] not in database.switches:
        raise LookupError(f"{words[0] if words else ''}: switch name not found")
    return _balancers(row for row in database.load_balancers() if not row.of)


def _router_balancers(database: OvnDatabase, _node: str, words: list[str]) -> Iterable[str]:
    names = [CLUSTER_ROUTER, *(switch.gateway_router for switch in database.switches.values())]
    if not words or words[0] not in names:
        raise LookupError(f"{words[0] if words else ''}: router name not found")
    return _balancers(row for row in database.load_balancers() if row.of == words[0])


# ---- ovn-sbctl ----


def _chassis(database: OvnDatabase, _node: str, _words: list[str]) -> Iterable[str]:
    for switch in database.switches.values():
        yield f'Chassis "{_id("chassis", switch.node)}"'
        yield f"    hostname: {switch.node}"
        yield "    Encap geneve"
        yield f'        ip: "{switch.chassis}"'
        yield '        options: {csum="true"}'
        for port in database.ports(switch):
            if port.type != "router":
                yield f"    Port_Binding {port.name}"


def _datapaths(database: OvnDatabase, _node: str, words: list[str]) -> Iterable[str]:
    """`list datapath_binding`: tunnel keys are the VNIs."""
    if not words or words[0].lower() != "datapath_binding":
        raise LookupError(f'unknown table "{words[0] if words else ""}"')
    for switch in database.switches.values():
        yield f"_uuid               : {_id('datapath', switch.node)}"
        yield f'external_ids        : {{logical-switch="{_id("switch", switch.node)}", name={switch.node}}}'
        yield f"tunnel_key          : {switch.key}"
        yield ""


_PROGRAMS: Final[dict[str, dict[str, Verb]]] = {
    "ovs-vsctl": {
        "show": _show_bridge,
        "list-br": _bridges,
        "list-ports": _bridge_ports,
        "get": _get,
    },
    "ovn-nbctl": {
        "show": _show_logical,
        "ls-list": _switches,
        "lsp-list": _switch_ports,
        "lr-list": _routers,
        "lb-list": _all_balancers,
        "ls-lb-list": _switch_balancers,
        "lr-lb-list": _router_balancers,
    },
    "ovn-sbctl": {"show": _chassis, "list": _datapaths},
}
_COMMANDS: Final = {name: _command(name, verbs) for name, verbs in _PROGRAMS.items()}
