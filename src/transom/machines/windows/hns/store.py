"""The state of a host networking service, with indices for fast lookup. It contains no decisions.

Objects are v2 documents by GUID in capitals. They are immutable: a change replaces the document.
What a document does not show (attachments, a network's free addresses) is in a separate record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.machines.windows.hns import errors
from transom.machines.windows.hns.adapters import Adapters
from transom.machines.windows.hns.names import IdGenerator, MacPool, guid
from transom.machines.windows.hns.subnets import HnsSubnet
from transom.windows.builds import WindowsBuild

Object = dict[str, Any]
Kind = Literal["network", "endpoint", "namespace", "loadbalancer", "route"]
KINDS: Final[tuple[Kind, ...]] = ("network", "endpoint", "namespace", "loadbalancer", "route")
Listener = Callable[[str, str, str], None]
SCHEMA: Final = {"Major": 2, "Minor": 0}
# Endpoint states of the v1 schema.
CREATED, ATTACHED, SHARING, DETACHED = 1, 2, 3, 4


@dataclass(slots=True)
class NetworkRecord:
    type: str
    subnets: list[HnsSubnet]
    macs: MacPool
    adapter: str = ""  # the physical one below its switch
    switch: str = ""  # GUID
    endpoints: dict[str, None] = field(default_factory=dict)
    by_ip: dict[str, str] = field(default_factory=dict)
    total: int = 0  # endpoints ever created
    most: int = 0  # at the same time
    v1: Object = field(default_factory=dict)  # v1-only fields


@dataclass(slots=True)
class EndpointRecord:
    network: str
    state: int = CREATED
    containers: list[str] = field(default_factory=list)
    host: int = 0  # the host compartment that it is attached to
    machine: str = ""  # the virtual machine NIC that it is
    pooled_mac: str = ""
    ports: tuple[tuple[int, int, str], ...] = ()  # protocol, external port, address of its mappings
    instance: str = ""  # of its statistics
    counters: dict[str, int] = field(default_factory=dict)
    v1: Object = field(default_factory=dict)


def without_empty_dns(given: object) -> Object:
    """Omits empty fields."""
    if not isinstance(given, dict):
        return {}
    return {
        name: given[name]
        for name in ("Domain", "Search", "ServerList", "Options")
        if given.get(name)
    }


class HnsStore:
    __slots__ = (
        "adapters",
        "balancer_of",
        "build",
        "endpoint_records",
        "listeners",
        "mapping_of",
        "names",
        "names_of",
        "network_records",
        "now",
        "objects",
        "outages",
        "users",
    )

    def __init__(
        self, build: WindowsBuild, adapters: Adapters, names: IdGenerator, now: Callable[[], float]
    ) -> None:
        self.build = build
        self.adapters = adapters
        self.names = names
        self.now = now
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.network_records: dict[str, NetworkRecord] = {}
        self.endpoint_records: dict[str, EndpointRecord] = {}
        self.names_of: dict[str, dict[str, dict[str, None]]] = {
            "network": {},
            "endpoint": {},
        }  # name -> ids
        # (family, protocol, port, VIP) -> load balancer; VIP "" is every address of the host.
        self.balancer_of: dict[tuple[int, int, int, str], str] = {}
        # (protocol, port, address) -> endpoint
        self.mapping_of: dict[tuple[int, int, str], str] = {}
        # endpoint -> load balancers and routes with it -> their kind
        self.users: dict[str, dict[str, str]] = {}
        # when creating or removing a switch disconnected the host, and on which adapter
        self.outages: list[tuple[float, str]] = []
        self.listeners: list[Listener] = []

    def find(self, kind: str, identifier: object) -> str:
        """The GUID in the tables' notation; raises the service's error for an invalid or unknown
        one.
        """
        key = guid(identifier)
        if not key:
            raise errors.invalid_id(kind)
        if key not in self.objects[kind]:
            raise errors.unknown_identifier(kind)
        return key

    def new_id(self, kind: str, wanted: object) -> str:
        if not wanted:
            return self.names.guid()
        key = guid(wanted)
        if not key:
            raise errors.HnsError(errors.BAD_GUID)
        if key in self.objects[kind]:
            raise errors.HnsError(errors.OBJECT_EXISTS)
        return key

    def put(self, kind: str, key: str, obj: Object) -> Object:
        table = self.objects[kind]
        before = table.get(key)
        table[key] = obj
        if before is None:
            if kind in self.names_of:
                self.names_of[kind].setdefault(obj.get("Name", ""), {})[key] = None
            self.notify(kind, key, "created")
        else:
            self.notify(kind, key, "changed")
        return obj

    def drop(self, kind: str, key: str) -> None:
        obj = self.objects[kind].pop(key)
        if kind in self.names_of:
            same = self.names_of[kind][obj.get("Name", "")]
            del same[key]
            if not same:
                del self.names_of[kind][obj.get("Name", "")]
        self.notify(kind, key, "deleted")

    def notify(self, kind: str, key: str, change: str) -> None:
        for listener in self.listeners:
            listener(kind, key, change)

    def management_ip(self, key: str) -> str:
        """The host's address on the adapter of a network."""
        adapter = self.adapters.management(self.network_records[key].adapter)
        return adapter.ip if adapter is not None else ""

    def health(self, **extra: object) -> Object:
        """Windows counts in 100 ns since 1601."""
        updated = int((self.now() + 11_644_473_600) * 10_000_000)
        return {"Data": {"LastErrorCode": 0, "LastUpdateTime": updated}, "Extra": extra}
