"""`SimRuntime`: docker or containerd on one emulated machine, as `runtime.api.Runtime`.

This is the door; sandboxes, containers, commands, images and statistics each have their module. A container that only
waits holds no task, at most a timer.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from transom.hosts.windows.host import WindowsHost
from transom.kit.clock import Clock
from transom.network.api import Dataplane, PodNetwork
from transom.runtime.api import (
    Auth,
    Container,
    ContainerConfig,
    ContainerStats,
    Event,
    ExecResult,
    Filesystem,
    Image,
    Output,
    Process,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxConfig,
    SandboxStats,
    Version,
)
from transom.runtime.sim import commands, containers, outside, sandboxes, stats
from transom.runtime.sim.catalogue import Catalogue, default_catalogue
from transom.runtime.sim.core import Core, SimHost
from transom.runtime.sim.images import ImageStore, PullSpeed, Rules
from transom.runtime.sim.names import parse
from transom.runtime.sim.program_api import Program, ProgramContext, Start
from transom.runtime.sim.records import ContainerRecord, SandboxRecord
from transom.runtime.sim.resolve import Lookup
from transom.runtime.sim.sandboxes import SandboxOptions, default_handlers
from transom.runtime.sim.texts import TEXTS
from transom.runtime.sim.wishes import failing, of_container, stalled

if TYPE_CHECKING:
    from transom.runtime.sim.login.machine import WindowsMachine

Flavour = Literal["docker", "containerd"]
DEFAULT_VERSIONS = {"docker": "19.3.14", "containerd": "1.4.3"}
PULL_DEADLINE = 1200.0  # seconds without progress, as the guides set kubelets up on Windows
_PULL_REPORTS = 10.0
_STABLE_ABI_SINCE = {"docker": (23, 0), "containerd": (1, 6)}


def default_pause_image(build: int) -> str:
    """The usual one for a Windows build, or for Linux (0): 1.4.1 has nothing for Windows Server 2022 and later."""
    if not build:
        return "k8s.gcr.io/pause:3.2"
    repository = "mcr.microsoft.com/oss/kubernetes/pause"
    if build < 20348:
        return f"{repository}:1.4.1"
    return f"{repository}:3.6" if build == 20348 else "registry.k8s.io/pause:3.10.2"


def _start(context: ProgramContext) -> Program:
    from transom.runtime.sim.programs import start

    return start(context)


class SimRuntime:
    __slots__ = ("_core", "_failed_pulls", "_options", "_version", "proxy", "pull_deadline")

    def __init__(
        self,
        host: SimHost,
        clock: Clock,
        rng: random.Random,
        network: PodNetwork,
        dataplane: Dataplane,
        flavour: Flavour = "docker",
        version: str = "",
        catalogue: Catalogue | None = None,
        *,
        sandbox_image: str = "",
        addresses: Sequence[str] = (),
        handlers: Sequence[str] | None = None,
        hyperv_gate: bool = False,
        pull_speed: PullSpeed | None = None,
        lookup: Lookup | None = None,
        start: Start = _start,
    ) -> None:
        """`addresses` are the machine's own; `handlers` are containerd's runtime handlers, None for the usual ones;
        `lookup` is DNS as containers reach it."""
        version = (version or DEFAULT_VERSIONS[flavour]).removesuffix("-sim")
        self._version = Version(flavour, f"{version}-sim")
        docker = flavour == "docker"
        texts = TEXTS[flavour]
        identity = host.identity
        build = host.build.number if isinstance(host, WindowsHost) else 0
        rules = Rules(
            os=identity.operating_system,
            architecture=identity.architecture,
            build=build,
            docker=docker,
            stable_abi=_numbers(version) >= _STABLE_ABI_SINCE[flavour],
        )
        images = ImageStore(catalogue or default_catalogue(), rules, texts, clock, host.space, pull_speed or PullSpeed())
        self._core = Core(
            host, clock, rng, network, dataplane, texts, images, tuple(addresses), start, lookup, docker=docker
        )
        self._core.on_out_of_memory = lambda container, context: containers.out_of_memory(self._core, container, context)
        self._options = SandboxOptions(
            sandbox_image or default_pause_image(build),
            default_handlers(bool(build), build) if handlers is None else handlers,
            hyperv_gate,
        )
        self.pull_deadline = PULL_DEADLINE
        self._failed_pulls: dict[tuple[str, str], int] = {}
        self.proxy = ""  # the one that stands between this machine and registries
        images.outside = lambda: outside.problem(host, self.proxy)
        containers.forget_credentials(self._core)
        host.on_reboot(self._rebooted)

    @property
    def version(self) -> Version:
        return self._version

    @property
    def sandbox_image(self) -> str:
        return self._options.image

    def use_sandbox_image(self, image: str) -> None:
        """For sandboxes from now on; with docker it is the kubelet who says it."""
        self._options.image = image

    def status(self) -> RuntimeStatus:
        problem = self._core.network.ready()
        if not problem:
            return RuntimeStatus()
        return RuntimeStatus(
            network_reason="NetworkPluginNotReady", network_message=self._core.texts.network_not_ready(problem)
        )

    def _rebooted(self) -> None:
        core = self._core
        for sandbox in core.sandboxes.values():
            sandboxes.went_down(core, sandbox)
        for login in tuple(core.logins):
            login.kill()
        core.node_namespace.close()

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        return (await sandboxes.run(self._core, self._options, config, handler)).id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.stop(self._core, sandbox)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.remove(self._core, sandbox)
            if sandbox.config.uid not in self._core.by_uid and self._failed_pulls:
                self._failed_pulls = {k: n for k, n in self._failed_pulls.items() if k[0] != sandbox.config.uid}

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return [sandbox.view() for sandbox in reversed(self._records(uid))]

    def _records(self, uid: str) -> list[SandboxRecord]:
        return self._core.by_uid.get(uid, []) if uid else list(self._core.sandboxes.values())

    # Containers

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        return containers.create(self._core, self._sandbox(sandbox_id), config).id

    async def start_container(self, container_id: str) -> None:
        containers.start(self._core, self._container(container_id))

    async def stop_container(self, container_id: str, grace: float) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.stop(self._core, container, grace)

    async def remove_container(self, container_id: str) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            containers.remove(self._core, container)

    def containers(self, uid: str = "") -> Sequence[Container]:
        if not uid:
            return [container.view() for container in reversed(self._core.containers.values())]
        records = self._records(uid)
        if len(records) == 1:
            return [container.view() for container in reversed(records[0].containers)]
        found = [container.view() for sandbox in records for container in sandbox.containers]
        return sorted(found, key=lambda container: -container.created_at)

    def container(self, container_id: str) -> Container | None:
        container = self._core.containers.get(container_id)
        return container.view() if container is not None else None

    def reopen_log(self, container_id: str) -> None:
        container = self._container(container_id)
        if container.state != "running":
            raise self._core.texts.not_running(container_id, container.state)
        container.log.open()

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        return self._container(container_id).log.watch(listener)

    def _sandbox(self, sandbox_id: str) -> SandboxRecord:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise self._core.texts.no_sandbox(sandbox_id)
        return sandbox

    def _container(self, container_id: str) -> ContainerRecord:
        container = self._core.containers.get(container_id)
        if container is None:
            raise self._core.texts.no_container(container_id)
        return container

    # Commands

    async def exec_sync(self, container_id: str, command: Sequence[str], seconds: float = 0) -> ExecResult:
        return await commands.execute_now(self._core, self._container(container_id), command, seconds)

    async def exec(
        self, container_id: str, command: Sequence[str], output: Output, *, stdin: bool = False, tty: bool = False
    ) -> Process:
        late = commands.start_delay(self._core)
        if late:
            await self._core.clock.sleep(late)
        return commands.execute(self._core, self._container(container_id), command, output, stdin=stdin, tty=tty)

    async def attach(self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False) -> Process:
        return commands.attach(self._core, self._container(container_id), output, stdin=stdin)

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        return commands.port_forward(self._core, self._sandbox(sandbox_id), port)

    def login(
        self, machine: WindowsMachine | None, command: Sequence[str], output: Output, *, stdin: bool = False, tty: bool = False
    ) -> Process:
        """A command on the machine itself, a shell without one. `machine` is what a Windows machine has beside its host."""
        from transom.runtime.sim.login.session import login

        return login(self._core, machine, command, output, stdin=stdin, tty=tty)

    # Images

    async def pull_image(self, image: str, auth: Auth | None = None, sandbox: SandboxConfig | None = None) -> str:
        core = self._core
        hyperv = False
        if sandbox is not None:
            self._fail_if_wished(image, sandbox)
            await self._stall_if_wished(image, sandbox)
            hyperv = any(record.isolation.hyperv for record in core.by_uid.get(sandbox.uid, ()))
        return core.images.pulled_ref(await core.images.pull(image, auth, hyperv=hyperv))

    def _fail_if_wished(self, image: str, sandbox: SandboxConfig) -> None:
        wish = failing(of_container(sandbox.annotations, ""), "fail-pull")
        if wish is None:
            return
        key = (sandbox.uid, image)
        before = self._failed_pulls.get(key, 0)
        if wish.applies(before):
            self._failed_pulls[key] = before + 1
            reference = parse(image)
            texts = self._core.texts
            raise texts.pull_failed(reference, wish.text) if wish.text else texts.no_tag(reference)

    async def _stall_if_wished(self, image: str, sandbox: SandboxConfig) -> None:
        """Docker's side of the kubelet looks at a pull now and then, and cancels one that makes no progress for too long."""
        seconds = stalled(of_container(sandbox.annotations, ""))
        if not seconds or self.image(image) is not None:
            return
        looked = (self.pull_deadline // _PULL_REPORTS + 1) * _PULL_REPORTS
        if self._core.docker and seconds > looked:
            await self._core.clock.sleep(looked)
            raise RuntimeFailure("Unknown", "context canceled")
        await self._core.clock.sleep(seconds)

    def preload(self, image: str) -> None:
        """The image is there without a pull, as on a machine that was prepared."""
        self._core.images.preload(image)

    def image(self, image: str) -> Image | None:
        return self._core.images.view(image)

    def images(self) -> Sequence[Image]:
        return self._core.images.views()

    async def remove_image(self, image: str) -> None:
        self._core.images.remove(image)

    def image_filesystem(self) -> Filesystem:
        core = self._core
        return Filesystem(stats.ROOTS[core.os, core.docker], core.images.used, 0)

    # Statistics and news

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        records = self._core.containers.values() if not uid else [c for s in self._records(uid) for c in s.containers]
        found = (stats.of_container(self._core, container) for container in records)
        return [row for row in found if row is not None]

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        found = (stats.of_sandbox(self._core, sandbox) for sandbox in self._records(uid))
        return [row for row in found if row is not None]

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        core = self._core
        core.subscribers += (listener,)

        def end() -> None:
            core.subscribers = tuple(other for other in core.subscribers if other is not listener)

        return end


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
