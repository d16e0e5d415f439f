"""Sandboxes and containers as a node keeps them, in memory and as files in its folder.

    FOLDER/sandboxes/ID/record.json     config.json exit.json resolv.conf hostname hosts shm/
    FOLDER/containers/ID/record.json    spec.json config.json exit.json platform/ upper/ work/ rootfs/ execs/

`started.json` and `exit.json` are the monitor's. What is written here is enough to know everything again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transom.runtime.api import Container, ContainerConfig, ContainerState, Sandbox, SandboxConfig, SandboxState
from transom.runtime.native import saved
from transom.runtime.native.platform import CannotStart, SandboxFacts, SandboxPlan, Spec

RECORD = "record.json"


class SandboxRecord:
    __slots__ = (
        "_view", "config", "containers", "created", "folder", "group", "handler", "id", "ips", "lock", "networked", "pid",
        "plan", "state", "waiters",
    )  # fmt: skip

    def __init__(self, identity: str, config: SandboxConfig, handler: str, created: float, folder: Path, group: str) -> None:
        self.id = identity
        self.config = config
        self.handler = handler
        self.created = created
        self.folder = folder
        self.group = group  # the pod's control group
        self.state: SandboxState = "notready"
        self.plan = SandboxPlan("")
        self.pid = 0
        self.ips: tuple[str, ...] = ()
        self.networked = False
        self.containers: list[ContainerRecord] = []
        self.lock = asyncio.Lock()
        self.waiters: list[asyncio.Future[None]] = []
        self._view: Sandbox | None = None

    @property
    def key(self) -> str:
        return self.id

    def view(self) -> Sandbox:
        if self._view is None:
            self._view = Sandbox(self.id, self.config, self.state, self.created, self.handler, self.ips)
        return self._view

    def changed(self) -> None:
        self._view = None

    def facts(self) -> SandboxFacts:
        return SandboxFacts(self.id, self.config, self.plan, self.pid, self.folder, self.ips)

    def save(self) -> None:
        self.changed()
        saved.save(self.folder / RECORD, {
            "id": self.id, "config": self.config, "handler": self.handler, "created": self.created, "group": self.group,
            "state": self.state, "plan": self.plan, "pid": self.pid, "ips": self.ips, "networked": self.networked,
        })  # fmt: skip

    @classmethod
    def load(cls, folder: Path) -> SandboxRecord | None:
        data = saved.load(folder / RECORD)
        if data is None:
            return None
        config = saved.restore(SandboxConfig, data["config"])
        record = cls(data["id"], config, data["handler"], data["created"], folder, data["group"])
        record.state = data["state"]
        record.plan = saved.restore(SandboxPlan, data["plan"])
        record.pid = data["pid"]
        record.ips = tuple(data["ips"])
        record.networked = data["networked"]
        return record


class KeptImage:
    """An image as a container was made from it, whether the store still has it or not."""

    __slots__ = ("config", "id", "layers")

    def __init__(self, identity: str, config: dict[str, Any], layers: tuple[Path, ...]) -> None:
        self.id = identity
        self.config = config
        self.layers = layers


class ContainerRecord:
    __slots__ = (
        "_view", "broken", "burial", "buried", "config", "cpu", "created", "early", "exit_code", "finished", "folder", "group",
        "id", "image", "image_name", "image_ref", "layer", "layer_at", "lock", "log_path", "message", "mounted", "pid",
        "reason", "rebooted", "sandbox", "started", "starting", "state", "waiters", "watchers",
    )  # fmt: skip

    def __init__(self, identity: str, sandbox: SandboxRecord, config: ContainerConfig, created: float, folder: Path) -> None:
        self.id = identity
        self.sandbox = sandbox
        self.config = config
        self.created = created
        self.folder = folder
        self.group = f"{sandbox.group}/{identity}"
        self.image = KeptImage("", {}, ())
        self.image_name = config.image
        self.image_ref = config.image_ref
        self.state: ContainerState = "created"
        self.pid = 0
        self.started = 0.0
        self.finished = 0.0
        self.exit_code = 0
        self.reason = ""
        self.message = ""
        self.log_path = ""  # as the node names it
        self.broken: CannotStart | None = None  # found out when it was made; its start says so
        self.mounted = False
        self.rebooted = False
        self.starting = False
        self.early: dict[str, Any] | None = None  # it has ended before its start was over
        self.burial: asyncio.Task[None] | None = None
        self.buried = False  # nobody but us has anything of it
        self.layer: tuple[int, int] = (4096, 1)
        self.layer_at = 0.0
        self.cpu: tuple[float, int, int | None] = (0.0, 0, None)  # when, how much, and the rate until then
        self.lock = asyncio.Lock()
        self.waiters: list[asyncio.Future[None]] = []
        self.watchers: tuple[Callable[[], None], ...] = ()
        self._view: Container | None = None

    @property
    def rootfs(self) -> Path:
        return self.folder / "rootfs"

    def view(self) -> Container:
        if self._view is None:
            config = self.config
            self._view = Container(
                id=self.id, sandbox_id=self.sandbox.id, name=config.name, attempt=config.attempt, state=self.state,
                image=self.image_name, image_ref=self.image_ref, labels=config.labels, annotations=config.annotations,
                created_at=self.created, started_at=self.started, finished_at=self.finished, exit_code=int32(self.exit_code),
                reason=self.reason, message=self.message, log_path=self.log_path, mounts=config.mounts,
            )  # fmt: skip
        return self._view

    def changed(self) -> None:
        self._view = None
        self.sandbox.changed()

    def save(self) -> None:
        self.changed()
        saved.save(self.folder / RECORD, {
            "id": self.id, "sandbox": self.sandbox.id, "config": self.config, "created": self.created,
            "image": {"id": self.image.id, "config": self.image.config, "layers": [str(path) for path in self.image.layers]},
            "image_name": self.image_name, "image_ref": self.image_ref, "state": self.state, "pid": self.pid,
            "started": self.started, "finished": self.finished, "exit_code": self.exit_code, "reason": self.reason,
            "message": self.message, "log_path": self.log_path,
        })  # fmt: skip

    @classmethod
    def load(cls, folder: Path, sandboxes: dict[str, SandboxRecord]) -> ContainerRecord | None:
        """None: it cannot be read, or its sandbox is gone."""
        data = saved.load(folder / RECORD)
        sandbox = sandboxes.get(data["sandbox"]) if data is not None else None
        if data is None or sandbox is None:
            return None
        record = cls(data["id"], sandbox, saved.restore(ContainerConfig, data["config"]), data["created"], folder)
        image = data["image"]
        record.image = KeptImage(image["id"], image["config"], tuple(map(Path, image["layers"])))
        for name in ("image_name", "image_ref", "state", "pid", "started", "finished", "exit_code", "reason", "message",
                     "log_path"):  # fmt: skip
            setattr(record, name, data[name])
        return record

    def specification(self) -> Spec:
        return saved.load(self.folder / "spec.json") or {}


def int32(code: int) -> int:
    """CRI's exit codes are signed: 0xC000013A is -1073741510."""
    return (code + 0x80000000) % 0x100000000 - 0x80000000


def wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


async def woken(waiters: list[asyncio.Future[None]], seconds: float | None = None) -> bool:
    """Whether that was within so many seconds."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    done, _ = await asyncio.wait([waiter], timeout=seconds)
    return bool(done)
