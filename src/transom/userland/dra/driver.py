"""dra-example-kubeletplugin, the example driver of Kubernetes for dynamic resource allocation.

It publishes devices that do not exist, registers with the kubelet, and gives containers environment
variables for the devices that they have allocated. It takes its settings from the environment, as
its Helm chart sets them. Only the profile `gpu` is simulated, without partitions.
"""

from __future__ import annotations

import json
import posixpath
import re
import socket
import uuid
from collections.abc import Mapping
from typing import Any, Final

from transom.userland.api import Program, ProgramContext
from transom.userland.csi.api import ApiFailure, CsiApi, Object
from transom.userland.csi.volumes import volumes_of
from transom.userland.servers import grpc
from transom.userland.servers.base import ServerProgram

_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"
_CDI_VERSION: Final = "0.3.0"
_CLASS: Final = "gpu"
_COMMON: Final = "common"
_RETRY: Final = 1.0
_SERVICES: Final = ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


class DraDriverProgram:
    def __init__(self, context: ProgramContext, server: ServerProgram, api: CsiApi) -> None:
        env = context.env
        self._context = context
        self._server = server
        self._api = api
        self.name = env.get("DRIVER_NAME") or "gpu.example.com"
        self._node = env.get("NODE_NAME") or context.network.hostname
        self._count = int(env.get("NUM_DEVICES") or 8)
        self._cdi = env.get("CDI_ROOT") or "/etc/cdi"
        plugins = env.get("KUBELET_PLUGINS_DIRECTORY_PATH") or "/var/lib/kubelet/plugins"
        registry = env.get("KUBELET_REGISTRAR_DIRECTORY_PATH") or f"{plugins}_registry"
        uid = env.get("POD_UID") or ""  # two pods of the driver run during an update
        self._socket = posixpath.join(plugins, self.name, f"dra-{uid}.sock" if uid else "dra.sock")
        own = f"{self.name}-{uid}-reg.sock" if uid else f"{self.name}-reg.sock"
        self._registration = posixpath.join(registry, own)
        self._kind = f"k8s.{self.name}/{_CLASS}"
        self.registered = False

    async def run(self) -> None:
        files, volumes = self._context.files, volumes_of(self._context)
        try:
            files.mkdir(self._cdi)
            self._write_spec(_COMMON, {_COMMON: self._common()})
            files.mkdir(posixpath.dirname(self._socket))
            volumes.serve_socket(self._socket, self._answer)
            volumes.serve_socket(self._registration, self._answer_registration)
        except OSError as problem:
            self._server.err(f"error starting driver: {problem}")
            self._server.exit(1)
            return
        self._server.at_end(self._remove_sockets)
        while True:
            try:
                await self._publish()
                await self._api.watch(_SLICES, self._changed)
            except ApiFailure as problem:
                self._server.err(f"Failed to publish ResourceSlices: {problem}")
            await self._context.clock.sleep(_RETRY)

    def _remove_sockets(self) -> None:
        for path in (self._registration, self._socket):
            self._context.files.remove(path, recursive=True)

    # ---- the API ----

    def _changed(self) -> None:
        """The kubelet deletes the slices of its node when it starts."""
        self._server.spawn(self._publish_again())

    async def _publish_again(self) -> None:
        try:
            await self._publish()
        except ApiFailure as problem:
            self._server.err(f"Failed to publish ResourceSlices: {problem}")

    async def _publish(self) -> None:
        for found in await self._api.list(_SLICES):
            spec = found["spec"]
            if spec.get("nodeName") == self._node and spec["driver"] == self.name:
                return
        node = await self._api.get(f"/api/v1/nodes/{self._node}")
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{self._node}-{self.name}-{self._node_id('slice')[:5]}",
                "ownerReferences": [owner],
            },
            "spec": {
                "driver": self.name,
                "nodeName": self._node,
                "pool": {"name": self._node, "generation": 1, "resourceSliceCount": 1},
                "devices": [self._device(number) for number in range(self._count)],
            },
        }
        try:
            await self._api.create(_SLICES, body)
        except ApiFailure as problem:
            if problem.code != 409:
                raise

    def _node_id(self, text: str) -> str:
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{text}.{self._node}").hex

    def _device(self, number: int) -> Object:
        return {
            "name": f"gpu-{number}",
            "attributes": {
                "index": {"int": number},
                "uuid": {"string": f"gpu-{uuid.UUID(self._node_id(str(number)))}"},
                "model": {"string": "LATEST-GPU-MODEL"},
                "driverVersion": {"version": "1.0.0"},
            },
            "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "100"}},
        }

    # ---- the kubelet ----

    async def _answer_registration(
        self, method: str, request: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if method.endswith("/GetInfo"):
            return {
                "type": "DRAPlugin",
                "name": self.name,
                "endpoint": self._socket,
                "supported_versions": _SERVICES,
            }
        self.registered = bool(request.get("plugin_registered"))
        if error := request.get("error"):
            self._server.err(f"plugin registration failed: {error}")
        return {}

    async def _answer(self, method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        name = method.rpartition("/")[2]
        self._server.out(f"{name} is called: number of claims: {len(request.get('claims') or ())}")
        prepare = name == "NodePrepareResources"
        results = []
        for claim in request.get("claims") or ():
            result = await self._prepare(claim) if prepare else self._unprepare(claim)
            results.append({"key": claim["uid"], "value": result})
        return {"claims": results}

    async def _prepare(self, claim: Mapping[str, str]) -> Mapping[str, Any]:
        uid = claim["uid"]
        try:
            found = await self._api.get(_CLAIMS.format(claim["namespace"], claim["name"]))
        except ApiFailure as problem:
            return {"error": f"failed to fetch claim: {problem}"}
        if found["metadata"]["uid"] != uid:
            return {"error": f"claim {claim['name']} got replaced"}
        allocation = found["status"]["allocation"]
        results = [
            row for row in allocation["devices"].get("results") or () if row["driver"] == self.name
        ]
        devices = {f"{uid}-{row['device']}": self._variables(uid, row) for row in results}
        try:
            self._write_spec(uid, devices)
        except OSError as problem:
            return {"error": f"unable to create CDI spec file for claim: {problem}"}
        return {
            "devices": [
                {
                    "request_names": [row["request"].partition("/")[0]],  # without the alternative
                    "pool_name": row["pool"],
                    "device_name": row["device"],
                    "cdi_device_ids": [
                        f"{self._kind}={_COMMON}",
                        f"{self._kind}={uid}-{row['device']}",
                    ],
                }
                for row in results
            ]
        }

    def _unprepare(self, claim: Mapping[str, str]) -> Mapping[str, Any]:
        self._context.files.remove(self._spec_path(claim["uid"]), recursive=True)
        return {}

    def _common(self) -> list[str]:
        return [f"KUBERNETES_NODE_NAME={self._node}", f"DRA_RESOURCE_DRIVER_NAME={self.name}"]

    def _variables(self, uid: str, row: Object) -> list[str]:
        key = re.sub(r"[^a-zA-Z0-9]+", "_", row["device"]).upper()
        number = row["device"].removeprefix("gpu-").upper().replace("-", "_")
        admin = str(bool(row.get("adminAccess"))).lower()
        return [
            f"GPU_DEVICE_{key}_RESOURCE_CLAIM={uid}",
            f"DRA_ADMIN_ACCESS={admin}",
            f"GPU_DEVICE_{number}={row['device']}",
            f"GPU_DEVICE_{number}_SHARING_STRATEGY=TimeSlicing",
            f"GPU_DEVICE_{number}_TIMESLICE_INTERVAL=Default",
        ]

    def _spec_path(self, identity: str) -> str:
        return posixpath.join(self._cdi, f"{self._kind.replace('/', '-')}_{identity}.json")

    def _write_spec(self, identity: str, devices: Mapping[str, list[str]]) -> None:
        rows = [
            {"name": name, "containerEdits": {"env": variables}}
            for name, variables in devices.items()
        ]
        spec = {"cdiVersion": _CDI_VERSION, "kind": self._kind, "devices": rows}
        self._context.files.write(self._spec_path(identity), json.dumps(spec).encode())


def dra_example_driver(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    try:
        driver = DraDriverProgram(context, server, CsiApi(context))
    except ApiFailure as problem:
        server.err(f"create client: {problem}")
        server.exit(1)
        return server

    def check(service: str) -> int | None:
        if service not in ("", "liveness"):
            return None
        return grpc.SERVING if driver.registered else grpc.NOT_SERVING

    async def accept(connection: socket.socket) -> None:
        try:
            await grpc.serve_grpc(b"", connection, check)
        except ConnectionError:
            return
        finally:
            connection.close()

    port = int(context.env.get("HEALTHCHECK_PORT") or 0)
    try:
        if port:
            server.listen(port, accept)
    except OSError as problem:
        server.err(f"failed to listen for healthcheck service at :{port}: {problem}")
        server.exit(1)
        return server
    server.spawn(driver.run())
    return server
