"""The commands of a Windows node that show and change its containers: docker or crictl, and hcsdiag."""

from __future__ import annotations

from transom.runtime.sim import containers, sandboxes
from transom.runtime.sim.compute import compute_systems
from transom.runtime.sim.login.crictl import crictl
from transom.runtime.sim.login.docker import docker
from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.login.runtime_client import (
    RuntimeClient,
)
from transom.userland.process import Command


def hcsdiag(client: RuntimeClient) -> int:
    words = [word.lower() for word in client.process.argv[1:]]
    if not words or words[0] not in ("list", "kill", "close"):
        client.process.write(
            "hcsdiag <command> [options...]\r\n\r\n  list [-raw]\r\n  kill <id>\r\n  close <id>\r\n"
        )
        return 1
    systems = list(compute_systems(client.core))
    if words[0] == "list":
        for system in systems:
            kind = "VM" if system.virtual_machine else "Windows Server Container"
            client.process.write(
                f"{system.id}\r\n    {kind}, \tRunning, {system.runtime_id}, {system.owner}\r\n\r\n"
            )
        return 0
    found = next((s for s in systems if len(words) > 1 and s.id.lower() == words[1]), None)
    if found is None:
        client.process.complain(
            "Error: 0xc037010e\r\nA virtual machine or container with the specified identifier does not exist."
        )
        return 1
    core = client.core
    if found.container is not None:
        containers.kill_sim_container(core, found.container)
    else:
        sandboxes.power_off_sandbox(core, found.sandbox)
        core.emit("died", found.sandbox, found.sandbox.id)
    return 0


def runtime_commands(machine: WindowsMachine) -> dict[str, Command]:
    """The commands of a machine's runtime: its client, and hcsdiag."""
    name, client = ("docker", docker) if machine.runtime == "docker" else ("crictl", crictl)
    return {
        name: lambda process: client(RuntimeClient(process, machine)),
        "hcsdiag": lambda process: hcsdiag(RuntimeClient(process, machine)),
    }
