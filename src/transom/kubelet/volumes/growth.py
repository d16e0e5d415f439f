"""Volumes that have become larger behind their file systems: those are made to fill them, and the claim is told.

Somebody has enlarged the volume before (Kubernetes' own controller or a driver's): the PersistentVolume says more than the
status of the claim. Pods that have it already get it while they run, new ones before they start.
"""

from __future__ import annotations

from transom.client.api import MERGE_PATCH
from transom.client.events import NORMAL, WARNING
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.kubelet.base import VolumeFailure
from transom.kubelet.volumes.plugin import Plugin, Spec, StageFailure, Tools
from transom.machinery import quantity
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_CONDITIONS = ("Resizing", "FileSystemResizePending")


class Growth:
    __slots__ = ("_refused", "_tools")

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._refused: set[tuple[str, str]] = set()  # volumes and sizes that their drivers do not do while they are in use

    async def before_use(self, pod: Object, spec: Spec, plugin: Plugin, path: str) -> None:
        """Raises VolumeFailure."""
        if not self._enabled("ExpandPersistentVolumes"):
            return
        try:
            await self._grow(pod, spec, plugin, path)
        except VolumeFailure as problem:
            raise StageFailure("MountVolume.MountDevice failed while expanding volume", str(problem)) from problem

    async def look(self, pod: Object, spec: Spec, plugin: Plugin, path: str) -> None:
        """While it is in use; the pod is told when that fails."""
        if not self._enabled("ExpandPersistentVolumes") or not self._enabled("ExpandInUsePersistentVolumes"):
            return
        try:
            volume = await self._tools.env.client.get(PERSISTENT_VOLUMES, "", spec.name)
            await self._grow(pod, _with(spec, volume), plugin, path)
        except VolumeFailure as problem:
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{spec.name}" : {problem}'
            self._tools.env.events.event(pod, WARNING, "VolumeResizeFailed", text)
        except (ApiError, OSError):
            return  # at the next look

    def _enabled(self, gate: str) -> bool:
        return self._tools.env.config.feature_gates.get(gate, True)

    async def _grow(self, pod: Object, spec: Spec, plugin: Plugin, path: str) -> None:
        assert spec.persistent is not None and plugin.grow is not None
        env, volume = self._tools.env, spec.persistent["spec"]
        ref, size = volume.get("claimRef") or {}, quantity.parse(volume["capacity"]["storage"])
        try:
            claim = await env.client.get(PERSISTENT_VOLUME_CLAIMS, ref.get("namespace", ""), ref.get("name", ""))
        except (ApiError, OSError) as problem:
            raise VolumeFailure(f"mountVolume.NodeExpandVolume get PVC failed : {problem}") from problem
        has = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "0")
        wish = spec.name, str(size)
        if quantity.parse(has) >= size or wish in self._refused:
            return
        if spec.read_only:
            text = f'MountVolume.NodeExpandVolume failed for volume "{spec.name}" requested read-only file system'
            self._tell(pod, claim, WARNING, "FileSystemResizeFailed", text)
            self._refused.add(wish)
            return
        if not await plugin.grow(self._tools, spec, path, size):
            self._refused.add(wish)
            return
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{spec.name}" '
        self._tell(pod, claim, NORMAL, "FileSystemResizeSuccessful", text)
        try:
            await self._finished(claim, volume["capacity"]["storage"])
        except (ApiError, OSError) as problem:
            raise VolumeFailure(f"mountVolume.NodeExpandVolume update PVC status failed : {problem}") from problem

    def _tell(self, pod: Object, claim: Object, kind: str, reason: str, text: str) -> None:
        self._tools.env.events.event(pod, kind, reason, text)
        self._tools.env.events.event(claim, kind, reason, text)

    async def _finished(self, claim: Object, size: str) -> None:
        meta, status = claim["metadata"], claim.get("status") or {}
        rest = [row for row in status.get("conditions") or () if row["type"] not in _CONDITIONS]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": {"capacity": {"storage": size}, "conditions": rest or None},
        }
        await self._tools.env.client.patch(
            PERSISTENT_VOLUME_CLAIMS, meta["namespace"], meta["name"], body, MERGE_PATCH, subresource="status"
        )


def _with(spec: Spec, volume: Object) -> Spec:
    return Spec(
        spec.outer, spec.name, spec.kind, spec.source, spec.read_only, volume, block=spec.block, group=spec.group
    )
