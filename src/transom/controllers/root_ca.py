"""Every namespace has a ConfigMap `kube-root-ca.crt` with the CA certificate with which pods verify
the API server.
"""

from __future__ import annotations

from transom.client.api import is_namespace_terminating, is_not_found
from transom.client.resources import CONFIG_MAPS, NAMESPACES
from transom.client.workqueue import WorkQueue
from transom.controllers.base import ControllerContext, run_worker
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, with_metadata
from transom.machinery.releases.behaviour import has_behaviour

NAME = "kube-root-ca.crt"
_WORKERS = 5
_DESCRIPTION = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the "
    "kube-apiserver when using internal endpoints such as the internal service IP or "
    "kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
}


class RootCaPublisher:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._data = {"ca.crt": env.settings.root_ca}
        described = has_behaviour(env.settings.features.release, "RootCaDescription")
        self._annotations = _DESCRIPTION if described else {}
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, name="root_ca_cert_publisher", metrics=env.queues
        )
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
            meta: Object = {"name": NAME}
            if self._annotations:
                meta["annotations"] = self._annotations
            try:
                await self._client.create(
                    CONFIG_MAPS, namespace, {"metadata": meta, "data": self._data}
                )
            except ApiError as problem:
                if not (is_not_found(problem) or is_namespace_terminating(problem)):
                    raise
            return
        annotations = current["metadata"].get("annotations") or {}
        if (
            current.get("data") != self._data
            or not self._annotations.items() <= annotations.items()
        ):
            described = with_metadata(
                current, annotations={**annotations, **self._annotations} or None
            )
            await self._client.update(CONFIG_MAPS, {**described, "data": self._data})
