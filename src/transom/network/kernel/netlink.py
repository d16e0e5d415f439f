"""The part of rtnetlink that the kernel data plane uses: messages as bytes, and sending them in
batches.

Messages identify devices by index, and we choose the index when we create a device, so a whole
batch can be built before it is sent. Building messages is pure; `send_netlink` applies to the
namespace in which its socket was opened.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

_NEWLINK, _DELLINK, _NEWADDR, _DELADDR, _NEWROUTE, _DELROUTE, _NEWNEIGH, _DELNEIGH = (
    16,
    17,
    20,
    21,
    24,
    25,
    28,
    29,
)
_REQUEST, _ACK, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_NLMSG_ERROR = 2
_IFF_UP = 0x1
_NODAD, _NOPREFIXROUTE = 0x02, 0x200
_MAIN_TABLE, _STATIC, _UNIVERSE, _LINK_SCOPE, _UNICAST = 254, 4, 0, 253, 1
_LOCAL_TABLE, _HOST_SCOPE, _LOCAL, _THROW = 255, 254, 2, 9
_ONLINK = 4
_PERMANENT, _SELF = 0x80, 0x02
_SOL_NETLINK, _CAP_ACK = 270, 10
_BATCH = 64  # the acknowledgements of this many messages fit into the socket's buffer


class NetlinkMessage(NamedTuple):
    kind: int
    flags: int
    body: bytes
    text: str  # a description for error messages

    @property
    def removes(self) -> bool:
        return self.kind in (_DELLINK, _DELADDR, _DELROUTE, _DELNEIGH)


class RefusedMessage(NamedTuple):
    message: NetlinkMessage
    error: int


def netlink_attribute(kind: int, value: bytes) -> bytes:
    length = len(value) + 4
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _u32(kind: int, value: int) -> bytes:
    return netlink_attribute(kind, struct.pack("=I", value))


def _text(kind: int, value: str) -> bytes:
    return netlink_attribute(kind, value.encode() + b"\0")


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", "").replace("-", ""))


def _link(index: int, *, up: bool = False) -> bytes:
    return struct.pack(
        "=BxHiII", socket.AF_UNSPEC, 0, index, _IFF_UP if up else 0, _IFF_UP if up else 0
    )


def _name_mac_mtu(name: str, mac: str, mtu: int) -> bytes:
    return (
        _text(3, name)
        + (netlink_attribute(1, _mac(mac)) if mac else b"")
        + (_u32(4, mtu) if mtu else b"")
    )


def _info(kind: str, data: bytes) -> bytes:
    return netlink_attribute(18, _text(1, kind) + (netlink_attribute(2, data) if data else b""))


class VethEnd(NamedTuple):
    """One end of a veth pair: its namespace (a file descriptor), index and name."""

    namespace: int
    number: int
    name: str
    mac: str = ""
    mtu: int = 1500


def add_veth(near: VethEnd, far: VethEnd) -> NetlinkMessage:
    """Must be sent in the namespace of the near end."""
    peer = _link(far.number) + _name_mac_mtu(far.name, far.mac, far.mtu) + _u32(28, far.namespace)
    body = (
        _link(near.number)
        + _name_mac_mtu(near.name, near.mac, near.mtu)
        + _info("veth", netlink_attribute(1, peer))
    )
    return NetlinkMessage(
        _NEWLINK, _CREATE | _EXCL, body, f"add link {near.name} type veth peer {far.name}"
    )


def add_bridge(index: int, name: str, mac: str, mtu: int) -> NetlinkMessage:
    # no multicast snooping: without a querier it drops neighbour discovery
    data = netlink_attribute(23, b"\0")
    return NetlinkMessage(
        _NEWLINK,
        _CREATE | _EXCL,
        _link(index) + _name_mac_mtu(name, mac, mtu) + _info("bridge", data),
        f"add link {name} type bridge",
    )


def add_vxlan(
    index: int, name: str, mac: str, mtu: int, *, vni: int, port: int, local: str
) -> NetlinkMessage:
    data = (
        _u32(1, vni) + netlink_attribute(7, b"\0") + netlink_attribute(15, struct.pack(">H", port))
    )
    if local:
        address = ipaddress.ip_address(local)
        data += netlink_attribute(4 if address.version == 4 else 17, address.packed)
    return NetlinkMessage(
        _NEWLINK,
        _CREATE | _EXCL,
        _link(index) + _name_mac_mtu(name, mac, mtu) + _info("vxlan", data),
        f"add link {name} type vxlan id {vni}",
    )


def set_link_up(index: int, name: str) -> NetlinkMessage:
    return NetlinkMessage(_NEWLINK, 0, _link(index, up=True), f"set link {name} up")


def set_link(index: int, name: str, mac: str, mtu: int) -> NetlinkMessage:
    body = (
        _link(index)
        + (netlink_attribute(1, _mac(mac)) if mac else b"")
        + (_u32(4, mtu) if mtu else b"")
    )
    return NetlinkMessage(_NEWLINK, 0, body, f"set link {name} mtu {mtu}")


def set_link_master(index: int, name: str, master: int) -> NetlinkMessage:
    """0: detach from its bridge."""
    return NetlinkMessage(
        _NEWLINK, 0, _link(index) + _u32(10, master), f"set link {name} master {master}"
    )


def set_bridge_port(index: int, name: str, *, hairpin: bool) -> NetlinkMessage:
    data = netlink_attribute(4, b"\1" if hairpin else b"\0")
    return NetlinkMessage(
        _NEWLINK,
        0,
        _link(index) + netlink_attribute(18, _text(4, "bridge") + netlink_attribute(5, data)),
        f"set link {name} hairpin {hairpin}",
    )


def set_link_down(index: int, name: str) -> NetlinkMessage:
    return NetlinkMessage(
        _NEWLINK,
        0,
        struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, _IFF_UP),
        f"set link {name} down",
    )


def set_link_aside(index: int, name: str, group: int) -> NetlinkMessage:
    """Frees the name of a device that is down, and adds the device to a group."""
    return NetlinkMessage(
        _NEWLINK,
        0,
        _link(index) + _text(3, f"gone{index}") + _u32(27, group),
        f"set link {name} aside",
    )


def delete_group(group: int) -> NetlinkMessage:
    return NetlinkMessage(_DELLINK, 0, _link(0) + _u32(27, group), f"delete links of group {group}")


def _address(kind: int, flags: int, index: int, text: str) -> NetlinkMessage:
    interface = ipaddress.ip_interface(text)
    family = socket.AF_INET if interface.version == 4 else socket.AF_INET6
    packed = interface.ip.packed
    body = (
        struct.pack("=BBBBi", family, interface.network.prefixlen, 0, 0, index)
        + netlink_attribute(2, packed)
        + netlink_attribute(1, packed)
    )
    body += _u32(8, _NODAD | _NOPREFIXROUTE)
    return NetlinkMessage(kind, flags, body, f"address {text} of {index}")


def add_address(index: int, text: str) -> NetlinkMessage:
    """Without a route for its prefix: routes are added one by one."""
    return _address(_NEWADDR, _CREATE | _REPLACE, index, text)


def delete_address(index: int, text: str) -> NetlinkMessage:
    return _address(_DELADDR, 0, index, text)


def _route(
    kind: int, flags: int, destination: str, index: int, via: str, source: str, onlink: bool
) -> NetlinkMessage:
    network = ipaddress.ip_network(destination)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    scope = _UNIVERSE if via or network.version == 6 else _LINK_SCOPE
    body = struct.pack(
        "=BBBBBBBBI",
        family,
        network.prefixlen,
        0,
        0,
        _MAIN_TABLE,
        _STATIC,
        scope,
        _UNICAST,
        _ONLINK if onlink else 0,
    )
    if network.prefixlen:
        body += netlink_attribute(1, network.network_address.packed)
    body += _u32(4, index)
    if via:
        body += netlink_attribute(5, ipaddress.ip_address(via).packed)
    if source:
        body += netlink_attribute(7, ipaddress.ip_address(source).packed)
    return NetlinkMessage(kind, flags, body, f"route {destination} via {via or '-'} dev {index}")


def replace_route(
    destination: str, index: int, via: str = "", source: str = "", *, onlink: bool = False
) -> NetlinkMessage:
    return _route(_NEWROUTE, _CREATE | _REPLACE, destination, index, via, source, onlink)


def delete_route(
    destination: str, index: int, via: str = "", source: str = "", *, onlink: bool = False
) -> NetlinkMessage:
    return _route(_DELROUTE, 0, destination, index, via, source, onlink)


def special_route(destination: str, kind: str, *, add: bool) -> NetlinkMessage:
    """A route in the table with the highest precedence: local addresses, or destinations that
    continue with the other tables.
    """
    network = ipaddress.ip_network(destination)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    number, scope = (_LOCAL, _HOST_SCOPE) if kind == "local" else (_THROW, _UNIVERSE)
    body = struct.pack(
        "=BBBBBBBBI", family, network.prefixlen, 0, 0, _LOCAL_TABLE, _STATIC, scope, number, 0
    )
    body += netlink_attribute(1, network.network_address.packed) + (
        _u32(4, 1) if kind == "local" else b""
    )
    return NetlinkMessage(
        _NEWROUTE if add else _DELROUTE,
        _CREATE | _REPLACE if add else 0,
        body,
        f"route {kind} {destination}",
    )


def _neighbour(kind: int, flags: int, index: int, address: str, mac: str) -> NetlinkMessage:
    target = ipaddress.ip_address(address)
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    body = struct.pack("=BxxxiHBB", family, index, _PERMANENT, 0, 0) + netlink_attribute(
        1, target.packed
    )
    return NetlinkMessage(
        kind,
        flags,
        body + (netlink_attribute(2, _mac(mac)) if mac else b""),
        f"neighbour {address} {mac} dev {index}",
    )


def replace_neighbour(index: int, address: str, mac: str) -> NetlinkMessage:
    return _neighbour(_NEWNEIGH, _CREATE | _REPLACE, index, address, mac)


def delete_neighbour(index: int, address: str) -> NetlinkMessage:
    return _neighbour(_DELNEIGH, 0, index, address, "")


def _forwarding(
    kind: int, flags: int, index: int, mac: str, remote: str, vni: int
) -> NetlinkMessage:
    body = struct.pack(
        "=BxxxiHBB", socket.AF_BRIDGE, index, _PERMANENT, _SELF, 0
    ) + netlink_attribute(2, _mac(mac))
    if remote:
        body += netlink_attribute(1, ipaddress.ip_address(remote).packed)
    if vni:
        body += _u32(7, vni)
    return NetlinkMessage(kind, flags, body, f"fdb {mac} dst {remote} dev {index}")


def replace_forwarding(index: int, mac: str, remote: str, vni: int = 0) -> NetlinkMessage:
    """Of a VXLAN device: frames for this address go to that host."""
    return _forwarding(_NEWNEIGH, _CREATE | _REPLACE, index, mac, remote, vni)


def delete_forwarding(index: int, mac: str, remote: str, vni: int = 0) -> NetlinkMessage:
    return _forwarding(_DELNEIGH, 0, index, mac, remote, vni)


def send_netlink(messages: Sequence[NetlinkMessage]) -> list[RefusedMessage]:
    """Sends in order, in the namespace of the calling thread; a rejected message does not stop the
    following ones.
    """
    refused: list[RefusedMessage] = []
    if not messages:
        return refused
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as link:
        link.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        link.settimeout(10)
        for start in range(0, len(messages), _BATCH):
            batch = messages[start : start + _BATCH]
            link.send(b"".join(_framed(number, message) for number, message in enumerate(batch)))
            waiting = len(batch)
            while waiting:
                answer = link.recv(1 << 16)
                at = 0
                while at < len(answer):
                    length, kind, _, number, _ = struct.unpack_from("=IHHII", answer, at)
                    if kind == _NLMSG_ERROR:
                        waiting -= 1
                        (error,) = struct.unpack_from("=i", answer, at + 16)
                        if error:
                            refused.append(RefusedMessage(batch[number], -error))
                    at += (length + 3) & ~3
    return refused


def _framed(number: int, message: NetlinkMessage) -> bytes:
    length = len(message.body) + 16
    header = struct.pack("=IHHII", length, message.kind, message.flags | _REQUEST | _ACK, number, 0)
    return header + message.body + b"\0" * (-length % 4)


def refusal_reason(refused: RefusedMessage) -> str:
    return f"{refused.message.text}: {os.strerror(refused.error)}"
