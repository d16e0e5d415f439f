"""A CSI driver: the Identity, Controller and Node services at one socket, over the storage in `storage.py`.

It stands for hostpathplugin and for any other driver's image; its name comes from `--drivername`, else from the image. What
needs rights over the node goes through the container (`context.mount`), with its refusals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.csi import storage
from transom.runtime.sim.programs.csi.flags import parse, socket_path
from transom.runtime.sim.programs.csi.storage import Disk
from transom.runtime.sim.programs.servers.base import Server

Request = Mapping[str, Any]
Answer = Mapping[str, Any]
_STAGE, _STATS, _EXPAND = 1, 2, 3
_CONTROLLER: Final = (1, 2, 5, 7, 9)  # create and delete, publish, snapshots, clones, expansion


class Driver:
    def __init__(self, context: ProgramContext, server: Server) -> None:
        flags = parse(context.argv)
        windows = context.os == "windows"
        self._context = context
        self._server = server
        usual = context.image.options.get("driver", "csi.transom.dev")
        self.name = flags.get("drivername") or flags.get("driver-name") or usual
        self._node = flags.get("nodeid") or flags.get("node-id") or context.env.get("KUBE_NODE_NAME") or context.hostname
        self._limit = int(flags.get("maxvolumespernode") or 0)
        self._storage = storage.of(self.name)
        self.socket = socket_path(flags.get("endpoint") or context.env.get("CSI_ENDPOINT") or "unix:///csi/csi.sock", windows)
        self._methods: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    async def answer(self, path: str, request: Request) -> Answer:
        method = path.rpartition("/")[2]
        call = self._methods.get(method)
        if call is None:
            raise RpcError("Unimplemented", f"unknown method {method}")
        self._server.out(f"gRPCCall: {path}")
        return await call(request)

    # ---- identity

    async def do_GetPluginInfo(self, request: Request) -> Answer:
        return {"name": self.name, "vendor_version": "simulated"}

    async def do_GetPluginCapabilities(self, request: Request) -> Answer:
        return {"capabilities": [{"service": {"type": 1}}, {"volume_expansion": {"type": 1}}]}

    async def do_Probe(self, request: Request) -> Answer:
        return {"ready": {"value": True}}

    # ---- controller

    async def do_ControllerGetCapabilities(self, request: Request) -> Answer:
        return {"capabilities": [{"rpc": {"type": kind}} for kind in _CONTROLLER]}

    async def do_CreateVolume(self, request: Request) -> Answer:
        size = (request.get("capacity_range") or {}).get("required_bytes") or storage.USUAL_SIZE
        source = self._source(request.get("volume_content_source") or {})
        disk = self._storage.create(request["name"], size, source, self._context.clock.time())
        if disk.size < size:
            text = f"Volume with the same name: {request['name']} but with different size already exist"
            raise RpcError("AlreadyExists", text)
        return {"volume": {"volume_id": disk.identity, "capacity_bytes": disk.size, "volume_context": {}}}

    def _source(self, content: Request) -> Disk | None:
        if snapshot := (content.get("snapshot") or {}).get("snapshot_id"):
            if snapshot not in self._storage.snapshots:
                raise RpcError("NotFound", f"cannot find snapshot {snapshot}")
            return self._storage.snapshots[snapshot]
        if volume := (content.get("volume") or {}).get("volume_id"):
            if volume not in self._storage.disks:
                raise RpcError("NotFound", f"cannot find volume {volume}")
            return self._storage.disks[volume]
        return None

    async def do_DeleteVolume(self, request: Request) -> Answer:
        self._storage.disks.pop(request["volume_id"], None)
        return {}

    async def do_ControllerPublishVolume(self, request: Request) -> Answer:
        self._storage.disk(request["volume_id"])
        return {"publish_context": {}}

    async def do_ControllerUnpublishVolume(self, request: Request) -> Answer:
        return {}

    async def do_ControllerExpandVolume(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        disk.size = max(disk.size, (request.get("capacity_range") or {}).get("required_bytes") or 0)
        return {"capacity_bytes": disk.size, "node_expansion_required": True}

    async def do_CreateSnapshot(self, request: Request) -> Answer:
        source = self._storage.disks.get(request["source_volume_id"])
        if source is None:
            raise RpcError("NotFound", f"volume id {request['source_volume_id']} does not exist in the volumes list")
        now = self._context.clock.time()
        made = self._storage.snapshot(request["name"], source, now)
        return {"snapshot": {
            "snapshot_id": made.identity, "source_volume_id": source.identity, "size_bytes": made.size, "ready_to_use": True,
            "creation_time": {"seconds": int(now)},
        }}

    async def do_DeleteSnapshot(self, request: Request) -> Answer:
        self._storage.snapshots.pop(request["snapshot_id"], None)
        return {}

    # ---- node

    async def do_NodeGetInfo(self, request: Request) -> Answer:
        # Labels below k8s.io are none that a node may give itself.
        key = f"topology.{self.name.removesuffix('.k8s.io').removesuffix('.kubernetes.io')}/node"
        return {
            "node_id": self._node, "max_volumes_per_node": self._limit,
            "accessible_topology": {"segments": {key: self._node}},
        }

    async def do_NodeGetCapabilities(self, request: Request) -> Answer:
        return {"capabilities": [{"rpc": {"type": kind}} for kind in (_STAGE, _STATS, _EXPAND)]}

    async def do_NodeStageVolume(self, request: Request) -> Answer:
        self._mount(request["volume_id"], request["staging_target_path"], False)
        return {}

    async def do_NodeUnstageVolume(self, request: Request) -> Answer:
        self._unmount(request["staging_target_path"])
        return {}

    async def do_NodePublishVolume(self, request: Request) -> Answer:
        if (request.get("volume_context") or {}).get("csi.storage.k8s.io/ephemeral") == "true":
            self._storage.disk(request["volume_id"])
        self._mount(request["volume_id"], request["target_path"], bool(request.get("readonly")))
        return {}

    async def do_NodeUnpublishVolume(self, request: Request) -> Answer:
        self._unmount(request["target_path"])
        if request["volume_id"].startswith("csi-"):
            self._storage.disks.pop(request["volume_id"], None)  # of one pod alone
        return {}

    async def do_NodeExpandVolume(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        if disk.system is not None:
            disk.system.space.capacity = max(disk.system.space.capacity, disk.size)
        return {"capacity_bytes": disk.size}

    async def do_NodeGetVolumeStats(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        used = disk.system.space.used if disk.system is not None else 0
        return {"usage": [{"available": disk.size - used, "total": disk.size, "used": used, "unit": 1}]}

    def _mount(self, identity: str, path: str, read_only: bool) -> None:
        context, disk = self._context, self._storage.disk(identity)
        try:
            system = disk.formatted(context.new_file_system)
            context.unmount(path)
            context.mount(system, path, read_only)
        except OSError as problem:
            raise RpcError("Internal", f"failed to mount device at {path}: {problem.strerror or problem}") from problem

    def _unmount(self, path: str) -> None:
        try:
            self._context.unmount(path)
        except OSError as problem:
            raise RpcError("Internal", f"failed to unmount {path}: {problem.strerror or problem}") from problem


def driver(context: ProgramContext) -> Program:
    server = Server(context)
    service = Driver(context, server)
    server.out(f"Driver: {service.name} (simulated, the storage is memory of the simulation)")
    try:
        context.serve_socket(service.socket, service.answer)
    except OSError as problem:
        server.err(f"Failed to listen: {problem}")
        server.exit(255)
        return server
    server.out(f'Listening for connections on address: {{Name:"{service.socket}" Net:"unix"}}')
    return server
