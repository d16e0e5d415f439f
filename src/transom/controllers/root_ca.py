"""Every namespace has a ConfigMap `kube-root-ca.crt` with the CA certificate with which pods verify
the API server.
"""

from __future__ import annotations

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.resources import CONFIG_MAPS, NAMESPACES
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NAME = "kube-root-ca.crt"
_WORKERS = 5


class RootCaPublisher:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._data = {"ca.crt": env.settings.root_ca}
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="root-ca-cert-publisher")
        self._config_maps = env.informers(CONFIG_MAPS)
        self._config_maps.add_handler(
            update=lambda _, new: self._config_map_changed(new), delete=self._config_map_changed
        )
        namespaces = env.informers(NAMESPACES)
        namespaces.add_handler(add=self._namespace_added, update=self._namespace_updated)

    def _config_map_changed(self, config_map: Object) -> None:
        if config_map["metadata"]["name"] == NAME:
            self._queue.add(config_map["metadata"]["namespace"])

    def _namespace_added(self, namespace: Object) -> None:
        self._queue.add(namespace["metadata"]["name"])

    def _namespace_updated(self, _old: Object, new: Object) -> None:
        if (new.get("status") or {}).get("phase") == "Active":
            self._queue.add(new["metadata"]["name"])

    async def run(self) -> None:
        await run_worker(self._queue, self._sync, (self._config_maps,), _WORKERS)

    async def _sync(self, namespace: str) -> None:
        current = self._config_maps.get(namespace, NAME)
        if current is None:
            try:
                await self._client.create(
                    CONFIG_MAPS, namespace, {"metadata": {"name": NAME}, "data": self._data}
                )
            except ApiError as problem:
                if not (is_not_found(problem) or is_namespace_terminating(problem)):
                    raise
        elif current.get("data") != self._data:
            await self._client.update(CONFIG_MAPS, {**current, "data": self._data})
