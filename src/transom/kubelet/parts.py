"""What the pod workers ask of the other parts of a kubelet, as small interfaces.

The core (pods, workers, sync, status) knows the parts only by these; `kubelet.py` puts the real ones together, tests put
fakes in their place. Everything is about one node; `pod` is the object as the API (or a static source) has it, read-only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from transom.kubelet.base import Rejection
from transom.machinery.objects import Object
from transom.runtime.api import ContainerConfig, Image, Sandbox, SandboxConfig


class HookFailure(Exception):
    """A postStart or preStop handler failed; the text is the event's, `error` the bare reason, as in the reason
    `PostStartHookError: command 'x' exited with 1: ` of a container."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class Images(Protocol):
    async def ensure(self, pod: Object, container: Object, sandbox: SandboxConfig) -> Image:
        """The image is on the node when this returns. Raises ContainerFailure (ErrImagePull, ImagePullBackOff,
        InvalidImageName, ErrImageNeverPull ...). Tells the events Pulling, Pulled, Failed and BackOff itself."""


class Prober(Protocol):
    """Results are of one container id; None while there is none (no such probe, or it has not run yet)."""

    def add_pod(self, pod: Object) -> None:
        """Probe its containers from now on, whenever they run. Nothing happens for a pod that is there already."""

    def remove_pod(self, uid: str) -> None: ...
    def sync(self, uid: str) -> None:
        """The containers of the pod have changed: begin with those that run, end with those that do not."""

    def readiness(self, container_id: str) -> bool | None: ...
    def liveness(self, container_id: str) -> bool | None: ...
    def startup(self, container_id: str) -> bool | None: ...


OnProbe = Callable[[str], None]
"""Called with a pod's uid when a result of one of its containers has changed."""


class Hooks(Protocol):
    async def run(self, pod: Object, container: Object, container_id: str, handler: Object) -> None:
        """Raises HookFailure. No limit of time is kept here: whoever calls cuts it off."""


class ContainerBuilder(Protocol):
    def sandbox_config(self, pod: Object, attempt: int) -> SandboxConfig:
        """Raises ContainerFailure with the reason CreatePodSandboxConfigError."""

    async def container_config(
        self, pod: Object, container: Object, sandbox: Sandbox, image: Image, attempt: int
    ) -> ContainerConfig:
        """Raises ContainerFailure: CreateContainerConfigError, RunContainerError ... Labels and annotations are those
        of `labels.py`."""

    async def runtime_handler(self, pod: Object) -> str:
        """The handler of its RuntimeClass. Raises ContainerFailure."""


class Volumes(Protocol):
    async def mount(self, pod: Object) -> None:
        """All volumes of the pod are there when this returns (at once when nothing has changed). Tries again by itself
        for 2 minutes and 3 seconds, then raises VolumeFailure: `unmounted volumes=[v], unattached volumes=[v w]: timed
        out waiting for the condition`. Tells the events of single volumes itself. May be cancelled."""

    async def unmount(self, uid: str) -> None:
        """The pod has no volumes and no directory any more. Nothing happens to one that has none. Raises VolumeFailure."""

    def mounted(self, uid: str) -> bool:
        """Something of the pod's volumes is left."""

    def pods(self) -> Sequence[str]:
        """The uids of all pods that have something on this node, also from before a restart of the kubelet."""


class Admission(Protocol):
    def admit(self, pod: Object, active_pods: Sequence[Object]) -> Rejection | None:
        """Whether the node takes the pod, beside those it has and that have not ended."""

    def can_run(self, pod: Object) -> Rejection | None:
        """Whether a pod that was taken may run (AppArmor, host namespaces): it stays Pending with `Blocked`
        containers."""


class PodUpdates(NamedTuple):
    """How a source tells of its pods: always all of them."""

    set: Callable[[Sequence[Object]], None]


class PodSource(Protocol):
    """Pods that are not from the API: a folder of manifests. They carry the annotation kubernetes.io/config.source."""

    async def run(self, updates: PodUpdates) -> None:
        """Calls `updates.set` with the whole set, first at once and then whenever it has changed."""


class Mirrors(Protocol):
    """Pods in the API that show static pods."""

    async def create(self, pod: Object) -> None: ...
    async def delete(self, namespace: str, name: str, uid: str = "") -> bool:
        """Grace 0. False when it was another or none."""

    def is_mirror_of(self, mirror: Object, pod: Object) -> bool:
        """Made from the same manifest."""


KillPod = Callable[[Object, str, str, int | None], Awaitable[None]]
"""`await kill_pod(pod, reason, message, grace)`: the pod becomes Failed with these, and its containers are stopped; returns
when they are. For evictions; `grace` None leaves the pod's own."""


class PodView(Protocol):
    """What the server, the eviction manager and statistics may ask about pods."""

    def pods(self) -> Sequence[Object]:
        """Pods of this node with the newest status, static ones instead of their mirrors."""

    def pod(self, namespace: str, name: str) -> Object | None: ...
    def pod_by_uid(self, uid: str) -> Object | None:
        """Also by the uid of a mirror."""

    def active_pods(self) -> Sequence[Object]:
        """Those that have not ended."""
