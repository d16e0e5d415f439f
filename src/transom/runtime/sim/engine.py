"""`SimRuntime`: docker or containerd on one emulated machine, implementing `runtime.api.Runtime`.

This is the entry point; sandboxes, containers, commands, images and statistics each have their
module. An idle container has no task, at most a timer.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.versions import version_numbers
from transom.machines.saving import Document, SavedContents
from transom.machines.windows.host import WindowsHost
from transom.network.api import Dataplane, PodNetwork
from transom.runtime.api import (
    AuthConfig,
    Container,
    ContainerConfig,
    ContainerProcess,
    ContainerStats,
    ExecResult,
    FilesystemUsage,
    Image,
    LinuxResources,
    Output,
    RuntimeEvent,
    RuntimeFailure,
    RuntimeStatus,
    RuntimeVersion,
    Sandbox,
    SandboxConfig,
    SandboxStats,
    WindowsResources,
)
from transom.runtime.sim import containers, outside, sandboxes, saving, stats
from transom.runtime.sim.annotations import (
    annotations_of_container,
    pull_stall_seconds,
    simulated_failure,
)
from transom.runtime.sim.catalogue import Catalogue
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.files import prepare_etc
from transom.runtime.sim.host import SimHost
from transom.runtime.sim.images import ImageRules, ImageStore, PullSpeed
from transom.runtime.sim.names import parse_image_name
from transom.runtime.sim.node_storage import NodeStorage
from transom.runtime.sim.records import SimContainer, SimSandbox
from transom.runtime.sim.resolve import Lookup
from transom.runtime.sim.sandboxes import SandboxOptions, default_handlers
from transom.runtime.sim.service import RuntimeService
from transom.runtime.sim.texts import runtime_texts
from transom.userland.api import Program, ProgramContext, StartProgram
from transom.userland.csi_storage import CsiStorage
from transom.userland.dns import hosts_addresses

if TYPE_CHECKING:
    from transom.cloud.provider import CloudProvider
    from transom.runtime.sim import commands
    from transom.runtime.sim.login import exec_program, host_process
    from transom.runtime.sim.login import session as login_session
    from transom.runtime.sim.login.exec_program import FinishedProgram
    from transom.runtime.sim.login.machine import WindowsMachine
    from transom.runtime.sim.login.session import LoginMachine
    from transom.runtime.sim.streams import ExecClient
    from transom.userland import start as userland_start
    from transom.userland.network_view import Stacks
else:
    exec_program = lazy_import("transom.runtime.sim.login.exec_program")
    host_process = lazy_import("transom.runtime.sim.login.host_process")
    login_session = lazy_import("transom.runtime.sim.login.session")
    userland_start = lazy_import("transom.userland.start")
    commands = lazy_import("transom.runtime.sim.commands")

Flavour = Literal["docker", "containerd"]
DEFAULT_VERSIONS = {"docker": "19.3.14", "containerd": "1.4.3"}
PULL_DEADLINE = 1200.0  # seconds without progress, from the setup guides for Windows kubelets
_PULL_REPORTS = 10.0
_STABLE_ABI_SINCE = {"docker": (23, 0), "containerd": (1, 6)}


def default_pause_image(build: int) -> str:
    """The default version for a Windows build, or for Linux (0): 1.4.1 does not support Windows
    Server 2022 and later.
    """
    if not build:
        return "k8s.gcr.io/pause:3.2"
    repository = "mcr.microsoft.com/oss/kubernetes/pause"
    if build < 20348:
        return f"{repository}:1.4.1"
    return f"{repository}:3.6" if build == 20348 else "registry.k8s.io/pause:3.10.2"


def _no_machine() -> None:
    """A runtime without a node: HostProcess containers see its files and network only."""
    return


def _start(context: ProgramContext) -> Program:
    return userland_start.start_program(context)


class SimRuntime:
    __slots__ = (
        "_core",
        "_failed_pulls",
        "_machine",
        "_options",
        "_version",
        "proxy",
        "pull_deadline",
        "service",
    )

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
        start: StartProgram = _start,
        csi_storage: CsiStorage | None = None,
        stacks: Stacks | None = None,
        cloud: CloudProvider | None = None,
    ) -> None:
        """`addresses` are the machine's own; `handlers` are containerd's runtime handlers, None for
        the default ones; `lookup` is DNS as containers reach it; `csi_storage` is shared by
        simulated CSI drivers of all nodes; `stacks` has the network stacks that commands on this
        node show; `cloud` has the shares and LUNs that programs of the machine can reach.
        """
        version = (version or DEFAULT_VERSIONS[flavour]).removesuffix("-sim")
        self._version = RuntimeVersion(flavour, f"{version}-sim")
        docker = flavour == "docker"
        texts = runtime_texts(flavour, version_numbers(version))
        identity = host.identity
        build = host.build.number if isinstance(host, WindowsHost) else 0
        rules = ImageRules(
            os=identity.operating_system,
            architecture=identity.architecture,
            build=build,
            docker=docker,
            stable_abi=version_numbers(version) >= _STABLE_ABI_SINCE[flavour],
        )
        self._machine: Callable[[], WindowsMachine | None] = _no_machine
        self.proxy = ""  # the proxy between this machine and registries
        images = ImageStore(
            catalogue,
            rules,
            texts,
            clock,
            host.space,
            pull_speed or PullSpeed(),
            lambda: outside.outside_problem(host, self.proxy),
        )
        self._core = SimCore(
            host,
            clock,
            rng,
            network,
            dataplane,
            texts,
            images,
            tuple(addresses),
            start,
            lookup,
            lambda *args, **more: host_process.create_sim_program(self._machine, *args, **more),
            containers.out_of_memory,
            docker=docker,
            version=version_numbers(version),
            csi_storage=csi_storage or CsiStorage(),
            stacks=stacks,
            storage=NodeStorage(host, cloud) if cloud is not None else None,
        )
        self._options = SandboxOptions(
            sandbox_image or default_pause_image(build),
            default_handlers(bool(build), build, version_numbers(version))
            if handlers is None
            else handlers,
            hyperv_gate,
        )
        self.pull_deadline = PULL_DEADLINE
        self._failed_pulls: dict[tuple[str, str], int] = {}
        containers.forget_credentials(self._core)
        self.service = RuntimeService(self._core)
        host.on_reboot(self._rebooted)

    async def connect_from_node(self, address: str, port: int) -> socket.socket:
        """Connects as a program of the machine does, also to its loopback address. Raises OSError
        and TimeoutError.
        """
        return await self._core.node_namespace.connect(address, port)

    def listens_inside(self, sandbox_id: str, address: str, port: int, protocol: str) -> bool:
        """Whether a program of the sandbox, or of the machine if there is no such sandbox, listens
        there; also on the loopback address, which the dataplane does not know.
        """
        sandbox = self._core.sandboxes.get(sandbox_id)
        namespace = self._core.node_namespace if sandbox is None else sandbox.namespace
        return namespace is not None and namespace.listens(address, port, protocol)

    def hosts_addresses(self, sandbox_id: str, name: str) -> list[str]:
        """The addresses of a name for the programs of a sandbox without DNS: from the hosts file of
        its first running container.
        """
        sandbox = self._core.sandboxes.get(sandbox_id)
        containers = sandbox.containers if sandbox is not None else ()
        container = next((one for one in containers if one.state == "running"), None)
        if sandbox is None or container is None:
            return []
        hostname = self._core.hostname_in(sandbox)
        prepare_etc(container, hostname)
        files = container.files
        return hosts_addresses(name, self._core.os, lambda: files, (hostname, sandbox.addresses))

    @property
    def version(self) -> RuntimeVersion:
        return self._version

    @property
    def sandbox_image(self) -> str:
        return self._options.image

    def network_lost(self, sandbox_id: str) -> None:
        """The network of a running sandbox was removed: it no longer has an address."""
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None and sandbox.state == "ready":
            sandbox.addresses = ()
            sandbox.changed()
            self._core.emit("sandbox", sandbox, sandbox.id)

    def use_sandbox_image(self, image: str) -> None:
        """For new sandboxes; with docker the kubelet sets it."""
        self._options.image = image

    def use_machine(self, machine: Callable[[], WindowsMachine | None]) -> None:
        """HostProcess containers run on it."""
        self._machine = machine

    @property
    def core(self) -> SimCore:
        """For other programs on the machine: commands that show its containers."""
        return self._core

    def status(self) -> RuntimeStatus:
        down = self.service.status()
        if down is not None:
            return down
        problem = self._core.network.ready()
        if not problem:
            return RuntimeStatus()
        return RuntimeStatus(
            network_reason="NetworkPluginNotReady",
            network_message=self._core.texts.network_not_ready(problem),
        )

    async def shut_down(self, seconds: float) -> None:
        """The machine is about to shut down, and gives its services this many seconds."""
        await self.service.shut_down(seconds)

    def _rebooted(self) -> None:
        core = self._core
        for sandbox in core.sandboxes.values():
            sandboxes.power_off_sandbox(core, sandbox)
        for login in tuple(core.logins):
            login.kill()
        core.system_ports.shut_down()
        core.node_namespace.close()
        self.service.start()

    # Persistence

    def save(self, contents: SavedContents) -> Document:
        return saving.save_sim_runtime(self._core, contents)

    def restore(self, saved: Document, contents: SavedContents) -> None:
        """Call once, on a new runtime whose machine was already restored."""
        saving.restore_sim_runtime(self._core, saved, contents)

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig, handler: str = "") -> str:
        self.service.check()
        return (await sandboxes.run_sim_sandbox(self._core, self._options, config, handler)).id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.stop_sim_sandbox(self._core, sandbox)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            await sandboxes.remove_sim_sandbox(self._core, sandbox)
            if sandbox.config.uid not in self._core.by_uid and self._failed_pulls:
                self._failed_pulls = {
                    k: n for k, n in self._failed_pulls.items() if k[0] != sandbox.config.uid
                }

    def sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        return [sandbox.view() for sandbox in reversed(self._records(uid))]

    def _records(self, uid: str) -> list[SimSandbox]:
        return self._core.by_uid.get(uid, []) if uid else list(self._core.sandboxes.values())

    # Containers

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        self.service.check()
        return containers.create_sim_container(self._core, self._sandbox(sandbox_id), config).id

    async def start_container(self, container_id: str) -> None:
        self.service.check()
        containers.start_sim_container(self._core, self._container(container_id))

    async def stop_container(self, container_id: str, grace: float) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            await containers.stop_sim_container(self._core, container, grace)

    async def remove_container(self, container_id: str) -> None:
        container = self._core.containers.get(container_id)
        if container is not None:
            containers.remove_sim_container(self._core, container)

    async def update_container_resources(
        self, container_id: str, resources: LinuxResources | WindowsResources
    ) -> None:
        container = self._container(container_id)
        if container.state != "running":
            raise self._core.texts.not_running(container_id, container.state)
        containers.resize_sim_container(self._core, container, resources)

    async def update_sandbox_resources(self, sandbox_id: str, resources: LinuxResources) -> None:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is not None:
            linux = replace(sandbox.config.linux, resources=resources)
            sandbox.config = replace(sandbox.config, linux=linux)
            sandbox.changed()

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

    def _sandbox(self, sandbox_id: str) -> SimSandbox:
        sandbox = self._core.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise self._core.texts.no_sandbox(sandbox_id)
        return sandbox

    def _container(self, container_id: str) -> SimContainer:
        container = self._core.containers.get(container_id)
        if container is None:
            raise self._core.texts.no_container(container_id)
        return container

    # Commands

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        self.service.check()
        return await commands.exec_sync_sim(
            self._core, self._container(container_id), command, seconds
        )

    async def exec(
        self,
        container_id: str,
        command: Sequence[str],
        output: Output,
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ContainerProcess:
        self.service.check()
        late = commands.start_delay(self._core)
        if late:
            await self._core.clock.sleep(late)
        return commands.exec_sim(
            self._core, self._container(container_id), command, output, stdin=stdin, tty=tty
        )

    async def attach(
        self, container_id: str, output: Output, *, stdin: bool = False, tty: bool = False
    ) -> ContainerProcess:
        self.service.check()
        return commands.attach_sim(self._core, self._container(container_id), output, stdin=stdin)

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        return commands.port_forward_sim(self._core, self._sandbox(sandbox_id), port)

    def login(
        self,
        machine: LoginMachine | None,
        command: Sequence[str],
        output: Output,
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ContainerProcess:
        """Runs a command on the machine itself, a shell without one. `machine` is what the machine
        has in addition to its host.
        """
        return login_session.login(self._core, machine, command, output, stdin=stdin, tty=tty)

    def start_detached(
        self,
        machine: WindowsMachine,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Callable[[bytes], None],
        user: str,
    ) -> tuple[int, ExecClient]:
        """Starts a program on the machine itself; see `WindowsNodeRuntime`."""
        return login_session.start_detached(
            self._core, machine, argv, environment, directory, output, user
        )

    async def run_program(
        self,
        machine: LoginMachine | None,
        argv: Sequence[str],
        seconds: float = 0,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] = MappingProxyType({}),
        apart: bool = False,
    ) -> FinishedProgram:
        """Runs a program on the machine itself, for a component of the node. Raises OSError and
        TimeoutError.
        """
        return await exec_program.exec_on_machine(
            self._core, machine, argv, seconds, stdin=stdin, environment=environment, apart=apart
        )

    # Images

    async def pull_image(
        self, image: str, auth: AuthConfig | None = None, sandbox: SandboxConfig | None = None
    ) -> str:
        core = self._core
        self.service.check()
        hyperv = False
        if sandbox is not None:
            self._fail_if_requested(image, sandbox)
            await self._stall_if_requested(image, sandbox)
            hyperv = any(
                record.isolation.hyperv or record.host_process
                for record in core.by_uid.get(sandbox.uid, ())
            )
        return core.images.pulled_ref(await core.images.pull(image, auth, hyperv=hyperv))

    def _fail_if_requested(self, image: str, sandbox: SandboxConfig) -> None:
        failure = simulated_failure(annotations_of_container(sandbox.annotations, ""), "fail-pull")
        if failure is None:
            return
        key = (sandbox.uid, image)
        before = self._failed_pulls.get(key, 0)
        if failure.applies(before):
            self._failed_pulls[key] = before + 1
            reference = parse_image_name(image)
            texts = self._core.texts
            raise (
                texts.pull_failed(reference, failure.text)
                if failure.text
                else texts.no_tag(reference)
            )

    async def _stall_if_requested(self, image: str, sandbox: SandboxConfig) -> None:
        """The kubelet's dockershim polls a pull, and cancels one that makes no progress for too
        long.
        """
        seconds = pull_stall_seconds(annotations_of_container(sandbox.annotations, ""))
        if not seconds or self.image(image) is not None:
            return
        looked = (self.pull_deadline // _PULL_REPORTS + 1) * _PULL_REPORTS
        if self._core.docker and seconds > looked:
            await self._core.clock.sleep(looked)
            raise RuntimeFailure("Unknown", "context canceled")
        await self._core.clock.sleep(seconds)

    def image(self, image: str) -> Image | None:
        found = self._core.images.view(image)
        return self._pin(found) if found is not None else None

    def images(self) -> Sequence[Image]:
        return [self._pin(image) for image in self._core.images.views()]

    def _pin(self, image: Image) -> Image:
        """containerd reports that it needs the image of sandboxes."""
        pinned = not self._core.docker and self._options.image in image.tags
        return image._replace(pinned=True) if pinned else image

    async def remove_image(self, image: str) -> None:
        self._core.images.remove(image)

    def image_filesystem(self) -> FilesystemUsage:
        core = self._core
        return FilesystemUsage(stats.ROOTS[core.os, core.docker], core.images.used, 0)

    # Statistics and events

    def container_stats(self, uid: str = "") -> Sequence[ContainerStats]:
        records = (
            self._core.containers.values()
            if not uid
            else [c for s in self._records(uid) for c in s.containers]
        )
        found = (stats.sim_container_stats(self._core, container) for container in records)
        return [row for row in found if row is not None]

    def sandbox_stats(self, uid: str = "") -> Sequence[SandboxStats]:
        found = (stats.sim_sandbox_stats(self._core, sandbox) for sandbox in self._records(uid))
        return [row for row in found if row is not None]

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        core = self._core
        core.subscribers += (listener,)

        def end() -> None:
            core.subscribers = tuple(other for other in core.subscribers if other is not listener)

        return end
