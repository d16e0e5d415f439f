"""What the runtime has of one pod, and small facts about pods that the core asks all the time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from transom.machinery.objects import Object
from transom.runtime.api import Container, Runtime, Sandbox

TERMINAL = ("Failed", "Succeeded")


class PodState(NamedTuple):
    """Sandboxes and containers of a pod, the newest first."""

    sandboxes: Sequence[Sandbox]
    containers: Sequence[Container]

    def container(self, name: str) -> Container | None:
        """The newest of that name."""
        for container in self.containers:
            if container.name == name:
                return container
        return None

    def running(self) -> list[Container]:
        return [c for c in self.containers if c.state == "running"]

    def ips(self) -> tuple[str, ...]:
        """Of the newest sandbox, while it is up."""
        if self.sandboxes and self.sandboxes[0].state == "ready":
            return self.sandboxes[0].ips
        return ()


def read(runtime: Runtime, uid: str) -> PodState:
    return PodState(runtime.sandboxes(uid), runtime.containers(uid))


def describe(pod: Object) -> str:
    """`name_namespace(uid)`, as messages name a pod."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def uid_of(pod: Object) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def is_deleted(pod: Object) -> bool:
    """Somebody asked for its deletion."""
    return pod["metadata"].get("deletionTimestamp") is not None


def is_host_network(pod: Object) -> bool:
    return bool(pod["spec"].get("hostNetwork"))


_LISTS = ("containers", "initContainers", "ephemeralContainers")


def container_specs(pod: Object) -> Iterator[tuple[Object, str]]:
    """Each container with the path by which events point to it: `spec.containers{app}`."""
    for field in _LISTS:
        for container in pod["spec"].get(field) or ():
            yield container, f"spec.{field}{{{container['name']}}}"


def container_spec(pod: Object, name: str) -> Object | None:
    for container, _ in container_specs(pod):
        if container["name"] == name:
            return container
    return None


def field_path(pod: Object, name: str) -> str:
    for container, path in container_specs(pod):
        if container["name"] == name:
            return path
    return "implicitly required container " + name


def not_running(status: Object) -> bool:
    """No container of the status runs (or may run)."""
    for entry in status.get("containerStatuses") or ():
        state = entry.get("state") or {}
        if "terminated" not in state and "waiting" not in state:
            return False
    return True
