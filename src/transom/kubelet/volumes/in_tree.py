"""Linux storage systems with in-tree plugins in Kubernetes 1.20: NFS, CephFS, iSCSI ...

The cloud provider takes the role of the servers: all Linux nodes that reference the same share or
disk see the same files. Windows nodes cannot mount any of them, and fail with the plugin's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from transom.client.resources import ENDPOINTS
from transom.cloud.content import ContentError
from transom.cloud.errors import CloudError
from transom.kit.named_tuple import NamedTuple
from transom.kubelet import paths
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.storage_requests import StorageRequest
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    PodVolumeSpec,
    SetUp,
    StageFailure,
    VolumeHost,
    VolumePlugin,
    change_policy,
    fs_group,
)
from transom.machinery import quantity
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

Source = Mapping[str, Any]


class _Kind(NamedTuple):
    plugin: str
    source: Callable[[Source], str]  # what would be mounted


def _nfs(s: Source) -> str:
    return f"{s.get('server', '')}:{s.get('path', '')}"


def _ceph(s: Source) -> str:
    monitors = s.get("monitors") or ()
    hosts = ",".join(m if ":" in m else m + ":6789" for m in monitors)
    return f"{hosts}:{s.get('path') or '/'}"


def _iscsi(s: Source) -> str:
    return f"{s.get('targetPortal', '')}-{s.get('iqn', '')}-lun-{s.get('lun', 0)}"


def _rbd(s: Source) -> str:
    return f"{s.get('pool') or 'rbd'}-image-{s.get('image', '')}"


def _fc(s: Source) -> str:
    return "-".join(
        (*(s.get("targetWWNs") or ()), *(s.get("wwids") or ()), "lun", str(s.get("lun", 0)))
    )


def _named(*fields: str) -> Callable[[Source], str]:
    return lambda s: "-".join(str(s.get(field) or "") for field in fields)


_KINDS: Final[Mapping[str, _Kind]] = {
    "nfs": _Kind("kubernetes.io/nfs", _nfs),
    "cephfs": _Kind("kubernetes.io/cephfs", _ceph),
    "glusterfs": _Kind("kubernetes.io/glusterfs", _named("endpoints", "path")),
    "iscsi": _Kind("kubernetes.io/iscsi", _iscsi),
    "rbd": _Kind("kubernetes.io/rbd", _rbd),
    "fc": _Kind("kubernetes.io/fc", _fc),
    "quobyte": _Kind("kubernetes.io/quobyte", _named("registry")),
    "storageos": _Kind("kubernetes.io/storageos", _named("volumeNamespace", "volumeName")),
    "scaleIO": _Kind("kubernetes.io/scaleio", _named("system", "volumeName")),
    "portworxVolume": _Kind("kubernetes.io/portworx-volume", _named("volumeID")),
    "flocker": _Kind("kubernetes.io/flocker", _named("datasetName", "datasetUUID")),
    "gitRepo": _Kind("kubernetes.io/git-repo", _named("repository")),
}


# The plugins whose file systems the node expands; shares are expanded on their servers only.
_GROWING: Final = ("rbd",)


def _set_up(field: str, kind: _Kind) -> SetUp:
    async def set_up(
        tools: VolumeHost,
        pod: Object,
        spec: PodVolumeSpec,
        before: MountedVolume | None,
        max_age: float,
    ) -> MountedVolume:
        env = tools.env
        files = env.host.files
        directory = paths.volume_dir(env, pod["metadata"]["uid"], kind.plugin, spec.name)
        source = kind.source(spec.source)
        read_only = spec.read_only or bool(spec.source.get("readOnly"))
        if field == "glusterfs":
            source = await _gluster_server(tools, pod, spec)
        env.os.check_storage(
            StorageRequest(
                field,
                source,
                directory,
                _options(spec, read_only),
                spec.name,
                pod["metadata"]["name"],
            )
        )
        if env.cloud is not None and field != "gitRepo":
            try:
                export = env.cloud.export(kind.plugin, _identity(field, source, spec))
                env.os.mount_export(files, export, directory, env.clock.time())
            except (CloudError, ContentError) as problem:
                raise VolumeFailure(str(problem)) from problem
        else:
            backing = env.os.join(
                env.config.root_dir, "plugins", kind.plugin, "mounts", _file_name(source)
            )
            files.mkdir(backing, 0o755)
            env.os.bind(files, backing, directory)
        if not read_only:
            env.os.set_ownership(files, directory, fs_group(pod), policy=change_policy(pod))
        return MountedVolume(spec.name, directory, read_only=read_only)

    return set_up


def _identity(field: str, source: str, spec: PodVolumeSpec) -> str:
    """A Quobyte registry provides all volumes."""
    return f"{source}/{spec.source.get('volume', '')}" if field == "quobyte" else source


async def _gluster_server(tools: VolumeHost, pod: Object, spec: PodVolumeSpec) -> str:
    """The endpoints list the servers."""
    namespace = (spec.source.get("endpointsNamespace") if spec.persistent else None) or pod[
        "metadata"
    ]["namespace"]
    try:
        found = await tools.env.client.get(
            ENDPOINTS, namespace, str(spec.source.get("endpoints") or "")
        )
    except (ApiError, OSError) as problem:
        raise StageFailure(
            "MountVolume.NewMounter initialization failed", str(problem)
        ) from problem
    servers = [
        a["ip"] for subset in found.get("subsets") or () for a in subset.get("addresses") or ()
    ]
    if not servers:
        raise VolumeFailure(
            "failed to execute mount command:[no valid ipaddress found in endpoint address list]"
        )
    return f"{servers[0]}:{spec.source.get('path', '')}"


async def _grow(tools: VolumeHost, spec: PodVolumeSpec, path: str, size: quantity.Quantity) -> bool:
    if problem := tools.env.os.ungrowable():
        raise VolumeFailure(problem)
    return True


def _options(spec: PodVolumeSpec, read_only: bool) -> tuple[str, ...]:
    """The persistent volume's options, sorted as Kubernetes joins them."""
    requested = (spec.persistent or {}).get("spec", {}).get("mountOptions") or ()
    return tuple(sorted({*requested, *(("ro",) if read_only else ())}))


def _file_name(source: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "~" for c in source)


PLUGINS: Final[Mapping[str, VolumePlugin]] = {
    field: VolumePlugin(
        kind.plugin, _set_up(field, kind), grow=_grow if field in _GROWING else None
    )
    for field, kind in _KINDS.items()
}
# photonPersistentDisk has had no plugin since 1.16, only an API field: no volume plugin matched.
