"""Volumes of CSI drivers are attached to the nodes of the pods that use them, and detached when these are gone.

The work itself is a driver's: this controller writes VolumeAttachment objects for it and notes in the status of a node
what is attached there. Volumes of other kinds need no attaching here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transom.client.api import MERGE_PATCH, is_already_exists, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.resources import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from transom.client.workqueue import RetryLater, WorkQueue
from transom.controllers.base import Env, work
from transom.controllers.persistentvolume.usage import BY_CLAIM, claims_of, ended
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

BY_NODE = "nodeName"
_WORKERS = 10
_RESYNC_SECONDS = 60.0
# A node that does not say that it has let go is given this long.
_UNMOUNT_SECONDS = 360.0


class Attachment(NamedTuple):
    """A volume on a node."""

    driver: str
    handle: str
    volume: str  # the name of the PersistentVolume
    node: str

    @property
    def name(self) -> str:
        text = f"{self.handle}{self.driver}{self.node}"
        return "csi-" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def unique_name(self) -> str:
        """What nodes call the volume."""
        return f"kubernetes.io/csi/{self.driver}^{self.handle}"


class AttachDetach:
    def __init__(self, env: Env) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("attachdetach-controller")
        self._queue: WorkQueue[str] = WorkQueue(env.clock, name="attachdetach")  # of nodes
        self._unused: dict[str, float] = {}  # attachment -> since when nobody uses it
        self._told: set[tuple[str, str, str]] = set()  # pod (uid), attachment and failure that it was told of
        self._pods, self._nodes = env.informers(PODS), env.informers(NODES)
        self._claims, self._volumes = env.informers(PERSISTENT_VOLUME_CLAIMS), env.informers(PERSISTENT_VOLUMES)
        self._attachments, self._drivers = env.informers(VOLUME_ATTACHMENTS), env.informers(CSI_DRIVERS)
        self._pods.add_index(BY_NODE, _node_name)
        self._pods.add_index(BY_CLAIM, claims_of)
        self._attachments.add_index(BY_NODE, lambda obj: (obj["spec"]["nodeName"],))
        self._pods.add_handler(add=self._pod_changed, update=self._pod_updated, delete=self._pod_changed)
        self._attachments.add_handler(
            add=self._attachment_changed, update=lambda _, new: self._attachment_changed(new),
            delete=self._attachment_changed,
        )
        self._claims.add_handler(update=self._claim_updated)
        self._nodes.add_handler(add=self._node_changed, update=self._node_updated, resync=_RESYNC_SECONDS)

    # ---- changes -------------------------------------------------------------------------------------------------

    def _pod_changed(self, pod: Object) -> None:
        if pod["spec"].get("nodeName") and claims_of(pod):
            self._queue.add(pod["spec"]["nodeName"])

    def _pod_updated(self, old: Object, new: Object) -> None:
        if old["spec"].get("nodeName") != new["spec"].get("nodeName") or ended(old) != ended(new):
            self._pod_changed(new)

    def _attachment_changed(self, attachment: Object) -> None:
        self._queue.add(attachment["spec"]["nodeName"])

    def _claim_updated(self, old: Object, new: Object) -> None:
        if old["spec"].get("volumeName") != new["spec"].get("volumeName"):
            meta = new["metadata"]
            for pod in self._pods.by_index(BY_CLAIM, f"{meta['namespace']}/{meta['name']}"):
                self._pod_changed(pod)

    def _node_changed(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if self._attachments.by_index(BY_NODE, name):
            self._queue.add(name)

    def _node_updated(self, old: Object, new: Object) -> None:
        if old is new or _in_use(old) != _in_use(new):
            self._node_changed(new)

    async def run(self) -> None:
        needs = self._pods, self._nodes, self._claims, self._volumes, self._attachments, self._drivers
        await work(self._queue, self._sync, needs, _WORKERS)

    # ---- one node ------------------------------------------------------------------------------------------------

    async def _sync(self, name: str) -> None:
        node = self._nodes.get("", name)
        wanted = self._wanted(name) if node is not None else {}
        held = {obj["metadata"]["name"]: obj for obj in self._attachments.by_index(BY_NODE, name)}
        for key, (attachment, _) in wanted.items():
            self._unused.pop(key, None)
            if key not in held:
                await self._attach(attachment)
        waits = [
            await self._detach(node, key, obj) for key, obj in held.items()
            if key not in wanted and "deletionTimestamp" not in obj["metadata"]
        ]
        if node is not None:
            await self._note(node, wanted, held)
        rest = [seconds for seconds in waits if seconds > 0]
        if rest:
            self._queue.add_after(name, min(rest))

    def _wanted(self, node: str) -> dict[str, tuple[Attachment, list[Object]]]:
        """What the pods of the node use, by the name of the attachment, with these pods."""
        out: dict[str, tuple[Attachment, list[Object]]] = {}
        for pod in self._pods.by_index(BY_NODE, node):
            if ended(pod):
                continue
            for key in claims_of(pod):
                attachment = self._attachment(key, node)
                if attachment is not None:
                    out.setdefault(attachment.name, (attachment, []))[1].append(pod)
        return out

    def _attachment(self, claim_key: str, node: str) -> Attachment | None:
        claim = self._claims.by_key(claim_key)
        volume = self._volumes.get("", claim["spec"].get("volumeName") or "") if claim is not None else None
        source = (volume or {"spec": {}})["spec"].get("csi")
        if volume is None or not source:
            return None
        driver = self._drivers.get("", source["driver"])
        if driver is not None and driver["spec"].get("attachRequired") is False:
            return None
        return Attachment(source["driver"], source["volumeHandle"], volume["metadata"]["name"], node)

    async def _attach(self, attachment: Attachment) -> None:
        spec = {"attacher": attachment.driver, "nodeName": attachment.node,
                "source": {"persistentVolumeName": attachment.volume}}
        try:
            await self._client.create(VOLUME_ATTACHMENTS, "", {"metadata": {"name": attachment.name}, "spec": spec})
        except ApiError as problem:
            if not is_already_exists(problem):
                raise

    async def _detach(self, node: Object | None, key: str, attachment: Object) -> float:
        """Seconds to wait for the node to let go of the volume; 0 when there is nothing to wait for."""
        since = self._unused.setdefault(key, self._clock.monotonic())
        left = since + _UNMOUNT_SECONDS - self._clock.monotonic()
        unique = self._unique_name(attachment)
        if node is not None and unique in _in_use(node) and left > 0:
            return left
        try:
            await self._client.delete(VOLUME_ATTACHMENTS, "", key, uid=attachment["metadata"]["uid"])
        except ApiError as problem:
            if not is_not_found(problem):
                raise
        self._unused.pop(key, None)
        return 0.0

    def _unique_name(self, attachment: Object) -> str:
        volume = self._volumes.get("", attachment["spec"]["source"].get("persistentVolumeName") or "")
        source = volume["spec"].get("csi") if volume is not None else None
        return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}" if source else ""

    async def _note(
        self, node: Object, wanted: dict[str, tuple[Attachment, list[Object]]], held: dict[str, Object]
    ) -> None:
        """Write into the node what is attached, and tell the pods that wait for it."""
        attached = {
            self._unique_name(obj): obj for obj in held.values()
            if (obj.get("status") or {}).get("attached") and self._unique_name(obj)
        }
        listed: Sequence[Object] = (node.get("status") or {}).get("volumesAttached") or ()
        others = [row for row in listed if not row["name"].startswith("kubernetes.io/csi/")]
        rows = [*others, *({"name": name, "devicePath": ""} for name in sorted(attached))]
        if rows != [*listed]:
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                    "status": {"volumesAttached": rows or None}}
            try:
                await self._client.patch(NODES, "", node["metadata"]["name"], body, MERGE_PATCH, subresource="status")
            except ApiError as problem:
                if is_not_found(problem):
                    return
                raise RetryLater(str(problem)) from problem
        for key, (attachment, pods) in wanted.items():
            failure = ((held.get(key) or {}).get("status") or {}).get("attachError") or {}
            if attachment.unique_name in attached:
                self._tell(attachment, pods, "")
            elif failure.get("message"):
                self._tell(attachment, pods, failure["message"])

    def _tell(self, attachment: Attachment, pods: Iterable[Object], problem: str) -> None:
        begin = "AttachVolume.Attach failed" if problem else "AttachVolume.Attach succeeded"
        text = f'{begin} for volume "{attachment.volume}" ' + (f": {problem}" if problem else "")
        kind, reason = (WARNING, "FailedAttachVolume") if problem else (NORMAL, "SuccessfulAttachVolume")
        for pod in pods:
            told = pod["metadata"]["uid"], attachment.name, problem
            if told not in self._told:
                self._told.add(told)
                self._events.event(pod, kind, reason, text)


def _node_name(pod: Object) -> Sequence[str]:
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()


def _in_use(node: Object) -> Sequence[str]:
    return (node.get("status") or {}).get("volumesInUse") or ()
