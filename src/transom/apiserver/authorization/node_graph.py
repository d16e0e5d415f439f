"""Which node may read which object because one of its pods uses it: the graph behind the Node
authorizer.

Pods refer to Secrets, ConfigMaps, claims and their service account directly, and their status names
the claims made for them; a claim refers to its volume, and a volume to its Secrets. Only pods and
volumes are indexed; relations that need one lookup (a volume attachment's node, a node's
configuration source) are read on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from transom.apiserver.core.objectstore import Cached
from transom.machinery.objects import Object
from transom.machinery.pod_references import config_map_names, secret_names, volume_secrets
from transom.store.api import Store, StoreEvent, StoreRecord

MIRROR = "kubernetes.io/config.mirror"
Vertex = tuple[str, str, str]  # resource, namespace, name
_ALIKE = 1024


class NodeGraph:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._started = False
        # key of a pod -> its node, the objects it uses
        self._pods: dict[str, tuple[str, tuple[Vertex, ...]]] = {}
        # pods of one template use the same objects
        self._alike: dict[tuple[Vertex, ...], tuple[Vertex, ...]] = {}
        # used object -> nodes, with the number of pods
        self._nodes: dict[Vertex, dict[str, int]] = {}
        # volume -> its claim, its secrets
        self._volumes: dict[str, tuple[Vertex, list[Vertex]]] = {}
        self._by_secret: dict[Vertex, set[str]] = {}  # secret -> volumes

    def related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        if not self._started:
            self._start()
        vertex = (resource, namespace, name)
        if self._used_on(vertex, node):
            return True
        if resource == "secrets":
            return any(
                self._used_on(self._volumes[v][0], node) for v in self._by_secret.get(vertex, ())
            )
        if resource == "persistentvolumes":
            volume = self._volumes.get(name)
            return volume is not None and self._used_on(volume[0], node)
        if resource == "volumeattachments":
            found = self._read(f"volumeattachments.storage.k8s.io/{name}")
            return found is not None and (found.get("spec") or {}).get("nodeName") == node
        if resource == "pods":
            return self._pods.get(f"pods/{namespace}/{name}", ("", ()))[0] == node
        if resource == "resourceslices":
            found = self._read(f"resourceslices.resource.k8s.io/{name}")
            return found is not None and (found.get("spec") or {}).get("nodeName") == node
        if resource == "podcertificaterequests":
            found = self._read(f"podcertificaterequests.certificates.k8s.io/{namespace}/{name}")
            return found is not None and (found.get("spec") or {}).get("nodeName") == node
        if resource == "configmaps":
            source = ((self._read(f"nodes/{node}") or {}).get("spec") or {}).get(
                "configSource"
            ) or {}
            config = source.get("configMap") or {}
            return (config.get("namespace"), config.get("name")) == (namespace, name)
        return False

    def _used_on(self, vertex: Vertex, node: str) -> bool:
        nodes = self._nodes.get(vertex)
        return nodes is not None and node in nodes

    def _read(self, key: str) -> Object | None:
        record = self._store.get(key)
        return None if record is None else _decoded(record)

    # ---- keeping current ----

    def _start(self) -> None:
        self._started = True
        since = self._store.revision
        for prefix, apply in (("pods/", self._pod), ("persistentvolumes/", self._volume)):
            for record in self._store.list(prefix).records:
                apply(record.key, record)
        self._store.watch("pods/", since, self._pods_changed)
        self._store.watch("persistentvolumes/", since, self._volumes_changed)

    def _pods_changed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            self._pod(event.key, event.record)

    def _volumes_changed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            self._volume(event.key, event.record)

    def _pod(self, key: str, record: StoreRecord | None) -> None:
        if record is None:
            self._remove(key)
            return
        # The node and references of a bound pod are immutable, except for the claims in its status,
        # so most updates need not be examined.
        if b'"nodeName"' not in record.value or (
            key in self._pods and b"laimStatus" not in record.value
        ):
            return
        pod = _decoded(record)
        node = (pod.get("spec") or {}).get("nodeName", "")
        if not node:
            return
        used = tuple(dict.fromkeys(references(pod)))
        if key in self._pods:
            if self._pods[key] == (node, used):
                return
            self._remove(key)
        if len(self._alike) > _ALIKE:
            self._alike.clear()
        used = self._alike.setdefault(used, used)
        self._pods[key] = (node, used)
        for vertex in used:
            if (known := self._nodes.get(vertex)) is None:
                self._nodes[vertex] = {node: 1}
            else:
                known[node] = known.get(node, 0) + 1

    def _remove(self, key: str) -> None:
        node, used = self._pods.pop(key, ("", ()))
        for vertex in used:
            nodes = self._nodes[vertex]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
                if not nodes:
                    del self._nodes[vertex]

    def _volume(self, key: str, record: StoreRecord | None) -> None:
        name = key.partition("/")[2]
        for secret in self._volumes.pop(name, (None, []))[1]:
            self._by_secret[secret].discard(name)
            if not self._by_secret[secret]:
                del self._by_secret[secret]
        spec = (_decoded(record).get("spec") or {}) if record is not None else {}
        claim = spec.get("claimRef")
        if not claim:
            return
        namespace = claim.get("namespace", "")
        secrets = [("secrets", ns, secret) for ns, secret in volume_secrets(spec, namespace)]
        self._volumes[name] = (
            ("persistentvolumeclaims", namespace, claim.get("name", "")),
            secrets,
        )
        for vertex in secrets:
            self._by_secret.setdefault(vertex, set()).add(name)


def _decoded(record: StoreRecord) -> Object:
    """An object that was just written is still cached in decoded form."""
    cached: Cached | None = record.cache
    if cached is not None and cached.obj is not None:
        return cached.obj
    obj: Object = orjson.loads(record.value)
    return obj


def references(pod: Object) -> Iterator[Vertex]:
    """The objects that a pod allows its node to read. Mirror pods allow none, because nodes create
    them.
    """
    meta, spec = pod["metadata"], pod["spec"]
    if MIRROR in (meta.get("annotations") or {}):
        return
    namespace = meta.get("namespace", "")
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", namespace, spec["serviceAccountName"]
    for name in secret_names(spec):
        yield "secrets", namespace, name
    for name in config_map_names(spec):
        yield "configmaps", namespace, name
    for claim in _claims(spec, pod.get("status") or {}):
        yield "resourceclaims", namespace, claim
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield (
                "persistentvolumeclaims",
                namespace,
                volume["persistentVolumeClaim"].get("claimName", ""),
            )
        elif "ephemeral" in volume:
            yield "persistentvolumeclaims", namespace, f"{meta['name']}-{volume['name']}"


def _claims(spec: Object, status: Object) -> Iterator[str]:
    """The names of a pod's ResourceClaims, those made for it included."""
    made = {one.get("name"): one for one in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        name = claim.get("resourceClaimName") or made.get(claim["name"], {}).get(
            "resourceClaimName"
        )
        if name:
            yield name
    if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield name
