"""A CSI driver: the Identity, Controller and Node services on one socket, over the storage in
`csi_storage.py`.

It replaces hostpathplugin and any other driver's image; its name comes from `--drivername`, else
from the image. Operations that need privileges on the node go through the container
(`VolumeAccess.mount`), which may refuse them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.userland.api import Program, ProgramContext
from transom.userland.csi.flags import PUBLISH, parse_csi_flags, socket_path
from transom.userland.csi.volumes import volumes_of
from transom.userland.csi_storage import USUAL_SIZE, CsiDisk
from transom.userland.servers.base import ServerProgram

Request = Mapping[str, Any]
Answer = Mapping[str, Any]
_STAGE, _STATS, _EXPAND = 1, 2, 3
# create and delete, publish, snapshots, clones, expansion
_CONTROLLER: Final = (1, PUBLISH, 5, 7, 9)


class CsiDriver:
    def __init__(self, context: ProgramContext, server: ServerProgram) -> None:
        flags = parse_csi_flags(context.argv)
        windows = context.os == "windows"
        self._context = context
        self._server = server
        usual = context.image.options.get("driver", "csi.transom.dev")
        self.name = flags.get("drivername") or flags.get("driver-name") or usual
        self._node = (
            flags.get("nodeid")
            or flags.get("node-id")
            or context.env.get("KUBE_NODE_NAME")
            or context.network.hostname
        )
        self._limit = int(flags.get("maxvolumespernode") or 0)
        self._volumes = volumes_of(context)
        self._storage = self._volumes.csi_storage.of(self.name)
        self.socket = socket_path(
            flags.get("endpoint") or context.env.get("CSI_ENDPOINT") or "unix:///csi/csi.sock",
            windows,
        )
        self._methods: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "GetPluginInfo": self._get_plugin_info,
            "GetPluginCapabilities": self._get_plugin_capabilities,
            "Probe": self._probe,
            "ControllerGetCapabilities": self._controller_get_capabilities,
            "CreateVolume": self._create_volume,
            "DeleteVolume": self._delete_volume,
            "ControllerPublishVolume": self._controller_publish_volume,
            "ControllerUnpublishVolume": self._controller_unpublish_volume,
            "ControllerExpandVolume": self._controller_expand_volume,
            "CreateSnapshot": self._create_snapshot,
            "DeleteSnapshot": self._delete_snapshot,
            "NodeGetInfo": self._node_get_info,
            "NodeGetCapabilities": self._node_get_capabilities,
            "NodeStageVolume": self._node_stage_volume,
            "NodeUnstageVolume": self._node_unstage_volume,
            "NodePublishVolume": self._node_publish_volume,
            "NodeUnpublishVolume": self._node_unpublish_volume,
            "NodeExpandVolume": self._node_expand_volume,
            "NodeGetVolumeStats": self._node_get_volume_stats,
        }

    async def answer(self, path: str, request: Request) -> Answer:
        method = path.rpartition("/")[2]
        call = self._methods.get(method)
        if call is None:
            raise RpcError("Unimplemented", f"unknown method {method}")
        self._server.out(f"gRPCCall: {path}")
        return await call(request)

    # ---- identity ----

    async def _get_plugin_info(self, request: Request) -> Answer:
        return {"name": self.name, "vendor_version": "simulated"}

    async def _get_plugin_capabilities(self, request: Request) -> Answer:
        return {"capabilities": [{"service": {"type": 1}}, {"volume_expansion": {"type": 1}}]}

    async def _probe(self, request: Request) -> Answer:
        return {"ready": {"value": True}}

    # ---- controller ----

    async def _controller_get_capabilities(self, request: Request) -> Answer:
        attaches = self._context.image.options.get("attach") != "no"  # shares are only mounted
        found = [kind for kind in _CONTROLLER if attaches or kind != PUBLISH]
        return {"capabilities": [{"rpc": {"type": kind}} for kind in found]}

    async def _create_volume(self, request: Request) -> Answer:
        size = (request.get("capacity_range") or {}).get("required_bytes") or USUAL_SIZE
        source = self._source(request.get("volume_content_source") or {})
        disk = self._storage.create(request["name"], size, source, self._context.clock.time())
        if disk.size < size:
            text = (
                f"Volume with the same name: {request['name']} but with different size already "
                "exist"
            )
            raise RpcError("AlreadyExists", text)
        return {
            "volume": {
                "volume_id": disk.identity,
                "capacity_bytes": disk.size,
                "volume_context": {},
            }
        }

    def _source(self, content: Request) -> CsiDisk | None:
        if snapshot := (content.get("snapshot") or {}).get("snapshot_id"):
            if snapshot not in self._storage.snapshots:
                raise RpcError("NotFound", f"cannot find snapshot {snapshot}")
            return self._storage.snapshots[snapshot]
        if volume := (content.get("volume") or {}).get("volume_id"):
            if volume not in self._storage.disks:
                raise RpcError("NotFound", f"cannot find volume {volume}")
            return self._storage.disks[volume]
        return None

    async def _delete_volume(self, request: Request) -> Answer:
        self._storage.disks.pop(request["volume_id"], None)
        return {}

    async def _controller_publish_volume(self, request: Request) -> Answer:
        self._storage.disk(request["volume_id"])
        return {"publish_context": {}}

    async def _controller_unpublish_volume(self, request: Request) -> Answer:
        return {}

    async def _controller_expand_volume(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        disk.size = max(disk.size, (request.get("capacity_range") or {}).get("required_bytes") or 0)
        return {"capacity_bytes": disk.size, "node_expansion_required": True}

    async def _create_snapshot(self, request: Request) -> Answer:
        source = self._storage.disks.get(request["source_volume_id"])
        if source is None:
            raise RpcError(
                "NotFound",
                f"volume id {request['source_volume_id']} does not exist in the volumes list",
            )
        now = self._context.clock.time()
        made = self._storage.snapshot(request["name"], source, now)
        return {
            "snapshot": {
                "snapshot_id": made.identity,
                "source_volume_id": source.identity,
                "size_bytes": made.size,
                "ready_to_use": True,
                "creation_time": {"seconds": int(now)},
            }
        }

    async def _delete_snapshot(self, request: Request) -> Answer:
        self._storage.snapshots.pop(request["snapshot_id"], None)
        return {}

    # ---- node ----

    async def _node_get_info(self, request: Request) -> Answer:
        # A node may not set labels below k8s.io on itself.
        key = f"topology.{self.name.removesuffix('.k8s.io').removesuffix('.kubernetes.io')}/node"
        return {
            "node_id": self._node,
            "max_volumes_per_node": self._limit,
            "accessible_topology": {"segments": {key: self._node}},
        }

    async def _node_get_capabilities(self, request: Request) -> Answer:
        return {"capabilities": [{"rpc": {"type": kind}} for kind in (_STAGE, _STATS, _EXPAND)]}

    async def _node_stage_volume(self, request: Request) -> Answer:
        if not _is_block(request):
            self._mount(request["volume_id"], request["staging_target_path"], False)
        return {}

    async def _node_unstage_volume(self, request: Request) -> Answer:
        self._unmount(request["staging_target_path"])
        return {}

    async def _node_publish_volume(self, request: Request) -> Answer:
        if (request.get("volume_context") or {}).get("csi.storage.k8s.io/ephemeral") == "true":
            self._storage.disk(request["volume_id"])
        if _is_block(request):
            self._make_device(request["volume_id"], request["target_path"])
        else:
            self._mount(request["volume_id"], request["target_path"], bool(request.get("readonly")))
        return {}

    async def _node_unpublish_volume(self, request: Request) -> Answer:
        self._unmount(request["target_path"])
        if request["volume_id"].startswith("csi-"):
            self._storage.disks.pop(request["volume_id"], None)  # ephemeral, of one pod
        return {}

    async def _node_expand_volume(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        disk.blocks.size = max(disk.blocks.size, disk.size)
        if disk.system is not None:
            disk.system.space.capacity = max(disk.system.space.capacity, disk.size)
        return {"capacity_bytes": disk.size}

    async def _node_get_volume_stats(self, request: Request) -> Answer:
        disk = self._storage.disk(request["volume_id"])
        used = disk.system.space.used if disk.system is not None else 0
        return {
            "usage": [{"available": disk.size - used, "total": disk.size, "used": used, "unit": 1}]
        }

    def _make_device(self, identity: str, path: str) -> None:
        try:
            self._volumes.make_device(self._storage.disk(identity).blocks, path)
        except OSError as problem:
            raise RpcError(
                "Internal", f"failed to create device {path}: {problem.strerror or problem}"
            ) from problem

    def _mount(self, identity: str, path: str, read_only: bool) -> None:
        volumes, disk = self._volumes, self._storage.disk(identity)
        try:
            system = disk.formatted(volumes.new_file_system)
            volumes.unmount(path)
            volumes.mount(system, path, read_only)
        except OSError as problem:
            raise RpcError(
                "Internal", f"failed to mount device at {path}: {problem.strerror or problem}"
            ) from problem

    def _unmount(self, path: str) -> None:
        try:
            self._volumes.unmount(path)
        except OSError as problem:
            raise RpcError(
                "Internal", f"failed to unmount {path}: {problem.strerror or problem}"
            ) from problem


def _is_block(request: Request) -> bool:
    return (request.get("volume_capability") or {}).get("block") is not None


def csi_driver(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    service = CsiDriver(context, server)
    server.out(f"Driver: {service.name} (simulated)")
    try:
        volumes_of(context).serve_socket(service.socket, service.answer)
    except OSError as problem:
        server.err(f"Failed to listen: {problem}")
        server.exit(255)
        return server
    server.out(f'Listening for connections on address: {{Name:"{service.socket}" Net:"unix"}}')
    return server
