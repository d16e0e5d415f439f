"""What every cluster has from the first moment: the system namespaces, roles and priority
classes, and the service of the API itself."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from transom.apiserver.admission.priority import SYSTEM_CLASSES
from transom.apiserver.authorization import bootstrap_roles
from transom.apiserver.strategies import service_families
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def ensure(server: ApiServer, group: str, version: str, plural: str, namespace: str, obj: Object) -> None:
    """Create the object unless it exists."""
    res = server.resource(group, version, plural)
    if server.storage.find(res, namespace, obj["metadata"]["name"]) is not None:
        return
    complete = res.ops.normalise(obj)
    res.ops.default(complete)
    try:
        await server.storage.create(server.context(), res, namespace, res.ops.to_storage(complete))
    except ApiError as problem:
        if problem.reason != "AlreadyExists":
            raise


async def show_families(server: ApiServer) -> None:
    """Services from before the gate was opened get the families that they have had all along. Kubernetes fills them in
    whenever it reads such a service; here what is read is what is stored."""
    storage, res = server.storage, server.resource("", "v1", "services")
    if not storage.feature(service_families.GATE, service_families.OPENED):
        return
    writes = []
    for record in storage.store.list(res.key_prefix("")).records:
        shown = service_families.show(storage.decode(res, record), server.services.addresses)
        if shown is not None:
            writes.append(storage.replace_now(res, shown, record))
    await asyncio.gather(*writes)


async def bootstrap(server: ApiServer) -> None:
    for name in _NAMESPACES:
        await ensure(server, "", "v1", "namespaces", "", {"metadata": {"name": name}})
    await bootstrap_roles.reconcile(server)
    for name, (value, description) in SYSTEM_CLASSES.items():
        await ensure(server, "scheduling.k8s.io", "v1", "priorityclasses", "", {
            "metadata": {"name": name}, "value": value, "description": description,
        })
    first = str(ipaddress.ip_network(server.options.service_cidr.partition(",")[0])[1])
    port = server.options.advertised_port or server.address.rpartition(":")[2]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    await ensure(server, "", "v1", "services", "default", {
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {
            "type": "ClusterIP", "clusterIP": first, "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": int(port)}],
        },
    })
