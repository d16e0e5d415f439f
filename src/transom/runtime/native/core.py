"""What all parts of one node's native runtime share: where things are, who does them, and who wants to hear of them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from transom.hosts.realhost import RealHost
from transom.kit.clock import Clock
from transom.network.api import PodNetwork, SandboxNetwork
from transom.runtime.api import ContainerConfig, Event
from transom.runtime.native.client import Monitor
from transom.runtime.native.platform import Limits, Platform
from transom.runtime.native.records import ContainerRecord, SandboxRecord
from transom.runtime.native.runc import Runc
from transom.runtime.native.store import Images
from transom.runtime.sim.texts import TEXTS, Texts

_RESOURCE_CAPABILITY = 24  # CAP_SYS_RESOURCE


async def _no_adoption(network: SandboxNetwork, addresses: tuple[str, ...], namespace: str) -> None:
    """The network knows its sandboxes by itself."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a sandbox comes to its network. Paths name network namespaces, "" the one of this machine (`node`), or a fresh
    one that has only its loopback (`sandbox`). Whoever has to make one first may answer later."""

    pods: PodNetwork
    sandbox: Callable[[str], str | Awaitable[str]] = lambda sandbox_id: ""
    node: Callable[[], str | Awaitable[str]] = lambda: ""
    adopt: Callable[[SandboxNetwork, tuple[str, ...], str], Awaitable[None]] = _no_adoption


@dataclass(slots=True)
class Core:
    host: RealHost
    clock: Clock
    monitor: Monitor
    folder: Path
    group: str  # the node's control group
    platform: Platform
    images: Images
    wiring: Wiring
    runc: Runc
    limited: bool  # control groups work
    rootless: bool
    texts: Texts = field(init=False)
    rng: random.Random = field(default_factory=random.SystemRandom)
    sandboxes: dict[str, SandboxRecord] = field(default_factory=dict)
    containers: dict[str, ContainerRecord] = field(default_factory=dict)
    by_uid: dict[str, list[SandboxRecord]] = field(default_factory=dict)
    subscribers: tuple[Callable[[Event], None], ...] = ()
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    lowest_oom_score: int = -1000

    def __post_init__(self) -> None:
        self.texts = TEXTS[self.platform.version.name]

    def limits(self, config: ContainerConfig) -> Limits:
        return self.platform.limits(config, self.host.hardware.cpus)

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(256):064x}"

    def time(self) -> float:
        return self.host.time()

    def emit(self, kind: Literal["sandbox", "started", "died", "removed"], sandbox: SandboxRecord, identity: str) -> None:
        event = Event(kind, sandbox.config.uid, identity)
        for listener in self.subscribers:
            listener(event)

    def background(self, work: Any) -> asyncio.Task[Any]:
        """Goes on whatever becomes of whoever asked for it."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def enter(self, sandbox: SandboxRecord) -> None:
        self.sandboxes[sandbox.id] = sandbox
        self.by_uid.setdefault(sandbox.config.uid, []).append(sandbox)

    def leave(self, sandbox: SandboxRecord) -> None:
        self.sandboxes.pop(sandbox.id, None)
        siblings = self.by_uid.get(sandbox.config.uid, [])
        if sandbox in siblings:
            siblings.remove(sandbox)
        if not siblings:
            self.by_uid.pop(sandbox.config.uid, None)

    def oom_score(self, wanted: int) -> int:
        """Without CAP_SYS_RESOURCE nobody may become less likely to be killed than he is."""
        return max(wanted, self.lowest_oom_score)


def lowest_oom_score() -> int:
    with open("/proc/self/status") as file:
        held = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    if held >> _RESOURCE_CAPABILITY & 1:
        return -1000
    with open("/proc/self/oom_score_adj") as file:
        return int(file.read())


def rootless() -> bool:
    return os.geteuid() != 0
