"""The behaviour that every runtime must have: a node's runtime of one kind, and programs that exist
on each system.

def test_it(bench):  # once for each kind of runtime
    async def scenario(b: Bench) -> None: ...
    bench(scenario)
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.runtime.native.images import BUSYBOX, FakeImages
from tests.runtime.tablenet import TableDataplane, TableNetwork

from transom.kit.clock import RealClock
from transom.machines.linux import LinuxHost
from transom.machines.realhost import RealHost, RealLinuxHost, RealWindowsHost
from transom.runtime.api import (
    Container,
    ContainerConfig,
    ContainerProcess,
    RuntimeEvent,
    SandboxConfig,
)
from transom.runtime.native.client import Monitor
from transom.runtime.native.core import SandboxNetworking
from transom.runtime.native.platform import RuntimePlatform
from transom.runtime.native.runtime import NativeRuntime, destroy_cluster
from transom.runtime.native.store import ImageProvider
from transom.runtime.oci.platform import LinuxPlatform
from transom.runtime.sim.engine import SimRuntime

Command = tuple[str, ...]
_names = count()
PATIENCE = 30.0


class Programs(Protocol):
    """Command lines of one operating system."""

    def say(self, text: str) -> Command: ...
    def complain(self, text: str) -> Command: ...
    def leave(self, code: int) -> Command: ...
    def stay(self) -> Command:
        """Until it is asked to leave, and then it does."""

    def insist(self) -> Command:
        """Stays whatever is asked."""

    def repeat(self) -> Command:
        """Everything that comes in goes out."""

    def show(self, path: str) -> Command: ...
    def store(self, path: str, text: str) -> Command: ...
    def variable(self, name: str) -> Command: ...
    def hostname(self) -> Command: ...


class Posix:
    def say(self, text: str) -> Command:
        return ("echo", text)

    def complain(self, text: str) -> Command:
        return ("sh", "-c", f"echo '{text}' >&2")

    def leave(self, code: int) -> Command:
        return ("sh", "-c", f"exit {code}")

    def stay(self) -> Command:
        return ("sh", "-c", "trap 'exit 0' TERM; echo ready; while true; do sleep 0.05; done")

    def insist(self) -> Command:
        return ("sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done")

    def repeat(self) -> Command:
        return ("cat",)

    def show(self, path: str) -> Command:
        return ("cat", path)

    def store(self, path: str, text: str) -> Command:
        return ("sh", "-c", f"echo '{text}' > {path}")

    def variable(self, name: str) -> Command:
        return ("sh", "-c", f'echo "${name}"')

    def hostname(self) -> Command:
        return ("hostname",)


class Windows:
    def _cmd(self, text: str) -> Command:
        return ("cmd", "/c", text)

    def say(self, text: str) -> Command:
        return self._cmd(f"echo {text}")

    def complain(self, text: str) -> Command:
        return self._cmd(f"echo {text}>&2")

    def leave(self, code: int) -> Command:
        return self._cmd(f"exit {code}")

    def stay(self) -> Command:
        return ("ping", "-n", "3600", "127.0.0.1")

    insist = stay

    def repeat(self) -> Command:
        pytest.skip(
            "Wine has no program that repeats its input as it comes; tests/runtime/wine "
            "brings its own"
        )

    def show(self, path: str) -> Command:
        return self._cmd(f"type {path}")

    def store(self, path: str, text: str) -> Command:
        return self._cmd(f"echo {text}>{path}")

    def variable(self, name: str) -> Command:
        return self._cmd(f"echo %{name}%")

    def hostname(self) -> Command:
        return ("hostname",)


@dataclass
class RuntimeHarness:
    """A node's runtime. Everything waits for what it waits for, at most `PATIENCE` seconds."""

    kind: str
    runtime: Any
    host: Any
    programs: Programs
    image: str
    log_directory: str
    network: TableNetwork
    add_image: Callable[..., str] | None = (
        None  # name, layers, configuration: where a test may make images
    )
    folder: Path = Path()
    cgroup: str = ""
    events: list[RuntimeEvent] = field(default_factory=list)
    _news: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def windows(self) -> bool:
        return isinstance(self.programs, Windows)

    @property
    def real(self) -> bool:
        return self.kind != "sim"

    def volume(self, name: str) -> tuple[str, str]:
        """A folder of the node, and a path under which a container may want it."""
        path = rf"C:\volumes\{name}" if self.windows else f"/volumes/{name}"
        self.host.files.mkdir(path, 0o777)
        return path, rf"C:\{name}" if self.windows else f"/{name}"

    async def sandbox(self, uid: str = "uid-1", **fields: Any) -> str:
        self.host.files.mkdir(self.log_directory)
        fields = {"hostname": "web", "log_directory": self.log_directory, **fields}
        return await self.runtime.run_sandbox(SandboxConfig("web", "ns", uid, **fields))

    async def create(self, command: Sequence[str], sandbox: str = "", **fields: Any) -> str:
        sandbox = sandbox or await self.sandbox()
        image = fields.pop("image", self.image)
        reference = await self.runtime.pull_image(image)
        number = next(_names)
        fields = {
            "name": f"c{number}",
            "attempt": 0,
            "log_path": f"{os.getpid()}-{number}.log",
            **fields,
        }
        return await self.runtime.create_container(
            sandbox,
            ContainerConfig(image=image, image_ref=reference, command=tuple(command), **fields),
        )

    async def run(self, command: Sequence[str], sandbox: str = "", **fields: Any) -> str:
        """Started."""
        made = await self.create(command, sandbox, **fields)
        await self.runtime.start_container(made)
        return made

    def state(self, container: str) -> Container:
        found = self.runtime.container(container)
        assert found is not None
        return found

    async def ended(self, container: str) -> Container:
        await self.until(lambda: self.state(container).state == "exited")
        return self.state(container)

    async def ready(self, container: str) -> None:
        """One that stays has begun to."""
        if not self.windows:
            await self.until(lambda: self.printed(container) == ["ready"])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Looks again whenever something happens."""
        await until(condition, self._news)

    def received(self, event: RuntimeEvent) -> None:
        self.events.append(event)
        for waiter in self._news:
            if not waiter.done():
                waiter.set_result(None)
        self._news.clear()

    def records(self, container: str) -> list[tuple[str, str, str]]:
        """Of its log: stream, tag and text of each."""
        path = self.state(container).log_path
        if not self.host.files.exists(path):
            return []
        lines = self.host.files.read(path).decode().splitlines()
        return [
            (stream, tag, text) for _, stream, tag, text in (line.split(" ", 3) for line in lines)
        ]

    def printed(self, container: str, stream: str = "stdout") -> list[str]:
        return [text.rstrip() for name, _, text in self.records(container) if name == stream]

    async def output(self, command: Sequence[str], sandbox: str = "", **fields: Any) -> list[str]:
        """What a container says that does this and ends."""
        made = await self.run(command, sandbox, **fields)
        ended = await self.ended(made)
        assert ended.exit_code == 0, (ended, self.records(made))
        return self.printed(made)

    async def exec(
        self, container: str, command: Sequence[str], **how: bool
    ) -> tuple[ContainerProcess, list[tuple[str, bytes]]]:
        printed: list[tuple[str, bytes]] = []
        process = await self.runtime.exec(
            container, command, lambda stream, data: printed.append((stream, data)), **how
        )
        return process, printed


async def until(
    condition: Callable[[], bool], news: list[asyncio.Future[None]] | None = None
) -> None:
    """Looks again and again, at once when the future that it puts into `news` completes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if news is not None:
                news.append(waiter)
            await asyncio.wait([waiter], timeout=0.02)


# ---- kinds ----


def unavailable(kind: str) -> str:
    """Why this machine cannot show a kind of runtime."""
    if kind == "sim":
        return ""
    if os.geteuid() != 0:
        return "only root can run containers here"
    if shutil.which("runc") is None:
        return "runc is not installed"
    if kind.startswith("oci") and not BUSYBOX.exists():
        return "busybox-static is not installed"
    if kind == "wine":
        from transom.runtime.wine.platform import WinePlatform

        return WinePlatform(Path("/nonexistent")).unusable()
    return ""


@asynccontextmanager
async def sim(folder: Path) -> AsyncIterator[RuntimeHarness]:
    clock, dataplane = RealClock(), TableDataplane()
    host = LinuxHost("node1", clock)
    network = TableNetwork(dataplane, "192.168.0.1", "10.244.1.0/24")
    runtime = SimRuntime(host, clock, random.Random(1), network, dataplane, "containerd")
    yield RuntimeHarness(
        "sim", runtime, host, Posix(), "busybox", "/var/log/pods/ns_web_uid-1", network
    )


@asynccontextmanager
async def oci_host_users(folder: Path) -> AsyncIterator[RuntimeHarness]:
    """No pod has a user namespace."""
    async with oci(folder, user_namespaces=False) as harness:
        yield harness


@asynccontextmanager
async def oci(
    folder: Path, *, user_namespaces: bool | None = None
) -> AsyncIterator[RuntimeHarness]:
    images = FakeImages(folder / "images")
    images.add("busybox", Cmd=["sh"])
    host = RealLinuxHost("node1", RealClock(), folder / "node1")
    platform = LinuxPlatform(user_namespaces=user_namespaces)
    async with native(folder, host, platform, images) as (runtime, network, cgroup):
        directory = "/var/log/pods/ns_web_uid-1"
        yield RuntimeHarness(
            "oci", runtime, host, Posix(), "busybox", directory, network, images.add, folder, cgroup
        )


@asynccontextmanager
async def wine(folder: Path) -> AsyncIterator[RuntimeHarness]:
    from transom.runtime.wine.platform import WinePlatform

    images = FakeImages(folder / "images")
    images.add_windows("windows")
    host = RealWindowsHost("node1", RealClock(), folder / "node1")
    platform = WinePlatform(folder.parent.parent / "transom-wine")
    async with native(folder, host, platform, images) as (runtime, network, cgroup):
        directory = r"C:\var\log\pods\ns_web_uid-1"
        yield RuntimeHarness(
            "wine", runtime, host, Windows(), "windows", directory, network, None, folder, cgroup
        )


@asynccontextmanager
async def native(
    folder: Path, host: RealHost, platform: RuntimePlatform, images: ImageProvider
) -> AsyncIterator[tuple[NativeRuntime, TableNetwork, str]]:
    """Whatever happens, nothing stays on this machine."""
    network = table()
    cgroup = f"/transom-test/{os.getpid()}-{next(_names)}"
    monitor = Monitor(folder / "native")
    runtime = NativeRuntime(
        host, RealClock(), monitor, platform, images, SandboxNetworking(network), cgroup
    )
    try:
        await runtime.start()
        yield runtime, network, cgroup
    finally:
        runtime.close()
        monitor.close()
        try:
            await destroy_cluster(folder / "native", cgroup)
        finally:
            host.destroy()


async def started(
    folder: Path, cgroup: str, images: FakeImages
) -> tuple[RealHost, NativeRuntime, TableNetwork, Monitor]:
    """One that finds what another process has left there. The caller removes it."""
    host, network, monitor = (
        RealLinuxHost("node1", RealClock(), folder / "node1"),
        table(),
        Monitor(folder / "native"),
    )
    runtime = NativeRuntime(
        host, RealClock(), monitor, LinuxPlatform(), images, SandboxNetworking(network), cgroup
    )
    await runtime.start()
    return host, runtime, network, monitor


def table() -> TableNetwork:
    return TableNetwork(TableDataplane(), "192.168.0.1", "10.244.1.0/24")


KINDS: dict[str, Callable[[Path], Any]] = {
    "sim": sim,
    "oci": oci,
    "oci-host-users": oci_host_users,
    "wine": wine,
}


@asynccontextmanager
async def running_harness(kind: str, folder: Path) -> AsyncIterator[RuntimeHarness]:
    async with asyncio.timeout(100), KINDS[kind](folder) as harness:
        end = harness.runtime.subscribe(harness.received)
        yield harness
        end()
