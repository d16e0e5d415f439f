"""DefaultBinder: writes the pod's node through the binding sub-resource."""

from __future__ import annotations

from transom.client.resources import PODS
from transom.machinery.objects import Object
from transom.scheduler.framework import Cycle, Handle


class DefaultBinder:
    name = "DefaultBinder"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._client = handle.client

    async def bind(self, cycle: Cycle, node: str) -> None:
        pod = cycle.pod
        binding = {
            "kind": "Binding", "apiVersion": "v1",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.pod["metadata"].get("uid", "")},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create_subresource(PODS, pod.namespace, pod.name, "binding", binding)
