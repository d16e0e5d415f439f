"""The network adapters of a Windows host, as far as the host networking service changes them.

An external switch takes over a physical adapter: its address moves to `vEthernet (Ethernet)`, and
back when the last network of the switch is removed. Endpoints attached to the host and internal
networks have their own adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from transom.kit.lazy_dataclass import dataclass

AdapterKind = Literal["physical", "management", "endpoint", "internal"]


@dataclass(slots=True)
class Adapter:
    name: str
    mac: str
    address: str = ""  # with its prefix
    gateway: str = ""
    kind: AdapterKind = "physical"
    compartment: int = 1
    index: int = 0
    endpoint: str = ""  # GUID
    network: str = ""  # GUID, of an internal network
    below: str = ""  # of a management adapter: the physical one
    switch: str = ""  # GUID of the switch that a physical adapter is bound to
    # for a virtual machine: whether its host allows frames with other MAC addresses (spoofing)
    mac_spoofing: bool = True
    disabled: bool = False  # by an administrator

    @property
    def ip(self) -> str:
        return self.address.partition("/")[0]


def virtual_adapter(name: str) -> str:
    return f"vEthernet ({name})"


class Adapters:
    """By name; reports each change."""

    __slots__ = ("_changed", "_index", "by_name")

    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self.by_name: dict[str, Adapter] = {}
        self._changed = changed
        self._index = 3

    def add(self, adapter: Adapter) -> Adapter:
        if not adapter.index:
            self._index += 1
            adapter.index = self._index
        self.by_name[adapter.name] = adapter
        self._changed(adapter.name, "created")
        return adapter

    def plug(self, adapter: Adapter) -> None:
        """Adds a physical adapter, or changes the addresses of an existing one."""
        present = self.by_name.get(adapter.name)
        if present is None:
            self.add(adapter)
            return
        present.mac = adapter.mac
        holder = self.management(adapter.name) or present
        holder.mac, holder.address, holder.gateway = adapter.mac, adapter.address, adapter.gateway
        self._changed(holder.name, "changed")

    def allow_spoofing(self, allow: bool) -> None:
        """What the virtual machine's host allows its adapters."""
        for adapter in [adapter for adapter in self.by_name.values() if adapter.kind == "physical"]:
            adapter.mac_spoofing = allow
            self._changed(adapter.name, "changed")

    def remove(self, name: str) -> None:
        if self.by_name.pop(name, None) is not None:
            self._changed(name, "deleted")

    def physical(self, name: str = "") -> Adapter | None:
        """The adapter with this name, or whose switch adapter has it; without a name the first."""
        for adapter in self.by_name.values():
            if adapter.kind == "physical" and name in (
                "",
                adapter.name,
                virtual_adapter(adapter.name),
            ):
                return adapter
        return None

    def with_address(self, ip: str) -> Adapter | None:
        return next((adapter for adapter in self.by_name.values() if adapter.ip == ip), None)

    def management(self, physical: str) -> Adapter | None:
        """The adapter that has the address of a physical adapter."""
        found = self.by_name.get(physical)
        return (
            self.by_name.get(virtual_adapter(physical))
            if found is not None and found.switch
            else found
        )

    def bind(self, physical: Adapter, switch: str) -> None:
        physical.switch = switch
        address, gateway = physical.address, physical.gateway
        physical.address = physical.gateway = ""
        self._changed(physical.name, "changed")
        name = virtual_adapter(physical.name)
        self.add(
            Adapter(
                name,
                physical.mac,
                address,
                gateway,
                "management",
                below=physical.name,
                switch=switch,
            )
        )

    def unbind(self, physical: Adapter) -> None:
        above = self.by_name[virtual_adapter(physical.name)]
        self.remove(above.name)
        physical.switch = ""
        physical.address, physical.gateway = above.address, above.gateway
        self._changed(physical.name, "changed")

    def of_endpoint(self, endpoint: str) -> Iterable[str]:
        return [name for name, adapter in self.by_name.items() if adapter.endpoint == endpoint]
