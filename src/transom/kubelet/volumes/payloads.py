"""The files of a config map or secret volume, and how they are written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.kubelet import paths
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.referenced import ReferenceFailure, secret_bytes, text_bytes
from transom.kubelet.volumes.atomic_writer import write_payload
from transom.kubelet.volumes.plugin import (
    MountedVolume,
    Payload,
    PodVolumeSpec,
    Projection,
    VolumeHost,
    fs_group,
)
from transom.machinery.objects import Object

_NO_MODE = "No defaultMode used, not even the default value for it"
_REMEMBERED = 512

# Most pods mount whole objects, and the same ones: all pods of a process share the resulting files.
# The content is compared, because a process may have seen several clusters with the same resource
# versions.
_whole: OrderedDict[tuple[str, str, int], tuple[object, object, Payload]] = OrderedDict()


async def secret_payload(
    tools: VolumeHost,
    namespace: str,
    name: str,
    source: Mapping[str, Any],
    mode: int | None,
    max_age: float,
) -> Payload:
    secret = await _object(tools.objects.secret, namespace, name, source, max_age)
    return _project(
        "secret",
        secret,
        source,
        mode,
        lambda: {k: secret_bytes(v) for k, v in (secret.get("data") or {}).items()},
        "references non-existent secret key: ",
    )


async def config_map_payload(
    tools: VolumeHost,
    namespace: str,
    name: str,
    source: Mapping[str, Any],
    mode: int | None,
    max_age: float,
) -> Payload:
    config = await _object(tools.objects.config_map, namespace, name, source, max_age)

    def values() -> dict[str, bytes]:
        texts = {k: text_bytes(v) for k, v in (config.get("data") or {}).items()}
        return texts | {k: secret_bytes(v) for k, v in (config.get("binaryData") or {}).items()}

    return _project(
        "configmap", config, source, mode, values, "configmap references non-existent config key: "
    )


async def _object(
    ask: Callable[..., Any], namespace: str, name: str, source: Mapping[str, Any], max_age: float
) -> Object:
    try:
        found: Object = await ask(namespace, name, max_age)
    except ReferenceFailure as problem:
        if problem.missing and source.get("optional"):
            return {}
        raise VolumeFailure(str(problem)) from problem
    return found


def _project(
    kind: str,
    obj: Object,
    source: Mapping[str, Any],
    mode: int | None,
    values: Callable[[], dict[str, bytes]],
    missing: str,
) -> Payload:
    if mode is None:
        raise VolumeFailure(_NO_MODE)
    items: Sequence[Object] = source.get("items") or ()
    if items:
        return _chosen(values(), items, mode, bool(source.get("optional")), missing)
    meta = obj.get("metadata")
    if meta is None:
        return {}
    key, texts, binary = (kind, meta.get("uid", ""), mode), obj.get("data"), obj.get("binaryData")
    known = _whole.get(key)
    if known is not None and known[0] == texts and known[1] == binary:
        return known[2]
    payload = {name: Projection(data, mode) for name, data in values().items()}
    _whole[key] = texts, binary, payload
    if len(_whole) > _REMEMBERED:
        _whole.popitem(last=False)
    return payload


def _chosen(
    values: dict[str, bytes], items: Sequence[Object], mode: int, optional: bool, missing: str
) -> Payload:
    out = {}
    for item in items:
        data = values.get(item["key"])
        if data is not None:
            own = item.get("mode")
            out[item["path"]] = Projection(data, mode if own is None else own)
        elif not optional:
            raise VolumeFailure(missing + item["key"])
    return out


async def publish_payload(
    tools: VolumeHost,
    pod: Object,
    spec: PodVolumeSpec,
    plugin: str,
    payload: Payload,
    before: MountedVolume | None,
    *,
    in_memory: bool,
) -> MountedVolume:
    """Writes the volume with these files. Raises VolumeFailure and OSError, and then removes a new
    volume again.
    """
    if before is not None and (payload is before.payload or payload == before.payload):
        return before
    env = tools.env
    files = env.host.files
    directory = paths.volume_dir(env, pod["metadata"]["uid"], plugin, spec.name)
    empty = before is None and not files.exists(directory)
    if before is None:
        if in_memory:
            env.os.mount_tmpfs(files, directory, env.host.hardware.memory // 2)
        else:
            files.mkdir(directory, 0o777)
    try:
        written = await write_payload(env, directory, payload, empty=empty)
        await tools.nested.make(pod, spec.outer, directory)
        if written:
            env.os.set_ownership(files, directory, fs_group(pod), read_only=True)
    except (OSError, VolumeFailure):
        if before is None:
            env.os.unmount(files, directory)
            files.remove(directory, recursive=True)
        raise
    return MountedVolume(spec.name, directory, read_only=True, payload=payload)
