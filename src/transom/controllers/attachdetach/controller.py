"""Attaches and detaches volumes, one volume at a time: first detaches it where it is no longer
needed, then attaches it.

A node must have unmounted a volume (`volumesInUse`) before it is detached; an unresponsive node
gets six minutes. Attached volumes are written to `volumesAttached` of the node, where the kubelet
waits for them, and are read from there after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from transom.client.api import MERGE_PATCH, is_not_found
from transom.client.events import NORMAL, WARNING
from transom.client.ratelimit import ItemBackoff
from transom.client.resources import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from transom.client.workqueue import RetryLater, WorkQueue
from transom.cloud.errors import CloudError
from transom.controllers.attachdetach.attachers import (
    InTreeAttacher,
    create_volume_attachment,
    delete_volume_attachment,
    is_own_attachment,
)
from transom.controllers.attachdetach.desired import (
    DesiredState,
    VolumeSpec,
    claim_keys,
    uses_attachable_volumes,
)
from transom.controllers.base import ControllerContext, run_worker
from transom.controllers.persistentvolume.usage import is_pod_terminated
from transom.machinery.attachable import CSI
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.controllers.attachdetach")

_WORKERS: Final = 10
_VERIFY_SECONDS: Final = 60.0
_MAX_WAIT_FOR_UNMOUNT: Final = 360.0
_ATTACH_TIMEOUT: Final = 120.0  # of CSI drivers
_BACKOFF: Final = 0.5, 122.0
_BY_CLAIM: Final = "attachdetach-claims"


class AttachDetach:
    def __init__(self, env: ControllerContext) -> None:
        self._client = env.client
        self._clock = env.clock
        self._events = env.recorder("attachdetach-controller")
        self._queue: WorkQueue[str] = WorkQueue(
            env.clock, ItemBackoff(*_BACKOFF), "attachdetach", metrics=env.queues
        )  # unique names of volumes
        self._pods, self._nodes = env.informers(PODS), env.informers(NODES)
        self._claims, self._volumes = (
            env.informers(PERSISTENT_VOLUME_CLAIMS),
            env.informers(PERSISTENT_VOLUMES),
        )
        self._attachments, self._drivers = (
            env.informers(VOLUME_ATTACHMENTS),
            env.informers(CSI_DRIVERS),
        )
        self._desired = DesiredState(self._claims, self._volumes, self._drivers)
        self._in_tree = InTreeAttacher(env.settings.cloud)
        self._attached: dict[str, dict[str, str]] = {}  # unique name -> node -> device path
        # possibly attached: not shown in the node's status
        self._uncertain: set[tuple[str, str]] = set()
        self._unverified: set[tuple[str, str]] = set()  # to be asked for at the cloud provider
        self._csi: dict[str, dict[str, Object]] = {}  # unique name -> node -> VolumeAttachment
        self._csi_names: dict[str, str] = {}  # VolumeAttachment -> unique name
        # unique names of volumes that are or were attached to the node
        self._by_node: dict[str, set[str]] = {}
        self._detach_requested: dict[tuple[str, str], float] = {}
        self._attach_started: dict[tuple[str, str], float] = {}
        # What changes meanwhile must not shorten the back-off after a failed attach.
        self._attach_backoff = ItemBackoff(*_BACKOFF)
        self._attach_after: dict[tuple[str, str], float] = {}
        self._multi_attach_reported: set[tuple[str, str]] = set()
        self._failures_reported: dict[tuple[str, str], str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._watch()

    def _watch(self) -> None:
        self._pods.add_index(_BY_CLAIM, claim_keys)
        self._pods.add_handler(
            add=self._pod_changed, update=self._pod_updated, delete=self._pod_deleted
        )
        self._claims.add_handler(add=self._claim_changed, update=self._claim_updated)
        self._volumes.add_handler(add=self._volume_changed)
        self._nodes.add_handler(
            add=self._node_added,
            update=self._node_updated,
            delete=self._node_deleted,
            resync=_VERIFY_SECONDS,
        )
        self._attachments.add_handler(
            add=self._attachment_changed,
            update=lambda _, new: self._attachment_changed(new),
            delete=self._attachment_deleted,
        )

    async def run(self) -> None:
        needs = (
            self._pods,
            self._nodes,
            self._claims,
            self._volumes,
            self._attachments,
            self._drivers,
        )
        for informer in needs:
            await informer.synced()
        # Informers are filled one after the other: objects that were missing before are available
        # now.
        for pod in self._pods.list():
            self._pod_changed(pod)
        self._csi.clear()
        self._csi_names.clear()
        for attachment in self._attachments.list():
            self._attachment_changed(attachment)
        await run_worker(self._queue, self._sync, needs, _WORKERS)

    # ---- changes ----

    def _enqueue(self, names: Iterable[str]) -> None:
        for name in names:
            self._queue.add(name)

    def _pod_changed(self, pod: Object) -> None:
        if uses_attachable_volumes(pod):
            self._enqueue(self._desired.track(pod))

    def _pod_updated(self, old: Object, new: Object) -> None:
        if old["spec"].get("nodeName") != new["spec"].get("nodeName") or is_pod_terminated(
            old
        ) != is_pod_terminated(new):
            self._pod_changed(new)

    def _pod_deleted(self, pod: Object) -> None:
        self._enqueue(self._desired.forget(pod))

    def _claim_changed(self, claim: Object) -> None:
        meta = claim["metadata"]
        for pod in self._pods.by_index(_BY_CLAIM, f"{meta['namespace']}/{meta['name']}"):
            self._pod_changed(pod)

    def _claim_updated(self, old: Object, new: Object) -> None:
        if old["spec"].get("volumeName") != new["spec"].get("volumeName") or old.get(
            "status"
        ) != new.get("status"):
            self._claim_changed(new)

    def _volume_changed(self, volume: Object) -> None:
        ref = volume["spec"].get("claimRef")
        claim = self._claims.get(ref.get("namespace", ""), ref.get("name", "")) if ref else None
        if claim is not None:
            self._claim_changed(claim)

    def _node_added(self, node: Object) -> None:
        """As in Kubernetes, the actual state of volumes is rebuilt from the status of the nodes."""
        name = node["metadata"]["name"]
        for row in (node.get("status") or {}).get("volumesAttached") or ():
            if not row["name"].startswith(CSI) and name not in self._attached.get(row["name"], {}):
                self._set_attached(row["name"], name, row.get("devicePath") or "")
        self._enqueue(self._on_node(name))

    def _node_updated(self, old: Object, new: Object) -> None:
        name = new["metadata"]["name"]
        if old is new:
            volumes = self._on_node(name)
            self._unverified.update(
                (volume, name) for volume in volumes if name in self._attached.get(volume, {})
            )
            self._enqueue(volumes)
        elif _in_use(old) != _in_use(new):
            self._enqueue(self._on_node(name))

    def _node_deleted(self, node: Object) -> None:
        self._locks.pop(node["metadata"]["name"], None)
        self._enqueue(self._on_node(node["metadata"]["name"]))

    def _on_node(self, node: str) -> list[str]:
        names = self._by_node.get(node, set())
        gone = {
            name
            for name in names
            if node not in self._attached.get(name, ()) and node not in self._csi.get(name, ())
        }
        names -= gone
        return sorted(names)

    def _attachment_changed(self, attachment: Object) -> None:
        if not is_own_attachment(attachment):
            return
        name = self._unique_name(attachment)
        node = attachment["spec"]["nodeName"]
        self._csi.setdefault(name, {})[node] = attachment
        self._by_node.setdefault(node, set()).add(name)
        self._queue.add(name)

    def _attachment_deleted(self, attachment: Object) -> None:
        if not is_own_attachment(attachment):
            return
        name, node = self._unique_name(attachment), attachment["spec"]["nodeName"]
        self._csi_names.pop(attachment["metadata"]["name"], None)
        nodes = self._csi.get(name, {})
        nodes.pop(node, None)
        if not nodes:
            self._csi.pop(name, None)
        self._queue.add(name)

    def _unique_name(self, attachment: Object) -> str:
        """The unique name of the volume, whose PersistentVolume may be deleted before the
        attachment.
        """
        meta, spec = attachment["metadata"], attachment["spec"]
        if meta["name"] not in self._csi_names:
            volume = self._volumes.get("", spec["source"].get("persistentVolumeName") or "")
            source = volume["spec"].get("csi") if volume is not None else None
            if source is None:
                return f"{CSI}/{spec['attacher']}^{meta['name']}"
            self._csi_names[meta["name"]] = f"{CSI}/{source['driver']}^{source['volumeHandle']}"
        return self._csi_names[meta["name"]]

    # ---- one volume ----

    async def _verify_attached(self, name: str) -> None:
        """Forgets what was detached outside of this controller."""
        for node in [*self._attached.get(name, ())]:
            if (name, node) not in self._unverified:
                continue
            self._unverified.discard((name, node))
            try:
                attached = await self._in_tree.is_attached(name, node)
            except CloudError as problem:
                log.warning("volume %s on node %s cannot be verified: %s", name, node, problem)
                continue
            if not attached:
                log.warning("volume %s is no longer attached to node %s", name, node)
                self._forget_attached(name, node)

    async def _sync(self, name: str) -> None:
        if self._unverified:
            await self._verify_attached(name)
        wanted = self._desired.nodes(name)
        waits = []
        for node in [node for node in self._nodes_with(name) if node not in wanted]:
            waits.append(await self._detach(name, node))
        spec = self._desired.spec(name)
        for node, pods in list(wanted.items()) if spec is not None else ():
            assert spec is not None
            self._detach_requested.pop((name, node), None)
            waits.append(await self._attach(spec, node, list(pods.values())))
        for key in [
            key for key in self._multi_attach_reported if key[0] == name and key[1] not in wanted
        ]:
            self._multi_attach_reported.discard(key)
        rest = [seconds for seconds in waits if seconds > 0]
        if rest:
            self._queue.add_after(name, min(rest))

    def _nodes_with(self, name: str) -> list[str]:
        return [*self._attached.get(name, ()), *self._csi.get(name, ())]

    # ---- attaching ----

    async def _attach(self, spec: VolumeSpec, node: str, pods: Sequence[Object]) -> float:
        """Returns the seconds until the next sync."""
        name = spec.unique_name
        found = self._nodes.get("", node)
        if found is None:
            return 0.0
        if spec.kind == "csi" and node in self._csi.get(name, {}):
            return await self._check_csi(spec, found, self._csi[name][node], pods)
        if node in self._attached.get(name, {}) and (name, node) not in self._uncertain:
            await self._report(node, name)
            return 0.0
        others = [
            other
            for other in self._nodes_with(name)
            if other != node and (name, other) not in self._uncertain
        ]
        if others and not spec.multi_attach:
            if (name, node) not in self._multi_attach_reported and not self._detaching(
                name, others
            ):
                self._multi_attach_reported.add((name, node))
                self._report_multi_attach(spec, others, pods)
            return 0.0
        if spec.kind == "csi":
            await create_volume_attachment(self._client, spec, node)
            self._attach_started[name, node] = self._clock.monotonic()
            return _ATTACH_TIMEOUT
        return await self._attach_in_tree(spec, found, pods)

    async def _attach_in_tree(
        self, spec: VolumeSpec, node: Object, pods: Sequence[Object]
    ) -> float:
        """Returns the seconds until the next attempt."""
        name, node_name = spec.unique_name, node["metadata"]["name"]
        # As in Kubernetes, the nodes share the back-off of a volume that only one of them can have.
        operation = name, node_name if spec.multi_attach else ""
        left = self._attach_after.get(operation, 0.0) - self._clock.monotonic()
        if left > 0:
            return left
        try:
            device = await self._in_tree.attach(spec, node)
        except CloudError as problem:
            # It may be attached nevertheless, or attached to a node that this controller did not
            # know of.
            uncertain = problem.current_node or node_name
            if uncertain not in self._attached.get(name, {}):
                self._set_attached(name, uncertain, "")
                self._uncertain.add((name, uncertain))
            self._event(
                pods,
                WARNING,
                "FailedAttachVolume",
                f'AttachVolume.Attach failed for volume "{spec.name}" : {problem}',
            )
            left = self._attach_backoff.when(operation)
            self._attach_after[operation] = self._clock.monotonic() + left
            return left
        self._attach_backoff.forget(operation)
        self._attach_after.pop(operation, None)
        self._set_attached(name, node_name, device)
        self._uncertain.discard((name, node_name))
        self._multi_attach_reported.discard((name, node_name))
        self._event(
            pods,
            NORMAL,
            "SuccessfulAttachVolume",
            f'AttachVolume.Attach succeeded for volume "{spec.name}" ',
        )
        await self._report(node_name, name)
        return 0.0

    async def _check_csi(
        self, spec: VolumeSpec, node: Object, attachment: Object, pods: Sequence[Object]
    ) -> float:
        key = spec.unique_name, node["metadata"]["name"]
        status = attachment.get("status") or {}
        if "deletionTimestamp" in attachment["metadata"]:
            return 0.0  # it is attached again after its deletion
        started = self._attach_started.get(key)
        if status.get("attached"):
            if started is not None:
                del self._attach_started[key]
                text = f'AttachVolume.Attach succeeded for volume "{spec.name}" '
                self._event(pods, NORMAL, "SuccessfulAttachVolume", text)
            self._failures_reported.pop(key, None)
            self._multi_attach_reported.discard(key)
            await self._report(key[1], key[0])
            return 0.0
        failure = status.get("attachError") or {}
        mark = f"{failure.get('time', '')} {failure['message']}" if failure.get("message") else ""
        left = started + _ATTACH_TIMEOUT - self._clock.monotonic() if started is not None else 0.0
        if mark and self._failures_reported.get(key) != mark:
            self._failures_reported[key] = mark
            text = f'AttachVolume.Attach failed for volume "{spec.name}" : {failure["message"]}'
            self._event(pods, WARNING, "FailedAttachVolume", text)
        elif not mark and left <= 0:
            text = f"attachdetachment timeout for volume {spec.source['volumeHandle']}"
            self._event(
                pods,
                WARNING,
                "FailedAttachVolume",
                f'AttachVolume.Attach failed for volume "{spec.name}" : {text}',
            )
        if left <= 0:
            self._attach_started[key] = self._clock.monotonic()
            return _ATTACH_TIMEOUT
        return left

    def _detaching(self, name: str, nodes: Sequence[str]) -> bool:
        """Whether the nodes are about to release it."""
        held = self._csi.get(name, {})
        return all(node in held and "deletionTimestamp" in held[node]["metadata"] for node in nodes)

    def _report_multi_attach(
        self, spec: VolumeSpec, others: Sequence[str], pods: Sequence[Object]
    ) -> None:
        users = self._desired.pods_on(spec.unique_name, others)
        for pod in pods:
            namespace = pod["metadata"]["namespace"]
            near = [
                user["metadata"]["name"]
                for user in users
                if user["metadata"]["namespace"] == namespace
            ]
            far = len(users) - len(near)
            if not users:
                text = (
                    "Volume is already exclusively attached to one node and can't be attached to "
                    "another"
                )
            elif near:
                text = f"Volume is already used by pod(s) {', '.join(near)}"
                text += f" and {far} pod(s) in different namespaces" if far else ""
            else:
                text = f"Volume is already used by {far} pod(s) in different namespaces"
            self._event(
                [pod],
                WARNING,
                "FailedAttachVolume",
                f'Multi-Attach error for volume "{spec.name}" {text}',
            )

    def _event(self, pods: Iterable[Object], kind: str, reason: str, text: str) -> None:
        for pod in pods:
            self._events.event(pod, kind, reason, text)

    # ---- detaching ----

    async def _detach(self, name: str, node: str) -> float:
        """Seconds to wait for the node to unmount the volume; 0 when there is nothing to wait
        for.
        """
        attachment = self._csi.get(name, {}).get(node)
        if attachment is not None and "deletionTimestamp" in attachment["metadata"]:
            return 0.0  # its driver is working on it
        found = self._nodes.get("", node)
        now = self._clock.monotonic()
        left = self._detach_requested.setdefault((name, node), now) + _MAX_WAIT_FOR_UNMOUNT - now
        in_use = found is not None and name in _in_use(found)
        if in_use and left > 0:
            return left
        if in_use:
            log.warning(
                "volume %s is detached from node %s by force: the node did not unmount it in time",
                name,
                node,
            )
        await self._report(node, name, attached=False)
        if attachment is not None:
            await delete_volume_attachment(self._client, attachment)
        else:
            try:
                await self._in_tree.detach(name, node, force=in_use)
            except CloudError as problem:
                await self._report(node, name)
                raise RetryLater(
                    f'DetachVolume.Detach failed for volume "{name}" on node "{node}" : {problem}'
                ) from problem
            self._forget_attached(name, node)
        self._detach_requested.pop((name, node), None)
        return 0.0

    def _set_attached(self, name: str, node: str, device: str) -> None:
        self._attached.setdefault(name, {})[node] = device
        self._by_node.setdefault(node, set()).add(name)

    def _forget_attached(self, name: str, node: str) -> None:
        nodes = self._attached.get(name, {})
        nodes.pop(node, None)
        if not nodes:
            self._attached.pop(name, None)
        self._uncertain.discard((name, node))

    # ---- the node's status ----

    async def _report(self, node: str, name: str, *, attached: bool = True) -> None:
        """Writes `volumesAttached`, which shows the kubelet which volumes it may mount."""
        async with self._locks.setdefault(node, asyncio.Lock()):
            try:
                found = await self._client.get(NODES, "", node)
                listed = (found.get("status") or {}).get("volumesAttached") or []
                rows = [row for row in listed if row["name"] != name]
                if attached:
                    rows.append(
                        {"name": name, "devicePath": self._attached.get(name, {}).get(node, "")}
                    )
                    rows.sort(key=lambda row: str(row["name"]))
                if _plain(rows) == _plain(listed):
                    return
                body = {
                    "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                    "status": {"volumesAttached": rows or None},
                }
                await self._client.patch(NODES, "", node, body, MERGE_PATCH, subresource="status")
            except ApiError as problem:
                if is_not_found(problem):
                    return
                raise RetryLater(str(problem)) from problem


def _plain(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    return sorted((row["name"], row.get("devicePath") or "") for row in rows)


def _in_use(node: Object) -> Sequence[str]:
    return (node.get("status") or {}).get("volumesInUse") or ()
