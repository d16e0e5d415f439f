"""Caches a runtime's sandboxes and containers, and reports changes.

CRI up to containerd 1.6 does not notify when a container ends, so this polls: a short list once a
second, and details only of what has changed since, as kubelets do. Callers that change something
refresh that one item immediately. One lock serializes polls, so that an older response never
replaces a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeVar

from transom.runtime.api import Container, RuntimeEvent, RuntimeFailure, Sandbox
from transom.runtime.cri import from_cri
from transom.runtime.cri.client import CriClient
from transom.runtime.cri.codec import Message
from transom.runtime.cri.paths import CriPaths

log = logging.getLogger("transom.runtime.cri")

POD_UID = "io.kubernetes.pod.uid"
Happened = Literal["sandbox", "started", "died", "removed"]
_T = TypeVar("_T")


class KnownSandbox(NamedTuple):
    view: Sandbox
    config: Message  # the CRI message, for containers that are created in it


class Relist:
    def __init__(self, client: CriClient, paths: CriPaths) -> None:
        self._client = client
        self._paths = paths
        self._lock = asyncio.Lock()
        self._sandboxes: dict[str, KnownSandbox] = {}
        self._containers: dict[str, Container] = {}
        self._listeners: tuple[Callable[[RuntimeEvent], None], ...] = ()

    # ---- the cache ----

    def sandbox(self, identity: str) -> KnownSandbox | None:
        return self._sandboxes.get(identity)

    def container(self, identity: str) -> Container | None:
        return self._containers.get(identity)

    def sandboxes(self, uid: str = "") -> list[Sandbox]:
        """Newest first."""
        found = (
            known.view
            for known in self._sandboxes.values()
            if not uid or known.view.config.uid == uid
        )
        return sorted(found, key=lambda sandbox: -sandbox.created_at)

    def containers(self, uid: str = "") -> list[Container]:
        found = (
            container
            for container in self._containers.values()
            if not uid or self.uid_of(container) == uid
        )
        return sorted(found, key=lambda container: -container.created_at)

    def uid_of(self, container: Container) -> str:
        known = self._sandboxes.get(container.sandbox_id)
        return known.view.config.uid if known is not None else container.labels.get(POD_UID, "")

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        self._listeners += (listener,)

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    # ---- polling ----

    async def look(self) -> None:
        """Refreshes everything. Raises RuntimeFailure."""
        async with self._lock:
            listed, running = await _both(
                self._client.call("ListPodSandbox"), self._client.call("ListContainers")
            )
            sandboxes = {each["id"]: each for each in listed.get("items") or ()}
            containers = {each["id"]: each for each in running.get("containers") or ()}
            await _all(
                self._update_sandbox(identity)
                for identity, each in sandboxes.items()
                if self._is_sandbox_changed(each)
            )
            await _all(
                self._update_container(identity, each.get("pod_sandbox_id", ""))
                for identity, each in containers.items()
                if self._is_container_changed(each)
            )
            for identity in self._containers.keys() - containers.keys():
                self._forget_container(identity)
            for identity in self._sandboxes.keys() - sandboxes.keys():
                self._forget_sandbox(identity)

    async def look_at_sandbox(self, identity: str, config: Message | None = None) -> None:
        """`config` is what it was created with, when known. A missing one is not an error."""
        async with self._lock:
            await self._update_sandbox(identity, config)

    async def look_at_container(self, identity: str, sandbox_id: str = "") -> None:
        async with self._lock:
            await self._update_container(identity, sandbox_id)

    async def look_at_pod(self, sandbox_id: str) -> None:
        """Refreshes a sandbox and all its containers."""
        async with self._lock:
            await self._update_sandbox(sandbox_id)
            inside = [each for each in self._containers.values() if each.sandbox_id == sandbox_id]
            await _all(self._update_container(each.id, sandbox_id) for each in inside)

    def _is_sandbox_changed(self, message: Message) -> bool:
        known = self._sandboxes.get(message["id"])
        return known is None or known.view.state != from_cri.sandbox_state_from_cri(message)

    def _is_container_changed(self, message: Message) -> bool:
        known = self._containers.get(message["id"])
        return known is None or known.state != from_cri.container_state_from_cri(message)

    # ---- single items; the lock is held ----

    async def _update_sandbox(self, identity: str, config: Message | None = None) -> None:
        before = self._sandboxes.get(identity)
        if before is not None:
            config = before.config
        request = {"pod_sandbox_id": identity, "verbose": config is None}
        answer = await _unless_gone(self._client.call("PodSandboxStatus", request))
        if answer is None:
            self._forget_sandbox(identity)
            return
        status = answer.get("status") or {}
        config = config or from_cri.reported_config(answer) or from_cri.config_of_status(status)
        meant = (
            before.view.config
            if before is not None
            else from_cri.config_from_cri(config, self._paths)
        )
        view = from_cri.sandbox_from_cri(status, meant)
        self._sandboxes[identity] = KnownSandbox(view, config)
        was = before.view.state if before is not None else "notready"
        if view.state != was:
            self._notify("sandbox", view.config.uid, identity)

    async def _update_container(self, identity: str, sandbox_id: str) -> None:
        before = self._containers.get(identity)
        answer = await _unless_gone(
            self._client.call("ContainerStatus", {"container_id": identity})
        )
        if answer is None:
            self._forget_container(identity)
            return
        if before is not None:
            sandbox_id = before.sandbox_id
        view = self._containers[identity] = from_cri.container_from_cri(
            answer.get("status") or {}, sandbox_id, self._paths
        )
        if before is not None and before.state == view.state:
            return
        if view.state == "running":
            self._notify("started", self.uid_of(view), identity)
        elif view.state != "created":
            self._notify("died", self.uid_of(view), identity)

    def _forget_sandbox(self, identity: str) -> None:
        known = self._sandboxes.pop(identity, None)
        if known is not None:
            for container in [
                each for each in self._containers.values() if each.sandbox_id == identity
            ]:
                self._forget(container, known.view.config.uid)
            self._notify("removed", known.view.config.uid, identity)

    def _forget_container(self, identity: str) -> None:
        container = self._containers.get(identity)
        if container is not None:
            self._forget(container, self.uid_of(container))

    def _forget(self, container: Container, uid: str) -> None:
        del self._containers[container.id]
        if container.state == "running":
            self._notify("died", uid, container.id)
        self._notify("removed", uid, container.id)

    def _notify(self, kind: Happened, uid: str, identity: str) -> None:
        event = RuntimeEvent(kind, uid, identity)
        for listener in self._listeners:
            listener(event)


async def _unless_gone(call: Awaitable[_T]) -> _T | None:
    try:
        return await call
    except RuntimeFailure as failure:
        if failure.code == "NotFound":
            return None
        raise


async def _both(one: Awaitable[Message], other: Awaitable[Message]) -> tuple[Message, Message]:
    return await asyncio.gather(one, other)


async def _all(updates: Iterable[Awaitable[Any]]) -> None:
    """A failure of one does not skip the others; it is retried in the next round."""
    for problem in await asyncio.gather(*updates, return_exceptions=True):
        if isinstance(problem, RuntimeFailure):
            log.debug("a look at the runtime failed: %s", problem)
        elif isinstance(problem, BaseException):
            raise problem
