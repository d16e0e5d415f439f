"""Reads a cluster into a snapshot through its API. Skips and lists what cannot be read.

Our own clusters report more on their own paths (`INSIDE`); other clusters do not have these.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from transom.client.api import ApiUnreachable, ObjectList
from transom.client.resources import SECRETS, GroupVersionResource, builtin_resource
from transom.doctor import node_inspection
from transom.doctor.examine import places_to_check, pods_with_useful_logs
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    name_of_object,
    status_condition,
    time_of,
)
from transom.machinery.errors import ApiError
from transom.machinery.kinds import BY_KEY

INSIDE: Final = "/transom/inside"
STORE: Final = "/transom/store"
_CLOCK: Final = "/transom/clock"
_KINDS: Final = (
    "/Node",
    "/Pod",
    "/Service",
    "/Endpoints",
    "/Event",
    "/Namespace",
    "/ResourceQuota",
    "/PersistentVolumeClaim",
    "/PersistentVolume",
    "/ReplicationController",
    "/ServiceAccount",
    "apps/Deployment",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "apps/DaemonSet",
    "batch/Job",
    "batch/CronJob",
    "autoscaling/HorizontalPodAutoscaler",
    "policy/PodDisruptionBudget",
    "networking.k8s.io/NetworkPolicy",
    "networking.k8s.io/Ingress",
    "networking.k8s.io/IngressClass",
    "storage.k8s.io/StorageClass",
    "storage.k8s.io/VolumeAttachment",
    "node.k8s.io/RuntimeClass",
    "discovery.k8s.io/EndpointSlice",
    "coordination.k8s.io/Lease",
    "rbac.authorization.k8s.io/Role",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/RoleBinding",
    "rbac.authorization.k8s.io/ClusterRoleBinding",
    "certificates.k8s.io/CertificateSigningRequest",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "apiregistration.k8s.io/APIService",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
)
_SNAPSHOTS: Final = "snapshot.storage.k8s.io"
_MOST_LOGS: Final = 100
_MOST_SECRETS: Final = 200
_TAIL: Final = 50
_MOST_KUBELETS: Final = 200
_KUBELETS_AT_ONCE: Final = 20
_KUBELET_SECONDS: Final = 5.0
_DIALLED: Final = re.compile(r"dial tcp \S+ (.+)")
_LISTS_AT_ONCE: Final = 4  # each connection has buffers of 1/4 MiB, and a TLS handshake


class ApiReader(Protocol):
    """The methods of a client that are used here."""

    async def list(self, resource: GroupVersionResource, namespace: str = "") -> ObjectList: ...
    async def get(self, resource: GroupVersionResource, namespace: str, name: str) -> Object: ...
    async def get_json(self, path: str) -> Any: ...
    async def get_text(self, path: str) -> str: ...


async def gather_snapshot(
    api: ApiReader, server: str, now: float, names: Collection[str] = (), namespace: str = "default"
) -> ClusterSnapshot:
    """`names` are the requested pods and nodes; the logs of these pods are also read. Raises
    examine.Unknown.
    """
    found = ClusterSnapshot(now=now, server=server)
    try:
        found.version = await api.get_json("/version")
        found.unhealthy = await _unhealthy(api)
        objects, unread = await _objects(api)
    except ApiUnreachable as problem:
        found.unreachable = str(problem) or type(problem).__name__
        return found
    except ApiError as problem:
        found.unreachable = problem.message
        return found
    found.objects, found.unread = objects, unread
    virtual = await _virtual_time(api)
    if virtual:
        found.now, found.virtual_time = virtual, True
    found.secrets = await _secrets(api, found)
    await _inside(api, found)
    found.store = await _store(api)
    found.name_option = found.name_option or str(found.store.get("nameOption") or "")
    found.silent_kubelets = await _silent_kubelets(api, found)
    about = places_to_check(found, names, namespace)
    found.logs = await _logs(api, found, about, namespace)
    return found


async def _virtual_time(api: ApiReader) -> float:
    """The time of a cluster of transom whose time was advanced; 0 of any other."""
    try:
        found = await api.get_json(_CLOCK)
    except (ApiError, ApiUnreachable):
        return 0.0
    virtual = isinstance(found, dict) and found.get("virtual")
    return time_of(str(found.get("time") or "")) if virtual else 0.0


async def _unhealthy(api: ApiReader) -> tuple[str, ...]:
    try:
        await api.get_text("/readyz")
    except ApiError as problem:
        if problem.code == 403:
            return ()
        lines = [
            line.removeprefix("[-]")
            for line in problem.message.splitlines()
            if line.startswith("[-]")
        ]
        return tuple(lines) or (problem.message,)
    return ()


async def _objects(api: ApiReader) -> tuple[Mapping[str, Sequence[Object]], Mapping[str, str]]:
    objects: dict[str, Sequence[Object]] = {}
    unread: dict[str, str] = {}
    room = asyncio.Semaphore(_LISTS_AT_ONCE)

    async def one(kind: str) -> None:
        """Lists a kind in the first version that the server has; a kind that the release lacks is
        not an error.
        """
        resource = builtin_resource(kind)
        for version in dict.fromkeys((resource.version, *BY_KEY[kind].versions)):
            try:
                async with room:
                    objects[resource.plural] = (await api.list(resource.at(version))).items
                return
            except ApiError as problem:
                if problem.code != 404:
                    unread[resource.plural] = problem.message
                    return

    await asyncio.gather(*map(one, _KINDS))
    try:
        objects["volumesnapshots"] = await _volume_snapshots(api, objects)
    except ApiError as problem:
        unread["volumesnapshots"] = problem.message
    return objects, unread


async def _volume_snapshots(
    api: ApiReader, objects: Mapping[str, Sequence[Object]]
) -> Sequence[Object]:
    """The VolumeSnapshots, if their definition is installed. Raises ApiError."""
    definition = next(
        (
            one
            for one in objects.get("customresourcedefinitions", ())
            if one["metadata"].get("name") == f"volumesnapshots.{_SNAPSHOTS}"
        ),
        None,
    )
    versions = ((definition or {}).get("spec") or {}).get("versions") or ()
    served = [str(one["name"]) for one in versions if one.get("served")]
    if not served:
        return ()
    version = max(served, key=lambda name: (name == "v1", name))
    found = await api.get_json(f"/apis/{_SNAPSHOTS}/{version}/volumesnapshots")
    return list(found.get("items") or ())


async def _silent_kubelets(api: ApiReader, s: ClusterSnapshot) -> Mapping[str, str]:
    """Asks the kubelets of Ready nodes through the API server."""
    found: dict[str, str] = {}
    room = asyncio.Semaphore(_KUBELETS_AT_ONCE)

    async def one(name: str) -> None:
        try:
            async with room, asyncio.timeout(_KUBELET_SECONDS):
                await api.get_text(f"/api/v1/nodes/{quote(name)}/proxy/healthz")
        except TimeoutError:
            found[name] = f"no answer within {_KUBELET_SECONDS:.0f} s"
        except (ApiError, ApiUnreachable) as problem:
            failed = _DIALLED.search(str(problem))
            if failed is not None:
                found[name] = failed[1]

    ready = [
        name_of_object(node)
        for node in s.nodes
        if status_condition(node, "Ready").get("status") == "True"
    ]
    await asyncio.gather(*map(one, ready[:_MOST_KUBELETS]))
    return found


async def _secrets(api: ApiReader, s: ClusterSnapshot) -> Mapping[tuple[str, str], str]:
    """The types of the Secrets that pods and Ingresses name; other Secrets are not read. Secrets that
    the account cannot read are left out.
    """
    named = {
        (_key(pod)[0], str(one.get("name") or ""))
        for pod in s.pods
        for one in (pod.get("spec") or {}).get("imagePullSecrets") or ()
    } | {
        (_key(ingress)[0], str(one.get("secretName") or ""))
        for ingress in s.of("ingresses")
        for one in (ingress.get("spec") or {}).get("tls") or ()
    }
    found: dict[tuple[str, str], str] = {}
    for namespace, name in sorted(named)[:_MOST_SECRETS]:
        if not name:
            continue
        try:
            secret = await api.get(SECRETS, namespace, name)
        except ApiError as problem:
            if problem.code == 404:
                found[namespace, name] = ""
        else:
            found[namespace, name] = str(secret.get("type") or "Opaque")
    return found


async def _store(api: ApiReader) -> Mapping[str, Any]:
    try:
        found = await api.get_json(STORE)
    except (ApiError, ApiUnreachable):
        return {}
    return found if isinstance(found, dict) else {}


async def _inside(api: ApiReader, found: ClusterSnapshot) -> None:
    """Adds the data that only our own clusters report."""
    try:
        document = await api.get_json(INSIDE)
        items = document["items"]
    except (ApiError, ApiUnreachable, KeyError, TypeError):
        return
    found.inside = {one.name: one for one in map(node_inspection.node_state_from_document, items)}
    found.name_option = str(document.get("nameOption") or "")
    found.unusable = {one["name"]: one for one in document.get("unusable") or ()}
    found.dns = document.get("dns") or {}
    found.unresolved = document.get("unresolved") or {}
    found.webhooks = document.get("webhooks") or {}
    found.cloud = document.get("cloud") or ()
    found.renewals = document.get("certificates") or ()


async def _logs(
    api: ApiReader, s: ClusterSnapshot, about: Collection[str], preferred: str
) -> Mapping[tuple[str, str], str]:
    """The logs of as many pods as can be read in a moment, those of the preferred namespace first."""
    found: dict[tuple[str, str], str] = {}
    wanted_pods = set(pods_with_useful_logs(s, about))
    pods = sorted(
        (
            pod
            for pod in s.pods
            if _key(pod) in wanted_pods and pod["spec"].get("nodeName") not in s.silent_kubelets
        ),
        key=lambda pod: _key(pod)[0] != preferred,
    )
    for pod in pods[:_MOST_LOGS]:
        namespace, name = _key(pod)
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}/log?tailLines={_TAIL}"
        wanted = [
            f"{path}&container={quote(container['name'])}{which}"
            for container in (
                *(pod["spec"].get("initContainers") or ()),
                *(pod["spec"].get("containers") or ()),
            )
            for which in ("", "&previous=true")
        ]
        found[namespace, name] = "\n".join([await _text(api, one) for one in wanted])
    return found


async def _text(api: ApiReader, path: str) -> str:
    """Empty if it does not exist (yet)."""
    try:
        return await api.get_text(path)
    except (ApiError, ApiUnreachable):
        return ""


def _key(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
