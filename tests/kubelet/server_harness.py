"""One node with one pod, for tests of a kubelet's server: real files, a scripted runtime."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from transom.http.messages import HttpRequest, PeerCertificate
from transom.kit.clock import VirtualClock
from transom.kubelet import os_linux, os_windows
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.labels import container_labels, pod_labels
from transom.kubelet.server.server import KubeletServer
from transom.machinery.objects import Object
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost
from transom.runtime.api import (
    Container,
    ContainerStats,
    CpuUsage,
    ExecResult,
    FilesystemUsage,
    InterfaceStats,
    RuntimeEvent,
    RuntimeFailure,
    RuntimeVersion,
    Sandbox,
    SandboxConfig,
    SandboxStats,
)

ADMIN = PeerCertificate("admin", ["system:masters"])
LOG = "/var/log/pods/ns_p_u1/c/0.log"
LIMITS = {
    "limits": {"memory": "64Mi", "cpu": "500m"},
    "requests": {"memory": "32Mi", "cpu": "250m"},
}


def make_pod(**status: Any) -> Object:
    running = {
        "name": "c",
        "containerID": "docker://cid",
        "state": {"running": {}},
        "lastState": {},
    }
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "busybox:1", "resources": LIMITS}],
            "volumes": [
                {"name": "cache", "emptyDir": {}},
                {"name": "keys", "secret": {"secretName": "s"}},
            ],
        },
        "status": {"startTime": "2020-01-02T03:04:05Z", "containerStatuses": [running], **status},
    }


class Process:
    """An exec'd command. `script` is what it does."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.input = b""
        self.events: list[Any] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_input: Callable[[bytes], None] = lambda data: None

    def write(self, data: bytes) -> None:
        self.input += data
        self.on_input(data)

    input_full = False

    async def input_drained(self) -> None:
        """It reads at once."""

    def end_input(self) -> None:
        self.events.append("eof")
        self.exit(0)

    def resize(self, width: int, height: int) -> None:
        self.events.append((width, height))

    def hold(self, held: bool) -> None:
        self.events.append(("hold", held))

    async def wait(self) -> int:
        return await self.ended

    def close(self) -> None:
        self.events.append("closed")

    def exit(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)


class StubRuntime:
    def __init__(self, clock: VirtualClock, name: str = "docker") -> None:
        self.version = RuntimeVersion(name, "19.3.14-sim")
        self.clock = clock
        self.made = clock.time()
        self._sandboxes: list[Sandbox] = []
        self._containers: dict[str, Container] = {}
        self.listeners: list[Callable[[RuntimeEvent], None]] = []
        self.log_listeners: list[Callable[[], None]] = []
        self.processes: list[Process] = []
        self.begin: Callable[[Process, Sequence[str]], None] = lambda process, command: None
        self.failure: RuntimeFailure | None = None
        self.layer: FilesystemUsage | None = FilesystemUsage("/var/lib/docker", 4096, 2)
        self.nano_cores: int | None = 1_000_000

    def add(self, pod: Object, log_path: str) -> None:
        meta = pod["metadata"]
        config = SandboxConfig(meta["name"], meta["namespace"], meta["uid"], labels=pod_labels(pod))
        self._sandboxes.append(Sandbox("sid", config, "ready", self.made, ips=("10.0.0.2",)))
        self._containers["cid"] = Container(
            "cid",
            "sid",
            "c",
            0,
            "running",
            "busybox:1",
            "sha256:1",
            container_labels(pod, {"name": "c"}),
            {},
            self.made,
            self.made,
            log_path=log_path,
        )

    def exit(self, container_id: str = "cid") -> None:
        self._containers[container_id] = replace(self._containers[container_id], state="exited")
        for listener in [*self.listeners]:
            listener(RuntimeEvent("died", "u1", container_id))

    def sandboxes(self, uid: str = "") -> list[Sandbox]:
        return [s for s in self._sandboxes if not uid or s.config.uid == uid]

    def containers(self, uid: str = "") -> list[Container]:
        return [*self._containers.values()] if uid in ("", "u1") else []

    def container(self, container_id: str) -> Container | None:
        return self._containers.get(container_id)

    def watch_log(self, container_id: str, listener: Callable[[], None]) -> Callable[[], None]:
        self.log_listeners.append(listener)
        return lambda: self.log_listeners.remove(listener)

    def subscribe(self, listener: Callable[[RuntimeEvent], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def exec(
        self, container_id: str, command: Sequence[str], output: Any, *, stdin: bool, tty: bool
    ) -> Process:
        if self.failure is not None:
            raise self.failure
        process = Process(output)
        self.processes.append(process)
        self.begin(process, command)
        return process

    async def attach(self, container_id: str, output: Any, *, stdin: bool, tty: bool) -> Process:
        return await self.exec(container_id, ["attach"], output, stdin=stdin, tty=tty)

    async def exec_sync(
        self, container_id: str, command: Sequence[str], seconds: float = 0
    ) -> ExecResult:
        return ExecResult(" ".join(command).encode(), b"oops", 0 if command != ["false"] else 1)

    async def port_forward(self, sandbox_id: str, port: int) -> socket.socket:
        if port == 81:
            raise RuntimeFailure("Unknown", "exit status 1: connection refused")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)

        async def shout() -> None:
            loop = asyncio.get_running_loop()
            while data := await loop.sock_recv(theirs, 65536):
                await loop.sock_sendall(theirs, data.upper())
            theirs.close()

        self.task = asyncio.get_running_loop().create_task(shout())
        return ours

    def container_stats(self, uid: str = "") -> list[ContainerStats]:
        return [
            ContainerStats(
                c.id,
                c.name,
                0,
                c.labels,
                self.clock.time(),
                CpuUsage(5_000_000_000, self.nano_cores),
                8 << 20,
                10 << 20,
                6 << 20,
                100,
                3,
                writable_layer=self.layer,
                processes=2,
            )
            for c in self._containers.values()
            if c.state == "running"
        ]

    def sandbox_stats(self, uid: str = "") -> list[SandboxStats]:
        return [SandboxStats("sid", self.clock.time(), (InterfaceStats("eth0", 100, 200),))]

    def image_filesystem(self) -> FilesystemUsage:
        return FilesystemUsage("/var/lib/docker", 1 << 30, 5000)


class View:
    def __init__(self, pods: list[Object]) -> None:
        self._pods = pods

    def pods(self) -> list[Object]:
        return self._pods

    active_pods = pods

    def pod(self, namespace: str, name: str) -> Object | None:
        for pod in self._pods:
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name):
                return pod
        return None

    def pod_by_uid(self, uid: str) -> Object | None:
        return next((pod for pod in self._pods if pod["metadata"]["uid"] == uid), None)


class Reviews:
    """An API server that knows one token and who may do what."""

    def __init__(self) -> None:
        self.requested: list[Object] = []
        self.denied: set[str] = set()
        self.broken = False

    async def create(self, resource: Any, namespace: str, obj: Object) -> Object:
        self.requested.append(obj)
        if self.broken:
            raise OSError("no way there")
        spec = obj["spec"]
        if obj["kind"] == "TokenReview":
            good = spec["token"] == "secret"
            return {
                "status": {"authenticated": good, "user": {"username": "jane", "groups": ["dev"]}}
                if good
                else {}
            }
        return {"status": {"allowed": spec["resourceAttributes"]["subresource"] not in self.denied}}


class ServerHarness:
    def __init__(
        self,
        system: str = "linux",
        runtime: str = "docker",
        run_program: Any = None,
        **config: Any,
    ) -> None:
        self.clock = VirtualClock()
        rules: Any = os_linux.RULES if system == "linux" else os_windows.RULES
        host: Any = (LinuxHost if system == "linux" else WindowsHost)("n1", self.clock)
        self.pod = make_pod()
        self.runtime = StubRuntime(self.clock, runtime)
        self.files = host.files
        self.log = LOG if system == "linux" else "C:\\var\\log\\pods\\ns_p_u1\\c\\0.log"
        self.files.mkdir(self.log[:-6])
        self.files.write(self.log, b"")
        self.runtime.add(self.pod, self.log)
        self.client = Reviews()
        root = "/var/lib/kubelet" if system == "linux" else "C:\\var\\lib\\kubelet"
        self.env = KubeletContext(
            KubeletConfig("n1", "10.0.0.1", root_dir=root, **config),
            rules,
            self.client,
            self.clock,  # type: ignore[arg-type]
            random.Random(1),
            SimpleNamespace(),
            host,
            self.runtime,
            SimpleNamespace(),
            SimpleNamespace(),  # type: ignore[arg-type]
            lambda: None,
            run_program=run_program,
        )
        self.view = View([self.pod])
        self.server = KubeletServer(self.env, self.view)

    def write_log(self, *lines: str) -> None:
        self.files.append(self.log, "".join(f"{line}\n" for line in lines).encode())
        for listener in [*self.runtime.log_listeners]:
            listener()

    def get(
        self, target: str, method: str = "GET", peer: PeerCertificate | None = ADMIN, **headers: str
    ) -> Any:
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        request = HttpRequest(method, target.encode(), target.partition("?")[0], named, peer=peer)
        return asyncio.run(self.server.handler(request))  # type: ignore[arg-type]

    def text(self, target: str, **more: Any) -> tuple[int, str]:
        answer = self.get(target, **more)
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        return answer.status, body.decode()
