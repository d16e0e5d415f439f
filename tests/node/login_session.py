"""Commands of users who log in to a simulated node."""

from __future__ import annotations

from collections.abc import Sequence

from transom.node.node import Node
from transom.runtime.api import ContainerProcess, Output
from transom.runtime.sim.engine import SimRuntime


def run_login(node: Node, command: Sequence[str], output: Output) -> ContainerProcess:
    """Runs a command without input."""
    assert isinstance(node.runtime, SimRuntime)
    return node.runtime.login(node.login_machine(), command, output)
