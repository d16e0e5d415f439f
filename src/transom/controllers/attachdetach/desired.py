"""The desired state: which volumes must be attached to which nodes, and for which pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.client.informer import Informer
from transom.controllers.persistentvolume.usage import is_pod_terminated
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.attachable import ATTACHABLE, is_multi_attach_allowed, unique_volume_name
from transom.machinery.objects import Object

_CLAIMS: Final = frozenset(("persistentVolumeClaim", "ephemeral"))
_RELEVANT: Final = _CLAIMS | ATTACHABLE.keys()


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A volume of a pod. `name`, shown in events, is the PersistentVolume's, or else the one in the
    pod.
    """

    unique_name: str
    name: str
    kind: str  # the field of the volume source
    source: Mapping[str, Any]
    persistent: Object | None = None
    read_only: bool = False

    @property
    def multi_attach(self) -> bool:
        return is_multi_attach_allowed(self.kind, self.persistent)


def uses_attachable_volumes(pod: Object) -> bool:
    """A fast pre-check: most pods only have Secrets and ConfigMaps."""
    return any(not _RELEVANT.isdisjoint(volume) for volume in pod["spec"].get("volumes") or ())


def claim_keys(pod: Object) -> list[str]:
    """NAMESPACE/NAME of the claims that the pod uses, generic ephemeral volumes included."""
    meta, out = pod["metadata"], []
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            out.append(f"{meta.get('namespace', '')}/{claim.get('claimName', '')}")
        elif volume.get("ephemeral") is not None:
            out.append(f"{meta.get('namespace', '')}/{meta['name']}-{volume['name']}")
    return out


class DesiredState:
    """`track` and `forget` return the unique names of the volumes whose state changed."""

    def __init__(self, claims: Informer, volumes: Informer, drivers: Informer) -> None:
        self._claims, self._volumes, self._drivers = claims, volumes, drivers
        self._pods: dict[str, tuple[str, set[str]]] = {}  # uid -> node, unique names
        # unique name -> node -> uid -> pod
        self._wanted: dict[str, dict[str, dict[str, Object]]] = {}
        self._specs: dict[str, VolumeSpec] = {}

    def track(self, pod: Object) -> set[str]:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName") or ""
        specs = (
            {}
            if not node or is_pod_terminated(pod)
            else {spec.unique_name: spec for spec in self._volumes_of(pod)}
        )
        changed = self._remove(uid, node, specs.keys())
        if specs:
            self._pods[uid] = node, set(specs)
        for name, spec in specs.items():
            self._specs[name] = spec
            pods = self._wanted.setdefault(name, {}).setdefault(node, {})
            if uid not in pods:
                changed.add(name)
            pods[uid] = pod
        return changed

    def forget(self, pod: Object) -> set[str]:
        return self._remove(pod["metadata"]["uid"], "", ())

    def _remove(self, uid: str, node: str, keep: Any) -> set[str]:
        before, names = self._pods.pop(uid, ("", set()))
        gone = names if before != node else names - set(keep)
        for name in gone:
            nodes = self._wanted[name]
            nodes[before].pop(uid, None)
            if not nodes[before]:
                del nodes[before]
            if not nodes:
                del self._wanted[name], self._specs[name]
        return set(gone)

    def nodes(self, name: str) -> Mapping[str, Mapping[str, Object]]:
        """Node -> uid -> pod."""
        return self._wanted.get(name, {})

    def spec(self, name: str) -> VolumeSpec | None:
        return self._specs.get(name)

    def pods_on(self, name: str, nodes: Sequence[str]) -> list[Object]:
        wanted = self._wanted.get(name, {})
        return [pod for node in nodes for pod in wanted.get(node, {}).values()]

    def _volumes_of(self, pod: Object) -> list[VolumeSpec]:
        found = []
        claims = iter(claim_keys(pod))
        for volume in pod["spec"].get("volumes") or ():
            if not _CLAIMS.isdisjoint(volume):
                spec = self._claimed(next(claims), volume)
            else:
                kind = next(
                    (field for field in volume if field in ATTACHABLE and field != "csi"), ""
                )
                source = volume.get(kind) or {}
                spec = (
                    VolumeSpec(
                        unique_volume_name(kind, source),
                        volume["name"],
                        kind,
                        source,
                        read_only=bool(source.get("readOnly")),
                    )
                    if kind
                    else None
                )
            if spec is not None:
                found.append(spec)
        return found

    def _claimed(self, key: str, volume: Object) -> VolumeSpec | None:
        claim = self._claims.by_key(key)
        name = claim["spec"].get("volumeName") if claim is not None else ""
        persistent = self._volumes.get("", name) if name else None
        if (
            persistent is None
            or claim is None
            or (claim.get("status") or {}).get("phase") != "Bound"
        ):
            return None
        kind = next((field for field in persistent["spec"] if field in ATTACHABLE), "")
        if not kind or (
            kind == "csi" and not self._attach_required(persistent["spec"]["csi"]["driver"])
        ):
            return None
        source = persistent["spec"][kind]
        inner = volume.get("persistentVolumeClaim") or volume.get("ephemeral") or {}
        return VolumeSpec(
            unique_volume_name(kind, source),
            persistent["metadata"]["name"],
            kind,
            source,
            persistent,
            bool(inner.get("readOnly")),
        )

    def _attach_required(self, driver: str) -> bool:
        found = self._drivers.get("", driver)
        return found is None or found["spec"].get("attachRequired") is not False
