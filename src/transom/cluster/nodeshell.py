"""Logging in to simulated nodes: `transom node exec` and `transom node shell` at the cluster's side.

A Windows machine as its programs see it is made when somebody first logs in, and kept while the node is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.cluster.errors import ClusterError
from transom.http.messages import Answer, Request
from transom.kit.streaming import channels
from transom.kubelet.server.answers import Failure
from transom.kubelet.server.commands import parse_streams, serve_process
from transom.machinery.objects import Object
from transom.runtime.api import Output, Process
from transom.runtime.sim.engine import SimRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transom.cluster.fleet import Fleet, Machine
    from transom.runtime.sim.login.machine import WindowsMachine


def _outcome(code: int) -> Object:
    return channels.exit_status(code, f"exit code {code}")


class NodeShells:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._machines: dict[str, tuple[Machine, WindowsMachine]] = {}

    def serve(self, name: str, request: Request) -> Answer:
        """ClusterError for a node that nobody can log in to."""
        runtime, machine = self._way(name)
        command = request.query.get("command", [])
        try:
            streams = parse_streams(request.query)

            async def begin(output: Output) -> Process:
                return runtime.login(machine, command, output, stdin=streams.stdin, tty=streams.tty)

            return serve_process(
                self._fleet.machine(name).host.clock, request, streams, begin, _outcome,
                "the command could not be run on the node",
            )  # fmt: skip
        except Failure as problem:
            raise ClusterError(str(problem).strip()) from problem

    def login(self, name: str, command: Sequence[str], output: Output) -> Process:
        """A command without input. Raises as `serve` does."""
        runtime, machine = self._way(name)
        return runtime.login(machine, command, output)

    async def booted(self, name: str) -> None:
        """A node was switched on. Nothing to do where nobody has logged in before."""
        known = self._machines.get(name)
        if known is not None and known[0] is self._fleet.machine(name):
            await known[1].boot()

    def _way(self, name: str) -> tuple[SimRuntime, WindowsMachine | None]:
        node = self._fleet.machine(name)
        if not isinstance(node.runtime, SimRuntime):
            raise ClusterError(
                f"node {name} has no machine of its own to log in to: its containers are real, and run on this one",
                "kubectl exec reaches its containers; nodes with simulated ones can be logged in to",
            )
        if node.spec.stopped:
            raise ClusterError(f"node {name} is switched off", f"transom node start {name}")
        return node.runtime, self._windows(node) if node.spec.windows else None

    def _windows(self, node: Machine) -> WindowsMachine:
        from transom.runtime.sim.login import scripts
        from transom.runtime.sim.login.machine import WindowsMachine

        name = node.spec.name
        known = self._machines.get(name)
        if known is not None and known[0] is node:
            known[1].refresh()
            return known[1]
        machine = WindowsMachine(
            node.host, node.host.clock, self._fleet.binaries(name), lambda: self._fleet.network.fabric.look(name),
            node.spec.runtime,
        )  # fmt: skip
        scripts.install(node.host.files)
        self._machines[name] = (node, machine)
        return machine
