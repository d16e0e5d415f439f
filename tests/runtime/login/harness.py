"""A Windows machine with fake programs, and a user who logs in to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from tests.runtime.sim import harness

from transom.machines.windows.hns import Adapter
from transom.machines.windows.host import WindowsHost
from transom.runtime.sim.login import scripts
from transom.runtime.sim.login.machine import BINARIES, WindowsMachine
from transom.userland.start import start_program

PATHS = {
    "kubelet": r"C:\k\kubelet.exe",
    "kube-proxy": r"C:\k\kube-proxy.exe",
    "flanneld": r"C:\flannel\flanneld.exe",
}


class Started(NamedTuple):
    binary: str
    argv: list[str]
    environment: dict[str, str]
    directory: str


class Program:
    _pids = count(2_000_000, 4)  # not those of the machine

    def __init__(self) -> None:
        self.pid = next(self._pids)
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return await asyncio.shield(self.code)

    async def stop(self) -> None:
        self.end(0)

    def end(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)


class Binaries:
    """kubelet and other programs: they do nothing, and record their arguments."""

    def __init__(self, host: WindowsHost) -> None:
        self.host = host
        self.now: dict[str, Program] = {}
        self.started: list[Started] = []
        self.refuse = False  # to start, with a reason
        self.network = "cbr0"  # that flanneld makes
        self.plugins: list[tuple[str, str, bytes]] = []

    def boot(self) -> None:
        self.now = {binary: Program() for binary in BINARIES}

    def off(self) -> None:
        """The machine goes down under them."""
        for program in self.now.values():
            program.end(1)
        self.now = {}

    services = BINARIES

    def usual(self, binary: str) -> tuple[str, list[str]]:
        return PATHS[binary], ["--v=2"]

    def environment(self, binary: str) -> Mapping[str, str]:
        return {"kube-proxy": {"KUBE_NETWORK": "cbr0"}, "flanneld": {"NODE_NAME": "win-1"}}.get(
            binary, {}
        )

    def api_connections(self) -> list[tuple[str, str, int]]:
        return []

    def running(self, binary: str) -> Program | None:
        found = self.now.get(binary)
        return None if found is None or found.code.done() else found

    async def launch(
        self,
        binary: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        output: Callable[[bytes], None],
        stdout: Callable[[bytes], None] | None = None,
    ) -> Program:
        self.started.append(Started(binary, list(argv), dict(environment), directory))
        program = self.now[binary] = Program()
        output(f"{binary} begins\n".encode())
        if binary == "kubelet" and "--v=2" in argv:
            output(b"Successfully registered node win-1\n")
        if self.refuse:
            output(b"unknown flag\n")
            program.end(1)
        elif binary == "flanneld":
            self.host.hns.create(
                "network",
                {
                    "Name": self.network,
                    "Type": "Overlay" if self.network == "vxlan0" else "L2Bridge",
                    "SchemaVersion": {"Major": 2, "Minor": 0},
                    "Ipams": [
                        {
                            "Type": "Static",
                            "Subnets": [
                                {
                                    "IpAddressPrefix": "10.244.1.0/24",
                                    "Routes": [
                                        {"NextHop": "10.244.1.1", "DestinationPrefix": "0.0.0.0/0"}
                                    ],
                                }
                            ],
                        }
                    ],
                },
            )
        return program

    def run_plugin(
        self, name: str, environment: Mapping[str, str], request: bytes
    ) -> tuple[int, bytes]:
        self.plugins.append((name, environment["CNI_COMMAND"], request))
        return 0, b'{"ip4": {"ip": "10.244.1.9/24"}}'


class Printed(NamedTuple):
    out: str
    err: str
    code: int


class Login:
    """To be made in a running loop."""

    def __init__(self, adapter: str = "Ethernet") -> None:
        self.harness = harness.make("windows", start=start_program)
        assert isinstance(self.harness.host, WindowsHost)
        self.host = self.harness.host
        self.clock = self.harness.clock
        self.host.hns.set_adapters(
            [Adapter(adapter, "00-15-5D-00-00-01", "10.0.0.1/24", "10.0.0.254")]
        )
        self.binaries = Binaries(self.host)
        self.binaries.boot()
        self.looks = 0
        scripts.install_node_scripts(self.host.files)
        self.machine = WindowsMachine(
            self.host,
            self.host.clock,
            self.binaries,
            self._look,
            self.harness.runtime.version.name,
            self.harness.runtime,
        )

    def _look(self) -> None:
        self.looks += 1

    async def __call__(
        self, *command: str, seconds: float = 60.0, stdin: bytes | None = None
    ) -> Printed:
        """While so much time goes by, at most."""
        printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}

        def output(stream: str, data: bytes) -> None:
            printed[stream] += data

        process = self.harness.runtime.login(self.machine, command, output, stdin=stdin is not None)
        if stdin is not None:
            process.write(stdin)
            process.end_input()
        waiting = asyncio.ensure_future(process.wait())
        end = self.clock.monotonic() + seconds
        while not waiting.done() and self.clock.monotonic() < end:
            await self.clock.run_for(0.05)
        assert waiting.done(), f"{command} still runs: {printed}"
        return Printed(printed["stdout"].decode(), printed["stderr"].decode(), waiting.result())

    async def line(self, line: str, **more: Any) -> Printed:
        return await self(line, **more)

    async def status(self, name: str) -> str:
        return (await self(f"(Get-Service {name}).Status")).out.strip()


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())
