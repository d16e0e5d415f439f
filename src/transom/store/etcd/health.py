"""Whether etcd answers: the check `etcd` of /readyz and /livez."""

from __future__ import annotations

import asyncio

from transom.kit.rpc import RpcError
from transom.store.etcd import wire
from transom.store.etcd.client import EtcdClient
from transom.store.etcd.waiters import etcd_error_text

_PROBE_SECONDS = 2.0  # between two probes, and the deadline of one


class EtcdHealthProbe:
    """As Kubernetes does: reads a key every few seconds, with a short deadline. `problem` is empty
    while etcd answers.
    """

    def __init__(self, client: EtcdClient, key: bytes) -> None:
        self._client = client
        self._request = wire.range_request(key, count_only=True)
        self.problem = ""

    async def run(self) -> None:
        while True:
            try:
                await self._client.range(self._request, _PROBE_SECONDS)
                self.problem = ""
            except RpcError as problem:
                self.problem = f"error getting data from etcd: {etcd_error_text(problem)}"
            await asyncio.sleep(_PROBE_SECONDS)
