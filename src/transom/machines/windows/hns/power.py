"""What remains after a restart of the service, and of the machine."""

from __future__ import annotations

from transom.machines.windows.hns import balancers, endpoints, namespaces, networks
from transom.machines.windows.hns.faults import HnsFaults
from transom.machines.windows.hns.store import HnsStore


def restart_hns(store: HnsStore, faults: HnsFaults) -> None:
    """The service reloads its configuration."""
    if faults.lose_networks_on_restart:
        _lose(store, all_networks=True)
    if faults.lose_balancers_on_restart:
        for key in list(store.objects["loadbalancer"]):
            balancers.delete_load_balancer(store, key)
    store.notify("service", "", "restarted")


def reboot_hns(store: HnsStore, faults: HnsFaults) -> None:
    """Containers, compartments and non-persistent networks are gone. Load balancers without a
    destination no longer have a rule.
    """
    for key, record in list(store.endpoint_records.items()):
        record.machine = ""
        if record.containers or store.objects["endpoint"][key].get("HostComputeNamespace"):
            endpoints.delete_endpoint(store, key)
    for key in list(store.objects["namespace"]):
        namespaces.delete_hns_namespace(store, key)
    _lose(store, all_networks=faults.lose_networks_on_reboot)
    for record in store.endpoint_records.values():
        record.counters.clear()
    store.notify("service", "", "restarted")


def _lose(store: HnsStore, *, all_networks: bool) -> None:
    for key, obj in list(store.objects["network"].items()):
        if all_networks or obj.get("Flags", 0) & networks.NON_PERSISTENT:
            networks.delete_hns_network(store, key)
    for kind, forget in (
        ("loadbalancer", balancers.delete_load_balancer),
        ("route", balancers.delete_route_policy),
    ):
        for key, obj in list(store.objects[kind].items()):
            if not obj["HostComputeEndpoints"]:
                forget(store, key)
