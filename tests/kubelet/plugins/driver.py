"""A CSI driver that serves gRPC at Unix sockets, and records its calls."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.http.fakegrpc import Refusal, Server

from transom.kubelet.plugins.endpoint import TABLE

NAME = "disk.example.com"


class Driver:
    """`folder` is the node's; what the driver mounts is a link to a directory of the node.
    `failures` by method.
    """

    def __init__(self, folder: Path, capabilities: tuple[int, ...] = (1, 3)) -> None:
        self.folder = folder
        self.capabilities = capabilities
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.failures: dict[str, tuple[str, str]] = {}
        self.usage: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.info: dict[str, Any] = {
            "type": "CSIPlugin",
            "name": NAME,
            "supported_versions": ["1.0.0"],
        }

    def requested(self, *methods: str) -> list[str]:
        return [method for method, _ in self.calls if not methods or method in methods]

    def real(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    async def answer(self, path: str, raw: bytes) -> bytes:
        method = path.rpartition("/")[2]
        request = TABLE.decode(f"{method}Request", raw)
        return TABLE.encode(f"{method}Response", self.handle(method, request))

    def handle(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if method == "GetInfo":
            return self.info
        if method == "NotifyRegistrationStatus":
            self.statuses.append(request)
            return {}
        self.calls.append((method, request))
        if method in self.failures:
            raise Refusal(*self.failures[method])
        match method:
            case "NodeGetInfo":
                topology = {"segments": {"example.com/zone": "a"}}
                return {
                    "node_id": "id-1",
                    "max_volumes_per_node": 7,
                    "accessible_topology": topology,
                }
            case "NodeGetCapabilities":
                return {"capabilities": [{"rpc": {"type": kind}} for kind in self.capabilities]}
            case "NodeGetVolumeStats":
                return {"usage": self.usage}
            case "NodePublishVolume" if "block" in request["volume_capability"]:
                self.real(request["target_path"]).touch()
            case "NodePublishVolume":
                self.real(f"/disks/{request['volume_id']}").mkdir(parents=True, exist_ok=True)
                if not self.real(request["target_path"]).is_symlink():
                    os.symlink(f"/disks/{request['volume_id']}", self.real(request["target_path"]))
            case "NodeUnpublishVolume":
                self.real(request["target_path"]).unlink(missing_ok=True)
        return {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Both sockets, where the kubelet looks."""
        kubelet = self.real("/var/lib/kubelet")
        self.info.setdefault("endpoint", "/var/lib/kubelet/plugins/d/csi.sock")
        (kubelet / "plugins/d").mkdir(parents=True, exist_ok=True)
        (kubelet / "plugins_registry").mkdir(parents=True, exist_ok=True)
        server = Server(self.answer)
        own, registration = (
            _short(kubelet / "plugins/d/csi.sock"),
            _short(kubelet / "plugins_registry/d-reg.sock"),
        )
        async with server.listening(own), server.listening(registration):
            yield


def _short(path: Path) -> Path:
    """Sockets have short names only; a folder may have a long one."""
    return Path(f"/proc/self/fd/{os.open(path.parent, os.O_PATH | os.O_DIRECTORY)}") / path.name
