"""Sandboxes and containers of a node, in memory and as files in its directory.

    FOLDER/sandboxes/ID/record.json     config.json exit.json resolv.conf hostname hosts shm/
    FOLDER/containers/ID/record.json    spec.json config.json exit.json platform/ upper/ work/ rootfs/ execs/

The monitor writes `started.json` and `exit.json`. These files are sufficient to restore everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transom.runtime import saved
from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerState,
    LinuxContainerUser,
    Sandbox,
    SandboxConfig,
    SandboxState,
)
from transom.runtime.native.platform import CannotStart, SandboxFacts, SandboxPlan, Spec
from transom.runtime.records import container_view
from transom.runtime.signals import signal_name, signal_number

RECORD = "record.json"


class NativeSandbox:
    __slots__ = (
        "_view",
        "config",
        "containers",
        "created",
        "folder",
        "group",
        "handler",
        "id",
        "ips",
        "lock",
        "networked",
        "pid",
        "plan",
        "state",
        "waiters",
    )

    def __init__(
        self,
        identity: str,
        config: SandboxConfig,
        handler: str,
        created: float,
        folder: Path,
        group: str,
    ) -> None:
        self.id = identity
        self.config = config
        self.handler = handler
        self.created = created
        self.folder = folder
        self.group = group  # the pod's cgroup
        self.state: SandboxState = "notready"
        self.plan = SandboxPlan("")
        self.pid = 0
        self.ips: tuple[str, ...] = ()
        self.networked = False
        self.containers: list[NativeContainer] = []
        self.lock = asyncio.Lock()
        self.waiters: list[asyncio.Future[None]] = []
        self._view: Sandbox | None = None

    @property
    def key(self) -> str:
        return self.id

    def view(self) -> Sandbox:
        if self._view is None:
            self._view = Sandbox(
                self.id, self.config, self.state, self.created, self.handler, self.ips
            )
        return self._view

    def changed(self) -> None:
        self._view = None

    def facts(self) -> SandboxFacts:
        return SandboxFacts(self.id, self.config, self.plan, self.pid, self.folder, self.ips)

    def save(self) -> None:
        self.changed()
        saved.save_record(
            self.folder / RECORD,
            {
                "id": self.id,
                "config": self.config,
                "handler": self.handler,
                "created": self.created,
                "group": self.group,
                "state": self.state,
                "plan": self.plan,
                "pid": self.pid,
                "ips": self.ips,
                "networked": self.networked,
            },
        )

    @classmethod
    def load(cls, folder: Path) -> NativeSandbox | None:
        data = saved.load_record(folder / RECORD)
        if data is None:
            return None
        config = saved.restore_record(SandboxConfig, data["config"])
        record = cls(data["id"], config, data["handler"], data["created"], folder, data["group"])
        record.state = data["state"]
        record.plan = saved.restore_record(SandboxPlan, data["plan"])
        record.pid = data["pid"]
        record.ips = tuple(data["ips"])
        record.networked = data["networked"]
        return record


class KeptImage:
    """An image as a container was created from it, whether the store still has it or not."""

    __slots__ = ("config", "id", "layers")

    def __init__(self, identity: str, config: dict[str, Any], layers: tuple[Path, ...]) -> None:
        self.id = identity
        self.config = config
        self.layers = layers


class NativeContainer:
    __slots__ = (
        "_view",
        "broken",
        "cleaned_up",
        "cleanup_task",
        "config",
        "cpu",
        "created",
        "early",
        "exit_code",
        "finished",
        "folder",
        "group",
        "id",
        "image",
        "image_name",
        "image_ref",
        "layer",
        "layer_at",
        "lock",
        "log_path",
        "message",
        "mounted",
        "own_users",
        "pid",
        "reason",
        "rebooted",
        "sandbox",
        "started",
        "starting",
        "state",
        "user",
        "waiters",
        "watchers",
    )

    def __init__(
        self,
        identity: str,
        sandbox: NativeSandbox,
        config: ContainerConfig,
        created: float,
        folder: Path,
    ) -> None:
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
        self.user: LinuxContainerUser | None = None  # of its process, on Linux
        self.started = 0.0
        self.finished = 0.0
        self.exit_code = 0
        self.reason = ""
        self.message = ""
        self.log_path = ""  # as the node names it
        self.broken: CannotStart | None = None  # detected at creation; its start reports it
        self.mounted = False
        self.own_users = sandbox.plan.own_users  # whether it runs in the user namespace of its pod
        self.rebooted = False
        self.starting = False
        self.early: dict[str, Any] | None = None  # it ended before its start completed
        self.cleanup_task: asyncio.Task[None] | None = None
        self.cleaned_up = False  # cleaned up: no other process holds any of its resources
        self.layer: tuple[int, int] = (4096, 1)
        self.layer_at = 0.0
        self.cpu: tuple[float, int, int | None] = (
            0.0,
            0,
            None,
        )  # when, how much, and the previous rate
        self.lock = asyncio.Lock()
        self.waiters: list[asyncio.Future[None]] = []
        self.watchers: tuple[Callable[[], None], ...] = ()
        self._view: Container | None = None

    @property
    def rootfs(self) -> Path:
        return self.folder / "rootfs"

    @property
    def user_namespace(self) -> str:
        """Its path, empty for a container in the machine's own."""
        return f"/proc/{self.sandbox.pid}/ns/user" if self.own_users else ""

    @property
    def first_id(self) -> int:
        """The user of this machine that the container's root maps to."""
        return self.sandbox.plan.first_id if self.own_users else 0

    @property
    def stop_signal(self) -> str:
        """The signal that stops it, by its name."""
        image = (self.image.config.get("config") or {}).get("StopSignal") or ""
        return signal_name(signal_number(self.config.stop_signal or str(image)))

    def view(self) -> Container:
        if self._view is None:
            self._view = container_view(self, self.log_path)
        return self._view

    def changed(self) -> None:
        self._view = None
        self.sandbox.changed()

    def save(self) -> None:
        self.changed()
        saved.save_record(
            self.folder / RECORD,
            {
                "id": self.id,
                "sandbox": self.sandbox.id,
                "config": self.config,
                "created": self.created,
                "image": {
                    "id": self.image.id,
                    "config": self.image.config,
                    "layers": [str(path) for path in self.image.layers],
                },
                "image_name": self.image_name,
                "image_ref": self.image_ref,
                "state": self.state,
                "pid": self.pid,
                "started": self.started,
                "finished": self.finished,
                "exit_code": self.exit_code,
                "reason": self.reason,
                "message": self.message,
                "log_path": self.log_path,
                "own_users": self.own_users,
                "user": self.user,
            },
        )

    @classmethod
    def load(cls, folder: Path, sandboxes: dict[str, NativeSandbox]) -> NativeContainer | None:
        """None: it cannot be read, or its sandbox is gone."""
        data = saved.load_record(folder / RECORD)
        sandbox = sandboxes.get(data["sandbox"]) if data is not None else None
        if data is None or sandbox is None:
            return None
        record = cls(
            data["id"],
            sandbox,
            saved.restore_record(ContainerConfig, data["config"]),
            data["created"],
            folder,
        )
        image = data["image"]
        record.image = KeptImage(image["id"], image["config"], tuple(map(Path, image["layers"])))
        for name in (
            "image_name",
            "image_ref",
            "state",
            "pid",
            "started",
            "finished",
            "exit_code",
            "reason",
            "message",
            "log_path",
        ):
            setattr(record, name, data[name])
        record.own_users = data.get("own_users", sandbox.plan.own_users)
        user = data.get("user")
        record.user = saved.restore_record(LinuxContainerUser, user) if user else None
        return record

    def specification(self) -> Spec:
        return saved.load_record(self.folder / "spec.json") or {}


def wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


async def wait_until_woken(
    waiters: list[asyncio.Future[None]], seconds: float | None = None
) -> bool:
    """Whether it happened within this many seconds."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    done, _ = await asyncio.wait([waiter], timeout=seconds)
    return bool(done)
