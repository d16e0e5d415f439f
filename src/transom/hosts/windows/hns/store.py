"""What a host networking service knows, and the indices that let it answer at once. It decides nothing.

Objects are v2 documents by GUID in capitals. They are never changed: a change puts another document in their place. What
a document does not show (who is attached, what a network may hand out) is in a record beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from transom.hosts.windows.hns import errors
from transom.hosts.windows.hns.adapters import Adapters
from transom.hosts.windows.hns.names import MacPool, Names, guid
from transom.hosts.windows.hns.subnets import Subnet
from transom.windows.builds import Build

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
    subnets: list[Subnet]
    macs: MacPool
    adapter: str = ""  # the physical one below its switch
    switch: str = ""  # GUID
    endpoints: dict[str, None] = field(default_factory=dict)
    by_ip: dict[str, str] = field(default_factory=dict)
    total: int = 0  # endpoints there ever were
    most: int = 0  # at the same time
    v1: Object = field(default_factory=dict)  # what only the v1 schema has


@dataclass(slots=True)
class EndpointRecord:
    network: str
    state: int = CREATED
    containers: list[str] = field(default_factory=list)
    host: int = 0  # compartment of the host that it is attached to
    machine: str = ""  # the virtual machine's NIC that it is
    pooled_mac: str = ""
    ports: tuple[tuple[int, int, str], ...] = ()  # protocol, external port, address of its mappings
    instance: str = ""  # of its statistics
    counters: dict[str, int] = field(default_factory=dict)
    v1: Object = field(default_factory=dict)


def dns_of(given: object) -> Object:
    """Without what is empty."""
    if not isinstance(given, dict):
        return {}
    return {name: given[name] for name in ("Domain", "Search", "ServerList", "Options") if given.get(name)}


class Store:
    __slots__ = (
        "adapters", "balancer_of", "build", "endpoint_records", "listeners", "mapping_of", "names", "names_of",
        "network_records", "now", "objects", "outages", "users",
    )  # fmt: skip

    def __init__(self, build: Build, adapters: Adapters, names: Names, now: Callable[[], float]) -> None:
        self.build = build
        self.adapters = adapters
        self.names = names
        self.now = now
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.network_records: dict[str, NetworkRecord] = {}
        self.endpoint_records: dict[str, EndpointRecord] = {}
        self.names_of: dict[str, dict[str, dict[str, None]]] = {"network": {}, "endpoint": {}}  # name -> ids
        # (family, protocol, port, VIP) -> load balancer; VIP "" is every address of the host.
        self.balancer_of: dict[tuple[int, int, int, str], str] = {}
        self.mapping_of: dict[tuple[int, int, str], str] = {}  # (protocol, port, address) -> endpoint
        self.users: dict[str, dict[str, str]] = {}  # endpoint -> load balancers and routes with it -> their kind
        self.outages: list[tuple[float, str]] = []  # when making or removing a switch cut the host off, and on which adapter
        self.listeners: list[Listener] = []

    def find(self, kind: str, identifier: object) -> str:
        """The GUID as the tables have it; an invalid or unknown one is refused as the service does it."""
        key = guid(identifier)
        if not key:
            raise errors.invalid_id(kind)
        if key not in self.objects[kind]:
            raise errors.gone(kind)
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
            self.tell(kind, key, "created")
        else:
            self.tell(kind, key, "changed")
        return obj

    def drop(self, kind: str, key: str) -> None:
        obj = self.objects[kind].pop(key)
        if kind in self.names_of:
            same = self.names_of[kind][obj.get("Name", "")]
            del same[key]
            if not same:
                del self.names_of[kind][obj.get("Name", "")]
        self.tell(kind, key, "deleted")

    def tell(self, kind: str, key: str, change: str) -> None:
        for listener in self.listeners:
            listener(kind, key, change)

    def management_ip(self, key: str) -> str:
        """The host's address on the adapter of a network."""
        adapter = self.adapters.management(self.network_records[key].adapter)
        return adapter.ip if adapter is not None else ""

    def health(self, **extra: object) -> Object:
        """Windows counts tenths of microseconds since 1601."""
        updated = int((self.now() + 11_644_473_600) * 10_000_000)
        return {"Data": {"LastErrorCode": 0, "LastUpdateTime": updated}, "Extra": extra}
