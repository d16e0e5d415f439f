"""Small interfaces for what the pod workers need from the other parts of a kubelet.

The core (pods, workers, sync, status) knows the parts only by these; `kubelet.py` assembles the
real ones, tests use fakes. Everything concerns one node; `pod` is the object as the API (or a
static source) has it, read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from transom.kit.named_tuple import NamedTuple
from transom.kubelet.failures import PodRejection
from transom.machinery.objects import Object
from transom.runtime.api import (
    ContainerConfig,
    Image,
    LinuxResources,
    Sandbox,
    SandboxConfig,
    WindowsResources,
)


class HookFailure(Exception):
    """A postStart or preStop handler failed; the text is the event's, `error` the bare reason, as
    in a container's reason `PostStartHookError: command 'x' exited with 1: `.
    """

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class ImagePuller(Protocol):
    async def ensure_volume(self, pod: Object, source: Object, sandbox: SandboxConfig) -> Image:
        """The same for an image volume; `source` has `reference` and `pullPolicy`."""

    async def ensure(self, pod: Object, container: Object, sandbox: SandboxConfig) -> Image:
        """Ensures that the image is on the node. Raises ContainerFailure (ErrImagePull,
        ImagePullBackOff, InvalidImageName, ErrImageNeverPull ...). Records the events Pulling,
        Pulled, Failed and BackOff itself.
        """


class Prober(Protocol):
    """Results are per container id; None while there is none (no such probe, or it has not run
    yet).
    """

    def add_pod(self, pod: Object) -> None:
        """Probes its containers from now on, whenever they run. A no-op for a known pod."""

    def remove_pod(self, uid: str) -> None: ...
    def sync(self, uid: str) -> None:
        """Called when the pod's containers have changed: starts probing those that run, stops
        probing those that do not.
        """

    def readiness(self, container_id: str) -> bool | None: ...
    def liveness(self, container_id: str) -> bool | None: ...
    def startup(self, container_id: str) -> bool | None: ...


OnProbe = Callable[[str], None]
"""Called with a pod's uid when a result of one of its containers has changed."""


class Hooks(Protocol):
    async def run(self, pod: Object, container: Object, container_id: str, handler: Object) -> None:
        """Raises HookFailure. There is no timeout here: the caller cancels it."""


class ContainerConfigSource(Protocol):
    def sandbox_config(self, pod: Object, attempt: int) -> SandboxConfig:
        """Raises ContainerFailure with the reason CreatePodSandboxConfigError."""

    async def container_config(
        self,
        pod: Object,
        container: Object,
        sandbox: Sandbox,
        image: Image,
        attempt: int,
        volume_images: Mapping[str, Image],
    ) -> ContainerConfig:
        """`volume_images` are those of the pod's image volumes, by volume. Raises
        ContainerFailure: CreateContainerConfigError, RunContainerError ... Labels and annotations
        are those of `labels.py`.
        """

    async def runtime_handler(self, pod: Object) -> str:
        """The handler of its RuntimeClass. Raises ContainerFailure."""


class Volumes(Protocol):
    async def mount(self, pod: Object) -> None:
        """Waits until all volumes of the pod are mounted (returns immediately when nothing has
        changed). Retries for 2 minutes and 3 seconds, then raises VolumeFailure: `unmounted
        volumes=[v], unattached volumes=[v w]: timed out waiting for the condition`. Records the
        events of single volumes itself. May be cancelled.
        """

    async def unmount(self, uid: str) -> None:
        """Removes the pod's volumes and directory. A no-op for a pod that has none. Raises
        VolumeFailure.
        """

    def mounted(self, uid: str) -> bool:
        """Whether anything of the pod's volumes is left."""

    def pods(self) -> Sequence[str]:
        """The uids of all pods that have something on this node, including from before a kubelet
        restart.
        """


class StartCounter(Protocol):
    """Counts attempts to start pods and containers, and those that fail."""

    def pod(self, *, failed: bool = False) -> None: ...
    def container(self, kind: str, *, host_process: bool, code: str = "") -> None:
        """`kind`: container, init_container or ephemeral_container. `code`: why it failed."""


class NoStartCounter:
    def pod(self, *, failed: bool = False) -> None:
        return

    def container(self, kind: str, *, host_process: bool, code: str = "") -> None:
        return


class ClaimDevices(Protocol):
    """The devices of resource claims."""

    async def prepare(self, pod: Object) -> None:
        """Before the pod's sandbox is created. Raises ClaimFailure."""

    def cdi_devices(self, pod: Object, container: Object) -> tuple[str, ...]:
        """The CDI names of the devices that the container gets. Raises ClaimFailure."""

    def resource_health(self, pod: Object, container: Object) -> list[Object]:
        """The `allocatedResourcesStatus` of the container."""

    async def unprepare(self, uid: str) -> None:
        """After the pod's containers have ended. A no-op for a pod without prepared claims.
        Raises ClaimFailure.
        """


class NoDynamicResources:
    """Of a kubelet that prepares no claims: its release or operating system has no DRA."""

    async def prepare(self, pod: Object) -> None:
        return

    def cdi_devices(self, pod: Object, container: Object) -> tuple[str, ...]:
        return ()

    def resource_health(self, pod: Object, container: Object) -> list[Object]:
        return []

    async def unprepare(self, uid: str) -> None:
        return


class PodAdmitHandler(Protocol):
    def admit(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        """Whether the node admits the pod in addition to its active pods."""

    def admit_resize(self, pod: Object, active_pods: Sequence[Object]) -> PodRejection | None:
        """Whether the node can give an admitted pod the resources of its spec."""

    def can_run(self, pod: Object) -> PodRejection | None:
        """Whether an admitted pod may run (AppArmor, host namespaces); otherwise it stays Pending
        with `Blocked` containers.
        """


class ResourceManagers(Protocol):
    """What decides on the limits of pods: CPU manager, memory manager, cgroups of pods."""

    def adjust(self, pod: Object, container: Object, resources: LinuxResources) -> LinuxResources:
        """The resources of a container with the CPUs and the memory that it may use."""

    def adjust_windows(
        self, pod: Object, container: Object, resources: WindowsResources
    ) -> WindowsResources:
        """The same of a Windows container."""

    def pod_resources(self, pod: Object) -> LinuxResources:
        """The limits of a pod as a whole, for its cgroup."""

    def resize_problem(self, pod: Object, allocated: Object) -> str:
        """Why the allocated pod can never get the resources of this one; empty when it can."""


class NoResourceManagers:
    def adjust(self, pod: Object, container: Object, resources: LinuxResources) -> LinuxResources:
        return resources

    def adjust_windows(
        self, pod: Object, container: Object, resources: WindowsResources
    ) -> WindowsResources:
        return resources

    def pod_resources(self, pod: Object) -> LinuxResources:
        return LinuxResources()

    def resize_problem(self, pod: Object, allocated: Object) -> str:
        return ""


class PodUpdates(NamedTuple):
    """How a source delivers its pods: always the complete set."""

    set: Callable[[Sequence[Object]], None]


class PodSource(Protocol):
    """Pods that do not come from the API: a manifest directory. They carry the annotation
    kubernetes.io/config.source.
    """

    async def run(self, updates: PodUpdates) -> None:
        """Calls `updates.set` with the whole set, first immediately and then after every change."""


class Mirrors(Protocol):
    """Mirror pods in the API."""

    async def create(self, pod: Object) -> None: ...
    async def delete(self, namespace: str, name: str, uid: str = "") -> bool:
        """Grace 0. Returns False when the mirror has another uid or does not exist."""

    def is_mirror_of(self, mirror: Object, pod: Object) -> bool:
        """Whether both come from the same manifest."""


KillPod = Callable[[Object, str, str, int | None], Coroutine[Any, Any, None]]
"""`await kill_pod(pod, reason, message, grace)`: the pod becomes Failed with this reason and
message; returns when its containers have stopped. For evictions; with `grace` None the pod's own
grace period applies.
"""


class PodView(Protocol):
    """The queries about pods for the server, the eviction manager and statistics."""

    def pods(self) -> Sequence[Object]:
        """The pods of this node with their newest status, static pods instead of their mirrors."""

    def pod(self, namespace: str, name: str) -> Object | None: ...
    def pod_by_uid(self, uid: str) -> Object | None:
        """Also accepts the uid of a mirror."""

    def active_pods(self) -> Sequence[Object]:
        """The pods that have not ended."""
