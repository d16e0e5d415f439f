"""A live cluster as input: checks its objects against its nodes. Reads only; works with any client.

Skips pods and other objects whose controller is in the list: their problems are reported for its
template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple

from transom.client.api import ApiClient, is_not_found
from transom.client.resources import GroupVersionResource
from transom.kit.lazy_dataclass import dataclass
from transom.lint.objects import ManifestObject, objects_of_cluster
from transom.lint.sources import ManifestSource
from transom.lint.text import SourceText
from transom.machinery.errors import ApiError

_NODES: Final = GroupVersionResource("", "v1", "nodes", False, "Node")
_RUNTIME_CLASSES: Final = "RuntimeClass"


class _Kind(NamedTuple):
    resource: GroupVersionResource
    versions: tuple[str, ...]  # to try, newest first


def _kind(group: str, kind: str, plural: str, namespaced: bool = True, older: str = "") -> _Kind:
    versions = ("v1", older) if older else ("v1",)
    return _Kind(GroupVersionResource(group, "v1", plural, namespaced, kind), versions)


_KINDS: Final = (
    _kind("", "Namespace", "namespaces", False),
    _kind("", "Pod", "pods"),
    _kind("", "ReplicationController", "replicationcontrollers"),
    _kind("apps", "Deployment", "deployments"),
    _kind("apps", "ReplicaSet", "replicasets"),
    _kind("apps", "StatefulSet", "statefulsets"),
    _kind("apps", "DaemonSet", "daemonsets"),
    _kind("batch", "Job", "jobs"),
    _kind("batch", "CronJob", "cronjobs", older="v1beta1"),
    _kind("", "Service", "services"),
    _kind("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    _kind("", "PersistentVolume", "persistentvolumes", False),
    _kind("", "LimitRange", "limitranges"),
    _kind("", "ConfigMap", "configmaps"),
    _kind("storage.k8s.io", "StorageClass", "storageclasses", False),
    _kind("node.k8s.io", _RUNTIME_CLASSES, "runtimeclasses", False, older="v1beta1"),
    _kind("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    _kind("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
)
_OWNERS: Final = frozenset(resource.kind for resource, _ in _KINDS) | {"Node"}
_PAGE: Final = 500


@dataclass(slots=True)
class LiveCluster:
    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    objects: list[ManifestObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def read_live_cluster(
    client: ApiClient, name: str, *, namespace: str = "", all_kinds: bool = True
) -> LiveCluster:
    """The nodes of a cluster and its objects: all relevant kinds, or only those that the files
    refer to.
    """
    cluster = LiveCluster(list((await client.list(_NODES, limit=_PAGE)).items))
    source = ManifestSource(name, SourceText(""), f"cluster {name}")
    for resource, versions in _KINDS:
        if not all_kinds and resource.kind != _RUNTIME_CLASSES:
            continue
        within = namespace if resource.namespaced else ""
        for obj in await _listed(client, resource, versions, within, cluster):
            if not _made_by_another(obj):
                cluster.objects.append(
                    objects_of_cluster(source, resource.group, resource.kind, obj)
                )
    return cluster


async def _listed(
    client: ApiClient,
    resource: GroupVersionResource,
    versions: tuple[str, ...],
    namespace: str,
    cluster: LiveCluster,
) -> list[dict[str, Any]]:
    for version in versions:
        try:
            return list((await client.list(resource.at(version), namespace, limit=_PAGE)).items)
        except ApiError as problem:
            if is_not_found(problem):
                continue
            if problem.reason == "Forbidden":
                cluster.notes.append(f"{resource.plural} left out: you may not list them")
                return []
            raise
    return []


def _made_by_another(obj: Mapping[str, Any]) -> bool:
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") in _OWNERS for owner in owners)
