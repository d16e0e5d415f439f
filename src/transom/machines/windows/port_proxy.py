"""The port proxies of a Windows machine, as `netsh interface portproxy` stores them in the registry.

The IP Helper service listens and forwards; this module only reads and writes its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple
from transom.machines.windows.registry import WindowsRegistry

PORT_PROXY_SERVICE: Final = "iphlpsvc"
ANY_ADDRESS: Final = "*"
PORT_PROXY_KEY: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\PortProxy"
IpVersion = Literal[4, 6]
PORT_PROXY_KINDS: Final[Mapping[str, tuple[IpVersion, IpVersion]]] = {
    # the IP versions to listen on and to connect with
    "v4tov4": (4, 4),
    "v4tov6": (4, 6),
    "v6tov4": (6, 4),
    "v6tov6": (6, 6),
}


class PortProxyEntry(NamedTuple):
    """Addresses and ports as the user wrote them: netsh does not check them."""

    kind: str
    listen_address: str
    listen_port: str
    connect_address: str
    connect_port: str


def _table_key(kind: str) -> str:
    return rf"{PORT_PROXY_KEY}\{kind}\tcp"


def port_proxy_entries(registry: WindowsRegistry, kind: str) -> list[PortProxyEntry]:
    """Values are named `address/port`, and their data is `address/port`; others are ignored."""
    found = []
    for name, value in (registry.values(_table_key(kind)) or {}).items():
        listen, slash, port = name.rpartition("/")
        if slash and isinstance(value, str) and "/" in value:
            connect, _, connect_port = value.rpartition("/")
            found.append(PortProxyEntry(kind, listen, port, connect, connect_port))
    return found


def set_port_proxy(registry: WindowsRegistry, entry: PortProxyEntry) -> None:
    """Adds the entry, or replaces the one with the same address and port to listen on."""
    registry.set(
        _table_key(entry.kind),
        f"{entry.listen_address}/{entry.listen_port}",
        f"{entry.connect_address}/{entry.connect_port}",
    )


def delete_port_proxy(registry: WindowsRegistry, kind: str, address: str, port: str) -> bool:
    """Returns whether it existed."""
    return registry.delete(_table_key(kind), f"{address}/{port}")


def reset_port_proxies(registry: WindowsRegistry) -> None:
    for kind in PORT_PROXY_KINDS:
        registry.delete(_table_key(kind))
