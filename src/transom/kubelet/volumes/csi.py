"""csi: volumes of drivers that have registered with the kubelet.

A persistent volume is first staged for the node, then published to each pod; an inline volume is
only published. Texts are Kubernetes', with `kubernetes.io/csi: ` in front where it has that.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from transom.client.api import is_not_found
from transom.client.resources import CSI_DRIVERS, SECRETS, VOLUME_ATTACHMENTS
from transom.kit.named_tuple import NamedTuple
from transom.kit.rpc import RpcError
from transom.kubelet import paths
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.plugins.drivers import (
    EXPAND,
    GET_STATS,
    STAGE_UNSTAGE,
    CsiDriverInfo,
    NotRegistered,
    capability,
    is_final,
)
from transom.kubelet.volumes import csi_block
from transom.kubelet.volumes.devices import read_notes, remove_mount_point, unique_name, write_notes
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    StageFailure,
    VolumeHost,
    VolumePlugin,
    VolumeUsage,
    change_policy,
    fs_group,
)
from transom.machinery import gojson, quantity
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NAME: Final = "kubernetes.io/csi"
_LOG: Final = "kubernetes.io/csi: "
_NEW_MOUNTER: Final = "MountVolume.NewMounter initialization failed"
_DEVICE: Final = "MountVolume.MountDevice failed"
_BYTES, _INODES = 1, 2


class _Volume(NamedTuple):
    """What a driver receives about a volume."""

    driver: str
    handle: str
    mode: str
    fs_type: str
    options: tuple[str, ...]


def _volume(pod: Object, spec: PodVolumeSpec) -> _Volume:
    source, persistent = spec.source, (spec.persistent or {}).get("spec") or {}
    handle = (
        source.get("volumeHandle") or ""
        if spec.persistent
        else _inline_handle(pod["metadata"]["uid"], spec.name)
    )
    modes = persistent.get("accessModes") or ("ReadWriteOnce",)
    options = tuple(persistent.get("mountOptions") or ())
    return _Volume(
        str(source.get("driver") or ""), handle, modes[0], source.get("fsType") or "", options
    )


def _inline_handle(uid: str, name: str) -> str:
    return "csi-" + hashlib.sha256(f"{uid}{name}".encode()).hexdigest()


# ---- set up ----


async def set_up_csi(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    before: MountedVolume | None,
    max_age: float,
) -> MountedVolume:
    volume = _volume(pod, spec)
    known = await _driver_object(tools, volume.driver)
    _check_mode(volume.driver, known, "Persistent" if spec.persistent else "Ephemeral")
    attached = spec.persistent is not None and (
        known is None or (known.get("spec") or {}).get("attachRequired", True)
    )
    if attached:
        # The attach controller must first report it in the node's status, and without a driver
        # never does.
        tools.devices.want(pod["metadata"]["uid"], unique_name(volume.driver, volume.handle))
        tools.devices.check_attached(unique_name(volume.driver, volume.handle), spec.name)
    staging = ""
    if spec.block:
        async with tools.devices.lock(spec.name):
            return await _publish_device(tools, pod, spec, volume, known, attached)
    if spec.persistent is not None:
        async with tools.devices.lock(spec.name):
            staging = await _stage(tools, spec, volume, attached)
    return await _publish(tools, pod, spec, volume, known, staging, attached)


async def _stage(tools: VolumeHost, spec: PodVolumeSpec, volume: _Volume, attached: bool) -> str:
    """The directory where the driver has staged it for all pods; "" for a driver that does not
    stage.
    """
    devices = tools.devices
    path = devices.path(spec.name)
    try:
        driver = tools.drivers.get(volume.driver)
        if not await driver.can(STAGE_UNSTAGE):
            devices.begin(spec.name, volume.driver, volume.handle)
            return ""
        if spec.name in devices.staged:
            return path
        context = await _publish_context(tools, volume) if attached else {}
        secrets = await _secrets(tools, spec.source.get("nodeStageSecretRef"), "NodeStageSecretRef")
        devices.begin(spec.name, volume.driver, volume.handle)
        await driver.node(
            "NodeStageVolume",
            {
                "volume_id": volume.handle,
                "publish_context": context,
                "staging_target_path": path,
                "volume_capability": capability(volume.mode, volume.fs_type, volume.options),
                "secrets": secrets,
                "volume_context": dict(spec.source.get("volumeAttributes") or {}),
            },
        )
    except NotRegistered as problem:
        raise StageFailure(
            _DEVICE, f"{_LOG}attacher.MountDevice failed to create newCsiDriverClient: {problem}"
        ) from problem
    except RpcError as problem:
        if is_final(problem):
            devices.end(spec.name)
        raise StageFailure(_DEVICE, str(problem)) from problem
    except VolumeFailure as problem:
        raise StageFailure(_DEVICE, str(problem)) from problem
    devices.staged.add(spec.name)
    return path


async def _publish_device(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    volume: _Volume,
    known: Object | None,
    attached: bool,
) -> MountedVolume:
    """As a raw block device."""
    attributes = dict(spec.source.get("volumeAttributes") or {})
    both = {
        "volume_id": volume.handle,
        "publish_context": await _publish_context(tools, volume) if attached else {},
        "volume_capability": capability(volume.mode, "", block=True),
    }
    try:
        driver = tools.drivers.get(volume.driver)
    except NotRegistered as problem:
        text = f"{_LOG}blockMapper.SetUpDevice failed to get CSI client: {problem}"
        raise StageFailure("MapVolume.SetUpDevice failed", text, "FailedMapVolume") from problem
    stage = {
        **both,
        "volume_context": attributes,
        "secrets": await _secrets(
            tools, spec.source.get("nodeStageSecretRef"), "NodeStageSecretRef"
        ),
    }
    request = {
        **both,
        "volume_context": attributes | _pod_attributes(pod, known, False),
        "secrets": await _secrets(
            tools, spec.source.get("nodePublishSecretRef"), "NodePublishSecretRef"
        ),
    }
    return await csi_block.publish_csi_device(
        tools, pod, spec, driver, volume.handle, stage, request
    )


async def _publish(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    volume: _Volume,
    known: Object | None,
    staging: str,
    attached: bool,
) -> MountedVolume:
    env = tools.env
    uid = pod["metadata"]["uid"]
    directory = paths.volume_dir(env, uid, NAME, spec.name)
    target = env.os.join(directory, "mount")
    read_only = spec.read_only if spec.persistent else bool(spec.source.get("readOnly"))
    write_notes(
        env,
        directory,
        {
            "attachmentID": _attachment(volume, env.config.node_name),
            "driverName": volume.driver,
            "nodeName": env.config.node_name,
            "specVolID": spec.name,
            "volumeHandle": volume.handle,
            "volumeLifecycleMode": "Persistent" if spec.persistent else "Ephemeral",
        },
    )
    try:
        driver = tools.drivers.get(volume.driver)
        attributes = dict(spec.source.get("volumeAttributes") or {}) | _pod_attributes(
            pod, known, spec.persistent is None
        )
        attributes |= await _token_attributes(tools, pod, known)
        secret = spec.source.get("nodePublishSecretRef")
        if secret and spec.persistent is None:
            secret = {**secret, "namespace": pod["metadata"]["namespace"]}
        await driver.node(
            "NodePublishVolume",
            {
                "volume_id": volume.handle,
                "publish_context": await _publish_context(tools, volume) if attached else {},
                "staging_target_path": staging,
                "target_path": target,
                "readonly": read_only,
                "volume_capability": capability(volume.mode, volume.fs_type, volume.options),
                "secrets": await _secrets(tools, secret, "NodePublishSecretRef"),
                "volume_context": attributes,
            },
        )
    except NotRegistered as problem:
        _forget(tools, directory)
        raise VolumeFailure(
            f"{_LOG}mounter.SetUpAt failed to get CSI client: {problem}"
        ) from problem
    except RpcError as problem:
        if is_final(problem):
            _forget(tools, directory)
        raise VolumeFailure(str(problem)) from problem
    if not env.host.files.exists(target):
        # The driver mounted it where the node cannot see it.
        env.host.files.mkdir(target, 0o750)
    if _gives_group(pod, spec, volume, known, read_only):
        env.os.set_ownership(env.host.files, target, fs_group(pod), policy=change_policy(pod))
    mounted = MountedVolume(spec.name, target, read_only=read_only)
    mounted.driver, mounted.handle = volume.driver, volume.handle
    mounted.republish = bool(((known or {}).get("spec") or {}).get("requiresRepublish"))
    return mounted


def _gives_group(
    pod: Object, spec: PodVolumeSpec, volume: _Volume, known: Object | None, read_only: bool
) -> bool:
    policy = ((known or {}).get("spec") or {}).get("fsGroupPolicy") or "ReadWriteOnceWithFSType"
    if fs_group(pod) is None or policy == "None" or read_only:
        return False
    modes = ((spec.persistent or {}).get("spec") or {}).get("accessModes") or ()
    return policy == "File" or (bool(volume.fs_type) and "ReadWriteOnce" in modes)


def _pod_attributes(pod: Object, known: Object | None, ephemeral: bool) -> dict[str, str]:
    if not ((known or {}).get("spec") or {}).get("podInfoOnMount"):
        return {}
    meta = pod["metadata"]
    return {
        "csi.storage.k8s.io/pod.name": meta["name"],
        "csi.storage.k8s.io/pod.namespace": meta["namespace"],
        "csi.storage.k8s.io/pod.uid": meta["uid"],
        "csi.storage.k8s.io/serviceAccount.name": pod["spec"].get("serviceAccountName") or "",
        "csi.storage.k8s.io/ephemeral": "true" if ephemeral else "false",
    }


async def _token_attributes(tools: VolumeHost, pod: Object, known: Object | None) -> dict[str, str]:
    """Tokens of the pod's service account, for the audiences that the CSIDriver names."""
    wanted = ((known or {}).get("spec") or {}).get("tokenRequests") or ()
    if not wanted:
        return {}
    tokens: Object = {}
    for row in wanted:
        audience = row.get("audience") or ""
        tokens[audience] = await tools.tokens.status(pod, audience, row.get("expirationSeconds"))
    return {"csi.storage.k8s.io/serviceAccount.tokens": gojson.marshal(tokens).decode()}


# ---- usage ----


async def measure_csi(tools: VolumeHost, mounted: MountedVolume) -> VolumeUsage | None:
    """None when the driver does not report it or cannot be called."""
    try:
        driver = tools.drivers.get(mounted.driver)
        if not await driver.can(GET_STATS):
            return None
        request = {"volume_id": mounted.handle, "volume_path": mounted.path}
        rows = (await driver.node("NodeGetVolumeStats", request)).get("usage") or ()
    except (NotRegistered, RpcError):
        return None
    return _usage(rows) if rows else None


def _usage(rows: Sequence[Mapping[str, int]]) -> VolumeUsage:
    out = VolumeUsage()
    for row in rows:
        total, available, used = (
            int(row.get(field) or 0) for field in ("total", "available", "used")
        )
        if row.get("unit") == _BYTES:
            out = out._replace(capacity=total, available=available, used=used)
        elif row.get("unit") == _INODES:
            out = out._replace(inodes=total, inodes_free=available, inodes_used=used)
    return out


# ---- tear down ----


async def tear_down_csi(tools: VolumeHost, uid: str) -> None:
    """Unpublishes all volumes of the pod; also unstages those that no pod uses any more. Raises
    VolumeFailure.
    """
    env = tools.env
    top = env.os.join(paths.pod_dir(env, uid), "volumes", NAME.replace("/", "~"))
    for name in _names(tools, top):
        directory = env.os.join(top, name)
        notes = read_notes(env, directory) or {}
        try:
            if notes:
                await _unpublish(
                    tools.drivers.get(notes.get("driverName", "")),
                    notes,
                    env.os.join(directory, "mount"),
                )
            remove_mount_point(env, env.os.join(directory, "mount"))
        except (NotRegistered, RpcError) as problem:
            raise VolumeFailure(f"{_LOG}mounter.TearDownAt failed: {problem}") from problem
        except OSError as problem:
            raise VolumeFailure(
                f"{_LOG}mounter.TearDownAt failed to clean mount dir [{directory}]: {problem}"
            ) from problem
        env.host.files.remove(directory, recursive=True)
    await csi_block.tear_down_csi_devices(tools, uid)
    await _unstage_unused(tools)


async def _unpublish(driver: CsiDriverInfo, notes: Mapping[str, str], target: str) -> None:
    await driver.node(
        "NodeUnpublishVolume", {"volume_id": notes.get("volumeHandle", ""), "target_path": target}
    )


async def _unstage_unused(tools: VolumeHost) -> None:
    env, devices = tools.env, tools.devices
    used = set[str]()
    for uid in _names(tools, paths.pods_dir(env)):
        used.update(
            _names(tools, env.os.join(paths.pod_dir(env, uid), "volumes", NAME.replace("/", "~")))
        )
    top = env.os.join(env.config.root_dir, "plugins", NAME, "pv")
    for name in _names(tools, top):
        if name not in used:
            async with devices.lock(name):
                await _unstage(tools, name)


async def _unstage(tools: VolumeHost, name: str) -> None:
    devices, notes = tools.devices, tools.devices.notes_of(name)
    try:
        if notes:
            driver = tools.drivers.get(notes.get("driverName", ""))
            if await driver.can(STAGE_UNSTAGE):
                request = {
                    "volume_id": notes.get("volumeHandle", ""),
                    "staging_target_path": devices.path(name),
                }
                await driver.node("NodeUnstageVolume", request)
        devices.end(name)
    except (NotRegistered, RpcError, OSError) as problem:
        raise VolumeFailure(f"{_LOG}attacher.UnmountDevice failed: {problem}") from problem


def _names(tools: VolumeHost, directory: str) -> list[str]:
    files = tools.env.host.files
    return paths.volume_names(tools.env, directory) if files.exists(directory) else []


def _forget(tools: VolumeHost, directory: str) -> None:
    """Cleans up a volume that was not mounted after all."""
    env = tools.env
    target = env.os.join(directory, "mount")
    if not env.os.mounted(env.host.files, target):
        env.host.files.remove(directory, recursive=True)


# ---- expansion ----


async def grow_csi(
    tools: VolumeHost, spec: PodVolumeSpec, path: str, size: quantity.Quantity
) -> bool:
    """Returns whether it is done; False when it cannot be expanded further. Raises
    VolumeFailure.
    """
    source = (spec.persistent or {}).get("spec") or {}
    volume = _volume({"metadata": {"uid": ""}}, spec)
    begin = "Expander.NodeExpand"
    try:
        driver = tools.drivers.get(volume.driver)
        if not await driver.can(EXPAND):
            raise VolumeFailure(
                f"{begin} found CSI plugin {NAME}/{volume.driver} to not support node expansion"
            )
        await driver.node(
            "NodeExpandVolume",
            {
                "volume_id": volume.handle,
                "volume_path": path,
                "capacity_range": {"required_bytes": int(size.value())},
                "staging_target_path": tools.devices.path(spec.name)
                if spec.name in tools.devices.staged
                else "",
                "volume_capability": capability(
                    volume.mode,
                    volume.fs_type,
                    volume.options,
                    block=source.get("volumeMode") == "Block",
                ),
            },
        )
    except NotRegistered as problem:
        raise VolumeFailure(str(problem)) from problem
    except RpcError as problem:
        if problem.code == "FailedPrecondition":
            return False  # not while in use; pods can still use it
        raise VolumeFailure(f"{begin} failed to expand the volume : {problem}") from problem
    return True


# ---- API objects ----


def _attachment(volume: _Volume, node: str) -> str:
    return "csi-" + hashlib.sha256(f"{volume.handle}{volume.driver}{node}".encode()).hexdigest()


async def _publish_context(tools: VolumeHost, volume: _Volume) -> dict[str, str]:
    name = _attachment(volume, tools.env.config.node_name)
    try:
        found = await tools.env.client.get(VOLUME_ATTACHMENTS, "", name)
    except (ApiError, OSError) as problem:
        raise VolumeFailure(str(problem)) from problem
    return dict((found.get("status") or {}).get("attachmentMetadata") or {})


async def _secrets(tools: VolumeHost, ref: Object | None, field: str) -> dict[str, str]:
    if not ref:
        return {}
    namespace, name = ref.get("namespace") or "", ref.get("name") or ""
    try:
        found = await tools.env.client.get(SECRETS, namespace, name)
        data = found.get("data") or {}
        return {
            key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()
        }
    except (ApiError, OSError, binascii.Error) as problem:
        raise VolumeFailure(f"fetching {field} {namespace}/{name} failed: {problem}") from problem


async def _driver_object(tools: VolumeHost, name: str) -> Object | None:
    try:
        return await tools.env.client.get(CSI_DRIVERS, "", name)
    except ApiError as problem:
        if is_not_found(problem):
            return None
        raise VolumeFailure(str(problem)) from problem


def _check_mode(name: str, driver: Object | None, mode: str) -> None:
    modes = list(((driver or {}).get("spec") or {}).get("volumeLifecycleModes") or ()) or [
        "Persistent"
    ]
    if mode in modes:
        return
    listed = "[" + " ".join(f'"{one}"' for one in modes) + "]"
    lack = " (no CSIDriver object)" if driver is None else f" (only supports {listed})"
    raise StageFailure(_NEW_MOUNTER, f'volume mode "{mode}" not supported by driver {name}{lack}')


PLUGIN = VolumePlugin(NAME, set_up_csi, tear_down=tear_down_csi, grow=grow_csi)
