"""What every part of a kubelet receives."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from transom.client.api import ApiClient
from transom.client.events import EventRecorder
from transom.cloud.provider import CloudProvider
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.config import KubeletConfig
from transom.kubelet.osrules import OsRules
from transom.machinery.objects import Object
from transom.machines.api import Host
from transom.network.api import Dial
from transom.runtime.api import ContainerRuntime


class ServiceCache(Protocol):
    """The Services of a namespace, for the environment of containers; all kubelets of a process
    share one informer.
    """

    async def synced(self) -> None: ...
    def list(self, namespace: str) -> Sequence[Object]: ...


@dataclass(frozen=True, slots=True)
class DriverFolders:
    """Directories of this machine, for the FlexVolume drivers of a node with real files. Empty: no
    driver runs.
    """

    programs: str = ""  # the drivers, installed by the cluster's owner
    staging: str = ""  # where drivers mount volumes; no container can reach it
    writable: tuple[str, ...] = ()  # containers can write here, so nothing here is ever executed


class ProgramOutput(NamedTuple):
    code: int
    stdout: bytes  # with standard error, in the order of writing, unless it is kept apart
    stderr: bytes = b""


class RunProgram(Protocol):
    """Runs a program of the node, with the node's files. `environment` is added to the
    machine's; with `apart`, standard error is not part of standard output. Raises OSError when it
    cannot be started, TimeoutError when it takes too long.
    """

    async def __call__(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] = ...,
        apart: bool = False,
    ) -> ProgramOutput: ...


@dataclass(frozen=True, slots=True)
class KubeletContext:
    """A kubelet's environment. `client` authenticates as the node; `node` is its Node object as
    last seen (None before).
    """

    config: KubeletConfig
    os: OsRules
    client: ApiClient
    clock: Clock
    rng: random.Random
    events: EventRecorder
    host: Host
    runtime: ContainerRuntime
    services: ServiceCache
    dial: Dial  # connects to a pod's address from this node
    node: Callable[[], Object | None]
    drivers: DriverFolders = DriverFolders()
    cloud: CloudProvider | None = None  # the provider whose disks and shares the node can use
    # Pods as the types of this kubelet have them; None if they are those of the API server.
    decode_pod: Callable[[Object], Object] | None = None
    dial_loopback: Dial | None = None  # connects to a loopback address of the node
    run_program: RunProgram | None = (
        None  # on a simulated node; None where the node cannot run programs
    )
