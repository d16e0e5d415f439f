"""A container that consists of files and a virtual clock, and programs to run in it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from transom.dns.server import DnsServer
from transom.dns.settings import DnsSettings
from transom.dns.zone import DnsZone
from transom.kit.clock import VirtualClock
from transom.machines.container_files import LayeredFiles
from transom.machines.cpus import CpuTopology
from transom.machines.files import FileTree
from transom.machines.inodes import DiskQuota
from transom.machines.power import PowerSwitch
from transom.machines.styles import POSIX, WINDOWS
from transom.machines.trees import Entry, TreeFile, TreeFolder, TreeOpenFolder, make_tree
from transom.machines.windows.accounts import WindowsUser as Account
from transom.machines.windows.system import INTERFACES, SystemResources, WindowsSystem, fresh_system
from transom.network.api import DnsConfig, PortMapping
from transom.userland.api import (
    ImageInfo,
    LaunchedProcess,
    OpenSocket,
    ProcessEntry,
    Program,
    ProgramContext,
    StackView,
)
from transom.userland.network_view import NetworkView, without_stack
from transom.userland.start import start_program
from transom.windows.builds import BUILDS

_LINUX: dict[str, Entry] = {
    "/bin": TreeFolder(),
    "/tmp": TreeFolder(0o1777),
    "/root": TreeFolder(0o700),
    "/etc/passwd": TreeFile(
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    ),
    "/etc/group": TreeFile(b"root:x:0:\nnobody:x:65534:\n"),
    "/etc/hosts": TreeFile(b"127.0.0.1\tlocalhost\n10.244.1.2\tbox\n"),
    "/etc/resolv.conf": TreeFile(
        b"nameserver 10.96.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local\n"
        b"options ndots:5\n"
    ),
}
_WINDOWS: dict[str, Entry] = {
    r"C:\Windows\System32\drivers\etc\hosts": TreeFile(b"127.0.0.1 localhost\r\n"),
    r"C:\Users\ContainerAdministrator": TreeFolder(),
    r"C:\hello.txt": TreeFile(b"Hello from a file\r\n"),
    "C:\\": TreeOpenFolder(),
}
WINDOWS_ENV = {
    "COMPUTERNAME": "BOX",
    "USERNAME": "ContainerAdministrator",
    "SystemRoot": r"C:\Windows",
    "Path": r"C:\Windows\system32;C:\Windows",
    "OS": "Windows_NT",
}


class Result(NamedTuple):
    out: str
    err: str
    code: int | None  # None: it still runs
    seconds: float


class Stdin:
    def __init__(self, data: bytes | None) -> None:
        self.data = data or b""

    async def read(self, size: int = 65536) -> bytes:
        chunk, self.data = self.data[:size], self.data[size:]
        return chunk

    async def readline(self) -> bytes:
        end = self.data.find(b"\n") + 1 or len(self.data)
        line, self.data = self.data[:end], self.data[end:]
        return line


class Processes:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.entries: dict[int, tuple[ProcessEntry, Callable[[str], None]]] = {}
        self.last = 0

    def list(self) -> list[ProcessEntry]:
        return [entry for entry, _ in self.entries.values()]

    def add(self, argv: Sequence[str], parent: int, signal: Callable[[str], None]) -> int:
        self.last += 1
        self.entries[self.last] = (
            ProcessEntry(self.last, parent, "root", tuple(argv), self.clock.time(), 1 << 20),
            signal,
        )
        return self.last

    def remove(self, pid: int) -> None:
        self.entries.pop(pid, None)

    def output(self, pid: int, number: int) -> Callable[[bytes], None] | None:
        return None

    def signal(self, pid: int, name: str) -> bool:
        if pid not in self.entries:
            return False
        self.entries[pid][1](name)
        return True


class Usage:
    def __init__(self, limit: int, clock: VirtualClock) -> None:
        self._clock = clock
        self._threads: list[float] = []  # when each began
        self._ended = 0.0
        self.cores = 0.0
        self.held = 0
        self.limit = limit

    def cpu(self, cores: float) -> None:
        self.cores = cores

    def thread(self, begins: bool) -> float:
        if begins:
            self._threads.append(self._clock.monotonic())
        else:
            self._ended += self._clock.monotonic() - self._threads.pop(0)
        return 1.0

    @property
    def burnt(self) -> float:
        """Seconds of processor time."""
        return self._ended + sum(self._clock.monotonic() - began for began in self._threads)

    def memory(self, size: int) -> bool:
        if size > self.limit:
            return False
        self.held = size
        return True


class Started:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.pid = context.pid

    async def wait(self) -> int:
        await self.context.finished.wait()
        assert self.context.code is not None
        return self.context.code

    def end(self) -> None:
        assert self.context.program is not None
        self.context.program.kill()
        self.context.exit(1)


class WindowsSide:
    """What a program of Windows sees beside the rest."""

    def __init__(self, context: Context) -> None:
        self._context = context
        registry = context.box.system.registry
        registry.provide(INTERFACES, lambda: self.network.registry_keys())
        self.credential_spec = context.box.credential_spec
        self.power = context.box.power
        self.ntfs = context.files

    @property
    def network(self) -> NetworkView:
        return NetworkView(
            self._context.box.stack,
            None,
            self._context.dns,
            lambda _address: self._context.box.router,
            machine=False,
            registry=self._context.box.system.registry,
        )

    @property
    def system(self) -> WindowsSystem:
        return self._context.box.system

    @property
    def account(self) -> Account:
        found = self._context.box.system.accounts.identity(self._context.user)
        assert found is not None
        return found

    @property
    def resources(self) -> SystemResources:
        """A machine with 8 GiB, half of which are free."""
        used = sum(entry.memory for entry in self._context.processes.list())
        return SystemResources(
            8 << 30, 4 << 30, 10 << 30, 5 << 30, 2 << 30, 0, 100 << 30, 80 << 30, 2, 0.0, 12.5, used
        )

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
        stdin: Stdin | None = None,
    ) -> LaunchedProcess:
        inner = Context(self._context.box, argv, None, main=False, tty=False)
        inner.env, inner.cwd, inner.user = dict(env), cwd, account.name
        inner.stdin = stdin or inner.stdin  # type: ignore[assignment]
        inner.out = inner.err = output  # type: ignore[method-assign]
        try:
            inner.program = start_program(inner)
        except OSError:
            self._context.processes.remove(inner.pid)
            raise
        return Started(inner)


class Context:
    def __init__(
        self, box: Box, argv: Sequence[str], stdin: bytes | None, *, main: bool, tty: bool
    ) -> None:
        self.box = box
        self.argv = tuple(argv)
        self.env = dict(box.env)
        self.cwd = box.cwd
        self.main = main
        self.os = box.os
        self.user = box.user
        self.uid, self.gid, self.groups = box.uid, box.uid, ()
        self.privileged = self.net_admin = self.no_new_privileges = False
        self.image = box.image
        self.ports = box.ports
        self.hostname = "box"
        self.ips = ["10.244.1.2"]
        self.dns = DnsConfig(
            ("10.96.0.10",),
            ("default.svc.cluster.local", "svc.cluster.local", "cluster.local"),
            ("ndots:5",),
        )
        self.build = "10.0.17763.1697" if box.os == "windows" else "5.4.0-60-generic"
        self.cpus = 2
        self.cpuset = frozenset((0, 1))
        self.cpu_topology = CpuTopology(2)
        self.memory_limit = 1 << 30
        self.machine_resources = SystemResources(
            *(8 << 30, 6 << 30, 8 << 30, 3 << 30, 0, 0, 100 << 30, 80 << 30, 2),
            *(box.clock.time() - 90061, 12.5, 2 << 30, (0.5, 0.25, 0.125)),
        )
        self.container_id = "0123456789ab"
        self.files = box.files
        self.clock = box.clock
        self.rng = random.Random(1)
        self.stdin = Stdin(stdin)
        self.tty = tty
        self.tty_size = (80, 24)
        self.processes = box.processes
        self.usage = box.usage
        self.volumes = self.node = self.native = None
        self.output = bytearray()
        self.errors = bytearray()
        self.code: int | None = None
        self.finished = asyncio.Event()
        self.ended = 0.0
        self.program: Program | None = None
        self.listeners: list[Callable[[], None]] = []
        self.pid = box.processes.add(argv, 0, self.signal)

    @property
    def terminal(self) -> Context:
        return self

    @property
    def network(self) -> Context:
        return self

    @property
    def credentials(self) -> Context:
        return self

    @property
    def platform(self) -> Context:
        return self

    @property
    def windows(self) -> WindowsSide:
        return WindowsSide(self)

    def start(self, context: ProgramContext) -> Program:
        return start_program(context)

    def signal(self, name: str) -> None:
        assert self.program is not None
        self.program.signal(name)

    def out(self, data: bytes) -> None:
        self.output += data

    def err(self, data: bytes) -> None:
        self.errors += data

    async def drain(self) -> None:
        return

    def exit(self, code: int) -> None:
        if self.code is None:
            self.code = code
            self.finished.set()
            self.ended = self.clock.monotonic()
            self.processes.remove(self.pid)
            for close in self.listeners:
                close()

    def listen(
        self, port: int, accept: Callable[[socket.socket], None], address: str = ""
    ) -> Callable[[], None]:
        if port in self.box.listening:
            raise OSError(98, "Address already in use")
        self.box.listening[port] = accept

        def close() -> None:
            self.box.listening.pop(port, None)

        self.listeners.append(close)
        return close

    def sockets(self) -> list[OpenSocket]:
        tcp = [OpenSocket("tcp", "0.0.0.0", port) for port in self.box.listening]
        return [*tcp, *(OpenSocket("udp", "0.0.0.0", port) for port in self.box.answering)]

    def traffic(self) -> tuple[int, int]:
        return 2560, 1280

    def stack_view(self) -> StackView:
        return StackView(self.box.stack, lambda _address: self.box.router)

    async def connect(self, host: str, port: int) -> socket.socket:
        await self.resolve(host)
        return self.box.dial(port)

    async def ask(self, server: str, port: int, payload: bytes) -> bytes:
        """One name server, of a cluster with few services, and the box's own servers."""
        self.box.requested.append(server)
        if server == "127.0.0.1":
            if port not in self.box.answering:
                raise ConnectionRefusedError
            reply = await self.box.answering[port](payload, server)
            if reply is None:
                raise TimeoutError
            return bytes(reply)
        if (server, port) != ("10.96.0.10", 53):
            raise TimeoutError
        answer = await self.box.names.respond(payload, self.ips[0])
        assert answer is not None
        return answer

    async def echo(self, address: str, patience: float) -> bool:
        """Every host is near."""
        return True

    def answer(self, port: int, respond: Callable[..., Any]) -> Callable[[], None]:
        if port in self.box.answering:
            raise OSError(98, "Address already in use")
        self.box.answering[port] = respond

        def close() -> None:
            self.box.answering.pop(port, None)

        self.listeners.append(close)
        return close

    async def resolve(self, name: str) -> list[str]:
        if name in ("localhost", "box", "127.0.0.1"):
            return ["127.0.0.1"]
        if name.replace(".", "").isdigit():
            return [name]
        if name.split(".")[0] == "kubernetes":
            return ["10.96.0.1"]
        raise socket.gaierror(-2, "Name or service not known")


def _zone() -> DnsZone:
    zone = DnsZone()
    for key, ip, ports in (
        ("default/kubernetes", "10.96.0.1", [{"name": "https", "port": 443}]),
        ("kube-system/kube-dns", "10.96.0.10", [{"name": "dns", "port": 53, "protocol": "UDP"}]),
        ("other/db", "None", [{"name": "sql", "port": 5432}]),
    ):
        namespace, name = key.split("/")
        zone.put_service(
            {
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": ip, "ports": ports},
            }
        )
    zone.put_service(
        {
            "metadata": {"namespace": "default", "name": "ext"},
            "spec": {"type": "ExternalName", "externalName": "www.example.com"},
        }
    )
    zone.put_slice(
        {
            "metadata": {
                "namespace": "other",
                "name": "db-1",
                "labels": {"kubernetes.io/service-name": "db"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.244.2.3"], "hostname": "db-0"},
                {"addresses": ["10.244.2.4"], "hostname": "db-1"},
            ],
        }
    )
    return zone


class Box:
    """One container."""

    def __init__(self, os: str = "linux", **image: Any) -> None:
        self.os = os
        self.clock = VirtualClock()
        style = WINDOWS if os == "windows" else POSIX
        space = DiskQuota(1 << 40)
        host = FileTree(style, make_tree(style, {}), space, self.clock.time)
        root = make_tree(style, _WINDOWS if os == "windows" else _LINUX)
        self.files = LayeredFiles(style, root, host, space, self.clock.time)
        self.env = (
            dict(WINDOWS_ENV) if os == "windows" else {"PATH": "/usr/bin:/bin", "HOME": "/root"}
        )
        self.cwd = "C:\\" if os == "windows" else "/"
        self.user = "ContainerAdministrator" if os == "windows" else "root"
        self.uid = 0
        image.setdefault("userland", "servercore" if os == "windows" else "busybox")
        self.image = ImageInfo(name=image.pop("name", "example"), os=os, **image)  # type: ignore[arg-type]
        self.ports: list[PortMapping] = []
        self.processes = Processes(self.clock)
        self.usage = Usage(1 << 30, self.clock)
        self.listening: dict[int, Callable[[socket.socket], None]] = {}
        self.answering: dict[int, Callable[..., Any]] = {}
        self.credential_spec = ""
        self.power = PowerSwitch(self.clock)
        self.system = fresh_system(
            self.clock, BUILDS[17763], "box", ("default.svc.cluster.local", "svc.cluster.local")
        )
        self.names = DnsServer(
            _zone(),
            DnsSettings(hosts={"www.example.com": ("192.0.2.53",)}),
            self.clock,
            random.Random(1),
        )
        self.requested: list[str] = []
        self.stack = without_stack(
            "box", ["10.244.1.2"], os="windows" if os == "windows" else "linux"
        )
        self.router = without_stack("router", ["10.244.1.1"])

    def dial(self, port: int) -> socket.socket:
        accept = self.listening.get(port)
        if accept is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        accept(theirs)
        return ours

    def start(
        self, *argv: str, stdin: bytes | None = None, main: bool = True, tty: bool = False
    ) -> Context:
        context = Context(self, argv, stdin, main=main, tty=tty)
        context.program = start_program(context)
        return context

    async def run_to_end(
        self,
        *argv: str,
        stdin: bytes | None = None,
        limit: float = 60.0,
        main: bool = True,
        tty: bool = False,
    ) -> Result:
        context = self.start(*argv, stdin=stdin, main=main, tty=tty)
        begun = self.clock.monotonic()
        await self.wait(context, limit)
        result = self.result(context, begun)
        assert context.program is not None
        context.program.kill()
        return result

    async def wait(self, context: Context, limit: float = 60.0) -> None:
        end = self.clock.monotonic() + limit
        loop: Any = asyncio.get_running_loop()
        busy = 0
        for _ in range(4000):
            for _ in range(12):
                await asyncio.sleep(0)
            if context.code is not None:
                return
            busy = busy + 1 if loop._ready else 0
            if 0 < busy < 200:
                continue  # a program that computes: on a busy machine it takes many turns
            if self.clock._timers and self.clock._timers[0][0] <= end:
                self.clock._run_next(end)
            elif not self.clock._timers:
                await asyncio.sleep(0.001)
                if self.clock.monotonic() >= end:
                    return
                self.clock.advance(0.5)
            else:
                self.clock.advance(max(0.0, end - self.clock.monotonic()))
                return

    def result(self, context: Context, begun: float = 0.0) -> Result:
        return Result(
            context.output.decode(),
            context.errors.decode(),
            context.code,
            (context.ended or self.clock.monotonic()) - begun,
        )

    def run(
        self,
        *argv: str,
        stdin: bytes | None = None,
        limit: float = 60.0,
        main: bool = True,
        tty: bool = False,
    ) -> Result:
        return asyncio.run(self.run_to_end(*argv, stdin=stdin, limit=limit, main=main, tty=tty))

    def sh(self, script: str, **more: Any) -> Result:
        return self.run("sh", "-c", script, **more)

    def cmd(self, line: str, **more: Any) -> Result:
        return self.run("cmd", "/c", line, **more)

    def powershell(self, script: str, **more: Any) -> Result:
        return self.run("powershell", "-Command", script, **more)

    async def http(
        self, port: int, target: str = "/", method: str = "GET", body: bytes = b""
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers, body of an answer of a program that runs."""
        reader, writer = await asyncio.open_connection(sock=self.dial(port))
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: box\r\nContent-Length: "
            f"{len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        data = await reader.read(-1)
        writer.close()
        first, _, content = data.partition(b"\r\n\r\n")
        lines = first.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
        }
        return int(lines[0].split()[1]), headers, content.decode()


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def windows() -> Box:
    return Box("windows")
