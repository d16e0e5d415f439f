"""The host networking service of a Windows node, as its clients call it: with v2 documents, or with
v1 requests.

It validates and stores its configuration; data planes handle packets: they read its objects and
subscribe to changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from transom.machines.windows.hns import (
    balancers,
    endpoints,
    errors,
    features,
    namespaces,
    networks,
    power,
    rest,
)
from transom.machines.windows.hns.adapters import Adapter, Adapters
from transom.machines.windows.hns.errors import HnsError
from transom.machines.windows.hns.faults import HnsFaults
from transom.machines.windows.hns.names import IdGenerator, guid
from transom.machines.windows.hns.store import KINDS, HnsStore, Listener, Object
from transom.windows.builds import WindowsBuild

_TITLES: Final = {
    "network": "Network",
    "endpoint": "Endpoint",
    "namespace": "Namespace",
    "loadbalancer": "LoadBalancer",
    "route": "Route",
}
# The class has a method `list`, so annotations need another name for the type.
_Objects = list[Object]
Listeners = list[Listener]
Outages = list[tuple[float, str]]
COUNTERS: Final = (
    "BytesReceived",
    "BytesSent",
    "DroppedPacketsIncoming",
    "DroppedPacketsOutgoing",
    "PacketsReceived",
    "PacketsSent",
)


def _no_clock() -> float:
    return 0.0


class HostNetworkService:
    """`seed` gives the same identifiers and MAC addresses every time; `now` is the host's clock,
    for timestamps.
    """

    __slots__ = (
        "endpoints",
        "faults",
        "loadbalancers",
        "namespaces",
        "networks",
        "routes",
        "store",
    )

    def __init__(
        self,
        build: WindowsBuild,
        adapters: Iterable[Adapter] = (),
        seed: str = "",
        *,
        now: Callable[[], float] = _no_clock,
    ) -> None:
        self.store = store = HnsStore(
            build, Adapters(self._adapter_changed), IdGenerator(seed), now
        )
        self.faults = HnsFaults()
        self.set_adapters(adapters)
        # Live views of the tables.
        self.networks: Mapping[str, Object] = MappingProxyType(store.objects["network"])
        self.endpoints: Mapping[str, Object] = MappingProxyType(store.objects["endpoint"])
        self.namespaces: Mapping[str, Object] = MappingProxyType(store.objects["namespace"])
        self.loadbalancers: Mapping[str, Object] = MappingProxyType(store.objects["loadbalancer"])
        self.routes: Mapping[str, Object] = MappingProxyType(store.objects["route"])

    def _adapter_changed(self, name: str, change: str) -> None:
        self.store.notify("adapter", name, change)

    # ---- general ----

    @property
    def build(self) -> WindowsBuild:
        return self.store.build

    @property
    def version(self) -> tuple[int, int]:
        return self.store.build.hns

    def supports(self, feature: str) -> bool:
        return features.hns_supports(self.store.build, feature)

    @property
    def listeners(self) -> Listeners:
        """Called with ("endpoint", GUID, "created" | "changed" | "deleted"); also with "adapter"
        and its name.
        """
        return self.store.listeners

    @property
    def adapters(self) -> Mapping[str, Adapter]:
        """Those of the host, by name."""
        return MappingProxyType(self.store.adapters.by_name)

    def set_adapters(self, adapters: Iterable[Adapter]) -> None:
        """Adds physical adapters, or changes the addresses of existing ones."""
        for adapter in adapters:
            self.store.adapters.plug(adapter)

    @property
    def mac_spoofing(self) -> bool:
        """Whether frames of pods can leave a virtual machine."""
        return all(adapter.mac_spoofing for adapter in self.adapters.values())

    def allow_mac_spoofing(self, allow: bool) -> None:
        self.store.adapters.allow_spoofing(allow)

    @property
    def outages(self) -> Outages:
        """When the host was disconnected for some seconds because a switch was created or removed,
        and on which adapter.
        """
        return self.store.outages

    # ---- v2 ----

    def create(self, kind: str, settings: Mapping[str, Any]) -> Object:
        title = self._title(kind)
        given = dict(settings)
        if kind == "network":
            networks.check_network_settings(given)
        if kind == "endpoint":
            endpoints.check_endpoint_settings(given)
            network = self._known("network", given.get("HostComputeNetwork"))
            with self.guarded(f"Create{title}"):
                return endpoints.create_endpoint(self.store, given, network)
        with self.guarded(f"Create{title}"):
            match kind:
                case "network":
                    return networks.create_hns_network(self.store, given)
                case "namespace":
                    return namespaces.create_hns_namespace(self.store, given)
                case "loadbalancer":
                    return balancers.create_load_balancer(self.store, given)
                case _:
                    return balancers.create_route_policy(self.store, given)

    def query(self, kind: str, identifier: str) -> Object:
        self._title(kind)
        found = self.store.objects[kind].get(guid(identifier))
        if found is None:
            raise errors.id_not_found(kind, identifier)
        return found

    def list(self, kind: str, **filter: str) -> _Objects:
        self._title(kind)
        table = self.store.objects[kind]
        network = filter.pop("HostComputeNetwork", "") or filter.pop("VirtualNetwork", "")
        if "ID" in filter:
            one = table.get(guid(filter.pop("ID")))
            found: Iterable[Object] = () if one is None else (one,)
        elif "Name" in filter and kind in self.store.names_of:
            found = [table[key] for key in self.store.names_of[kind].get(filter.pop("Name"), ())]
        elif network and kind == "endpoint":
            record = self.store.network_records.get(guid(network))
            found = [table[key] for key in record.endpoints] if record is not None else ()
        else:
            found = table.values()
        if network:
            found = [obj for obj in found if obj.get("HostComputeNetwork") == guid(network)]
        return [
            obj for obj in found if all(obj.get(name) == value for name, value in filter.items())
        ]

    def named(self, kind: str, name: str) -> Object | None:
        """The first network or endpoint of a name."""
        for key in self.store.names_of[kind].get(name, ()):
            return self.store.objects[kind][key]
        return None

    def modify(self, kind: str, identifier: str, request: Mapping[str, Any]) -> Object:
        title = self._title(kind)
        key = self._known(kind, identifier)
        with self.guarded(f"Modify{title}"):
            match kind:
                case "network":
                    networks.modify_hns_network(self.store, key, dict(request))
                case "endpoint":
                    endpoints.modify_endpoint(self.store, key, dict(request))
                case "namespace":
                    namespaces.modify_hns_namespace(self.store, key, dict(request))
                case "loadbalancer":
                    balancers.modify_load_balancer(self.store, key, dict(request))
                case _:
                    raise HnsError(errors.NOT_IMPLEMENTED)
        return self.store.objects[kind][key]

    def delete(self, kind: str, identifier: str) -> None:
        title = self._title(kind)
        with self.guarded(f"Delete{title}"):
            self.remove(kind, self.store.find(kind, identifier))

    def remove(self, kind: str, key: str) -> None:
        """The common part of both schemas' deletes."""
        match kind:
            case "network":
                networks.delete_hns_network(self.store, key)
            case "endpoint":
                if not self.faults.leak_endpoints and not self._keeps(key):
                    endpoints.delete_endpoint(self.store, key)
            case "namespace":
                namespaces.delete_hns_namespace(self.store, key)
            case "loadbalancer":
                balancers.delete_load_balancer(self.store, key)
            case _:
                balancers.delete_route_policy(self.store, key)

    def _keeps(self, key: str) -> bool:
        flags = self.store.objects["endpoint"][key].get("Flags", 0)
        return self.faults.keep_remote_endpoints and bool(flags & endpoints.REMOTE)

    def add_to_namespace(self, namespace_id: str, endpoint_id: str) -> None:
        request = {
            "ResourceType": "Endpoint",
            "RequestType": "Add",
            "Settings": {"EndpointId": endpoint_id},
        }
        self.modify("namespace", namespace_id, request)

    # ---- v1 ----

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """{"Success": True, "Output": ...} or {"Success": False, "Error": ..., "ErrorCode":
        ...}.
        """
        return rest.call_hns(self, method, path, body)

    def hot_attach(self, endpoint_id: str, container_id: str) -> None:
        """A no-op if it is already attached to that container."""
        key = self._v1_endpoint(endpoint_id)
        if container_id in self.store.endpoint_records[key].containers:
            return
        with self.guarded("Attach", v1=True):
            endpoints.attach_container(self.store, key, container_id)

    def hot_detach(self, endpoint_id: str, container_id: str) -> None:
        """A no-op if it is not attached to that container."""
        key = self._v1_endpoint(endpoint_id)
        if container_id not in self.store.endpoint_records[key].containers:
            return
        with self.guarded("Detach", v1=True):
            endpoints.detach_container(self.store, key, container_id)

    def attach_to_host(self, endpoint_id: str, compartment: int = 1) -> None:
        key = self._v1_endpoint(endpoint_id)
        with self.guarded("Attach", v1=True):
            endpoints.attach_host(self.store, key, compartment)

    # ---- queries ----

    def endpoint_at(self, network_id: str, ip: str) -> Object | None:
        record = self.store.network_records.get(network_id) or self.store.network_records.get(
            guid(network_id)
        )
        key = record.by_ip.get(ip) if record is not None else None
        return self.store.objects["endpoint"][key] if key is not None else None

    def loadbalancer_at(
        self, vip: str, port: int, protocol: int, *, ipv6: bool = False
    ) -> Object | None:
        """The load balancer for a VIP; "" for those on every address of the host."""
        key = self.store.balancer_of.get((6 if ipv6 or ":" in vip else 4, protocol, port, vip))
        return self.store.objects["loadbalancer"][key] if key is not None else None

    def mapping_at(self, ip: str, port: int, protocol: int) -> Object | None:
        """The endpoint that a host port is mapped to: on that address, or on every one."""
        key = self.store.mapping_of.get((protocol, port, ip)) or self.store.mapping_of.get(
            (protocol, port, "")
        )
        return self.store.objects["endpoint"][key] if key is not None else None

    def users(self, endpoint_id: str) -> _Objects:
        """The load balancers and routes that contain an endpoint."""
        return [
            self.store.objects[kind][key]
            for key, kind in self.store.users.get(guid(endpoint_id), {}).items()
        ]

    def attachment(self, endpoint_id: str) -> tuple[str, str]:
        """("container" | "namespace" | "host" | "machine" | "", its id)."""
        key = guid(endpoint_id)
        record = self.store.endpoint_records.get(key)
        if record is None:
            return "", ""
        if record.containers:
            return "container", record.containers[0]
        namespace = self.store.objects["endpoint"][key].get("HostComputeNamespace")
        if namespace:
            return "namespace", namespace
        if record.host:
            return "host", str(record.host)
        return ("machine", record.machine) if record.machine else ("", "")

    def containers(self, endpoint_id: str) -> tuple[str, ...]:
        """The containers that share an endpoint."""
        record = self.store.endpoint_records.get(guid(endpoint_id))
        return tuple(record.containers) if record is not None else ()

    def management_ip(self, network_id: str) -> str:
        key = guid(network_id)
        if self.faults.late_management_address or key not in self.store.network_records:
            return ""
        return self.store.management_ip(key)

    def count(self, endpoint_id: str, **counters: int) -> None:
        """Adds to the statistics of an endpoint: BytesReceived, PacketsSent, ..."""
        record = self.store.endpoint_records.get(guid(endpoint_id))
        if record is not None:
            for name, value in counters.items():
                record.counters[name] = record.counters.get(name, 0) + value

    def stats(self, endpoint_id: str) -> dict[str, Any]:
        record = self.store.endpoint_records[self._v1_endpoint(endpoint_id)]
        shown: dict[str, Any] = {name: record.counters.get(name, 0) for name in COUNTERS}
        return {**shown, "EndpointId": guid(endpoint_id), "InstanceId": record.instance}

    # ---- power ----

    def restart_service(self) -> None:
        power.restart_hns(self.store, self.faults)

    def reboot(self) -> None:
        power.reboot_hns(self.store, self.faults)

    # ---- internals ----

    def _title(self, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError(f"there are no HNS objects of kind {kind!r}")
        features.require_hns_feature(self.store.build, "V2 Api/Schema")
        return _TITLES[kind]

    def _known(self, kind: str, identifier: object) -> str:
        try:
            return self.store.find(kind, identifier)
        except HnsError as error:
            error.call = f"hcnOpen{_TITLES[kind]}"
            raise

    def _v1_endpoint(self, identifier: str) -> str:
        key = guid(identifier)
        if key not in self.store.endpoint_records:
            raise HnsError(errors.ENDPOINT_NOT_FOUND)
        return key

    @contextmanager
    def guarded(self, name: str, *, v1: bool = False) -> Iterator[None]:
        """Applies injected faults, and adds the call's name to errors."""
        try:
            if self.faults.queued or self.faults.refuse_deletes:
                self.faults.check(name)
            yield
        except HnsError as error:
            if not v1:
                error.call = error.call or f"hcn{name}"
            raise
