"""`ProgramContext` as the engine gives it to programs. What few of them ask for is made when it is asked for."""

from __future__ import annotations

import ntpath
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from transom.hosts.container_files import LayeredFiles
from transom.hosts.filesystems import FileSystem
from transom.hosts.machine import HostClock
from transom.kit.rpc import Answer
from transom.network.api import Accept, DnsConfig, PortMapping, Respond
from transom.network.resolver import Resolver
from transom.runtime.sim import environment, files, mounting
from transom.runtime.sim.core import Core
from transom.runtime.sim.meter import Share, memory_limit
from transom.runtime.sim.program_api import ImageInfo, Program, Stdin
from transom.runtime.sim.records import ContainerRecord
from transom.runtime.sim.resolve import answering, connect, resolve, settings
from transom.runtime.sim.streams import Client, Speaker, Stream
from transom.runtime.sim.table import Table
from transom.runtime.sim.terminal import Terminal
from transom.windows.builds import BUILDS

_NO_WISHES: Mapping[str, str] = {}
_LOW_PORTS = 1024


class Context(Speaker):
    __slots__ = (
        "_closers", "_container", "_core", "_env", "_files", "_on_exit", "_share", "_sink", "argv", "client", "done",
        "main", "pid", "program", "ready_delay", "sim", "started", "stdin", "terminal", "user",
    )  # fmt: skip

    def __init__(
        self,
        core: Core,
        container: ContainerRecord,
        argv: tuple[str, ...],
        *,
        sink: Callable[[Stream, bytes], None],
        on_exit: Callable[[Context, int], None],
        stdin: Stdin,
        terminal: Terminal | None = None,
        main: bool = False,
        client: Client | None = None,
        sim: Mapping[str, str] = _NO_WISHES,
        ready_delay: float = 0.0,
    ) -> None:
        self._core = core
        self._container = container
        self._sink = sink
        self._on_exit = on_exit
        self._closers: list[Callable[[], None]] = []
        self._env: dict[str, str] | None = None
        self._files: LayeredFiles | None = None
        self._share: Share | None = None
        self.argv = argv
        self.main = main
        self.stdin = stdin
        self.terminal = terminal
        self.client = client
        self.sim = sim
        self.ready_delay = ready_delay
        self.done = False
        self.program: Program | None = None
        self.user = container.identity.name
        self.started = core.host.time()
        self.pid = self.processes.enter(self)

    # What it sees

    @property
    def env(self) -> dict[str, str]:
        if self._env is None:
            c = self._container
            if self._core.windows:
                self._env = environment.windows(c.config, c.spec, c.identity, self.hostname, self.cpus)
            else:
                tty = c.config.tty or self.terminal is not None
                self._env = environment.linux(c.config, c.spec, c.identity, self.hostname, tty)
        return self._env

    @property
    def cwd(self) -> str:
        config, spec = self._container.config, self._container.spec
        asked = config.working_dir or spec.working_dir
        return ntpath.normpath(ntpath.join("C:\\", asked)) if self._core.windows else asked or "/"

    @property
    def os(self) -> Literal["linux", "windows"]:
        return "windows" if self._core.windows else "linux"

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
        return self.privileged or any(name.upper().removeprefix("CAP_") in ("ALL", "NET_ADMIN") for name in added)

    @property
    def no_new_privileges(self) -> bool:
        linux = self._container.config.linux
        return linux is not None and linux.no_new_privileges

    @property
    def image(self) -> ImageInfo:
        return self._container.spec.info

    @property
    def ports(self) -> Sequence[PortMapping]:
        return self._container.config.ports

    @property
    def hostname(self) -> str:
        return self._core.hostname_in(self._container.sandbox)

    @property
    def ips(self) -> Sequence[str]:
        namespace = self._container.sandbox.namespace
        return namespace.addresses if namespace is not None else ()

    @property
    def dns(self) -> DnsConfig:
        return self._container.sandbox.config.dns

    @property
    def build(self) -> str:
        build = BUILDS.get(self._container.spec.platform.build)
        return build.full_version if build is not None else self._core.host.identity.kernel_version

    @property
    def cpus(self) -> int:
        windows = self._container.config.windows
        return (windows.resources.cpu_count if windows is not None else 0) or self._core.host.hardware.cpus

    @property
    def memory_limit(self) -> int:
        return memory_limit(self._container.config) or self._core.host.hardware.memory

    @property
    def container_id(self) -> str:
        return self._container.id

    @property
    def credential_spec(self) -> str:
        windows = self._container.config.windows
        return windows.credential_spec if windows is not None else ""

    @property
    def machine(self) -> None:
        """In a container nobody sees it."""
        return

    @property
    def files(self) -> LayeredFiles:
        if self._files is None:
            config = self._container.config
            if not self.main or config.command or config.args or not self.image.program:
                files.prepare(self._container, self.hostname)  # an image's own server does not look there
            self._files = self._container.files.as_user(self._container.identity.file_user(self._core.windows))
        return self._files

    @property
    def clock(self) -> HostClock:
        return self._core.host.clock

    @property
    def rng(self) -> random.Random:
        return self._core.rng

    @property
    def processes(self) -> Table:
        return self._core.table_of(self._container)

    @property
    def usage(self) -> Share:
        if self._share is None:
            meter = self._container.meter
            assert meter is not None, "a program runs in a running container"
            self._share = Share(meter, None if self._core.windows else self._out_of_memory)
        return self._share

    @property
    def memory(self) -> int:
        own = self._share.size if self._share is not None else 0
        return own or (self._container.meter.memory if self.main and self._container.meter is not None else 0)

    # What it does

    async def drain(self) -> None:
        if self.client is not None:
            await self.client.caught_up()
        elif self.main:
            for client in self._container.attached:
                await client.caught_up()

    def exit(self, code: int) -> None:
        if not self.done:
            self.release()
            self._on_exit(self, code)

    def listen(self, port: int, accept: Accept, address: str = "") -> Callable[[], None]:
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        if 0 < port < _LOW_PORTS and not self._may_bind_low(port):
            raise PermissionError(13, "Permission denied")
        close = namespace.listen(port, accept, address, self.ready_delay)
        self._closers.append(close)
        return close

    def _may_bind_low(self, port: int) -> bool:
        if self._core.windows or self.uid == 0:
            return True
        sysctls = self._container.sandbox.config.linux.sysctls
        return port >= int(sysctls.get("net.ipv4.ip_unprivileged_port_start", _LOW_PORTS))

    async def connect(self, host: str, port: int) -> socket.socket:
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        return await connect(namespace, host, port, self.resolve)

    async def resolve(self, name: str) -> list[str]:
        return await resolve(name, self.os, lambda: self.files, (self.hostname, self.ips), self._resolver)

    def _resolver(self) -> Resolver:
        dns = settings(self.os, lambda: self.files, self.dns)
        return Resolver(self.os, dns, self.clock, self.rng, self.ask, self.connect)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        if self._core.lookup is not None:
            return await answering(self._core.lookup, self.dns)(server, port, payload)
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        return await namespace.ask(server, port, payload)

    async def echo(self, address: str, patience: float) -> bool:
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        return await namespace.echo(address, patience)

    def serve_socket(self, path: str, answer: Answer) -> None:
        self.files.remove(path, recursive=True)
        self._closers.append(self.files.listen(path, answer))

    def dial_socket(self, path: str) -> Answer:
        return self.files.answerer(path)

    def new_file_system(self, size: int) -> FileSystem:
        return self._core.host.files.new_file_system(size)

    def mount(self, system: FileSystem, path: str, read_only: bool = False) -> None:
        mounting.mount(self._core.host, self._container, system, path, read_only)

    def unmount(self, path: str) -> None:
        mounting.unmount(self._core.host, self._container, path)

    def answer(self, port: int, respond: Respond) -> Callable[[], None]:
        namespace = self._container.sandbox.namespace
        assert namespace is not None, "a container runs in a ready sandbox"
        close = namespace.answer(port, respond)
        self._closers.append(close)
        return close

    # What is done with it

    def signalled(self, name: str) -> None:
        """By another process."""
        if name == "SIGKILL":
            self._on_exit_killed()
        elif self.program is not None:
            self.program.signal(name)

    def _on_exit_killed(self) -> None:
        if not self.done:
            self.kill()
            self._on_exit(self, 137)

    def _out_of_memory(self) -> None:
        self._core.out_of_memory(self._container, self)

    def kill(self) -> None:
        """It is gone, without a word."""
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
