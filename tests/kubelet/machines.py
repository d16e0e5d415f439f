"""A kubelet's surroundings on a machine of either system, with an API of config maps, secrets and
the like in a dict.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from transom.client.resources import GroupVersionResource
from transom.kit.clock import VirtualClock, rfc3339
from transom.kubelet.base import KubeletContext
from transom.kubelet.config import KubeletConfig
from transom.kubelet.containers import ContainerBuilder
from transom.kubelet.os_linux import RULES as LINUX
from transom.kubelet.os_windows import RULES as WINDOWS
from transom.kubelet.referenced import ReferencedObjects
from transom.kubelet.volumes.manager import VolumeManager
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machines.api import Hardware
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost
from transom.runtime.api import Container, Image, RuntimeVersion, Sandbox, SandboxConfig

UID = "6f1c0d7e-8e0f-4c5c-9f7e-1d2f3a4b5c6d"
IMAGE = Image("sha256:1", ("app:1",), (), 1)


class FakeApi:
    """`asked` counts the questions; `tokens` the token requests."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.requested: list[str] = []
        self.tokens: list[Object] = []
        self.version = 0

    def put(self, plural: str, name: str, obj: Object, namespace: str = "ns") -> Object:
        self.version += 1
        meta = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            **obj.get("metadata", {}),
        }
        stored = {**obj, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self.objects[plural, namespace, name] = stored
        return stored

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str, *, subresource: str = ""
    ) -> Object:
        self.requested.append(f"{resource.plural}/{name}")
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise errors.not_found(resource.group_resource, name)
        return found

    async def create_subresource(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        subresource: str,
        obj: Object,
    ) -> Object:
        if ("serviceaccounts", namespace, name) not in self.objects:
            raise errors.not_found(resource.group_resource, name)
        self.tokens.append(obj)
        seconds = obj["spec"].get("expirationSeconds", 3600)
        return {
            **obj,
            "spec": {**obj["spec"], "expirationSeconds": seconds},
            "status": {
                "token": f"token-{len(self.tokens)}",
                "expirationTimestamp": rfc3339(self.clock.time() + seconds),
            },
        }


class FakeEvents:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def event(self, about: Object, kind: str, reason: str, message: str, **_: Any) -> None:
        self.recorded.append((reason, message))


class FakeServices:
    def __init__(self) -> None:
        self.services: list[Object] = []

    async def synced(self) -> None:
        return None

    def list(self, namespace: str) -> Sequence[Object]:
        return [s for s in self.services if s["metadata"]["namespace"] == namespace]


class FakeRuntime:
    def __init__(self, name: str) -> None:
        self.version = RuntimeVersion(name, "1.0-sim")
        self.known: list[Container] = []

    def containers(self, uid: str = "") -> Sequence[Container]:
        return self.known


class Machine:
    """`machine.volumes` and `machine.builder` are what is tested."""

    def __init__(self, system: str = "linux", *, runtime: str = "", **settings: Any) -> None:
        windows = system == "windows"
        self.clock = VirtualClock()
        self.api = FakeApi(self.clock)
        self.events = FakeEvents()
        self.services = FakeServices()
        self.runtime = FakeRuntime(runtime or "docker")
        host: Any = (WindowsHost if windows else LinuxHost)(
            "node-1", self.clock, Hardware(cpus=4, memory=8 << 30)
        )
        settings = {
            "cluster_dns": ("10.96.0.10",),
            "resolv_conf": "" if windows else "/etc/resolv.conf",
            "cgroups_per_qos": not windows,
            **settings,
        }
        self.files = host.files
        if not windows:
            self.files.write("/etc/resolv.conf", b"nameserver 9.9.9.9\nsearch example.com.\n")
        self.node: Object | None = {
            "metadata": {"name": "node-1", "labels": {"zone": "a"}},
            "status": {
                "allocatable": {"cpu": "3900m", "memory": "8000Mi", "ephemeral-storage": "90Gi"}
            },
        }
        self.env = KubeletContext(
            config=KubeletConfig(node_name="node-1", node_ip="192.168.0.5", **settings),
            os=WINDOWS if windows else LINUX,
            client=self.api,  # type: ignore[arg-type]
            clock=self.clock,
            rng=random.Random(1),
            events=self.events,  # type: ignore[arg-type]
            host=host,
            runtime=self.runtime,  # type: ignore[arg-type]
            services=self.services,
            dial=None,
            node=lambda: self.node,  # type: ignore[arg-type]
        )
        self.start()

    def start(self) -> None:
        """A kubelet that knows nothing of what was before."""
        objects = ReferencedObjects(self.env.client, self.clock)
        self.volumes = VolumeManager(self.env, objects)
        self.builder = ContainerBuilder(self.env, self.volumes, objects)
        self.objects = objects

    def run(self, *work: Coroutine[Any, Any, Any], seconds: float = 0) -> Any:
        """Does it, in order, letting time pass until it is done (or, for the last, for so long)."""

        async def main() -> Any:
            out = None
            for each in work:
                task = asyncio.ensure_future(each)
                await self.clock.run_for(seconds)
                if not task.done():
                    task.cancel()
                    raise TimeoutError
                out = task.result()
            return out

        return asyncio.run(main())

    def config(
        self,
        pod: Object,
        container: int = 0,
        ips: tuple[str, ...] = ("10.1.2.3",),
        image: Image = IMAGE,
        kind: str = "containers",
    ) -> Any:
        sandbox = Sandbox("s", SandboxConfig("web", "ns", UID), "ready", 0.0, ips=ips)
        wanted = pod["spec"][kind][container]
        return self.run(
            self.volumes.mount(pod),
            self.builder.container_config(pod, wanted, sandbox, image, 0, {}),
        )


def pod(
    container: Object | None = None, *more: Object, volumes: Sequence[Object] = (), **spec: Any
) -> Object:
    first = {"name": "c", "image": "app:1", **(container or {})}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "web",
            "namespace": "ns",
            "uid": UID,
            "labels": {"app": "web"},
            "annotations": {},
        },
        "spec": {
            "containers": [first, *more],
            "volumes": list(volumes),
            "enableServiceLinks": True,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "serviceAccountName": "default",
            "nodeName": "node-1",
            **spec,
        },
    }


def mount(name: str, path: str = "/data", **more: Any) -> Object:
    return {"name": name, "mountPath": path, **more}
