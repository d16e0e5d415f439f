"""Creates the initial objects of every cluster: system namespaces, roles, priority classes, and the
service of the API server.
"""

from __future__ import annotations

import asyncio
import ipaddress

from transom.apiserver.admission.priority import SYSTEM_CLASSES
from transom.apiserver.authorization import bootstrap_roles
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.strategies import service_addresses, service_families
from transom.apiserver.core.strategies.services import service_allocations
from transom.kit.clock import rfc3339

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def show_families(loopback: Loopback) -> None:
    """Sets the IP families of services created before the feature gate was enabled. Kubernetes
    fills them in on every read; here they are stored.
    """
    storage, res = loopback.storage, loopback.resources.require("", "v1", "services")
    if not storage.feature(service_families.GATE):
        return
    writes = []
    for record in storage.store.list(res.key_prefix("")).records:
        shown = service_families.default_families_on_read(
            storage.decode(res, record), storage.services.addresses
        )
        if shown is not None:
            writes.append(storage.replace_now(res, shown, record))
    await asyncio.gather(*writes)


async def _ensure_service_cidr(loopback: Loopback, service_cidr: str) -> None:
    """The ranges of the cluster as a ServiceCIDR, ready from the start, and the IPAddress objects
    of services that were created without the feature.
    """
    storage = loopback.storage
    if not storage.feature(service_addresses.GATE):
        return
    group, plural, name = "networking.k8s.io", "servicecidrs", "kubernetes"
    cidrs = [text.strip() for text in service_cidr.split(",")]
    res = loopback.resources.storage(group, plural)
    if res is None:  # not served
        return
    if storage.find(res, "", name) is None:
        obj = {"metadata": {"name": name}, "spec": {"cidrs": cidrs}}
        await loopback.ensure(group, res.version, plural, "", obj)
        record = storage.store.get(res.key("", name))
        assert record is not None
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": rfc3339(loopback.context().now),
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
        }
        stored = {**storage.decode(res, record), "status": {"conditions": [condition]}}
        await storage.replace_now(res, stored, record)
    services = loopback.resources.require("", "v1", "services")
    for record in storage.store.list(services.key_prefix("")).records:
        svc = storage.decode(services, record)
        addresses, _ = service_allocations(svc)
        work = service_addresses.follow_addresses(
            storage, loopback.context().now, svc, addresses, ()
        )
        if work is not None:
            await work


async def ensure_system_namespaces(loopback: Loopback) -> None:
    for name in SYSTEM_NAMESPACES:
        await loopback.ensure("", "v1", "namespaces", "", {"metadata": {"name": name}})


async def bootstrap(loopback: Loopback, service_cidr: str, port: int) -> None:
    """`port` is the target port of the service `kubernetes`."""
    await ensure_system_namespaces(loopback)
    await bootstrap_roles.reconcile_bootstrap_roles(loopback)
    for name, (value, description) in SYSTEM_CLASSES.items():
        await loopback.ensure(
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            "",
            {
                "metadata": {"name": name},
                "value": value,
                "description": description,
            },
        )
    await _ensure_service_cidr(loopback, service_cidr)
    await ensure_api_service(loopback, service_cidr, port)


async def ensure_api_service(loopback: Loopback, service_cidr: str, port: int) -> None:
    first = str(ipaddress.ip_network(service_cidr.partition(",")[0])[1])
    labels = {"component": "apiserver", "provider": "kubernetes"}
    await loopback.ensure(
        "",
        "v1",
        "services",
        "default",
        {
            "metadata": {"name": "kubernetes", "labels": labels},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": first,
                "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            },
        },
    )
