"""Waits for the first Ingress, so that clusters without one import and run nothing of the controller."""

from __future__ import annotations

import asyncio

from transom.client.informer import InformerFactory
from transom.client.resources import CUSTOM_RESOURCE_DEFINITIONS, INGRESSES
from transom.machinery.objects import Object

_HTTP_ROUTES = "httproutes.gateway.networking.k8s.io"


async def first_ingress(informers: InformerFactory) -> None:
    """Returns when an Ingress exists, or the Gateway API is installed."""
    found = asyncio.Event()

    def note_definition(definition: Object) -> None:
        if definition["metadata"]["name"] == _HTTP_ROUTES:
            found.set()

    informers(INGRESSES).add_handler(add=lambda _: found.set())
    informers(CUSTOM_RESOURCE_DEFINITIONS).add_handler(add=note_definition)
    informers.start()
    await found.wait()
