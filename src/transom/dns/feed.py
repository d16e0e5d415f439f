"""Informers that keep a zone up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import ENDPOINT_SLICES, NAMESPACES, SERVICES
from transom.dns.zone import Zone
from transom.machinery.objects import Object


class Feed:
    """What is not known while the first lists are on their way may be there: until then the zone denies nothing."""

    def __init__(self, zone: Zone, informers: InformerFactory) -> None:
        """Takes services, endpoint slices and namespaces from these informers; who made them starts them."""
        self._zone = zone
        self._informers = [
            follow(informers(SERVICES), zone.put_service, zone.remove_service),
            follow(informers(ENDPOINT_SLICES), zone.put_slice, zone.remove_slice),
            follow(informers(NAMESPACES), zone.put_namespace, zone.remove_namespace),
        ]
        zone.synced = all(informer.has_synced for informer in self._informers)

    async def run(self) -> None:
        """Returns when the zone knows everything."""
        await asyncio.gather(*(informer.synced() for informer in self._informers))
        self._zone.synced = True


def follow(informer: Informer, put: Callable[[Object], Any], remove: Callable[[Object], Any]) -> Informer:
    informer.add_handler(add=put, update=lambda _, new: put(new), delete=remove)
    return informer
