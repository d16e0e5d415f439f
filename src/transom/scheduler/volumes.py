"""Claims and volumes as the scheduler knows them: what the API has, and what it has decided but not written yet."""

from __future__ import annotations

from collections.abc import Iterable

from transom.client.informer import Informer
from transom.client.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from transom.client.store import key_of
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.scheduler.framework import Handle, SchedulingError

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
WAIT = "WaitForFirstConsumer"


def version(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def class_of(obj: Object) -> str:
    """The storage class of a claim or a volume; the old annotation counts first."""
    old = (obj["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return old if old is not None else obj["spec"].get("storageClassName") or ""


def is_bound(claim: Object) -> bool:
    """Both sides of the binding are written."""
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def claimed_by(volume: Object, claim: Object) -> bool:
    """Whether the volume is kept for this claim."""
    ref, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if ref is None or ref.get("name") != meta["name"] or ref.get("namespace") != meta.get("namespace"):
        return False
    return not ref.get("uid") or ref["uid"] == meta.get("uid")


def storage_size(claim: Object) -> quantity.Quantity:
    return quantity.parse(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))


class Assumed:
    """Objects of an informer, some in a state that is only decided. A newer state from the API wins."""

    def __init__(self, informer: Informer, what: str) -> None:
        self._informer = informer
        self._what = what
        self._objects: dict[str, Object] = {}
        informer.add_handler(update=lambda _, new: self._seen(new), delete=lambda obj: self.restore(key_of(obj)))

    def _seen(self, obj: Object) -> None:
        key = key_of(obj)
        if key in self._objects and version(obj) > version(self._objects[key]):
            del self._objects[key]

    def get(self, key: str) -> Object | None:
        return self._objects.get(key) or self._informer.by_key(key)

    def api(self, key: str) -> Object | None:
        return self._informer.by_key(key)

    def all(self) -> Iterable[Object]:
        return [self._objects.get(key_of(obj), obj) for obj in self._informer.list()]

    def assume(self, obj: Object) -> None:
        key = key_of(obj)
        known = self.get(key)
        if known is None:
            raise SchedulingError(f'could not find {self._what} "{key}"')
        if version(obj) < version(known):
            raise SchedulingError(
                f'{self._what} "{key}" is out of sync (stored: {version(known)}, assume: {version(obj)})'
            )
        self._objects[key] = obj

    def restore(self, key: str) -> None:
        self._objects.pop(key, None)


class Volumes:
    def __init__(self, handle: Handle) -> None:
        self.claims = Assumed(handle.informers(PERSISTENT_VOLUME_CLAIMS), "v1.PersistentVolumeClaim")
        self.volumes = Assumed(handle.informers(PERSISTENT_VOLUMES), "v1.PersistentVolume")
        self.classes = handle.informers(STORAGE_CLASSES)
        self.csi_nodes = handle.informers(CSI_NODES)

    def claim(self, namespace: str, name: str) -> Object | None:
        return self.claims.api(f"{namespace}/{name}")

    def volume(self, name: str) -> Object | None:
        return self.volumes.api(name)

    def storage_class(self, name: str) -> Object | None:
        return self.classes.by_key(name)

    def waits(self, claim: Object) -> bool:
        """Whether the claim's class has it wait for a pod that uses it."""
        found = self.storage_class(class_of(claim)) if class_of(claim) else None
        return found is not None and found.get("volumeBindingMode") == WAIT


def volumes(handle: Handle) -> Volumes:
    """The ones that plugins share."""
    if "volumes" not in handle.shared:
        handle.shared["volumes"] = Volumes(handle)
    found: Volumes = handle.shared["volumes"]
    return found


def claim_names(volume_list: Iterable[Object]) -> Iterable[str]:
    for volume in volume_list:
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"].get("claimName", "")
