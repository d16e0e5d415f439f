"""Services for the modelled network: informers that keep its table, and the API server's own address in it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

from transom.client.api import Client, is_already_exists, is_conflict
from transom.client.informer import Informer
from transom.client.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError
from transom.network.model import ModelDataplane
from transom.network.services import ServiceTable

API_PORT = 6443
_CHUNK = 65536


class ServiceNetwork:
    def __init__(self, client: Client, clock: Clock, rng: random.Random, dataplane: ModelDataplane) -> None:
        self._client = client
        self._dataplane = dataplane
        self.table = ServiceTable(rng)
        self.services = Informer(client, SERVICES, clock, rng)
        self.services.add_handler(
            add=self.table.put_service, update=lambda _, new: self.table.put_service(new), delete=self.table.remove_service
        )
        self._slices = Informer(client, ENDPOINT_SLICES, clock, rng)
        self._slices.add_handler(
            add=self.table.put_slice, update=lambda _, new: self.table.put_slice(new), delete=self.table.remove_slice
        )
        dataplane.translators.append(self.table.translate)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.services.run())
            group.create_task(self._slices.run())

    async def publish_api_server(self, address: str, real: tuple[str, int]) -> Callable[[], None]:
        """The service `kubernetes` leads to this address of the model, and that to the API server's own socket."""
        port = {"name": "https", "port": API_PORT, "protocol": "TCP"}
        meta = {"name": "kubernetes", "namespace": "default"}
        subsets = [{"addresses": [{"ip": address}], "ports": [port]}]
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        await self._ensure(ENDPOINTS, {"metadata": {**meta, "labels": labels}, "subsets": subsets})
        await self._ensure(ENDPOINT_SLICES, {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4", "endpoints": [{"addresses": [address], "conditions": {"ready": True}}], "ports": [port],
        })
        release = self._dataplane.hold(address)
        tasks: set[asyncio.Task[None]] = set()

        def accept(near: socket.socket) -> None:
            task = asyncio.get_running_loop().create_task(_join(near, real))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        close = self._dataplane.listen(address, API_PORT, accept)

        def end() -> None:
            close()
            release()
            for task in tasks:
                task.cancel()

        return end

    async def _ensure(self, resource: Any, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        try:
            await self._client.create(resource, meta["namespace"], obj)
        except ApiError as problem:
            if not is_already_exists(problem):
                raise
            current = await self._client.get(resource, meta["namespace"], meta["name"])
            if any(current.get(k) != v for k, v in obj.items() if k != "metadata"):
                try:
                    await self._client.update(resource, {**current, **obj, "metadata": current["metadata"]})
                except ApiError as again:
                    if not is_conflict(again):
                        raise


async def _join(near: socket.socket, real: tuple[str, int]) -> None:
    """Bytes both ways between a connection of the model and a real one."""
    try:
        reader, writer = await asyncio.open_connection(sock=near)
    except OSError:
        near.close()
        return
    try:
        other_reader, other_writer = await asyncio.open_connection(*real)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer), return_exceptions=True)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    finally:
        target.close()
