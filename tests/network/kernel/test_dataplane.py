"""Real sockets in namespaces behind the seam: reachable servers, refused connections, changes of
the state.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.network.fabrics import OUTSIDE, Cluster, make_cluster

from transom.kit.clock import RealClock
from transom.network.api import Respond
from transom.network.kernel.dataplane import KernelDataplane
from transom.network.kernel.namespaces import missing_kernel_support

pytestmark = pytest.mark.skipif(
    bool(missing_kernel_support()), reason=missing_kernel_support() or "-"
)


@asynccontextmanager
async def plane_of(cluster: Cluster) -> AsyncIterator[KernelDataplane]:
    plane = KernelDataplane(cluster.fabric, "test", RealClock(), patience=15)
    try:
        await plane.settled()
        assert plane.problems == []
        yield plane
    finally:
        await plane.close()


async def printed(plane: KernelDataplane, address: str, port: int, source: str = "") -> str:
    with await plane.connect(address, port, source) as connection:
        return (await asyncio.get_running_loop().sock_recv(connection, 1000)).decode()


def greet(name: str) -> object:
    def accept(connection: socket.socket) -> None:
        with connection:
            connection.send(f"{name} {connection.getpeername()[0]}".encode())

    return accept


async def test_connections_and_their_errors() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    there, here = cluster.pod("there", "windows-1"), cluster.pod("here", "linux-1")
    async with plane_of(cluster) as plane:
        close = plane.listen(there, 80, greet("there"))  # type: ignore[arg-type]
        assert await printed(plane, there, 80, here) == f"there {here}"
        # The machine itself is the first node.
        assert await printed(plane, there, 80) == f"there {cluster.ip('linux-1')}"
        with pytest.raises(OSError) as taken:
            plane.listen(there, 80, greet("other"))  # type: ignore[arg-type]
        assert taken.value.errno == errno.EADDRINUSE
        close()
        with pytest.raises(ConnectionRefusedError):
            await plane.connect(there, 80, here)
        plane.patience = 0.3
        with pytest.raises(TimeoutError):
            await plane.connect("10.99.0.1", 80, here)  # leaves the cluster, and nothing answers
        with pytest.raises(OSError) as nowhere:
            await plane.connect(there, 80, "192.0.2.77")
        assert nowhere.value.errno == errno.EHOSTUNREACH
        with pytest.raises(OSError) as nobodys:
            plane.listen("192.0.2.77", 80, greet("nobody"))  # type: ignore[arg-type]
        assert nobodys.value.errno == errno.EADDRNOTAVAIL


async def test_datagrams() -> None:
    cluster = make_cluster("overlay", 1, 1)
    there, here = cluster.pod("there", "windows-1"), cluster.pod("here", "linux-1")

    async def respond(payload: bytes, source: str) -> bytes | None:
        return payload + source.encode() if payload else None

    async with plane_of(cluster) as plane:
        close = plane.answer(there, 53, respond)
        assert await plane.ask(there, 53, b"?", here) == b"?" + here.encode()
        with pytest.raises(TimeoutError):
            await plane.ask(there, 53, b"", here, timeout=0.1)
        close()
        with pytest.raises(ConnectionRefusedError):
            await plane.ask(there, 53, b"?", here)


async def test_a_pod_that_comes_goes_and_comes_again() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    client = cluster.pod("client", "linux-1")
    async with plane_of(cluster) as plane:
        for round_ in range(3):
            name = f"pod-{round_}"
            address = cluster.pod(name, ("linux-1", "windows-1")[round_ % 2])
            plane.listen(address, 80, greet(name))  # type: ignore[arg-type]
            plane.patience = 15
            assert await printed(plane, address, 80, client) == f"{name} {client}"
            cluster.fabric.remove(cluster.stack(name).name)
            plane.patience = 0.3
            with pytest.raises(OSError):
                await plane.connect(address, 80, client)
        assert plane.problems == []


async def test_no_connection_reaches_a_pod_that_has_left_its_service() -> None:
    cluster = make_cluster("l2bridge", 1, 1)
    clients = [
        cluster.pod("client-linux", "linux-1"),
        cluster.pod("client-windows", "windows-1"),
    ]
    names = ["a", "b", "c"]
    for name, node in zip(names, ("linux-1", "windows-1", "windows-1"), strict=True):
        cluster.pod(name, node)
    cluster.service("web", "10.96.0.10", names)
    async with plane_of(cluster) as plane:
        for name in names:
            plane.listen(cluster.address(name), 80, greet(name))  # type: ignore[arg-type]
        reached: set[str] = set()
        for step in range(12):
            members = [name for number, name in enumerate(names) if number != step % 3]
            cluster.endpoints("web", members)
            await plane.settled()
            answers = await asyncio.gather(
                *(printed(plane, "10.96.0.10", 80, client) for client in clients * 8)
            )
            found = {answer.split()[0] for answer in answers}
            assert found <= set(members)
            reached |= found
        assert reached == set(names)


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="needs nsenter (util-linux)")
@pytest.mark.parametrize("node", ["linux-1", "windows-1"])
async def test_datagrams_of_one_socket_do_not_stick_to_a_pod_that_has_left(node: str) -> None:
    """UDP has no end of a connection: what the kernel remembers has to go with the rule."""

    cluster = make_cluster("l2bridge", 1, 1)
    cluster.pod("client", node)
    addresses = {name: cluster.pod(name, "linux-1") for name in ("a", "b")}
    cluster.service("dns", "10.96.0.10", ["a"], protocol="UDP")
    program = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "s.settimeout(5)\n"
        "for line in sys.stdin: s.sendto(b'?', ('10.96.0.10', 80)); "
        "print(s.recv(99).decode(), flush=True)"
    )
    async with plane_of(cluster) as plane:
        for name, address in addresses.items():
            plane.answer(address, 80, _saying(name.encode()))
        client = await start(await namespace_path(plane, cluster, "client"), program)
        assert client.stdin is not None and client.stdout is not None
        for member in ("a", "b", "a"):
            cluster.endpoints("dns", [member], protocol="UDP")
            await plane.settled()
            client.stdin.write(b"\n")
            assert (await client.stdout.readline()).decode().strip() == member
        client.stdin.close()
        await client.wait()


def _saying(text: bytes) -> Respond:
    async def respond(_payload: bytes, _source: str) -> bytes:
        return text

    return respond


@pytest.mark.parametrize("node", ["linux-1", "windows-1"])
async def test_a_client_keeps_its_backend(node: str) -> None:
    cluster = make_cluster("l2bridge", 1, 1, build=20348)
    client = cluster.pod("client", node)
    names = [f"pod-{number}" for number in range(4)]
    for name in names:
        cluster.pod(name, "linux-1")
    sticky = {
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100}},
    }
    cluster.service("web", "10.96.0.10", names, **sticky)
    async with plane_of(cluster) as plane:
        for name in names:
            plane.listen(cluster.address(name), 80, greet(name))  # type: ignore[arg-type]
        assert len({await printed(plane, "10.96.0.10", 80, client) for _ in range(12)}) == 1


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="needs nsenter (util-linux)")
async def test_processes_in_the_namespaces_of_a_windows_and_a_linux_pod_talk() -> None:
    cluster = make_cluster("overlay", 1, 1)
    server, client = cluster.pod("server", "windows-1"), cluster.pod("client", "linux-1")
    serve = (
        f"import socket; s = socket.create_server(('{server}', 80)); print('up', flush=True); "
        "c, a = s.accept(); c.send(a[0].encode())"
    )
    call = f"import socket; print(socket.create_connection(('{server}', 80), 5).recv(99).decode())"
    async with plane_of(cluster) as plane:
        inside = await start(await namespace_path(plane, cluster, "server"), serve)
        assert inside.stdout is not None and await inside.stdout.readline() == b"up\n"
        outside = await start(await namespace_path(plane, cluster, "client"), call)
        output, _ = await outside.communicate()
        await inside.wait()
        assert output.decode().strip() == client


async def namespace_path(plane: KernelDataplane, cluster: Cluster, pod: str) -> str:
    return (await plane.namespace(cluster.stack(pod).name)).path


async def start(namespace: str, program: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "nsenter",
        f"--net={namespace}",
        sys.executable,
        "-c",
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


async def test_the_outside_has_public_addresses_and_no_way_to_pods() -> None:
    cluster = make_cluster("l2bridge", 1, 0)
    pod = cluster.pod("pod", "linux-1")
    async with plane_of(cluster) as plane:
        plane.listen(pod, 80, greet("pod"))  # type: ignore[arg-type]
        assert await plane.echo("8.8.8.8", pod)
        with pytest.raises(ConnectionRefusedError):
            await plane.connect("8.8.8.8", 80, pod)
        with pytest.raises(OSError):
            await plane.connect(pod, 80, OUTSIDE)
