"""Logins to simulated nodes: the cluster's side of `transom node exec` and `transom node shell`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.http.messages import Answer, HttpRequest
from transom.kit.streaming import channels
from transom.kit.user_errors import UserError
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.commands import parse_streams, serve_process
from transom.machinery.objects import Object
from transom.node.node import Node
from transom.runtime.api import ContainerProcess, Output
from transom.runtime.sim.engine import SimRuntime

if TYPE_CHECKING:
    from transom.runtime.sim.login.session import LoginMachine


def serve_login(node: Node, request: HttpRequest) -> Answer:
    """Raises UserError for a node that users cannot log in to."""
    runtime, machine = _login_target(node)
    command = request.query.get("command", [])
    try:
        streams = parse_streams(request.query)

        async def begin(output: Output) -> ContainerProcess:
            return runtime.login(machine, command, output, stdin=streams.stdin, tty=streams.tty)

        failure = "the command could not be run on the node"
        return serve_process(node.machine.clock, request, streams, begin, _exit_status, failure)
    except HttpFailure as problem:
        raise UserError(str(problem).strip()) from problem


def _login_target(node: Node) -> tuple[SimRuntime, LoginMachine | None]:
    name, runtime = node.spec.name, node.runtime
    if not isinstance(runtime, SimRuntime):
        raise UserError(
            f"node {name} has no machine of its own to log in to: its containers are real, and run "
            "on this one",
            "kubectl exec reaches its containers; nodes with simulated ones can be logged in to",
        )
    if node.spec.stopped:
        raise UserError(f"node {name} is switched off", f"transom node start {name}")
    return runtime, node.login_machine()


def _exit_status(code: int) -> Object:
    return channels.exit_code_status(code, f"exit code {code}")
