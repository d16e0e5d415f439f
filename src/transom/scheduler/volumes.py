"""PersistentVolumes and their claims: what the API shows, and what is assumed but not written yet."""

from __future__ import annotations

from collections.abc import Iterable

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from transom.client.store import object_key
from transom.machinery import quantity
from transom.machinery.objects import Object, controller_of
from transom.scheduler.errors import SchedulingError

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


def resource_version(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def storage_class_name(obj: Object) -> str:
    """The storage class of a claim or a volume; the deprecated annotation has precedence."""
    old = (obj["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return old if old is not None else obj["spec"].get("storageClassName") or ""


def is_volume_bound(claim: Object) -> bool:
    """Whether the binding of the claim is complete."""
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in (
        claim["metadata"].get("annotations") or {}
    )


def is_volume_bound_to_claim(volume: Object, claim: Object) -> bool:
    """Whether the volume is bound to or reserved for this claim."""
    ref, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if (
        ref is None
        or ref.get("name") != meta["name"]
        or ref.get("namespace") != meta.get("namespace")
    ):
        return False
    return not ref.get("uid") or ref["uid"] == meta.get("uid")


def requested_storage(claim: Object) -> quantity.Quantity:
    return quantity.parse_quantity(
        ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
    )


class AssumeCache:
    """The objects of an informer, some of them in an assumed state. A newer state from the API
    wins.
    """

    def __init__(self, informer: Informer, what: str) -> None:
        self._informer = informer
        self._what = what
        self._objects: dict[str, Object] = {}
        informer.add_handler(
            update=lambda _, new: self._seen(new), delete=lambda obj: self.restore(object_key(obj))
        )

    def _seen(self, obj: Object) -> None:
        key = object_key(obj)
        if key in self._objects and resource_version(obj) > resource_version(self._objects[key]):
            del self._objects[key]

    def get(self, key: str) -> Object | None:
        return self._objects.get(key) or self._informer.by_key(key)

    def from_api(self, key: str) -> Object | None:
        return self._informer.by_key(key)

    def all(self) -> Iterable[Object]:
        return [self._objects.get(object_key(obj), obj) for obj in self._informer.list()]

    def assume(self, obj: Object) -> None:
        key = object_key(obj)
        known = self.get(key)
        if known is None:
            raise SchedulingError(f'could not find {self._what} "{key}"')
        if resource_version(obj) < resource_version(known):
            raise SchedulingError(
                f'{self._what} "{key}" is out of sync (stored: {resource_version(known)}, assume: {resource_version(obj)})'
            )
        self._objects[key] = obj

    def restore(self, key: str) -> None:
        self._objects.pop(key, None)


class VolumeCache:
    """What the volume plugins of all profiles share."""

    def __init__(self, informers: InformerFactory) -> None:
        self.claims = AssumeCache(informers(PERSISTENT_VOLUME_CLAIMS), "v1.PersistentVolumeClaim")
        self.volumes = AssumeCache(informers(PERSISTENT_VOLUMES), "v1.PersistentVolume")
        self.classes = informers(STORAGE_CLASSES)
        self.csi_nodes = informers(CSI_NODES)

    def claim(self, namespace: str, name: str) -> Object | None:
        return self.claims.from_api(f"{namespace}/{name}")

    def volume(self, name: str) -> Object | None:
        return self.volumes.from_api(name)

    def storage_class(self, name: str) -> Object | None:
        return self.classes.by_key(name)

    def is_delayed_binding(self, claim: Object) -> bool:
        """Whether the claim is bound only when a pod that uses it is scheduled."""
        found = self.storage_class(storage_class_name(claim)) if storage_class_name(claim) else None
        return found is not None and found.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def claim_names(volume_list: Iterable[Object], pod_name: str) -> Iterable[str]:
    """The claims of a pod's volumes, with those of its generic ephemeral volumes."""
    for volume in volume_list:
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"].get("claimName", "")
        elif "ephemeral" in volume:
            yield f"{pod_name}-{volume['name']}"


def is_ephemeral_claim_of(pod: Object, claim: Object) -> bool:
    """Whether the claim was created for a generic ephemeral volume of the pod."""
    owner = controller_of(claim)
    return owner is not None and owner.get("uid") == pod["metadata"].get("uid")
