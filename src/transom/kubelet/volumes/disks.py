"""awsElasticBlockStore, azureDisk, cinder, gcePersistentDisk, vsphereVolume: disks of the cloud
provider.

The attach/detach controller attaches a disk to the node. The kubelet formats a new one, mounts it
once for the node, and exposes it to each pod. Records in the pod's and the plugin's directory show
what is mounted after a kubelet restart.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from transom.cloud.content import ContentError
from transom.cloud.disks import CloudDisk, device_path
from transom.kubelet import paths
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.devices import read_notes, write_notes
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    SetUp,
    StageFailure,
    TearDown,
    VolumeHost,
    VolumePlugin,
    change_policy,
    fs_group,
)
from transom.machinery import quantity
from transom.machinery.attachable import ATTACHABLE, unique_volume_name
from transom.machinery.objects import Object
from transom.machines.smallfiles import list_small_directory

DISKS: Final = ("awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "vsphereVolume")
_GROWING: Final = ("awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk")
_WAIT: Final = "MountVolume.WaitForAttach failed"
_DEVICE: Final = "MountVolume.MountDevice failed"
_NOT_FOUND: Final[Mapping[str, str]] = {
    "awsElasticBlockStore": (
        'could not find attached AWS Volume "{name}". Timeout waiting for mount paths to be created'
    ),
    "azureDisk": "azureDisk - WaitForAttach failed within timeout node ({node}) diskId:({name}) lun:(0)",
    "cinder": (
        'could not find attached Cinder disk "{name}" (path: ""). Timeout waiting for mount '
        "paths to be created"
    ),
    "gcePersistentDisk": 'could not find attached GCE PD "{name}". Timeout waiting for mount paths to be created',
    "vsphereVolume": 'could not find attached VMDK "{name}". Timeout waiting for mount paths to be created',
}


def _set_up(field: str) -> SetUp:
    plugin = ATTACHABLE[field].name

    async def set_up(
        tools: VolumeHost,
        pod: Object,
        spec: PodVolumeSpec,
        before: MountedVolume | None,
        max_age: float,
    ) -> MountedVolume:
        env, uid = tools.env, pod["metadata"]["uid"]
        read_only = spec.read_only or bool(spec.source.get("readOnly"))
        disk = _attached(env, field, spec)
        async with tools.devices.lock(disk.name):
            device = _mount_device(tools, field, spec, disk, read_only)
            write_notes(env, paths.plugin_dir(env, uid, plugin, spec.name), {"volume": disk.name})
            directory = paths.volume_dir(env, uid, plugin, spec.name)
            env.os.show_file_system(env.host.files, device, directory, read_only)
        if not read_only:
            env.os.set_ownership(
                env.host.files, directory, fs_group(pod), policy=change_policy(pod)
            )
        return MountedVolume(spec.name, directory, read_only=read_only)

    return set_up


def _attached(env: KubeletContext, field: str, spec: PodVolumeSpec) -> CloudDisk:
    name = unique_volume_name(field, spec.source)
    called = (
        str(spec.source.get("diskName") or "")
        if field == "azureDisk"
        else ATTACHABLE[field].volume_name(spec.source)
    )
    if problem := env.os.missing_disk(field, called, env.config.release):
        raise StageFailure(_WAIT, problem)
    disk = env.cloud.disk(name) if env.cloud is not None else None
    if disk is None or env.config.node_name not in disk.attachments:
        raise StageFailure(_WAIT, _NOT_FOUND[field].format(name=called, node=env.config.node_name))
    return disk


def _mount_device(
    tools: VolumeHost, field: str, spec: PodVolumeSpec, disk: CloudDisk, read_only: bool
) -> str:
    """Where it is mounted for all pods of the node."""
    env = tools.env
    files, plugin = env.host.files, disk.plugin
    path = env.os.join(
        env.config.root_dir, "plugins", plugin, "mounts", *_mount_point(field, spec, disk)
    )
    if env.os.disk_mounted(files, path):
        return path
    device = device_path(disk, disk.attachments[env.config.node_name].lun)
    device = f"/dev/disk/azure/scsi1/lun{device}" if field == "azureDisk" else device
    try:
        env.os.format_disk(disk, str(spec.source.get("fsType") or ""), device, path, read_only)
        env.os.mount_disk(files, disk, path, env.clock.time())
    except (ContentError, OSError) as problem:
        raise StageFailure(_DEVICE, _device_error(field, str(problem))) from problem
    except VolumeFailure as problem:
        raise StageFailure(_DEVICE, _device_error(field, str(problem))) from problem
    write_notes(env, _notes_dir(env, disk), {"volume": disk.name, "path": path})
    mounted_disks(tools).add(disk.name)
    return path


def _device_error(field: str, text: str) -> str:
    return (
        f"azureDisk - mountDevice:FormatAndMount failed with {text}"
        if field == "azureDisk"
        else text
    )


def _mount_point(field: str, spec: PodVolumeSpec, disk: CloudDisk) -> tuple[str, ...]:
    match field:
        case "azureDisk":
            prefix = "m" if spec.source.get("kind") == "Managed" else "b"
            return (f"{prefix}{zlib.crc32(disk.identity.lower().encode())}",)
        case "awsElasticBlockStore" if disk.identity.startswith("aws://"):
            return (
                "aws",
                *(part for part in disk.identity.removeprefix("aws://").split("/") if part),
            )
    return tuple(part for part in disk.identity.split("/") if part)


def _notes_dir(env: KubeletContext, disk: CloudDisk) -> str:
    name = f"{zlib.crc32(disk.name.encode()):08x}"
    return env.os.join(env.config.root_dir, "plugins", disk.plugin, "devices", name)


# ---- tear down ----


def _tear_down(field: str) -> TearDown:
    plugin = ATTACHABLE[field].name

    async def tear_down(tools: VolumeHost, uid: str) -> None:
        env = tools.env
        top = env.os.join(paths.pod_dir(env, uid), "volumes", plugin.replace("/", "~"))
        names = _names(env, top)
        if not names:
            return
        for name in names:
            env.os.hide_file_system(env.host.files, env.os.join(top, name))
            env.host.files.remove(paths.plugin_dir(env, uid, plugin, name), recursive=True)
        await _unmount_unused(tools, plugin)

    return tear_down


async def _unmount_unused(tools: VolumeHost, plugin: str) -> None:
    env = tools.env
    used = set[str]()
    for uid in _names(env, paths.pods_dir(env)):
        top = env.os.join(paths.pod_dir(env, uid), "plugins", plugin.replace("/", "~"))
        used |= {
            (read_notes(env, env.os.join(top, name)) or {}).get("volume", "")
            for name in _names(env, top)
        }
    top = env.os.join(env.config.root_dir, "plugins", plugin, "devices")
    for entry in _names(env, top):
        notes = read_notes(env, env.os.join(top, entry)) or {}
        volume = str(notes.get("volume", ""))
        if volume in used:
            continue
        async with tools.devices.lock(volume):
            if path := notes.get("path"):
                disk = env.cloud.disk(volume) if env.cloud is not None else None
                env.os.unmount_disk(env.host.files, path)
                if disk is not None:
                    await disk.content.save_in_background()
            env.host.files.remove(env.os.join(top, entry), recursive=True)
            mounted_disks(tools).discard(volume)


def mounted_disks(tools: VolumeHost) -> set[str]:
    """The unique names of the disks that are mounted on the node; read from the records after a
    restart.
    """
    env, devices = tools.env, tools.devices
    if devices.disks is None:
        devices.disks = set()
        for field in DISKS:
            top = env.os.join(env.config.root_dir, "plugins", ATTACHABLE[field].name, "devices")
            devices.disks |= {
                str((read_notes(env, env.os.join(top, e)) or {}).get("volume", ""))
                for e in _names(env, top)
            }
        devices.disks.discard("")
    return devices.disks


def _names(env: KubeletContext, directory: str) -> list[str]:
    files = env.host.files
    return list_small_directory(files, directory) if files.exists(directory) else []


# ---- expansion ----


async def _grow(tools: VolumeHost, spec: PodVolumeSpec, path: str, size: quantity.Quantity) -> bool:
    env = tools.env
    if problem := env.os.ungrowable():
        raise VolumeFailure(problem)
    disk = (
        env.cloud.disk(unique_volume_name(spec.kind, spec.source))
        if env.cloud is not None
        else None
    )
    if disk is not None and disk.style is not None:
        disk.content.file_system(disk.style, int(size.value()), env.clock.time())
    return True


PLUGINS: Final[Mapping[str, VolumePlugin]] = {
    field: VolumePlugin(
        ATTACHABLE[field].name,
        _set_up(field),
        tear_down=_tear_down(field),
        grow=_grow if field in _GROWING else None,
    )
    for field in DISKS
}
