"""Reclaims a volume whose claim is deleted: deletes it, or recycles it with a pod."""

from __future__ import annotations

import re

from transom.client.api import is_already_exists, is_not_found
from transom.client.events import NORMAL, WARNING, EventRecorder
from transom.client.informer import Informer
from transom.client.resources import PERSISTENT_VOLUMES, PODS
from transom.client.workqueue import RetryLater
from transom.controllers.base import ControllerContext, ProvisioningFailure
from transom.controllers.persistentvolume import matching
from transom.controllers.persistentvolume.cache import WriteThroughCache
from transom.controllers.persistentvolume.in_tree import DELETABLE, provisioners
from transom.controllers.persistentvolume.usage import BY_CLAIM, is_pod_terminated
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object, copy_object

_BUILT_IN_PREFIX = "kubernetes.io/"
_HOST_PATH_DELETABLE = re.compile("/tmp/.+")
# Sources that Kubernetes' controllers support but cannot delete; others are not supported at all.
_KNOWN_SOURCES = ("nfs", "local", "csi")
_RECYCLABLE = ("hostPath", "nfs")
_RECYCLER_NAMESPACE, _RECYCLER_PREFIX = "default", "recycler-for-"
_SCRUB = (
    'test -e /scrub && rm -rf /scrub/..?* /scrub/.[!.]* /scrub/*  && test -z "$(ls -A /scrub)" '
    "|| exit 1"
)
_RECYCLER_SECONDS = {"hostPath": (60, 30), "nfs": (300, 30)}  # seconds: the minimum, and per Gi


class Reclaiming:
    """Both operations return the volume if it is to be released, and raise an exception to be
    called again.
    """

    def __init__(
        self,
        env: ControllerContext,
        events: EventRecorder,
        volumes: WriteThroughCache,
        claims: WriteThroughCache,
        pods: Informer,
        nodes: Informer,
    ) -> None:
        self._client = env.client
        self._provisioners = {
            **provisioners(env.settings.cloud, env.client, nodes),
            **env.settings.provisioners,
        }
        self._events = events
        self._volumes, self._claims, self._pods = volumes, claims, pods

    async def delete(self, name: str) -> None:
        volume = await self._released(name)
        if volume is None or "deletionTimestamp" in volume["metadata"]:
            return
        try:
            if not await self._destroy(volume):
                return  # an external component does it
        except ProvisioningFailure as problem:
            await self._fail(volume, "VolumeFailedDelete", str(problem))
            raise RetryLater(str(problem)) from problem
        try:
            await self._client.delete(PERSISTENT_VOLUMES, "", name, uid=volume["metadata"]["uid"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def recycle(self, name: str) -> Object | None:
        volume = await self._released(name)
        if volume is None:
            return None
        key = matching.claim_key(volume)
        users = [pod for pod in self._pods.by_index(BY_CLAIM, key) if not is_pod_terminated(pod)]
        if users and self._claims.get(key) is None:
            names = sorted(
                {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in users}
            )
            text = f"Volume is used by pods: {','.join(names)}"
            self._events.event(volume, NORMAL, "VolumeFailedRecycle", text)
            return None
        source = next((s for s in _RECYCLABLE if volume["spec"].get(s)), None)
        if source is None:
            await self._fail(
                volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!"
            )
            return None
        problem = await self._scrub(volume, source)
        if problem:
            await self._fail(volume, "VolumeFailedRecycle", f"Recycle failed: {problem}")
            return None
        self._events.event(volume, NORMAL, "VolumeRecycled", "Volume recycled")
        return volume

    async def _released(self, name: str) -> Object | None:
        """The current volume from the server, if no claim is bound to it any more."""
        try:
            volume = await self._client.get(PERSISTENT_VOLUMES, "", name)
        except ApiError as problem:
            if is_not_found(problem):
                return None
            raise
        ref = matching.claim_ref(volume)
        if ref is None or not ref.get("uid"):
            return None
        claim = self._claims.get(matching.claim_key(volume))
        if claim is not None and claim["metadata"]["uid"] == ref["uid"]:
            held = claim["spec"].get("volumeName")
            return volume if held and held != name else None
        return volume

    async def _destroy(self, volume: Object) -> bool:
        """Whether it is done; False if an external component has to do it."""
        name, maker = (
            volume["metadata"]["name"],
            matching.volume_annotations(volume).get(matching.PROVISIONED_BY),
        )
        if maker:
            provisioner = self._provisioners.get(maker)
            if provisioner is not None:
                await provisioner.delete(volume)
                return True
            if not maker.startswith(_BUILT_IN_PREFIX):
                return False
            raise ProvisioningFailure(f"no volume plugin matched name: {maker}")
        spec = volume["spec"]
        if spec.get("hostPath"):
            path = spec["hostPath"]["path"]
            if not _HOST_PATH_DELETABLE.search(path):
                raise ProvisioningFailure(
                    f"host_path deleter only supports /tmp/.+ but received provided {path}"
                )
            # the folder is on an unknown node; never delete files of this machine
            return True
        plugin = next((plugin for source, plugin in DELETABLE.items() if spec.get(source)), "")
        if plugin:
            await self._provisioners[plugin].delete(volume)
            return True
        known = any(spec.get(source) for source in _KNOWN_SOURCES)
        why = "no deletable volume plugin matched" if known else "no volume plugin matched"
        raise ProvisioningFailure(f'Error getting deleter volume plugin for volume "{name}": {why}')

    async def _fail(self, volume: Object, reason: str, text: str) -> None:
        if matching.volume_phase(volume) == "Failed":
            return
        status = {**(volume.get("status") or {}), "phase": "Failed", "message": text}
        written = await self._client.update_status(PERSISTENT_VOLUMES, {**volume, "status": status})
        self._events.event(self._volumes.remember(written), WARNING, reason, text)

    async def _scrub(self, volume: Object, source: str) -> str:
        """Recycles the volume with a pod. Returns "" when that is done, otherwise the problem;
        raises while it is running.
        """
        name = _RECYCLER_PREFIX + volume["metadata"]["name"]
        pod = self._pods.get(_RECYCLER_NAMESPACE, name)
        if pod is None:
            try:
                await self._client.create(
                    PODS, _RECYCLER_NAMESPACE, _recycler(volume, source, name)
                )
            except ApiError as problem:
                if not is_already_exists(problem):
                    return f"unexpected error creating recycler pod:  {problem}"
            raise RetryLater("the recycler pod has just been made")
        status = pod.get("status") or {}
        if status.get("phase") not in ("Succeeded", "Failed"):
            raise RetryLater("the recycler pod is not done yet")
        try:
            await self._client.delete(PODS, _RECYCLER_NAMESPACE, name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise
        if status["phase"] == "Succeeded":
            return ""
        return status.get("message") or "pod failed, pod.Status.Message unknown."


def recycled_volume(pod: Object) -> str:
    """The volume that a recycler pod is for; "" for other pods."""
    meta = pod["metadata"]
    ours = meta["namespace"] == _RECYCLER_NAMESPACE and meta["name"].startswith(_RECYCLER_PREFIX)
    return str(meta["name"]).removeprefix(_RECYCLER_PREFIX) if ours else ""


def _recycler(volume: Object, source: str, name: str) -> Object:
    least, per_gi = _RECYCLER_SECONDS[source]
    size = matching.volume_capacity(volume)
    seconds = max(least, int(size.value() / 2**30) * per_gi)
    return {
        "metadata": {"name": name},
        "spec": {
            "activeDeadlineSeconds": seconds,
            "restartPolicy": "Never",
            "volumes": [{"name": "vol", source: copy_object(volume["spec"][source])}],
            "containers": [
                {
                    "name": "pv-recycler",
                    "image": "busybox:1.27",
                    "command": ["/bin/sh"],
                    "args": ["-c", _SCRUB],
                    "volumeMounts": [{"name": "vol", "mountPath": "/scrub"}],
                }
            ],
        },
    }
