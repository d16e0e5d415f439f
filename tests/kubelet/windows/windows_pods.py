"""Windows pods and what can be seen of them: states, logs, commands inside, files on the node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import pytest
from tests.kubelet.conftest import Node

from transom.runtime.api import Container, ExecResult
from transom.userland.api import Program, ProgramContext
from transom.userland.start import start_program

T = TypeVar("T")
SERVERCORE, NANO = (
    "mcr.microsoft.com/windows/servercore:ltsc2019",
    "mcr.microsoft.com/windows/nanoserver:1809",
)
WAIT = ["ping", "-t", "localhost"]
BOTH = ("docker", "containerd")
flavours = pytest.mark.parametrize("flavour", BOTH)


class Stubborn:
    """The program `stubborn`: it hears every event and leaves when it reads `leave`, or never."""

    def __init__(self, context: ProgramContext, received: list[str]) -> None:
        self.context = context
        self.received = received

    def signal(self, name: str) -> None:
        self.received.append(name)
        self.context.out(f"{name}\r\n".encode())
        if "leave" in self.context.argv:
            self.context.clock.call_later(float(self.context.argv[2]), self.context.exit, 0)

    def kill(self) -> None:
        self.received.append("killed")


def stubborn(received: list[str]) -> dict[str, Any]:
    """Options of a runtime that has this program, too."""

    def start(context: ProgramContext) -> Program:
        return (
            Stubborn(context, received) if context.argv[0] == "stubborn" else start_program(context)
        )

    return {"start": start}


def container(
    *command: str, name: str = "c", image: str = SERVERCORE, **more: Any
) -> dict[str, Any]:
    """It waits forever unless the test gives it something else to do."""
    return {"name": name, "image": image, "command": list(command or WAIT), **more}


def cmd(script: str, name: str = "c", **more: Any) -> dict[str, Any]:
    return container("cmd", "/c", script, name=name, **more)


def simulation_annotations(**values: str) -> dict[str, Any]:
    """Metadata with annotations for the simulated runtime: simulation_annotations(run_time="5s")."""
    return {
        "annotations": {
            f"sim.transom.dev/{key.replace('_', '-')}": value for key, value in values.items()
        }
    }


async def running(node: Node, name: str = "p", seconds: int = 20) -> Any:
    """The pod, when all its containers run."""
    return await until(
        node,
        name,
        lambda pod: (
            pod["status"]["phase"] == "Running"
            and all("running" in s["state"] for s in states(pod))
        ),
        seconds,
    )


async def ended(node: Node, name: str = "p", seconds: int = 60) -> Any:
    return await until(
        node, name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"), seconds
    )


async def until(node: Node, name: str, there: Any, seconds: int = 60) -> Any:
    for _ in range(seconds * 2):
        pod = await node.pod(name)
        if there(pod):
            return pod
        await node.settle(0.5)
    raise AssertionError(f"{name}: {json.dumps(pod['status'], indent=1)}\n{await recorded(node)}")


def states(pod: Any) -> list[Any]:
    return pod["status"].get("containerStatuses") or [{"state": {}}]


def state(pod: Any, name: str = "c") -> Any:
    """Of a container: {"running": ...}, {"waiting": ...}, {"terminated": ...}."""
    return next(s for s in states(pod) if s["name"] == name)["state"]


async def waiting(node: Node, reason: str, name: str = "p", seconds: int = 30) -> str:
    """The message with which the container waits for that reason."""
    pod = await until(node, name, lambda pod: state_reason(pod) == reason, seconds)
    return str(state(pod)["waiting"].get("message", ""))


def state_reason(pod: Any, name: str = "c") -> str:
    if not pod["status"].get("containerStatuses"):
        return ""
    [shown] = state(pod, name).values()
    return str(shown.get("reason", ""))


async def recorded(node: Node, reason: str = "") -> list[str]:
    """The messages of events, of one reason or of all of them."""
    return [text for _, why, text in await node.events() if not reason or why == reason]


async def warnings(node: Node) -> list[tuple[str, str]]:
    return [(why, text) for kind, why, text in await node.events() if kind == "Warning"]


def log(node: Node, pod: Any, name: str = "c", attempt: int = 0) -> str:
    """What a container has written, with the line ends of Linux."""
    meta = pod["metadata"]
    path = f"C:\\var\\log\\pods\\{meta['namespace']}_{meta['name']}_{meta['uid']}\\{name}\\{attempt}.log"
    lines = node.host.files.read(path).decode().splitlines()
    return "\n".join(line.split(" ", 3)[3].rstrip("\r") for line in lines)


def in_runtime(node: Node, pod: Any, name: str = "c") -> Container:
    """The newest one of the name."""
    return next(c for c in node.runtime.containers(pod["metadata"]["uid"]) if c.name == name)


def config(node: Node, pod: Any, name: str = "c") -> Any:
    """What the kubelet has given the runtime for a container."""
    record = node.runtime._core.containers[in_runtime(node, pod, name).id]
    return record.config


def meant(node: Node, pod: Any) -> Any:
    """What the kubelet has given the runtime for the sandbox."""
    return node.runtime.sandboxes(pod["metadata"]["uid"])[0]


async def do(node: Node, coroutine: Coroutine[Any, Any, T], seconds: float = 2.0) -> T:
    """Its answer, while time goes on."""
    task = asyncio.get_running_loop().create_task(coroutine)
    await node.settle(seconds)
    assert task.done()
    return task.result()


async def run(
    node: Node, pod: Any, *command: str, name: str = "c", seconds: float = 2.0
) -> ExecResult:
    return await do(node, node.runtime.exec_sync(in_runtime(node, pod, name).id, command), seconds)


async def printed(node: Node, pod: Any, script: str, name: str = "c") -> str:
    """What cmd prints in a container."""
    result = await run(node, pod, "cmd", "/c", script, name=name)
    return (result.stdout + result.stderr).decode().replace("\r\n", "\n").strip()


def volume(pod: Any, plugin: str, name: str) -> str:
    """Where a volume is on the node."""
    return f"C:\\var\\lib\\kubelet\\pods\\{pod['metadata']['uid']}\\volumes\\kubernetes.io~{plugin}\\{name}"


def summary(node: Node) -> Mapping[str, Any]:
    """/stats/summary."""
    return node.kubelet.server.stats.summary()


def at(path: str, **more: Any) -> list[Any]:
    return [{"name": "v", "mountPath": path, **more}]
