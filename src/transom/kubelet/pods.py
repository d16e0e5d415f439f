"""The pods of this node: pods of the API, tracked by an informer, and static pods of other sources
with their mirrors.

Knows which pods exist, not their state; notifies a `PodListener` of each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from transom.client.informer import Informer
from transom.client.resources import PODS
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodSource, PodUpdates
from transom.kubelet.labels import CONFIG_SOURCE, is_mirror, is_static
from transom.kubelet.podstate import TERMINAL, is_deleted, nothing_runs, uid_of
from transom.machinery.objects import Object

Name = tuple[str, str]


class PodListener(Protocol):
    def pod_added(self, pod: Object) -> None: ...
    def pod_updated(self, old: Object, pod: Object) -> None: ...
    def pod_removed(self, pod: Object) -> None:
        """The pod was removed from its source. Another pod of the same name may already exist."""

    def mirror_changed(self, pod: Object) -> None:
        """The mirror of this static pod was created, deleted or changed."""

    def mirror_orphaned(self, mirror: Object) -> None:
        """A mirror without a static pod."""


class Pods:
    """A `PodView`. `status` returns a pod's status by its uid, if that is newer than the pod's
    own.
    """

    def __init__(
        self, env: KubeletContext, listener: PodListener, status: Callable[[str], Object | None]
    ) -> None:
        self._listener = listener
        self._status = status
        self._pods: dict[str, Object] = {}
        self._uids: dict[Name, str] = {}
        self._mirrors: dict[Name, Object] = {}
        self._static: dict[str, dict[str, Object]] = {}
        self._first: list[Object] | None = []
        self._delivered: dict[str, asyncio.Event] = {}
        self.informer = Informer(
            env.client,
            PODS,
            env.clock,
            env.rng,
            field_selector="spec.nodeName=" + env.config.node_name,
        )
        decode = env.decode_pod
        if decode is None:
            self.informer.add_handler(add=self._add, update=self._update, delete=self._delete)
        else:
            self.informer.add_handler(
                add=lambda pod: self._add(decode(pod)),
                update=lambda old, pod: self._update(decode(old), decode(pod)),
                delete=lambda pod: self._delete(decode(pod)),
            )

    async def synced(self) -> None:
        """Whether the pods of the API are known and the listener was notified of them, oldest
        first.
        """
        await self.informer.synced()
        first, self._first = self._first, None
        for pod in sorted(first or (), key=_age):
            if self.informer.get(*pod_full_name(pod)) is not None:
                self._add(pod)

    # ---- queries ----

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[Object]:
        """As their sources have them."""
        return iter([*self._pods.values()])

    def get(self, uid: str) -> Object | None:
        """As its source has it."""
        return self._pods.get(uid)

    def pods(self) -> Sequence[Object]:
        return [self._newest(pod) for pod in self._pods.values()]

    def pod(self, namespace: str, name: str) -> Object | None:
        uid = self._uids.get((namespace, name))
        return self._newest(self._pods[uid]) if uid else None

    def pod_by_uid(self, uid: str) -> Object | None:
        pod = self._pods.get(uid)
        if pod is None:
            for name, mirror in self._mirrors.items():
                if uid_of(mirror) == uid and name in self._uids:
                    pod = self._pods[self._uids[name]]
        return self._newest(pod) if pod else None

    def active_pods(self, wanted: Callable[[Object], bool] | None = None) -> Sequence[Object]:
        """The pods that have not ended; with `wanted` only those that it accepts, by immutable
        fields of the pod.
        """
        return [
            self._newest(pod)
            for pod in self._pods.values()
            if (wanted is None or wanted(pod)) and not self.terminated(pod)
        ]

    def reported_status(self, pod: Object) -> Object:
        """Its status as known here, otherwise as known to the API."""
        uid = uid_of(pod)
        return self._status(uid) or (self.api_pod(uid) or pod).get("status") or {}

    def terminated(self, pod: Object) -> bool:
        """Whether it has ended, or is being deleted and nothing of it runs."""
        status = self.reported_status(pod)
        return status.get("phase") in TERMINAL or (is_deleted(pod) and nothing_runs(status))

    def _newest(self, pod: Object) -> Object:
        status = self._status(uid_of(pod))
        return pod if status is None else {**pod, "status": status}

    def mirror_of(self, pod: Object) -> Object | None:
        return self._mirrors.get(pod_full_name(pod))

    def mirrors(self) -> Sequence[Object]:
        return [*self._mirrors.values()]

    def api_pod(self, uid: str) -> Object | None:
        """Where a pod's status is written: to the pod itself, or to the mirror of a static one."""
        pod = self._pods.get(uid)
        if pod is None or not is_static(pod):
            return pod
        return self.mirror_of(pod)

    # ---- the API ----

    def _add(self, pod: Object) -> None:
        pod = _from_api(pod)
        if self._first is not None:
            self._first.append(pod)
        elif is_mirror(pod):
            self._put_mirror(pod)
        else:
            self._put(pod)
            self._listener.pod_added(pod)

    def _update(self, old: Object, pod: Object) -> None:
        old, pod = _from_api(old), _from_api(pod)
        if self._first is not None:
            self._first = [p for p in self._first if uid_of(p) != uid_of(old)]
            self._first.append(pod)
        elif is_mirror(pod):
            self._put_mirror(pod)
        elif uid_of(old) != uid_of(pod):
            self._delete(old)
            self._add(pod)
        else:
            self._put(pod)
            self._listener.pod_updated(old, pod)

    def _delete(self, pod: Object) -> None:
        if self._first is not None:
            self._first = [p for p in self._first if uid_of(p) != uid_of(pod)]
        elif is_mirror(pod):
            if self._mirrors.pop(pod_full_name(pod), None) is not None:
                self._update_mirror(pod)
        else:
            self._drop(pod)
            self._listener.pod_removed(pod)

    def _put(self, pod: Object) -> None:
        self._pods[uid_of(pod)] = pod
        self._uids[pod_full_name(pod)] = uid_of(pod)

    def _drop(self, pod: Object) -> None:
        self._pods.pop(uid_of(pod), None)
        if self._uids.get(pod_full_name(pod)) == uid_of(pod):
            del self._uids[pod_full_name(pod)]

    def _put_mirror(self, mirror: Object) -> None:
        self._mirrors[pod_full_name(mirror)] = mirror
        self._update_mirror(mirror)

    def _update_mirror(self, mirror: Object) -> None:
        uid = self._uids.get(pod_full_name(mirror))
        if uid is not None:
            self._listener.mirror_changed(self._pods[uid])
        elif pod_full_name(mirror) in self._mirrors:
            self._listener.mirror_orphaned(mirror)

    # ---- other sources ----

    async def follow(self, name: str, source: PodSource) -> None:
        """Accepts the pods of a source until cancelled."""
        await source.run(PodUpdates(lambda pods: self.set_static(name, pods)))

    async def source_changed(self, name: str) -> None:
        """Waits until the source has delivered its pods at least once."""
        await self._delivered.setdefault(name, asyncio.Event()).wait()

    def set_static(self, source: str, pods: Sequence[Object]) -> None:
        self._delivered.setdefault(source, asyncio.Event()).set()
        before = self._static.get(source, {})
        after = {uid_of(pod): pod for pod in pods}
        self._static[source] = after
        for uid, pod in before.items():
            if uid not in after:
                self._drop(pod)
                self._listener.pod_removed(pod)
        for uid, pod in after.items():
            old = before.get(uid)
            if old is None:
                self._put(pod)
                self._listener.pod_added(pod)
            elif old != pod:
                self._put(pod)
                self._listener.pod_updated(old, pod)


def _from_api(pod: Object) -> Object:
    """A kubelet notes the source of a pod in its annotations, whatever the API's pod says."""
    annotations = pod["metadata"].get("annotations")
    if not annotations or CONFIG_SOURCE not in annotations or is_mirror(pod):
        return pod
    metadata = {**pod["metadata"], "annotations": {**annotations, CONFIG_SOURCE: "api"}}
    return {**pod, "metadata": metadata}


def pod_full_name(pod: Object) -> Name:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _age(pod: Object) -> str:
    return pod["metadata"].get("creationTimestamp") or ""
