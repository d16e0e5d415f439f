"""Creates the initial objects of every cluster: system namespaces, roles, priority classes, and the
service of the API server.
"""

from __future__ import annotations

import asyncio
import ipaddress

from transom.apiserver.admission.priority import SYSTEM_CLASSES
from transom.apiserver.authorization import bootstrap_roles
from transom.apiserver.core.loopback import Loopback
from transom.apiserver.core.strategies import service_families
from transom.machinery.releases.features import is_enabled

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


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


async def bootstrap(loopback: Loopback, service_cidr: str, port: int) -> None:
    """`port` is the target port of the service `kubernetes`."""
    for name in _NAMESPACES:
        await loopback.ensure("", "v1", "namespaces", "", {"metadata": {"name": name}})
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
    if is_enabled(loopback.resources.release, "MultiCIDRServiceAllocator"):
        await loopback.ensure(
            "networking.k8s.io",
            "v1",
            "servicecidrs",
            "",
            {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": service_cidr.split(",")}},
        )
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
