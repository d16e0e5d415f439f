"""The `ProgramContext` of programs in simulated containers. Rarely used parts are created on first
use.
"""

from __future__ import annotations

import ntpath
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.machines.container_files import LayeredFiles
from transom.machines.cpus import CpuSet, CpuTopology, machine_topology, parse_cpuset
from transom.machines.machine import HostClock
from transom.runtime.cgroup2 import cgroup2_files
from transom.runtime.sim import environment, files
from transom.runtime.sim.container_network import ContainerNetwork
from transom.runtime.sim.container_volumes import ContainerVolumes
from transom.runtime.sim.container_windows import ContainerWindows
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.meter import ProgramUsage, sim_memory_limit
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.streams import ExecClient, ProgramStreams, Stream
from transom.runtime.sim.table import ProcessIdTable
from transom.runtime.sim.terminal import Terminal
from transom.runtime.sim.users import ContainerIdentity
from transom.userland.api import ImageInfo, NodeAccess, Os, Program, ProgramContext, Stdin
from transom.userland.termination import termination_code
from transom.windows.builds import BUILDS

if TYPE_CHECKING:
    from transom.machines.windows.system import SystemResources
    from transom.runtime.sim import systems
else:
    systems = lazy_import("transom.runtime.sim.systems")

_NO_ANNOTATIONS: Mapping[str, str] = {}
_STARTUP_CPU = 0.03  # start-up time of a process in seconds


class SimContext(ProgramStreams):
    """Also the `TerminalAccess`, `Credentials` and `PlatformInfo` of the program."""

    __slots__ = (
        "_closers",
        "_container",
        "_core",
        "_directory",
        "_env",
        "_files",
        "_on_exit",
        "_share",
        "_sink",
        "argv",
        "client",
        "done",
        "identity",
        "main",
        "pid",
        "program",
        "pty",
        "ready_delay",
        "sim",
        "started",
        "stdin",
        "user",
    )

    def __init__(
        self,
        core: SimCore,
        container: SimContainer,
        argv: tuple[str, ...],
        *,
        sink: Callable[[Stream, bytes], None],
        on_exit: Callable[[SimContext, int], None],
        stdin: Stdin,
        pty: Terminal | None = None,
        main: bool = False,
        client: ExecClient | None = None,
        sim: Mapping[str, str] = _NO_ANNOTATIONS,
        ready_delay: float = 0.0,
        identity: ContainerIdentity | None = None,
        directory: str = "",
    ) -> None:
        """`identity` and `directory` replace those of the container."""
        self._core = core
        self._container = container
        self._sink = sink
        self._on_exit = on_exit
        self._closers: list[Callable[[], None]] = []
        self._env: dict[str, str] | None = None
        self._files: LayeredFiles | None = None
        self._share: ProgramUsage | None = None
        self.argv = argv
        self.main = main
        self.stdin = stdin
        self.pty = pty
        self.client = client
        self.sim = sim
        self.ready_delay = ready_delay
        self.done = False
        self.program: Program | None = None
        self.identity = identity or container.identity
        self._directory = directory
        self.user = self.identity.name
        self.started = core.host.time()
        self.pid = self.processes.enter(self)

    # The process

    @property
    def env(self) -> dict[str, str]:
        if self._env is None:
            c, hostname = self._container, self._core.hostname_in(self._container.sandbox)
            if self._core.windows:
                self._env = environment.windows_environment(
                    c.config, c.spec, self.identity, hostname, self.cpus, c.system
                )
            else:
                tty = c.config.tty or self.pty is not None
                self._env = environment.linux_environment(
                    c.config, c.spec, c.identity, hostname, tty
                )
        return self._env

    @property
    def cwd(self) -> str:
        config, spec = self._container.config, self._container.spec
        requested = self._directory or config.working_dir or spec.working_dir
        if self._core.windows:
            return ntpath.normpath(ntpath.join("C:\\", requested))
        return requested or "/"

    @property
    def os(self) -> Os:
        return "windows" if self._core.windows else "linux"

    @property
    def image(self) -> ImageInfo:
        return self._container.spec.info

    @property
    def clock(self) -> HostClock:
        return self._core.host.clock

    @property
    def rng(self) -> random.Random:
        return self._core.rng

    @property
    def processes(self) -> ProcessIdTable:
        return self._core.table_of(self._container)

    @property
    def usage(self) -> ProgramUsage:
        if self._share is None:
            meter = self._container.meter
            assert meter is not None, "a program runs in a running container"
            killed = None if self._core.windows else self._out_of_memory
            self._share = ProgramUsage(meter, killed, self._core.clock.monotonic)
        return self._share

    def start(self, context: ProgramContext) -> Program:
        return self._core.start(context)

    def exit(self, code: int) -> None:
        if not self.done:
            self.release()
            self._on_exit(self, code)

    # The user

    @property
    def credentials(self) -> SimContext:
        return self

    @property
    def uid(self) -> int:
        return self._container.identity.uid

    @property
    def gid(self) -> int:
        return self._container.identity.gid

    @property
    def groups(self) -> Sequence[int]:
        return self._container.identity.groups

    @property
    def privileged(self) -> bool:
        linux = self._container.config.linux
        return linux is not None and linux.privileged and not self._core.windows

    @property
    def net_admin(self) -> bool:
        linux = self._container.config.linux
        added = linux.add_capabilities if linux is not None and self.uid == 0 else ()
        return self.privileged or any(
            name.upper().removeprefix("CAP_") in ("ALL", "NET_ADMIN") for name in added
        )

    @property
    def no_new_privileges(self) -> bool:
        linux = self._container.config.linux
        return linux is not None and linux.no_new_privileges

    # The system

    @property
    def platform(self) -> SimContext:
        return self

    @property
    def build(self) -> str:
        build = BUILDS.get(self._container.spec.platform.build)
        return build.full_version if build is not None else self._core.host.identity.kernel_version

    @property
    def cpus(self) -> int:
        windows = self._container.config.windows
        own = windows.resources.cpu_count if windows is not None else 0
        return own or self._core.host.hardware.cpus

    @property
    def cpuset(self) -> CpuSet:
        linux, windows = self._container.config.linux, self._container.config.windows
        own = linux.resources.cpuset_cpus if linux is not None else ""
        if windows is not None:
            own = windows.resources.cpuset
        return parse_cpuset(own) or frozenset(range(self.cpus))

    @property
    def cgroup_files(self) -> Mapping[str, str]:
        linux = self._container.config.linux
        return cgroup2_files(linux.resources) if linux is not None else {}

    @property
    def sysctls(self) -> Mapping[str, str]:
        return self._container.sandbox.config.linux.sysctls

    @property
    def oom_score_adjustment(self) -> int:
        linux = self._container.config.linux
        return linux.resources.oom_score_adj if linux is not None else 0

    @property
    def cpu_topology(self) -> CpuTopology:
        return machine_topology(self._core.host.hardware)

    @property
    def memory_limit(self) -> int:
        return sim_memory_limit(self._container.config) or self._core.host.hardware.memory

    @property
    def machine_resources(self) -> SystemResources:
        return systems.machine_resources(self._core)

    @property
    def container_id(self) -> str:
        return self._container.id

    @property
    def user_namespace(self) -> tuple[int, int] | None:
        return self._container.sandbox.config.linux.user_namespace

    # The other interfaces

    @property
    def terminal(self) -> SimContext:
        return self

    async def drain(self) -> None:
        if self.client is not None:
            await self.client.caught_up()
        elif self.main:
            for client in self._container.attached:
                await client.caught_up()

    @property
    def files(self) -> LayeredFiles:
        if self._files is None:
            config = self._container.config
            if not self.main or config.command or config.args or not self.image.program:
                # The servers of images do not read these files.
                hostname = self._core.hostname_in(self._container.sandbox)
                files.prepare_etc(self._container, hostname)
            self._files = self._container.files.as_user(self.identity.file_user())
        return self._files

    @property
    def network(self) -> ContainerNetwork:
        return ContainerNetwork(
            self._core,
            self._container,
            self._closers,
            self.ready_delay,
            lambda: self.files,
            self.pid,
        )

    @property
    def windows(self) -> ContainerWindows:
        return ContainerWindows(
            self._core, self._container, self.identity.account, self.network, lambda: self.files
        )

    @property
    def volumes(self) -> ContainerVolumes:
        return ContainerVolumes(self._core, self._container, self._closers, self.files)

    @property
    def node(self) -> NodeAccess | None:
        """Programs in containers do not see the machine."""
        return None

    @property
    def native(self) -> None:
        return

    # For the process table

    @property
    def memory(self) -> int:
        own = self._share.size if self._share is not None else 0
        meter = self._container.meter
        return own or (meter.memory if self.main and meter is not None else 0)

    @property
    def own_memory(self) -> int:
        return self._share.size if self._share is not None else 0

    @property
    def cpu(self) -> float:
        return _STARTUP_CPU + (self._share.cpu_seconds if self._share is not None else 0.0)

    def signalled(self, name: str) -> None:
        """By another process."""
        code = termination_code(name, windows=self._core.windows)
        if code is not None:
            self._terminated(code)
        elif self.program is not None:
            self.program.signal(name)

    def _terminated(self, code: int) -> None:
        if not self.done:
            self.kill()
            self._on_exit(self, code)

    def _out_of_memory(self) -> None:
        self._core.out_of_memory(self._container, self)

    # For the runtime

    def kill(self) -> None:
        """Ends the program without calling `on_exit`."""
        if not self.done:
            self.release()
            if self.program is not None:
                self.program.kill()

    def release(self) -> None:
        self.done = True
        for close in self._closers:
            close()
        self._closers.clear()
        self.processes.leave(self.pid)
        if self._share is not None:
            self._share.give_back()
