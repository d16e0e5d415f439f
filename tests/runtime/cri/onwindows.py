"""Run by `test_windows.py` in a Python for Windows: all calls of a kubelet to its runtime, over a
named pipe.

    python.exe onwindows.py LOGS

Of the lines it writes, "away" and "back" are for the one who started it: the pipe is to go, or to
be there, and then a line is the answer. It may import nothing that is not on Windows, and so no
other part of the tests.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from transom.kit.clock import RealClock
from transom.runtime.api import ContainerConfig, RuntimeEvent, RuntimeFailure, SandboxConfig
from transom.runtime.cri import address
from transom.runtime.cri.client import CriClient
from transom.runtime.cri.runtime import CriRuntime

IMAGE = "busybox"
STAY = ("sh", "-c", "trap 'exit 7' TERM; echo ready; echo so >&2; while true; do sleep 0.05; done")
_PATIENCE = 30.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def ask(what: str) -> None:
    say(what)
    assert await asyncio.to_thread(sys.stdin.readline) == "done\n"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def failure(call: Awaitable[object]) -> RuntimeFailure:
    try:
        await call
    except RuntimeFailure as found:
        return found
    raise AssertionError("it did not fail")


class Node:
    def __init__(self, logs: str) -> None:
        self.logs = logs
        self.runtime = CriRuntime(RealClock(), period=0.1, patience=20)
        self.events: list[RuntimeEvent] = []
        self.runtime.subscribe(self.events.append)

    async def sandbox(self, uid: str) -> str:
        config = SandboxConfig("web", "default", uid, hostname="web", log_directory=self.logs)
        return await self.runtime.run_sandbox(config)

    async def create(self, sandbox: str, name: str, *command: str, stdin: bool = False) -> str:
        reference = await self.runtime.pull_image(IMAGE)
        config = ContainerConfig(
            name, 0, IMAGE, reference, command=command, log_path=f"{name}.log", stdin=stdin
        )
        return await self.runtime.create_container(sandbox, config)

    def log(self, name: str) -> list[tuple[str, ...]]:
        path = os.path.join(self.logs, f"{name}.log")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [tuple(line.split(" ", 3)[1:]) for line in file.read().splitlines()]

    def state(self, container: str) -> tuple[str, int]:
        found = self.runtime.container(container)
        assert found is not None
        return found.state, found.exit_code


async def lives(node: Node) -> None:
    """A sandbox and a container from their beginning to their end."""
    runtime = node.runtime
    sandbox = await node.sandbox("uid-1")
    (found,) = runtime.sandboxes()
    assert (found.id, found.state, found.config.hostname) == (sandbox, "ready", "web")
    assert found.ips[0].startswith("10.88.0."), found
    made = await node.create(sandbox, "stay", *STAY)
    assert node.state(made) == ("created", 0)
    grown = asyncio.Event()
    end = runtime.watch_log(made, grown.set)
    await runtime.start_container(made)
    async with asyncio.timeout(_PATIENCE):
        await grown.wait()
    end()
    await until(lambda: len(node.log("stay")) == 2)
    assert sorted(node.log("stay")) == [("stderr", "F", "so"), ("stdout", "F", "ready")]
    await runtime.refresh()
    (row,) = runtime.container_stats("uid-1")
    assert row.id == made and row.usage > 0, row
    await runtime.stop_container(made, 10)
    assert node.state(made) == ("exited", 7)
    short = await node.create(sandbox, "short", "sh", "-c", "exit 3")
    await runtime.start_container(short)
    await until(lambda: node.state(short) == ("exited", 3))  # only the list shows it
    assert [event.kind for event in node.events if event.container_id == made] == [
        "started",
        "died",
    ]
    await runtime.remove_container(short)
    await runtime.remove_sandbox(sandbox)
    assert not runtime.sandboxes() and not runtime.containers()


async def commands(node: Node) -> None:
    """In a container: at once, with streams, many at a time, with much to say."""
    runtime = node.runtime
    made = await node.create(await node.sandbox("uid-2"), "commands", *STAY)
    await runtime.start_container(made)
    printed = await runtime.exec_sync(made, ("sh", "-c", "echo out; echo err >&2; exit 5"), 10)
    assert (printed.stdout, printed.stderr, printed.exit_code) == (b"out\n", b"err\n", 5)
    assert (await failure(runtime.exec_sync(made, ("sleep", "9"), 1))).code == "DeadlineExceeded"
    many = await asyncio.gather(
        *(runtime.exec_sync(made, ("echo", str(number))) for number in range(10))
    )
    assert [each.stdout for each in many] == [f"{number}\n".encode() for number in range(10)]
    much = await runtime.exec_sync(made, ("head", "-c", "3000000", "/dev/zero"))
    assert much.stdout == bytes(3000000)
    received: list[bytes] = []
    script = "read x; echo you wrote $x; exit 4"
    process = await runtime.exec(
        made, ("sh", "-c", script), lambda _, data: received.append(data), stdin=True
    )
    process.write(b"hello\n")
    assert await process.wait() == 4
    assert b"".join(received) == b"you wrote hello\n"
    received.clear()
    process = await runtime.exec(
        made, ("sh", "-c", "tty; exit 6"), lambda _, data: received.append(data), tty=True
    )
    assert await process.wait() == 6
    assert b"".join(received).startswith(b"/dev/pts/")


async def attachments(node: Node) -> None:
    """To a container that reads its input. It lives on until it was heard: runtimes may lose the
    last output.
    """
    runtime, received = node.runtime, list[bytes]()
    (sandbox,) = runtime.sandboxes("uid-2")
    made = await node.create(
        sandbox.id, "listener", "sh", "-c", "read x; echo you wrote $x; read x", stdin=True
    )
    await runtime.start_container(made)
    process = await runtime.attach(made, lambda _, data: received.append(data), stdin=True)
    process.write(b"hello\n")
    await until(lambda: b"".join(received) == b"you wrote hello\n")
    process.write(b"\n")
    assert await process.wait() == 0
    await until(lambda: node.state(made) == ("exited", 0))


async def ports(node: Node) -> None:
    """One that no listener on, and one that answers."""
    runtime, loop = node.runtime, asyncio.get_running_loop()
    (sandbox,) = runtime.sandboxes("uid-2")
    echo = await node.create(sandbox.id, "echo", "nc", "-ll", "-p", "8080", "-e", "cat")
    await runtime.start_container(echo)
    assert "refused" in (await failure(runtime.port_forward(sandbox.id, 81))).description
    async with asyncio.timeout(_PATIENCE):
        while True:  # until it listens
            try:
                connection = await runtime.port_forward(sandbox.id, 8080)
                break
            except RuntimeFailure:
                await asyncio.sleep(0.05)
        payload = os.urandom(1 << 18)
        sending = asyncio.create_task(loop.sock_sendall(connection, payload))
        echoed = b""
        while len(echoed) < len(payload):
            echoed += await loop.sock_recv(connection, 1 << 16)
        await sending
    assert echoed == payload
    connection.close()


async def others(node: Node) -> None:
    """More clients of the same pipe: those who find all its instances busy wait."""
    clients = [CriClient(address.DEFAULT, 20) for _ in range(4)]
    answers = await asyncio.gather(*(client.call("ListPodSandbox") for client in clients))
    assert all(len(answer["items"]) == 1 for answer in answers)
    for client in clients:
        client.close()


async def absence(node: Node) -> None:
    """The pipe goes, and comes back."""
    runtime = node.runtime
    (before,) = (each for each in runtime.containers() if each.name == "commands")
    under_way = asyncio.create_task(failure(runtime.exec_sync(before.id, ("sleep", "60"))))
    await ask("away")
    assert (await under_way).code == "Unavailable"
    await until(lambda: runtime.status().runtime_reason == "ContainerRuntimeUnreachable")
    why = await failure(runtime.exec_sync(before.id, ("true",)))
    assert why.code == "Unavailable"
    assert (
        "transport: Error while dialing open //./pipe/containerd-containerd: " in why.description
    ), why
    assert runtime.container(before.id) == before
    await ask("back")
    await until(lambda: not runtime.status().runtime_reason)
    assert (await runtime.exec_sync(before.id, ("echo", "alive"))).stdout == b"alive\n"
    assert runtime.container(before.id) == before


async def main(logs: str) -> None:
    assert os.name == "nt"
    assert type(asyncio.get_running_loop()).__name__ == "ProactorEventLoop"
    node = Node(logs)
    assert (await failure(node.runtime.start())).code == "Unavailable"  # the pipe is not there yet
    await ask("back")
    await node.runtime.start()
    assert not node.runtime.status().runtime_reason
    say(f"{node.runtime.version.name} {node.runtime.version.version}, {node.runtime.interface}")
    try:
        for part in (lives, commands, attachments, ports, others, absence):
            await part(node)
            say(part.__name__)
    finally:
        for sandbox in node.runtime.sandboxes():
            await node.runtime.remove_sandbox(sandbox.id)
        await node.runtime.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
