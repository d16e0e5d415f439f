"""Volume expansion on the node: expands file systems to fill volumes that have grown, and records
an event on the claim.

A controller (Kubernetes' own or a driver's) has expanded the volume before: the PersistentVolume
shows more capacity than the claim's status. Running pods get it online, new ones before they start.
"""

from __future__ import annotations

from transom.client.api import MERGE_PATCH
from transom.client.events import NORMAL, WARNING
from transom.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import PodVolumeSpec, StageFailure, VolumeHost, VolumePlugin
from transom.machinery import quantity
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

_CONDITIONS = ("Resizing", "FileSystemResizePending")


class VolumeGrowth:
    __slots__ = ("_refused", "_tools")

    def __init__(self, tools: VolumeHost) -> None:
        self._tools = tools
        # volumes and sizes that their drivers cannot expand online
        self._refused: set[tuple[str, str]] = set()

    async def before_use(
        self, pod: Object, spec: PodVolumeSpec, plugin: VolumePlugin, path: str
    ) -> None:
        """Raises VolumeFailure."""
        if not self._enabled("ExpandPersistentVolumes"):
            return
        try:
            await self._grow(pod, spec, plugin, path)
        except VolumeFailure as problem:
            raise StageFailure(
                "MountVolume.MountDevice failed while expanding volume", str(problem)
            ) from problem

    async def look(self, pod: Object, spec: PodVolumeSpec, plugin: VolumePlugin, path: str) -> None:
        """Expands online; the pod gets an event on failure."""
        if not self._enabled("ExpandPersistentVolumes") or not self._enabled(
            "ExpandInUsePersistentVolumes"
        ):
            return
        try:
            volume = await self._tools.env.client.get(PERSISTENT_VOLUMES, "", spec.name)
            await self._grow(pod, _with(spec, volume), plugin, path)
        except VolumeFailure as problem:
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{spec.name}" : {problem}'
            self._tools.env.events.event(pod, WARNING, "VolumeResizeFailed", text)
        except (ApiError, OSError):
            return  # at the next sync

    def _enabled(self, gate: str) -> bool:
        return self._tools.env.config.feature_gates.get(gate, True)

    async def _grow(
        self, pod: Object, spec: PodVolumeSpec, plugin: VolumePlugin, path: str
    ) -> None:
        assert spec.persistent is not None and plugin.grow is not None
        env, volume = self._tools.env, spec.persistent["spec"]
        ref, size = (
            volume.get("claimRef") or {},
            quantity.parse_quantity(volume["capacity"]["storage"]),
        )
        try:
            claim = await env.client.get(
                PERSISTENT_VOLUME_CLAIMS, ref.get("namespace", ""), ref.get("name", "")
            )
        except (ApiError, OSError) as problem:
            raise VolumeFailure(
                f"mountVolume.NodeExpandVolume get PVC failed : {problem}"
            ) from problem
        has = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "0")
        request = spec.name, str(size)
        if quantity.parse_quantity(has) >= size or request in self._refused:
            return
        if spec.read_only:
            text = (
                f'MountVolume.NodeExpandVolume failed for volume "{spec.name}" requested '
                "read-only file system"
            )
            self._record_event(pod, claim, WARNING, "FileSystemResizeFailed", text)
            self._refused.add(request)
            return
        if not await plugin.grow(self._tools, spec, path, size):
            self._refused.add(request)
            return
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{spec.name}" '
        self._record_event(pod, claim, NORMAL, "FileSystemResizeSuccessful", text)
        try:
            await self._finished(claim, volume["capacity"]["storage"])
        except (ApiError, OSError) as problem:
            raise VolumeFailure(
                f"mountVolume.NodeExpandVolume update PVC status failed : {problem}"
            ) from problem

    def _record_event(self, pod: Object, claim: Object, kind: str, reason: str, text: str) -> None:
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
            PERSISTENT_VOLUME_CLAIMS,
            meta["namespace"],
            meta["name"],
            body,
            MERGE_PATCH,
            subresource="status",
        )


def _with(spec: PodVolumeSpec, volume: Object) -> PodVolumeSpec:
    return PodVolumeSpec(
        spec.outer,
        spec.name,
        spec.kind,
        spec.source,
        spec.read_only,
        volume,
        block=spec.block,
        group=spec.group,
    )
