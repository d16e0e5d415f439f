"""Static pods: manifests in a directory that the kubelet runs without the API, and their mirrors in
the API.

The directory is on the emulated machine or on the real one. A changed manifest is a new pod with a
new uid; an unreadable one is not a pod.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import orjson

from transom.client.api import is_already_exists, is_conflict, is_not_found
from transom.client.events import WARNING
from transom.client.resources import PODS
from transom.kit.clock import rfc3339_micro
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodUpdates
from transom.kubelet.labels import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE
from transom.machinery import codec, defaults, validation
from transom.machinery.errors import ApiError
from transom.machinery.field import aggregate_text
from transom.machinery.kinds import BY_KEY, GVK
from transom.machinery.objects import Object, with_metadata
from transom.machines.api import Files
from transom.machines.smallfiles import list_small_directory

log = logging.getLogger("transom.kubelet")

_SOURCE = "file"
_LOOK_EVERY = 1.0
_LONGEST = 10 << 20
_MOST, _MOST_BYTES = 512, 32 << 20  # of a directory; a pod with a hostPath may write more
_SHORT = 16 << 10  # longer manifests would block the event loop for too long
_UID = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_POD = GVK("", "v1", "Pod")
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}
_PER_POD = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


class BadManifest(Exception):
    """A file is not a valid pod manifest."""


class ManifestFolder(Protocol):
    def read(self) -> Mapping[str, bytes]:
        """Files by path, in order. Empty when the directory does not exist."""


class HostFolder:
    """Files of the emulated machine; also a single file."""

    __slots__ = ("_files", "_join", "_path")

    def __init__(self, files: Files, path: str, join: Callable[..., str]) -> None:
        self._files, self._path, self._join = files, path, join

    def read(self) -> Mapping[str, bytes]:
        files, path = self._files, self._path
        if not files.exists(path):
            return {}
        if files.stat(path).kind == "file":
            return {path: files.read(path, 0, _LONGEST + 1)}
        paths = [
            self._join(path, name)
            for name in sorted(list_small_directory(files, path))
            if not name.startswith(".")
        ]
        found: dict[str, bytes] = {}
        left = _MOST_BYTES
        for entry in paths[:_MOST]:
            if files.stat(entry).kind == "file":
                data = files.read(entry, 0, _LONGEST + 1)
                left -= len(data)
                if left < 0:
                    break
                found[entry] = data
        return found


class RealFolder:
    """Files of the machine that runs this process."""

    __slots__ = ("_known", "_path")

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        # by the file's metadata when it was read
        self._known: dict[str, tuple[tuple[int, int], bytes]] = {}

    def read(self) -> Mapping[str, bytes]:
        try:
            with os.scandir(self._path) as entries:
                paths = sorted(
                    e.path for e in entries if e.is_file() and not e.name.startswith(".")
                )
        except FileNotFoundError:
            paths = []
        except NotADirectoryError:
            paths = [str(self._path)]
        known = {}
        for path in paths:
            try:
                stat = os.stat(path)
                mark = stat.st_mtime_ns, stat.st_size
                before = self._known.get(path)
                known[path] = before if before and before[0] == mark else (mark, _beginning(path))
            except FileNotFoundError:  # deleted in the meantime
                continue
        self._known = known
        return {path: data for path, (_, data) in known.items()}


def _beginning(path: str) -> bytes:
    """The content of a file up to the size limit for manifests, plus one byte when it is longer."""
    with open(path, "rb") as file:
        return file.read(_LONGEST + 1)


class StaticPods:
    """A `PodSource`."""

    def __init__(self, env: KubeletContext, folder: ManifestFolder | None = None) -> None:
        self._env = env
        self._folder = folder or HostFolder(env.host.files, env.config.static_pod_path, env.os.join)
        self._pods: dict[str, tuple[bytes, Object | None]] = {}  # by path; None for a bad manifest

    async def run(self, updates: PodUpdates) -> None:
        updates.set(await self._take(self._folder.read()))
        while True:
            await self._env.clock.sleep(_LOOK_EVERY)
            found = self._folder.read()
            if {path: data for path, (data, _) in self._pods.items()} != found:
                updates.set(await self._take(found))

    async def _take(self, found: Mapping[str, bytes]) -> list[Object]:
        self._pods = {path: await self._known(path, data) for path, data in found.items()}
        return self._unique([pod for _, pod in self._pods.values() if pod is not None])

    async def _known(self, path: str, data: bytes) -> tuple[bytes, Object | None]:
        before = self._pods.get(path)
        if before is not None and before[0] == data:
            return before
        try:
            node = self._env.config.node_name
            if len(data) <= _SHORT:
                pod = read_static_pod(data, path, node)
            else:
                pod = await asyncio.to_thread(read_static_pod, data, path, node)
        except BadManifest as problem:
            log.warning("Can't process manifest file %s: %s", path, problem)
            return data, None
        seen = {CONFIG_SEEN: rfc3339_micro(self._env.clock.time()), CONFIG_SOURCE: _SOURCE}
        return data, with_metadata(pod, annotations={**pod["metadata"]["annotations"], **seen})

    def _unique(self, pods: Sequence[Object]) -> list[Object]:
        names: dict[tuple[str, str], Object] = {}
        for pod in pods:
            meta = pod["metadata"]
            if names.setdefault((meta["namespace"], meta["name"]), pod) is not pod:
                name = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
                self._env.events.event(
                    pod,
                    WARNING,
                    "FailedValidation",
                    (
                        f"Error validating pod {name} from {_SOURCE} due to duplicate pod "
                        f'name "{meta["name"]}", ignoring'
                    ),
                )
        return list(names.values())


def read_static_pod(data: bytes, path: str, node_name: str) -> Object:
    """The pod of a JSON or YAML manifest, with its name, uid and namespace. Raises BadManifest."""
    if len(data) > _LONGEST:
        raise BadManifest(f"{path}: the file is too long")
    try:
        pod = codec.decode_object(data, codec.YAML, _POD).obj
    except ApiError as problem:
        raise BadManifest(
            f"{path}: couldn't parse as pod({problem.message}), please check config file"
        ) from None
    uid = (pod.get("metadata") or {}).get("uid")
    if uid and not _UID.fullmatch(uid):  # used in names of directories and cgroups
        raise BadManifest(f"{path}: invalid pod: metadata.uid: Invalid value: {go_quote(uid)}")
    defaults.apply_defaults(_POD, pod)
    pod = _placed(pod, path, node_name)
    wrong = validation.validate_create(BY_KEY["/Pod"], pod)
    if wrong:
        raise BadManifest(f"invalid pod: {aggregate_text(wrong)}")
    return pod


def _placed(pod: Object, path: str, node_name: str) -> Object:
    meta = dict(pod.get("metadata") or {})
    if not meta.get("uid"):
        content = orjson.dumps(pod, option=orjson.OPT_SORT_KEYS)
        mark = b"host:" + node_name.encode() + b"file:" + path.encode() + content
        meta["uid"] = hashlib.md5(mark, usedforsecurity=False).hexdigest()
    meta["name"] = f"{meta.get('name', '')}-{node_name.lower()}"
    meta["namespace"] = meta.get("namespace") or "default"
    meta["annotations"] = {**(meta.get("annotations") or {}), CONFIG_HASH: meta["uid"]}
    spec = {**(pod.get("spec") or {}), "nodeName": node_name}
    tolerations = spec.get("tolerations") or []
    if _TOLERATION not in tolerations:
        spec["tolerations"] = [*tolerations, _TOLERATION]
    return {**pod, "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


class ApiMirrors:
    """`Mirrors` in the API; the Node owns them, and they are deleted with it."""

    __slots__ = ("_env",)

    def __init__(self, env: KubeletContext) -> None:
        self._env = env

    async def create(self, pod: Object) -> None:
        """Raises ApiError and OSError."""
        env, meta = self._env, pod["metadata"]
        node = env.node()
        if node is None:
            raise ConnectionError(
                f"failed to get node UID: node {env.config.node_name} is not known"
            )
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": env.config.node_name,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
        annotations = {**meta["annotations"], CONFIG_MIRROR: meta["annotations"][CONFIG_HASH]}
        mirror = with_metadata(
            pod, annotations=annotations, ownerReferences=[owner], **dict.fromkeys(_PER_POD)
        )
        try:
            await env.client.create(PODS, meta["namespace"], mirror)
        except ApiError as problem:
            if not is_already_exists(problem):
                raise
            existing = await env.client.get(PODS, meta["namespace"], meta["name"])
            if not self.is_mirror_of(existing, pod):
                raise

    async def delete(self, namespace: str, name: str, uid: str = "") -> bool:
        try:
            await self._env.client.delete(PODS, namespace, name, grace=0, uid=uid)
        except ApiError as problem:
            if not is_not_found(problem) and not is_conflict(problem):
                log.warning(
                    "the mirror pod %s/%s could not be deleted: %s", namespace, name, problem
                )
            return False
        return True

    def is_mirror_of(self, mirror: Object, pod: Object) -> bool:
        theirs, mine = mirror["metadata"], pod["metadata"]
        if (theirs["namespace"], theirs["name"]) != (mine["namespace"], mine["name"]):
            return False
        made_of = (theirs.get("annotations") or {}).get(CONFIG_MIRROR)
        return bool(made_of == mine["annotations"][CONFIG_HASH])


def static_pod_source(env: KubeletContext) -> StaticPods | None:
    """The source from the configuration, if it has one."""
    return StaticPods(env) if env.config.static_pod_path else None
