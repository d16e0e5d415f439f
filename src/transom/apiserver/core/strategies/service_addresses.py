"""The IPAddress objects of services, and the ranges of ServiceCIDR objects (feature
MultiCIDRServiceAllocator): every cluster IP of a stored service has an IPAddress that names the
service.
"""

from __future__ import annotations

import asyncio
import ipaddress
import uuid
from collections.abc import Awaitable, Iterable
from typing import Final

import orjson

from transom.apiserver.core.allocators import Network
from transom.apiserver.core.strategies.base import StorageRules
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object
from transom.store.api import PreconditionFailed

GATE = "MultiCIDRServiceAllocator"
MANAGED_BY = "ipallocator.k8s.io"
_ADDRESSES = "ipaddresses.networking.k8s.io"
_CIDRS = "servicecidrs.networking.k8s.io"


def use_service_cidrs(storage: StorageRules) -> None:
    """Makes the allocators use the ranges that are ready."""
    found: dict[str, list[Network]] = {family: [] for family in storage.services.addresses}
    for record in storage.store.list(f"{_CIDRS}/").records:
        obj = orjson.loads(record.value)
        if obj["metadata"].get("deletionTimestamp") or not _is_ready(obj):
            continue
        for text in (obj.get("spec") or {}).get("cidrs") or ():
            network = ipaddress.ip_network(text)
            found.setdefault(f"IPv{network.version}", []).append(network)
    for family, pool in storage.services.addresses.items():
        # The range of the cluster comes first.
        pool.use_networks(sorted(found[family], key=lambda network: network != pool.network))


def _is_ready(obj: Object) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in (obj.get("status") or {}).get("conditions") or ()
    )


def is_address_stored(storage: StorageRules, address: str) -> bool:
    return storage.store.latest(f"{_ADDRESSES}/{address}") is not None


_FIELDS: Final[Object] = {
    "f:metadata": {
        "f:labels": {
            ".": {},
            "f:ipaddress.kubernetes.io/ip-family": {},
            "f:ipaddress.kubernetes.io/managed-by": {},
        }
    },
    "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
}


async def _add(storage: StorageRules, address: str, now: float, svc: Object) -> None:
    family = "IPv6" if ":" in address else "IPv4"
    meta, created = svc["metadata"], rfc3339(now)
    value: Object = {
        "metadata": {
            "name": address,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": created,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": MANAGED_BY,
            },
            "managedFields": [
                {
                    "manager": "kube-apiserver",
                    "operation": "Update",
                    "apiVersion": "networking.k8s.io/v1",
                    "time": created,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": _FIELDS,
                }
            ],
        },
        "spec": {
            "parentRef": {
                "resource": "services",
                "namespace": meta["namespace"],
                "name": meta["name"],
            }
        },
    }

    def encode(revision: int) -> bytes:
        if revision:  # a store that follows others adds it
            value["metadata"]["resourceVersion"] = str(revision)
        return orjson.dumps(value)

    try:
        await storage.store.put(f"{_ADDRESSES}/{address}", encode, expected=0)
    except PreconditionFailed:
        return  # it exists already


async def _remove(storage: StorageRules, address: str) -> None:
    try:
        await storage.store.delete(f"{_ADDRESSES}/{address}")
    except PreconditionFailed:
        return


def follow_addresses(
    storage: StorageRules, now: float, svc: Object, new: Iterable[str], gone: Iterable[str]
) -> Awaitable[object] | None:
    """Creates and deletes the IPAddress objects of a service that was written."""
    if not storage.feature(GATE):
        return None
    work = [_add(storage, a, now, svc) for a in new if not is_address_stored(storage, a)]
    more = [_remove(storage, a) for a in gone if is_address_stored(storage, a)]
    return asyncio.gather(*work, *more) if work or more else None
