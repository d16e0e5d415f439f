"""The pod resources API: which CPUs, memory and devices containers have for themselves, for agents of
the node. gRPC at `/var/lib/kubelet/pod-resources/kubelet.sock`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from transom.kit.rpc import RpcError
from transom.kubelet.base import KubeletContext
from transom.kubelet.features import PodResourcesFeatures, pod_resources_features
from transom.kubelet.plugins.listening import answer_calls
from transom.machinery.objects import Object
from transom.machinery.podutil import is_restartable_init_container

log = logging.getLogger("transom.kubelet")

_FOLDER: Final = "pod-resources"
_SOCKET: Final = "kubelet.sock"
_V1: Final = "/v1.PodResourcesLister/"
_V1ALPHA1: Final = "/v1alpha1.PodResourcesLister/List"
_METRIC: Final = "kubelet_pod_resources_endpoint_"

Message = dict[str, Any]


class PodsOfNode(Protocol):
    def pods(self) -> Sequence[Object]: ...
    def active_pods(self) -> Sequence[Object]: ...
    def pod(self, namespace: str, name: str) -> Object | None: ...


class AssignedResources(Protocol):
    """What containers have for themselves, of the CPU and the memory manager."""

    def cpus_of_container(self, uid: str, name: str) -> Sequence[int]: ...
    def memory_of_container(self, uid: str, name: str) -> Sequence[Message]: ...
    def allocatable_cpus(self) -> Sequence[int]: ...
    def allocatable_memory(self) -> Sequence[Message]: ...


ClaimedDevices = Callable[[Object, Object], Sequence[Message]]
"""The devices of resource claims of a container."""


class PodResourcesServer:
    def __init__(
        self,
        env: KubeletContext,
        pods: PodsOfNode,
        assigned: AssignedResources,
        claimed: ClaimedDevices,
        count: Callable[[str, str], None],
    ) -> None:
        """`count(metric, version)` counts a request or an error."""
        self._env = env
        self._pods = pods
        self._assigned = assigned
        self._claimed = claimed
        self._count = count
        config = env.config
        self._features: PodResourcesFeatures = pod_resources_features(
            config.release, config.feature_gates
        )

    async def run(self) -> None:
        """Until cancelled."""
        env = self._env
        folder = env.os.join(env.config.root_dir, _FOLDER)
        try:
            await answer_calls(env.host.files, folder, _SOCKET, self.answer)
        except OSError as problem:
            log.warning("%s: no pod resources API: %s", env.config.node_name, problem)

    async def answer(self, method: str, request: Mapping[str, Any]) -> Message:
        """Raises RpcError."""
        if method == _V1ALPHA1:
            self._counted("requests_total", "v1alpha1")
            return {"pod_resources": [_as_v1alpha1(self._of_pod(p)) for p in self._listed()]}
        name = method.removeprefix(_V1)
        if name == "List":
            self._counted("requests_list")
            return {"pod_resources": [self._of_pod(pod) for pod in self._listed()]}
        if name == "GetAllocatableResources" and self._features.has_allocatable:
            self._counted("requests_get_allocatable")
            return self._allocatable()
        if name == "Get" and self._features.has_get:
            self._counted("requests_get")
            return self._get(request)
        service = method.strip("/").rpartition("/")[0]
        raise RpcError("Unimplemented", f"unknown method {name} for service {service}")

    def _counted(self, name: str, version: str = "v1") -> None:
        if name != "requests_total":
            self._count(f"{_METRIC}requests_total", version)
        if name == "requests_total" or self._features.counts_methods:
            self._count(f"{_METRIC}{name}", version)

    def _listed(self) -> Sequence[Object]:
        return self._pods.active_pods() if self._features.active_only else self._pods.pods()

    def _allocatable(self) -> Message:
        if not self._features.allocatable:
            self._count(f"{_METRIC}errors_get_allocatable", "v1")
            raise RpcError("Unknown", "Pod Resources API GetAllocatableResources disabled")
        return {
            "cpu_ids": [*self._assigned.allocatable_cpus()],
            "memory": [*self._assigned.allocatable_memory()] if self._features.memory else [],
        }

    def _get(self, request: Mapping[str, Any]) -> Message:
        problem = "" if self._features.get else "PodResources API Get method disabled"
        name, namespace = request.get("pod_name") or "", request.get("pod_namespace") or ""
        pod = self._pods.pod(namespace, name)
        if not problem and pod is not None:
            return {"pod_resources": self._of_pod(pod)}
        self._count(f"{_METRIC}errors_get", "v1")
        raise RpcError("Unknown", problem or f"pod {name} in namespace {namespace} not found")

    def _of_pod(self, pod: Object) -> Message:
        meta, spec = pod["metadata"], pod["spec"]
        sidecars = (c for c in spec.get("initContainers") or () if is_restartable_init_container(c))
        return {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "containers": [self._of_container(pod, c) for c in (*sidecars, *spec["containers"])],
        }

    def _of_container(self, pod: Object, container: Object) -> Message:
        uid, name = pod["metadata"]["uid"], container["name"]
        out: Message = {"name": name, "cpu_ids": [*self._assigned.cpus_of_container(uid, name)]}
        if self._features.memory:
            out["memory"] = [*self._assigned.memory_of_container(uid, name)]
        if self._features.claims:
            out["dynamic_resources"] = [*self._claimed(pod, container)]
        return out


def _as_v1alpha1(of_pod: Message) -> Message:
    """Only names and devices."""
    containers = [{"name": container["name"]} for container in of_pod["containers"]]
    return {**of_pod, "containers": containers}
