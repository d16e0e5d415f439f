"""The runtime's state of one pod, and small helpers about pods that the core uses everywhere.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.objects import Object
from transom.runtime.api import Container, ContainerRuntime, Sandbox

TERMINAL = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class PodState:
    """Sandboxes and containers of a pod, newest first."""

    sandboxes: Sequence[Sandbox]
    containers: Sequence[Container]
    # A pod can have thousands of containers, and each is looked up several times.
    _by_name: dict[str, list[Container]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for container in self.containers:
            self._by_name.setdefault(container.name, []).append(container)

    def container(self, name: str) -> Container | None:
        """The newest container of this name."""
        found = self._by_name.get(name)
        return found[0] if found else None

    def containers_named(self, name: str) -> Sequence[Container]:
        """All containers of this name, newest first."""
        return self._by_name.get(name, ())

    def running(self) -> list[Container]:
        return [c for c in self.containers if c.state == "running"]

    def ips(self) -> tuple[str, ...]:
        """The addresses of the newest sandbox, while it is ready."""
        if self.sandboxes and self.sandboxes[0].state == "ready":
            return self.sandboxes[0].ips
        return ()


def read_pod_state(runtime: ContainerRuntime, uid: str) -> PodState:
    return PodState(runtime.sandboxes(uid), runtime.containers(uid))


def format_pod(pod: Object) -> str:
    """`name_namespace(uid)`, as messages name a pod."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def uid_of(pod: Object) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def is_deleted(pod: Object) -> bool:
    """Whether its deletion was requested."""
    return pod["metadata"].get("deletionTimestamp") is not None


def is_host_network(pod: Object) -> bool:
    return bool(pod["spec"].get("hostNetwork"))


_LISTS = ("containers", "initContainers", "ephemeralContainers")


def container_specs(pod: Object) -> Iterator[tuple[Object, str]]:
    """Each container with the path by which events point to it: `spec.containers{app}`."""
    for kind in _LISTS:
        for container in pod["spec"].get(kind) or ():
            yield container, f"spec.{kind}{{{container['name']}}}"


def container_spec(pod: Object, name: str) -> Object | None:
    found = _find(pod, name)
    return None if found is None else found[0]


def field_path(pod: Object, name: str) -> str:
    found = _find(pod, name)
    return (
        "implicitly required container " + name if found is None else f"spec.{found[1]}{{{name}}}"
    )


def _find(pod: Object, name: str) -> tuple[Object, str] | None:
    """The container of this name and the list that contains it."""
    spec = pod["spec"]
    for kind in _LISTS:
        for container in spec.get(kind) or ():
            if container["name"] == name:
                return container, kind
    return None


def nothing_runs(status: Object) -> bool:
    """Whether no container of the status runs (or may run)."""
    for entry in status.get("containerStatuses") or ():
        state = entry.get("state") or {}
        if "terminated" not in state and "waiting" not in state:
            return False
    return True
