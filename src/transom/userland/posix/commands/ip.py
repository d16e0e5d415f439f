"""ip, ifconfig, route and arp: they show and change the links, addresses, routes and neighbours of the
container or the machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.network.stacks import (
    Interface,
    NetworkLink,
    NetworkRoute,
    NetworkStack,
    stable_mac,
)
from transom.userland.api import StackView
from transom.userland.network_view import without_stack
from transom.userland.process import Command, Process

_OBJECTS: Final = ("address", "link", "route", "neighbour", "neighbor", "rule")
_REMOVING: Final = ("del", "delete")
_DEFAULTS: Final = ("0.0.0.0/0", "::/0")
_LOOPBACK_MTU: Final = 65536
_FIRST_INDEX: Final = 2  # after the loopback interface
_NO_MAC: Final = "00:00:00:00:00:00"
_MAX_LINKS: Final = 256
_MAX_ROUTES: Final = 4096


class IpError(Exception):
    """The text that ip prints, and its exit code."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


def _answered(text: str) -> IpError:
    return IpError(f"RTNETLINK answers: {text}")


class _Call(NamedTuple):
    process: Process
    view: StackView
    words: list[str]
    version: int  # 0: both
    brief: bool

    @property
    def stack(self) -> NetworkStack:
        return self.view.stack

    def value(self, *names: str) -> str:
        """The word after one of these."""
        for name in names:
            if name in self.words[:-1]:
                return self.words[self.words.index(name) + 1]
        return ""

    def link(self, name: str) -> NetworkLink:
        found = self.stack.links.get(name.partition("@")[0])
        if found is None:
            raise IpError(f'Cannot find device "{name}"', 1)
        return found


def stack_view(process: Process) -> StackView:
    """Where the network is real, what is known of it."""
    found = process.context.network.stack_view()
    if found is not None:
        return found
    made = without_stack("", process.context.network.ips, os="linux")
    return StackView(made, lambda _address: None)


# ---- links ----


def _carrier(view: StackView, link: NetworkLink) -> bool:
    """Whether the other end is up; a bridge needs a port that is."""
    stack = view.stack
    if link.kind == "bridge":
        return any(port.master == link.name and port.up for port in stack.links.values())
    return True


def _flags(view: StackView, link: NetworkLink) -> str:
    kinds = ["LOOPBACK"] if link.kind == "loopback" else ["BROADCAST", "MULTICAST"]
    if link.up and not _carrier(view, link):
        kinds.insert(0, "NO-CARRIER")
    if link.up:
        kinds.append("UP")
        if _carrier(view, link):
            kinds.append("LOWER_UP")
    return ",".join(kinds)


def _state(view: StackView, link: NetworkLink) -> str:
    if not link.up or not _carrier(view, link):
        return "DOWN"
    return "UNKNOWN" if link.kind in ("loopback", "vxlan", "geneve") else "UP"


def _shown_name(view: StackView, link: NetworkLink) -> str:
    """A veth has the index of its other end, which is in another namespace."""
    return f"{link.name}@if{_peer_index(view, link)}" if link.kind == "veth" else link.name


def _peer_index(view: StackView, link: NetworkLink) -> int:
    """The node is the gateway of its pods; a pod's interface is its first one."""
    for route in view.stack.routes() if link.peer is not None else ():
        there = view.owner(route.via) if route.via else None
        if there is not None and link.peer is not None and there.name == link.peer[0]:
            found = there.links.get(link.peer[1])
            return found.index if found is not None else 0
    return _FIRST_INDEX


def _mtu(link: NetworkLink) -> int:
    return _LOOPBACK_MTU if link.kind == "loopback" else link.mtu


def _link_line(call: _Call, link: NetworkLink) -> str:
    queue = "fq_codel" if link.kind == "ethernet" else "noqueue"
    master = f" master {link.master}" if link.master else ""
    group = " group default" if call.process.gnu else ""
    return (
        f"{link.index}: {_shown_name(call.view, link)}: "
        f"<{_flags(call.view, link)}> mtu {_mtu(link)} qdisc {queue}{master} state "
        f"{_state(call.view, link)}{group} qlen 1000\n"
    )


def _hardware_line(link: NetworkLink) -> str:
    if link.kind == "loopback":
        return f"    link/loopback {_NO_MAC} brd {_NO_MAC}\n"
    return f"    link/ether {link.mac} brd ff:ff:ff:ff:ff:ff\n"


def _wanted_links(call: _Call) -> list[NetworkLink]:
    name = call.value("dev") or next(
        (word for word in call.words if word not in ("show", "list", "ls", "up", "type")), ""
    )
    if name and name not in ("dev",):
        found = call.stack.links.get(name)
        if found is None:
            raise IpError(f'Device "{name}" does not exist.', 1)
        return [found]
    return [link for link in call.stack.links.values() if link.up or "up" not in call.words]


def _show_links(call: _Call) -> None:
    for link in _wanted_links(call):
        if call.brief:
            call.process.write(
                f"{_shown_name(call.view, link):<16} {_state(call.view, link):<14} {link.mac or _NO_MAC} "
                f"<{_flags(call.view, link)}> \n"
            )
        else:
            call.process.write(_link_line(call, link) + _hardware_line(link))


def _address_line(link: NetworkLink, address: Interface) -> str:
    scope = "host" if link.kind == "loopback" else "global"
    if address.version == 6:
        shown = f"    inet6 {address} scope {scope}\n"
    else:
        last = address.network.broadcast_address
        wide = "" if link.kind == "loopback" or address.network.prefixlen > 30 else f" brd {last}"
        shown = f"    inet {address}{wide} scope {scope} {link.name}\n"
    return shown + "       valid_lft forever preferred_lft forever\n"


def _show_addresses(call: _Call) -> None:
    for link in _wanted_links(call):
        found = [a for a in link.addresses if call.version in (0, a.version)]
        if call.brief:
            shown = " ".join(str(address) for address in found)
            call.process.write(
                f"{_shown_name(call.view, link):<16} {_state(call.view, link):<14} {shown} \n"
            )
            continue
        if call.version and not found:
            continue
        call.process.write(_link_line(call, link))
        if not call.version:
            call.process.write(_hardware_line(link))
        for address in found:
            call.process.write(_address_line(link, address))


def _set_link(call: _Call) -> None:
    words = [word for word in call.words if word != "dev"]
    if not words:
        raise IpError('Not enough information: "dev" argument is required.', 255)
    link, stack = call.link(words[0]), call.stack
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if word in ("up", "down"):
            stack.set_link_state(link.name, up=word == "up")
        elif word == "mtu" and rest and rest[0].isdigit():
            link.mtu = int(rest.pop(0))
            stack.changed_link(link.name)
        elif word == "name" and rest:
            if link.up:
                raise _answered("Device or resource busy")
            stack.rename_link(link.name, rest.pop(0))
        elif word == "address" and rest:
            link.mac = rest.pop(0).lower()
            stack.changed_link(link.name)
        elif word == "master" and rest:
            link.master = call.link(rest.pop(0)).name
            stack.changed_link(link.name)
        elif word == "nomaster":
            link.master = ""
            stack.changed_link(link.name)
        elif word in ("promisc", "arp", "multicast", "txqueuelen", "qlen") and rest:
            rest.pop(0)  # without an effect here
        else:
            raise IpError(f'Error: either "dev" is duplicate, or "{word}" is a garbage.', 255)


def _add_link(call: _Call) -> None:
    name = call.value("name") or next((w for w in call.words if w not in ("dev", "link")), "")
    kind = call.value("type")
    if kind not in ("bridge", "dummy"):
        raise IpError(
            "Error: Unknown device type."
            if kind
            else 'Not enough information: "type" argument is required',
            255,
        )
    if name in call.stack.links:
        raise _answered("File exists")
    if len(call.stack.links) >= _MAX_LINKS:
        raise _answered("Cannot allocate memory")
    made = NetworkLink(name, "bridge", mac=stable_mac(call.stack.name, name))
    call.stack.add_link(made)
    call.stack.set_link_state(name, up=False)  # new links are down


def _delete_link(call: _Call) -> None:
    words = [word for word in call.words if word not in ("dev", "type", "bridge", "dummy")]
    link = call.link(words[0] if words else "")
    if link.kind in ("loopback", "ethernet"):
        raise _answered("Operation not supported")
    call.stack.delete_link(link.name)


# ---- addresses ----


def _read_interface(text: str, kind: str) -> Interface:
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        problem = f'{kind} prefix is expected rather than "{text}".'
        raise IpError(f"Error: {problem}", 1) from None


def _change_address(call: _Call, add: bool) -> None:
    text = next((w for w in call.words if w[:1].isdigit() or ":" in w), "")
    link = call.link(call.value("dev"))
    interface = _read_interface(text, "inet")
    known = interface in link.addresses
    if add and known:
        raise _answered("File exists")
    if not add and not known:
        raise _answered("Cannot assign requested address")
    (call.stack.add_address if add else call.stack.delete_address)(link.name, str(interface))


def _flush_addresses(call: _Call) -> None:
    link = call.link(call.value("dev") or (call.words[0] if call.words else ""))
    for address in tuple(link.addresses):
        call.stack.delete_address(link.name, str(address))


# ---- routes ----


def _route_line(stack: NetworkStack, route: NetworkRoute, gnu: bool) -> str:
    shown = "default" if str(route.destination) in _DEFAULTS else str(route.destination)
    if route.destination.prefixlen == route.destination.max_prefixlen:
        shown = str(route.destination.network_address)
    via = f" via {route.via}" if route.via else ""
    connected = route.source and not route.via
    proto = " proto kernel" if connected and gnu else ""
    scope = "" if route.via else " scope link"
    source = f" src {route.source}" if route.source else ""
    onlink = " onlink" if route.onlink else ""
    return f"{shown}{via} dev {route.link}{proto}{scope}{source}{onlink} \n"


def sorted_routes(stack: NetworkStack, version: int) -> list[NetworkRoute]:
    found = [r for r in stack.routes() if r.destination.version == version]
    return sorted(
        found, key=lambda r: (int(r.destination.network_address), r.destination.prefixlen)
    )


def _show_routes(call: _Call) -> None:
    gnu = call.process.gnu or call.process.context.image.userland == "any"
    wanted = call.value("dev")
    if wanted:
        call.link(wanted)
    exact = next((w for w in call.words if w == "default" or w[:1].isdigit()), "")
    for route in sorted_routes(call.stack, call.version or 4):
        if wanted and route.link != wanted:
            continue
        line = _route_line(call.stack, route, gnu)
        if not exact or line.split()[0] == exact:
            call.process.write(line)


def _get_route(call: _Call) -> None:
    target = next((w for w in call.words if w != "to"), "")
    address = str(_read_interface(target, "inet").ip)
    if address in call.stack.addresses() or ipaddress.ip_address(address).is_loopback:
        call.process.write(f"local {address} dev lo src {address} \n    cache <local> \n")
        return
    route = call.stack.route(address)
    if route is None:
        raise _answered("Network is unreachable")
    version = 6 if ":" in address else 4
    own = [str(a.ip) for a in call.stack.links[route.link].addresses if a.version == version]
    source = route.source or (own[0] if own else "")
    via = f" via {route.via}" if route.via else ""
    call.process.write(f"{address}{via} dev {route.link} src {source} uid 0 \n    cache \n")


def _destination(call: _Call) -> str:
    text = next((w for w in call.words if w not in ("to", "unicast")), "")
    if text == "default":
        return "::/0" if ":" in call.value("via") or call.version == 6 else "0.0.0.0/0"
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        if "has host bits set" in str(_host_bits(text)):
            raise _answered("Invalid argument") from None
        raise IpError(f'Error: inet prefix is expected rather than "{text}".', 1) from None


def _host_bits(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as problem:
        return str(problem)
    return ""


def _link_towards(call: _Call, gateway: str) -> str:
    address = ipaddress.ip_address(gateway)
    for link in call.stack.links.values():
        if link.up and any(address in one.network for one in link.addresses):
            return link.name
    raise IpError("Error: Nexthop has invalid gateway.")


def _add_route(call: _Call, verb: str) -> None:
    destination, via, device = _destination(call), call.value("via"), call.value("dev")
    if not via and not device:
        raise _answered("No such device")
    if device:
        link = call.link(device)
        if not link.up:
            raise _answered("Network is down")
    elif via:
        device = _link_towards(call, via)
    onlink = "onlink" in call.words
    if via and not onlink:
        _link_towards(call, via)
    exists = call.stack.has_route(destination)
    if verb == "add" and exists:
        raise _answered("File exists")
    if verb in ("change", "chg") and not exists:
        raise _answered("No such file or directory")
    if len(call.stack.routes()) >= _MAX_ROUTES:
        raise _answered("Cannot allocate memory")
    call.stack.replace_route(destination, device, via, onlink=onlink, source=call.value("src"))


def _delete_route(call: _Call) -> None:
    destination = _destination(call)
    found = next((r for r in call.stack.routes() if str(r.destination) == destination), None)
    via, device = call.value("via"), call.value("dev")
    if found is None or (via and via != found.via) or (device and device != found.link):
        raise _answered("No such process")
    call.stack.delete_route(destination)


def _flush_routes(call: _Call) -> None:
    device = call.value("dev")
    for route in call.stack.routes():
        if not device or route.link == device:
            call.stack.delete_route(str(route.destination))


# ---- neighbours ----


class _NeighbourRow(NamedTuple):
    address: str
    link: str
    mac: str
    state: str


def neighbour_rows(view: StackView) -> list[_NeighbourRow]:
    """Those that were set, and the next hops of routes that answer."""
    stack = view.stack
    found = {
        address: _NeighbourRow(address, link, mac, "PERMANENT")
        for address, (mac, link) in stack.neighbours.items()
    }
    for route in stack.routes():
        if not route.via or route.via in found or not stack.links[route.link].up:
            continue
        owner = view.owner(route.via)
        for link in owner.links.values() if owner is not None else ():
            if link.up and any(str(one.ip) == route.via for one in link.addresses):
                found[route.via] = _NeighbourRow(route.via, route.link, link.mac, "REACHABLE")
    return list(found.values())


def _show_neighbours(call: _Call) -> None:
    wanted = call.value("dev")
    for row in neighbour_rows(call.view):
        if (not wanted or row.link == wanted) and call.version in (
            0,
            6 if ":" in row.address else 4,
        ):
            call.process.write(f"{row.address} dev {row.link} lladdr {row.mac} {row.state} \n")


def _change_neighbour(call: _Call, verb: str) -> None:
    address = next((w for w in call.words if w not in ("to",)), "")
    link = call.link(call.value("dev"))
    known = address in call.stack.neighbours
    if verb in _REMOVING:
        if not known:
            raise _answered("No such file or directory")
        call.stack.delete_neighbour(address)
        return
    if verb == "add" and known:
        raise _answered("File exists")
    call.stack.replace_neighbour(address, call.value("lladdr").lower(), link.name)


# ---- ip ----


def _show_rules(call: _Call) -> None:
    for number, table in ((0, "local"), (32766, "main"), (32767, "default")):
        call.process.write(f"{number}:\tfrom all lookup {table}\n")


_SHOW: Final[dict[str, Callable[[_Call], None]]] = {
    "address": _show_addresses,
    "link": _show_links,
    "route": _show_routes,
    "neighbour": _show_neighbours,
    "rule": _show_rules,
}
_CHANGE: Final[dict[tuple[str, str], Callable[[_Call], None]]] = {
    ("link", "set"): _set_link,
    ("link", "add"): _add_link,
    **{("link", verb): _delete_link for verb in _REMOVING},
    ("address", "add"): lambda call: _change_address(call, True),
    ("address", "replace"): lambda call: _change_address(call, True),
    **{("address", verb): (lambda call: _change_address(call, False)) for verb in _REMOVING},
    ("address", "flush"): _flush_addresses,
    ("route", "add"): lambda call: _add_route(call, "add"),
    ("route", "append"): lambda call: _add_route(call, "add"),
    ("route", "replace"): lambda call: _add_route(call, "replace"),
    ("route", "change"): lambda call: _add_route(call, "change"),
    **{("route", verb): _delete_route for verb in _REMOVING},
    ("route", "flush"): _flush_routes,
    ("neighbour", "add"): lambda call: _change_neighbour(call, "add"),
    ("neighbour", "replace"): lambda call: _change_neighbour(call, "replace"),
    ("neighbour", "change"): lambda call: _change_neighbour(call, "replace"),
    **{("neighbour", verb): (lambda call: _change_neighbour(call, "del")) for verb in _REMOVING},
}
_USAGE: Final = (
    "Usage: ip [ OPTIONS ] OBJECT { COMMAND | help }\n"
    "where  OBJECT := { address | link | neighbour | route | rule }"
)


def ip(process: Process) -> int:
    options = [word for word in process.argv[1:] if word.startswith("-")]
    words = [word for word in process.argv[1:] if not word.startswith("-")]
    if not words:
        process.complain(_USAGE)
        return 255
    named = next((one for one in _OBJECTS if one.startswith(words[0])), "")
    if not named:
        process.complain(f'Object "{words[0]}" is unknown, try "ip help".')
        return 1
    kind = "neighbour" if named == "neighbor" else named
    verb = words[1] if len(words) > 1 else "show"
    version = 6 if "-6" in options else 4 if "-4" in options else 0
    brief = bool({"-br", "-brief"} & set(options))
    call = _Call(process, stack_view(process), words[2:], version, brief)
    try:
        return _run(call, kind, verb, words[1:])
    except IpError as problem:
        process.complain(("" if process.gnu else "ip: ") + str(problem))
        return problem.code


def _run(call: _Call, kind: str, verb: str, rest: Sequence[str]) -> int:
    change = _CHANGE.get((kind, verb))
    if change is not None:
        if not call.process.context.credentials.net_admin:
            raise _answered("Operation not permitted")
        change(call)
        return 0
    if (kind, verb) == ("route", "get"):
        _get_route(call)
        return 0
    if verb in ("show", "list", "ls", "s"):
        _SHOW[kind](call)
        return 0
    if kind in ("address", "link", "route", "neighbour"):
        _SHOW[kind](call._replace(words=list(rest)))
        return 0
    raise IpError(f'Command "{verb}" is unknown, try "ip {kind} help".', 255)


# ---- net-tools ----


def ifconfig(process: Process) -> int:
    """`ifconfig [-a] [LINK [up|down|ADDRESS [netmask MASK]]]`"""
    view = stack_view(process)
    words = [word for word in process.argv[1:] if word != "-a"]
    links = list(view.stack.links.values())
    if words:
        link = view.stack.links.get(words[0])
        if link is None:
            process.complain(
                f"{words[0]}: error fetching interface information: Device not found"
                if process.gnu
                else f"ifconfig: {words[0]}: error fetching interface information: Device not found"
            )
            return 1
        if len(words) > 1:
            return _configure(process, view, link, words[1:])
        links = [link]
    everything = "-a" in process.argv or bool(words)
    for link in sorted(links, key=lambda one: one.kind == "loopback"):
        if link.up or everything:
            process.write(_interface_text(view, link))
    return 0


def _interface_text(view: StackView, link: NetworkLink) -> str:
    loopback = link.kind == "loopback"
    head = f"{link.name:<10}Link encap:" + (
        "Local Loopback" if loopback else f"Ethernet  HWaddr {link.mac.upper()}"
    )
    rows = [head]
    for address in link.addresses:
        if address.version == 6:
            rows.append(f"          inet6 addr: {address} Scope:Global")
        else:
            wide = "" if loopback else f"Bcast:{address.network.broadcast_address}  "
            rows.append(f"          inet addr:{address.ip}  {wide}Mask:{address.netmask}")
    kinds = "LOOPBACK RUNNING" if loopback else "BROADCAST RUNNING MULTICAST"
    state = f"UP {kinds}" if link.up else kinds.replace(" RUNNING", "")
    rows.append(f"          {state}  MTU:{_mtu(link)}  Metric:1")
    return "\n".join(rows) + "\n\n"


def _configure(process: Process, view: StackView, link: NetworkLink, words: list[str]) -> int:
    if not process.context.credentials.net_admin:
        process.complain("ifconfig: SIOCSIFFLAGS: Operation not permitted")
        return 1
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("up", "down"):
            view.stack.set_link_state(link.name, up=word == "up")
        elif word == "mtu" and rest:
            link.mtu = int(rest.pop(0))
            view.stack.changed_link(link.name)
        else:
            mask = rest[1] if rest[:1] == ["netmask"] and len(rest) > 1 else ""
            rest = rest[2:] if mask else rest
            try:
                interface = ipaddress.ip_interface(
                    f"{word}/{mask or '24'}" if "/" not in word else word
                )
            except ValueError:
                process.complain(f"ifconfig: bad address '{word}'")
                return 1
            for before in tuple(link.addresses):
                view.stack.delete_address(link.name, str(before))
            view.stack.add_address(link.name, str(interface))
    return 0


def route(process: Process) -> int:
    """`route [-n]`; `route add|del` is for ip."""
    words = [word for word in process.argv[1:] if not word.startswith("-")]
    view = stack_view(process)
    if words:
        return _change_by_route(process, view, words)
    process.write("Kernel IP routing table\n")
    process.write("Destination     Gateway         Genmask         Flags Metric Ref    Use Iface\n")
    for row in sorted_routes(view.stack, 4):
        network, host = row.destination, row.destination.prefixlen == 32
        flags = "U" + ("G" if row.via else "") + ("H" if host else "")
        numeric = "n" in "".join(w for w in process.argv[1:] if w.startswith("-"))
        target = str(network.network_address)
        if network.prefixlen == 0 and not numeric:
            target = "default"
        gateway = row.via or ("0.0.0.0" if numeric else "*")
        process.write(
            f"{target:<15} {gateway:<15} {network.netmask!s:<15} {flags:<5} 0      0        0 "
            f"{row.link}\n"
        )
    return 0


def _change_by_route(process: Process, view: StackView, words: list[str]) -> int:
    """Translated to the words of ip."""
    verb, rest = words[0], words[1:]
    kind = rest.pop(0) if rest[:1] in (["-net"], ["-host"]) else ""
    if verb not in ("add", "del", "delete") or not rest:
        process.complain("route: bad usage")
        return 1
    target = rest.pop(0)
    values = dict(zip(rest[::2], rest[1::2], strict=False))
    if values.get("netmask"):
        target += "/" + values["netmask"]
    elif kind == "-host" or ("/" not in target and target != "default"):
        target += "/32"
    given = [target]
    for name, word in (("gw", "via"), ("dev", "dev")):
        if values.get(name):
            given += [word, values[name]]
    call = _Call(process, view, given, 4, False)
    try:
        return _run(call, "route", verb, given)
    except IpError as problem:
        text = str(problem).removeprefix("RTNETLINK answers: ")
        process.complain(f"SIOC{'ADD' if verb == 'add' else 'DEL'}RT: {text}")
        return 7


def arp(process: Process) -> int:
    """`arp [-a|-n]`"""
    for row in neighbour_rows(stack_view(process)):
        mark = "[ether] PERM" if row.state == "PERMANENT" else "[ether] "
        process.write(f"? ({row.address}) at {row.mac} {mark} on {row.link}\n")
    return 0


COMMANDS: dict[str, Command] = {
    "arp": arp,
    "ifconfig": ifconfig,
    "ip": ip,
    "route": route,
}
