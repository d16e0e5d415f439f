"""A container runtime that only records calls, behind `fakegrpc`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.http.fakegrpc import Refusal, Server

from transom.kit.clock import Clock
from transom.runtime.cri import codec
from transom.runtime.cri.codec import Message
from transom.runtime.cri.runtime import CriRuntime

GOOD = [{"type": "RuntimeReady", "status": True}, {"type": "NetworkReady", "status": True}]


class FakeCri:
    """`asked` has every call with its request. `answers` replaces what it would say by itself to a
    call.
    """

    def __init__(self, versions: tuple[str, ...] = ("v1", "v1alpha2")) -> None:
        self.versions = versions
        self.requested: list[tuple[str, Message]] = []
        self.answers: dict[str, Callable[[Message], Message]] = {}
        self.sandboxes: dict[str, Message] = {}
        self.containers: dict[str, Message] = {}
        self.images: list[Message] = []
        self.config: Message = {}
        self.conditions = list(GOOD)
        self.tells_configuration = True
        self._numbers = count(1)
        self.server = Server(self._serve)

    def counted(self) -> Counter[str]:
        return Counter(method for method, _ in self.requested)

    def last(self, method: str) -> Message:
        return next(request for name, request in reversed(self.requested) if name == method)

    async def _serve(self, path: str, message: bytes) -> bytes:
        _, service, method = path.split("/")
        if service.split(".")[1] not in self.versions:
            raise Refusal("Unimplemented", f"unknown service {service}")
        request = codec.decode(f"{method}Request", message)
        self.requested.append((method, request))
        answer = self.answers.get(method) or getattr(self, f"_{method}")
        return codec.encode(f"{method}Response", answer(request))

    # ---- the calls ----

    def _Version(self, request: Message) -> Message:
        return {
            "version": "0.1.0",
            "runtime_name": "containerd",
            "runtime_version": "1.4.13",
            "runtime_api_version": "x",
        }

    def _Status(self, request: Message) -> Message:
        return {
            "status": {"conditions": self.conditions},
            "info": {"config": json.dumps(self.config)},
        }

    def _RunPodSandbox(self, request: Message) -> Message:
        number = next(self._numbers)
        self.sandboxes[f"s{number}"] = {
            "id": f"s{number}",
            "created_at": number * 10**9,
            "config": request["config"],
            "network": {"ip": f"10.0.0.{number}", "additional_ips": [{"ip": f"fd00::{number}"}]},
            **{name: request["config"].get(name) for name in ("metadata", "labels", "annotations")},
        }
        return {"pod_sandbox_id": f"s{number}"}

    def _StopPodSandbox(self, request: Message) -> Message:
        found = self._find(self.sandboxes, "sandbox", request["pod_sandbox_id"])
        found.update(state=1, network={})
        for container in self.containers.values():
            if container["pod_sandbox_id"] == found["id"]:
                container.update(state=2, exit_code=137, reason="Error")
        return {}

    def _RemovePodSandbox(self, request: Message) -> Message:
        identity = self._find(self.sandboxes, "sandbox", request["pod_sandbox_id"])["id"]
        del self.sandboxes[identity]
        self.containers = {
            k: c for k, c in self.containers.items() if c["pod_sandbox_id"] != identity
        }
        return {}

    def _PodSandboxStatus(self, request: Message) -> Message:
        found = self._find(self.sandboxes, "sandbox", request["pod_sandbox_id"])
        info = (
            {"config": found["config"]}
            if request.get("verbose") and self.tells_configuration
            else {}
        )
        return {"status": found, "info": {"info": json.dumps(info)}}

    def _ListPodSandbox(self, request: Message) -> Message:
        return {"items": list(self.sandboxes.values())}

    def _CreateContainer(self, request: Message) -> Message:
        number = next(self._numbers)
        config = request["config"]
        self.containers[f"c{number}"] = {
            "id": f"c{number}",
            "pod_sandbox_id": request["pod_sandbox_id"],
            "created_at": number * 10**9,
            "state": 0,
            "image_ref": f"{config['image']['image']}@sha256:1",
            "mounts": config.get("mounts"),
            "log_path": f"{request['sandbox_config'].get('log_directory')}/{config.get('log_path')}",
            **{name: config.get(name) for name in ("metadata", "image", "labels", "annotations")},
        }
        return {"container_id": f"c{number}"}

    def _StartContainer(self, request: Message) -> Message:
        found = self._find(self.containers, "container", request["container_id"])
        found.update(state=1, started_at=found["created_at"] + 5 * 10**8)
        return {}

    def _StopContainer(self, request: Message) -> Message:
        self._find(self.containers, "container", request["container_id"])
        self.end(request["container_id"], 143)
        return {}

    def _RemoveContainer(self, request: Message) -> Message:
        del self.containers[self._find(self.containers, "container", request["container_id"])["id"]]
        return {}

    def _ListContainers(self, request: Message) -> Message:
        return {"containers": list(self.containers.values())}

    def _ContainerStatus(self, request: Message) -> Message:
        return {"status": self._find(self.containers, "container", request["container_id"])}

    def _ReopenContainerLog(self, request: Message) -> Message:
        return {}

    def _ListImages(self, request: Message) -> Message:
        return {"images": self.images}

    def _PullImage(self, request: Message) -> Message:
        self.images.append(
            {"id": "sha256:" + "a" * 64, "repo_tags": [request["image"]["image"]], "size": 5}
        )
        return {"image_ref": "sha256:" + "a" * 64}

    def _RemoveImage(self, request: Message) -> Message:
        self.images.clear()
        return {}

    def _ListContainerStats(self, request: Message) -> Message:
        return {}

    def _ListPodSandboxStats(self, request: Message) -> Message:
        return {}

    def _ImageFsInfo(self, request: Message) -> Message:
        return {}

    def _find(self, where: dict[str, Message], kind: str, identity: str) -> Message:
        if identity not in where:
            raise Refusal(
                "NotFound", f'an error occurred when try to find {kind} "{identity}": not found'
            )
        return where[identity]

    # ---- what happens by itself ----

    def end(self, container: str, code: int = 0) -> None:
        found = self.containers[container]
        found.update(
            state=2, exit_code=code, reason="Error" if code else "Completed", finished_at=9 * 10**9
        )


@asynccontextmanager
async def running(
    fake: FakeCri, folder: Path, clock: Clock, **options: Any
) -> AsyncIterator[CriRuntime]:
    async with fake.server.listening(folder / "cri.sock") as endpoint:
        runtime = CriRuntime(clock, endpoint, **options)
        await runtime.start()
        try:
            yield runtime
        finally:
            await runtime.close()
