"""kubelet.exe, kube-proxy.exe and flanneld.exe of one simulated Windows node, as programs that people start and stop.

Since boot a node runs all three without a process of their own: what they do is done by the fleet. Here each of them can be
looked at, stopped alone and started again with a command line. A node whose programs nobody touches has none of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from transom.cluster.fleet import Fleet, Machine

log = logging.getLogger("transom.cluster")

Output = Callable[[bytes], None]
BINARIES: Final = ("kubelet", "kube-proxy", "flanneld")
_PATHS: Final = {"kubelet": r"C:\k\kubelet.exe", "kube-proxy": r"C:\k\kube-proxy.exe", "flanneld": r"C:\flannel\flanneld.exe"}


class Program(Protocol):
    """Something that runs on the node."""

    async def wait(self) -> int:
        """Its exit code, when it has ended."""

    async def stop(self) -> None:
        """Returns when it has ended."""


class Process:
    """A program by what it was started with. `end` makes it end; who sees that it has ended calls `exit`."""

    def __init__(self, binary: str, argv: Sequence[str], pid: int, end: Callable[[], Awaitable[None]]) -> None:
        self.binary = binary
        self.argv = list(argv)
        self.pid = pid
        self._end = end
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> bool:
        return self._code.done()

    def exit(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def stop(self) -> None:
        if not self.ended:
            await self._end()
            self.exit(0)


class NodeBinaries:
    """Made by `Fleet.binaries`."""

    def __init__(self, fleet: Fleet, machine: Machine) -> None:
        self._fleet = fleet
        self._machine = machine
        self._pids = 4000
        self._running: dict[str, Process] = {}
        self.booted()

    def usual(self, binary: str) -> tuple[str, list[str]]:
        """Where it is on the node, and the arguments that it runs with since boot."""
        return _PATHS[binary], []

    def running(self, binary: str) -> Process | None:
        found = self._running.get(binary)
        return None if found is None or found.ended else found

    async def launch(
        self, binary: str, argv: Sequence[str], environment: Mapping[str, str], directory: str, output: Output
    ) -> Process:
        """One that cannot start is a program that ends with an exit code and has written the reason to its output."""
        if self.running(binary) is not None:
            failed = self._process(binary, argv, _nothing)
            output(f"{binary} runs already\r\n".encode())
            failed.exit(1)
            return failed
        starts: dict[str, Callable[[], None]] = {
            "kubelet": self._start_kubelet, "kube-proxy": self._start_proxy, "flanneld": self._start_flanneld,
        }
        starts[binary]()
        process = self._running[binary] = self._process(binary, argv, self._ends()[binary])
        return process

    # ---- the machine's power ---------------------------------------------------------------------------------------

    def booted(self) -> None:
        """All of them run since boot."""
        if self._machine.spec.stopped:
            return
        ends = self._ends()
        self._running = {binary: self._process(binary, self.usual(binary)[1], ends[binary]) for binary in BINARIES}

    def powered_off(self) -> None:
        for process in self._running.values():
            process.exit(1)
        self._running.clear()

    # ---- each of them ----------------------------------------------------------------------------------------------

    def _ends(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "kubelet": lambda: self._fleet.stop_kubelet(self._machine), "kube-proxy": self._stop_proxy,
            "flanneld": self._stop_flanneld,
        }  # fmt: skip

    async def _stop_proxy(self) -> None:
        self._machine.network.absent.add("kube-proxy")
        self._machine.network.stop_proxy()

    async def _stop_flanneld(self) -> None:
        self._machine.network.absent.add("flanneld")
        self._machine.network.stop_agent()

    def _start_kubelet(self) -> None:
        self._machine.task = self._fleet.spawn(self._fleet.kubelet_life(self._machine))

    def _start_proxy(self) -> None:
        self._machine.network.absent.discard("kube-proxy")
        self._machine.network.network_started()

    def _start_flanneld(self) -> None:
        network = self._machine.network
        network.absent.discard("flanneld")
        agent = network.flanneld()
        agent.start(network.subnets(network.pods.cidr.split(",")))
        network.use_agent(agent)

    def _process(self, binary: str, argv: Sequence[str], end: Callable[[], Awaitable[None]]) -> Process:
        self._pids += 4
        return Process(binary, argv, self._pids, end)


async def _nothing() -> None:
    return None
