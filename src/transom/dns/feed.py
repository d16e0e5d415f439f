"""Informers that keep a zone up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, NAMESPACES, SERVICES
from transom.dns.zone import DnsZone
from transom.machinery.objects import Object


class ZoneFeed:
    """Until the first lists are complete, unknown names may exist: the zone returns no NXDOMAIN
    before that.
    """

    def __init__(self, zone: DnsZone, informers: InformerFactory, *, slices: bool = True) -> None:
        """Reads services, endpoint slices and namespaces from these informers; the caller starts
        them. `slices=False` reads Endpoints, for API servers without slices.
        """
        self._zone = zone
        self._subsets: dict[tuple[str, str], int] = {}  # the number of slices for each Endpoints
        if slices:
            endpoints = follow_cluster(
                informers(ENDPOINT_SLICES), zone.put_slice, zone.remove_slice
            )
        else:
            endpoints = follow_cluster(
                informers(ENDPOINTS), self._put_endpoints, self._remove_endpoints
            )
        self._informers = [
            follow_cluster(informers(SERVICES), zone.put_service, zone.remove_service),
            endpoints,
            follow_cluster(informers(NAMESPACES), zone.put_namespace, zone.remove_namespace),
        ]
        zone.synced = all(informer.has_synced for informer in self._informers)

    async def run(self) -> None:
        """Returns when the zone is complete."""
        await asyncio.gather(*(informer.synced() for informer in self._informers))
        self._zone.synced = True

    def _put_endpoints(self, endpoints: Object) -> None:
        key = endpoints["metadata"]["namespace"], endpoints["metadata"]["name"]
        made = slices_of(endpoints)
        for number in range(len(made), self._subsets.get(key, 0)):
            self._zone.remove_slice(_slice(endpoints, number))
        self._subsets[key] = len(made)
        for one in made:
            self._zone.put_slice(one)

    def _remove_endpoints(self, endpoints: Object) -> None:
        self._put_endpoints({"metadata": endpoints["metadata"]})


def slices_of(endpoints: Object) -> list[Object]:
    """Converts Endpoints to slices: one for each subset."""
    made = []
    for number, subset in enumerate(endpoints.get("subsets") or ()):
        rows = [
            {
                "addresses": [address["ip"]],
                "conditions": {"ready": ready},
                **{
                    key: address[key]
                    for key in ("hostname", "nodeName", "targetRef")
                    if key in address
                },
            }
            for name, ready in (("addresses", True), ("notReadyAddresses", False))
            for address in subset.get(name) or ()
        ]
        made.append(
            {**_slice(endpoints, number), "endpoints": rows, "ports": subset.get("ports") or []}
        )
    return made


def _slice(endpoints: Object, number: int) -> Object:
    metadata = endpoints["metadata"]
    labels = {"kubernetes.io/service-name": metadata["name"]}
    named = {
        "name": f"{metadata['name']}-{number}",
        "namespace": metadata["namespace"],
        "labels": labels,
    }
    return {"metadata": named, "addressType": "IPv4"}


def follow_cluster(
    informer: Informer, put: Callable[[Object], Any], remove: Callable[[Object], Any]
) -> Informer:
    informer.add_handler(add=put, update=lambda _, new: put(new), delete=remove)
    return informer
