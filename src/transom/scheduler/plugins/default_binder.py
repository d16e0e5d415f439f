"""DefaultBinder: binds the pod through the binding subresource."""

from __future__ import annotations

from transom.client.resources import PODS
from transom.machinery.objects import Object
from transom.scheduler.framework import BindPlugin, CycleState, Handle
from transom.scheduler.pods import PodInfo


class DefaultBinder(BindPlugin):
    name = "DefaultBinder"

    def __init__(self, args: Object, handle: Handle) -> None:
        self._client = handle.client

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        uid = pod.pod["metadata"].get("uid", "")
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": uid},
            "target": {"kind": "Node", "name": node_name},
        }
        await self._client.create_subresource(PODS, pod.namespace, pod.name, "binding", binding)
