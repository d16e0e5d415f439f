"""The state that all parts of one node's native runtime share: paths, services and event
listeners.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machines import pinning
from transom.machines.realhost import RealHost
from transom.network.api import PodNetwork, SandboxNetwork
from transom.runtime.api import ContainerConfig, RuntimeEvent
from transom.runtime.native.client import Monitor
from transom.runtime.native.platform import CgroupLimits, RuntimePlatform
from transom.runtime.native.records import NativeContainer, NativeSandbox
from transom.runtime.native.runc import Runc
from transom.runtime.native.store import ImageProvider
from transom.runtime.sim.texts import TEXTS, RuntimeTexts

IDS = 1 << 16  # users of a user namespace
_RANGES = (
    1 << 10,
    1 << 15,
)  # subordinate ids, far above those of users and of rootless containers
_RESOURCE_CAPABILITY = 24  # CAP_SYS_RESOURCE


def _new_namespace(sandbox_id: str) -> str:
    """Each sandbox creates its own network."""
    return ""


async def _no_adoption(network: SandboxNetwork, addresses: tuple[str, ...], namespace: str) -> None:
    """The network tracks its sandboxes itself."""


@dataclass(frozen=True, slots=True)
class SandboxNetworking:
    """How a sandbox gets its network. Paths name network namespaces: "" is this machine's (`node`),
    or a new one that has only a loopback interface (`sandbox`). An implementation that must create
    one first may be asynchronous.
    """

    pods: PodNetwork
    sandbox: Callable[[str], str | Awaitable[str]] = _new_namespace
    node: Callable[[], str | Awaitable[str]] = lambda: ""
    adopt: Callable[[SandboxNetwork, tuple[str, ...], str], Awaitable[None]] = _no_adoption
    give: Callable[[str, str], None] | None = None  # an existing namespace, before `pods.add`

    @property
    def accepts_namespaces(self) -> bool:
        """Whether a sandbox may bring its own network namespace, as one with a user namespace
        must.
        """
        return self.give is not None or self.sandbox is _new_namespace


@dataclass(slots=True)
class NativeCore:
    host: RealHost
    clock: Clock
    monitor: Monitor
    folder: Path
    group: str  # the node's control group
    platform: RuntimePlatform
    images: ImageProvider
    wiring: SandboxNetworking
    runc: Runc
    limited: bool  # whether cgroups work
    rootless: bool
    texts: RuntimeTexts = field(init=False)
    rng: random.Random = field(default_factory=random.SystemRandom)
    sandboxes: dict[str, NativeSandbox] = field(default_factory=dict)
    containers: dict[str, NativeContainer] = field(default_factory=dict)
    by_uid: dict[str, list[NativeSandbox]] = field(default_factory=dict)
    subscribers: tuple[Callable[[RuntimeEvent], None], ...] = ()
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    lowest_oom_score: int = -1000
    no_users: str = "not tried"  # why containers cannot have user namespaces; empty when they can

    def __post_init__(self) -> None:
        self.texts = TEXTS[self.platform.version.name]

    def limits(self, config: ContainerConfig) -> CgroupLimits:
        return self.platform.limits(config, self.host.hardware.cpus)

    def stage(self, identity: str) -> Path:
        return stages_mounts(self.monitor.folder) / identity

    def forget_stage(self, identity: str) -> None:
        pinning.remove_folder(str(self.stage(identity)))

    def free_ids(self) -> int:
        """The first id of a free range for a user namespace, which no other sandbox of this node
        uses.
        """
        taken = {sandbox.plan.first_id for sandbox in self.sandboxes.values()}
        while True:
            first = self.rng.randrange(*_RANGES) * IDS
            if first not in taken:
                return first

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(256):064x}"

    def time(self) -> float:
        return self.host.time()

    def emit(
        self,
        kind: Literal["sandbox", "started", "died", "removed"],
        sandbox: NativeSandbox,
        identity: str,
    ) -> None:
        event = RuntimeEvent(kind, sandbox.config.uid, identity)
        for listener in self.subscribers:
            listener(event)

    def background(self, work: Any) -> asyncio.Task[Any]:
        """Continues even when the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def enter(self, sandbox: NativeSandbox) -> None:
        self.sandboxes[sandbox.id] = sandbox
        self.by_uid.setdefault(sandbox.config.uid, []).append(sandbox)

    def leave(self, sandbox: NativeSandbox) -> None:
        self.sandboxes.pop(sandbox.id, None)
        siblings = self.by_uid.get(sandbox.config.uid, [])
        if sandbox in siblings:
            siblings.remove(sandbox)
        if not siblings:
            self.by_uid.pop(sandbox.config.uid, None)

    def oom_score(self, wanted: int) -> int:
        """Without CAP_SYS_RESOURCE a process cannot lower its OOM score."""
        return max(wanted, self.lowest_oom_score)


def stages_mounts(folder: Path) -> Path:
    """Where mounts for a cluster's containers with user namespaces are staged: their root can reach
    it. `folder` is the monitor's.
    """
    return Path("/run/transom", hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16])


def lowest_oom_score() -> int:
    with open("/proc/self/status") as file:
        held = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    if held >> _RESOURCE_CAPABILITY & 1:
        return -1000
    with open("/proc/self/oom_score_adj") as file:
        return int(file.read())


def is_rootless() -> bool:
    return os.geteuid() != 0
