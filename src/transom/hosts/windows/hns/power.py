"""What a restart of the service, and of the machine, leaves."""

from __future__ import annotations

from transom.hosts.windows.hns import balancers, endpoints, namespaces, networks
from transom.hosts.windows.hns.faults import Faults
from transom.hosts.windows.hns.store import Store


def restart(store: Store, faults: Faults) -> None:
    """The service reads back what it knew."""
    if faults.lose_networks_on_restart:
        _lose(store, all_networks=True)
    store.tell("service", "", "restarted")


def reboot(store: Store, faults: Faults) -> None:
    """Containers and compartments are gone, and networks that were not to persist. Load balancers without a destination
    have no rule any more."""
    for key, record in list(store.endpoint_records.items()):
        record.machine = ""
        if record.containers or store.objects["endpoint"][key].get("HostComputeNamespace"):
            endpoints.delete(store, key)
    for key in list(store.objects["namespace"]):
        namespaces.delete(store, key)
    _lose(store, all_networks=faults.lose_networks_on_reboot)
    for record in store.endpoint_records.values():
        record.counters.clear()
    store.tell("service", "", "restarted")


def _lose(store: Store, *, all_networks: bool) -> None:
    for key, obj in list(store.objects["network"].items()):
        if all_networks or obj.get("Flags", 0) & networks.NON_PERSISTENT:
            networks.delete(store, key)
    for kind, forget in (("loadbalancer", balancers.delete), ("route", balancers.delete_route)):
        for key, obj in list(store.objects[kind].items()):
            if not obj["HostComputeEndpoints"]:
                forget(store, key)
