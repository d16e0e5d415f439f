"""ResourceClaims, ResourceSlices and DeviceClasses as the scheduler sees them: with claims that it
has allocated and whose update has not arrived yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transom.client.informer import Informer, InformerFactory
from transom.client.resources import GroupVersionResource
from transom.client.store import object_key
from transom.machinery import quantity
from transom.machinery.device_taints import apply_taint_rules
from transom.machinery.objects import Object
from transom.machinery.quantity import Quantity
from transom.scheduler.device_allocator import AllocatedDevices
from transom.scheduler.device_pools import DeviceId
from transom.scheduler.volumes import resource_version

_GROUP: Final = "resource.k8s.io"
RESOURCE_CLAIMS: Final = GroupVersionResource(_GROUP, "v1", "resourceclaims", True, "ResourceClaim")
RESOURCE_SLICES: Final = GroupVersionResource(
    _GROUP, "v1", "resourceslices", False, "ResourceSlice"
)
DEVICE_CLASSES: Final = GroupVersionResource(_GROUP, "v1", "deviceclasses", False, "DeviceClass")
DEVICE_TAINT_RULES: Final = GroupVersionResource(
    _GROUP, "v1", "devicetaintrules", False, "DeviceTaintRule"
)
CLASS_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class ResourceClaimCache:
    """`taint_rules`: whether DeviceTaintRules are served."""

    def __init__(self, informers: InformerFactory, *, taint_rules: bool = False) -> None:
        self.claims: Informer = informers(RESOURCE_CLAIMS)
        self.slices: Informer = informers(RESOURCE_SLICES)
        self.classes: Informer = informers(DEVICE_CLASSES)
        self.rules = informers(DEVICE_TAINT_RULES) if taint_rules else None
        self._assumed: dict[str, Object] = {}  # by key: newer than the informer's
        self._pending: dict[str, Object] = {}  # uid -> allocation that is not written yet

    def claim(self, namespace: str, name: str) -> Object | None:
        key = f"{namespace}/{name}"
        return self._newer(key, self.claims.by_key(key))

    def _newer(self, key: str, found: Object | None) -> Object | None:
        mine = self._assumed.get(key)
        if mine is None:
            return found
        if found is None or found["metadata"]["uid"] != mine["metadata"]["uid"]:
            del self._assumed[key]
            return found
        if resource_version(found) >= resource_version(mine):
            del self._assumed[key]
            return found
        return mine

    def all_claims(self) -> Iterable[Object]:
        for found in self.claims.list():
            claim = self._newer(object_key(found), found)
            if claim is not None:
                yield claim

    def assume(self, claim: Object) -> None:
        """Our write of a claim, until the informer shows it."""
        self._assumed[object_key(claim)] = claim

    def pending(self, uid: str) -> Object | None:
        return self._pending.get(uid)

    def set_pending(self, uid: str, allocation: Object) -> None:
        self._pending[uid] = allocation

    def remove_pending(self, uid: str) -> None:
        self._pending.pop(uid, None)

    def device_class(self, name: str) -> Object | None:
        return self.classes.by_key(name)

    def tainted_slices(self) -> list[Object]:
        """All ResourceSlices in the order of their names, with the taints of DeviceTaintRules."""
        slices = sorted(self.slices.list(), key=lambda entry: entry["metadata"]["name"])
        rules = self.rules.list() if self.rules is not None else []
        return [apply_taint_rules(entry, rules) for entry in slices] if rules else slices

    def classes_of_resources(self, names: Iterable[str]) -> dict[str, Object]:
        """The DeviceClasses that provide extended resources; the newest one, if several do."""
        newest: dict[str, Object] = {}
        for entry in sorted(self.classes.list(), key=lambda entry: entry["metadata"]["name"]):
            name = entry["spec"].get("extendedResourceName")
            if name and (name not in newest or _created(entry) > _created(newest[name])):
                newest[name] = entry
        out: dict[str, Object] = {}
        for name in names:
            if name.startswith(CLASS_RESOURCE_PREFIX):
                found = self.device_class(name.removeprefix(CLASS_RESOURCE_PREFIX))
            else:
                found = newest.get(name)
            if found is not None:
                out[name] = found
        return out

    def allocated(self) -> AllocatedDevices:
        """What allocated claims use. Admin access does not use a device up."""
        devices: set[DeviceId] = set()
        capacity: dict[DeviceId, dict[str, Quantity]] = {}
        allocations = [(claim.get("status") or {}).get("allocation") for claim in self.all_claims()]
        for allocation in (*allocations, *self._pending.values()):
            for result in ((allocation or {}).get("devices") or {}).get("results") or ():
                if result.get("adminAccess"):
                    continue
                device = (result["driver"], result["pool"], result["device"])
                if "shareID" not in result:
                    devices.add(device)
                    continue
                used = capacity.setdefault(device, {})
                for name, text in (result.get("consumedCapacity") or {}).items():
                    amount = quantity.parse_quantity(text)
                    used[name] = used[name] + amount if name in used else amount
        return AllocatedDevices(devices, capacity)


def _created(entry: Object) -> str:
    created: str = entry["metadata"].get("creationTimestamp", "")
    return created
