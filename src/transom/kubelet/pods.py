"""The pods of this node: those of the API, kept up by an informer, and static ones of other sources with their mirrors.

Knows which pods there are, nothing of what becomes of them; a `PodListener` is told of each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from transom.client.informer import Informer
from transom.client.resources import PODS
from transom.kubelet.base import Env
from transom.kubelet.labels import is_mirror, is_static
from transom.kubelet.parts import PodSource, PodUpdates
from transom.kubelet.podstate import TERMINAL, is_deleted, not_running, uid_of
from transom.machinery.objects import Object

Name = tuple[str, str]


class PodListener(Protocol):
    def pod_added(self, pod: Object) -> None: ...
    def pod_updated(self, old: Object, pod: Object) -> None: ...
    def pod_removed(self, pod: Object) -> None:
        """Gone from its source. Another pod of the same name may be there already."""

    def mirror_changed(self, pod: Object) -> None:
        """The mirror of this static pod came, went or was changed."""

    def mirror_orphaned(self, mirror: Object) -> None:
        """A mirror that shows no pod."""


class Pods:
    """A `PodView`. `status` gives what is known of a pod's status by its uid, if that is newer than the pod has it."""

    def __init__(self, env: Env, listener: PodListener, status: Callable[[str], Object | None]) -> None:
        self._listener = listener
        self._status = status
        self._pods: dict[str, Object] = {}
        self._uids: dict[Name, str] = {}
        self._mirrors: dict[Name, Object] = {}
        self._static: dict[str, dict[str, Object]] = {}
        self._first: list[Object] | None = []
        self._told: dict[str, asyncio.Event] = {}
        self.informer = Informer(
            env.client, PODS, env.clock, env.rng, field_selector="spec.nodeName=" + env.config.node_name
        )
        self.informer.add_handler(add=self._add, update=self._update, delete=self._delete)

    async def synced(self) -> None:
        """The pods of the API are known, and the listener was told of them, the oldest first."""
        await self.informer.synced()
        first, self._first = self._first, None
        for pod in sorted(first or (), key=_age):
            if self.informer.get(*name_of(pod)) is not None:
                self._add(pod)

    # ---- looking -------------------------------------------------------------------------------------------------

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
        """Those that have not ended; with `wanted` only those that it takes, by what does not change in a pod."""
        return [
            self._newest(pod) for pod in self._pods.values() if (wanted is None or wanted(pod)) and not self.terminated(pod)
        ]

    def told(self, pod: Object) -> Object:
        """Its status as it is known here, or else to the API."""
        uid = uid_of(pod)
        return self._status(uid) or (self.api_pod(uid) or pod).get("status") or {}

    def terminated(self, pod: Object) -> bool:
        """It has ended, or is to be deleted and nothing of it runs."""
        status = self.told(pod)
        return status.get("phase") in TERMINAL or (is_deleted(pod) and not_running(status))

    def _newest(self, pod: Object) -> Object:
        status = self._status(uid_of(pod))
        return pod if status is None else {**pod, "status": status}

    def mirror_of(self, pod: Object) -> Object | None:
        return self._mirrors.get(name_of(pod))

    def mirrors(self) -> Sequence[Object]:
        return [*self._mirrors.values()]

    def api_pod(self, uid: str) -> Object | None:
        """Where the status of a pod is written to: the pod itself, or the mirror of a static one."""
        pod = self._pods.get(uid)
        if pod is None or not is_static(pod):
            return pod
        return self.mirror_of(pod)

    # ---- the API -------------------------------------------------------------------------------------------------

    def _add(self, pod: Object) -> None:
        if self._first is not None:
            self._first.append(pod)
        elif is_mirror(pod):
            self._put_mirror(pod)
        else:
            self._put(pod)
            self._listener.pod_added(pod)

    def _update(self, old: Object, pod: Object) -> None:
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
            if self._mirrors.pop(name_of(pod), None) is not None:
                self._tell_mirror(pod)
        else:
            self._drop(pod)
            self._listener.pod_removed(pod)

    def _put(self, pod: Object) -> None:
        self._pods[uid_of(pod)] = pod
        self._uids[name_of(pod)] = uid_of(pod)

    def _drop(self, pod: Object) -> None:
        self._pods.pop(uid_of(pod), None)
        if self._uids.get(name_of(pod)) == uid_of(pod):
            del self._uids[name_of(pod)]

    def _put_mirror(self, mirror: Object) -> None:
        self._mirrors[name_of(mirror)] = mirror
        self._tell_mirror(mirror)

    def _tell_mirror(self, mirror: Object) -> None:
        uid = self._uids.get(name_of(mirror))
        if uid is not None:
            self._listener.mirror_changed(self._pods[uid])
        elif name_of(mirror) in self._mirrors:
            self._listener.mirror_orphaned(mirror)

    # ---- other sources -------------------------------------------------------------------------------------------

    async def follow(self, name: str, source: PodSource) -> None:
        """Take the pods of a source until cancelled."""
        await source.run(PodUpdates(lambda pods: self.set_static(name, pods)))

    async def source_told(self, name: str) -> None:
        """The source has said once what it has."""
        await self._told.setdefault(name, asyncio.Event()).wait()

    def set_static(self, source: str, pods: Sequence[Object]) -> None:
        self._told.setdefault(source, asyncio.Event()).set()
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


def name_of(pod: Object) -> Name:
    return pod["metadata"].get("namespace", ""), pod["metadata"]["name"]


def _age(pod: Object) -> str:
    return pod["metadata"].get("creationTimestamp") or ""
