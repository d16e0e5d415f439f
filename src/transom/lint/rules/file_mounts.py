"""Mounts of single files, which Docker on Windows cannot make."""

from __future__ import annotations

from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule, listed
from transom.lint.scene import Scene
from transom.lint.tree import Steps

_FILES = ("configMap", "downwardAPI", "projected")


def _mounts(scene: Scene, sources: tuple[str, ...]) -> Iterator[tuple[Found, str]]:
    for workload in scene.windows:
        held = {
            volume.get("name") for volume in listed(workload.spec.get("volumes"))
            if isinstance(volume, dict) and any(volume.get(source) for source in sources)
        }
        for steps, container in workload.containers():
            for i, mount in enumerate(listed(container.get("volumeMounts"))):
                key = _sub_path(mount)
                if key and mount.get("name") in held:
                    at: Steps = (*steps, "volumeMounts", i, key)
                    yield Found(workload.obj, at), str(mount[key])


def _sub_path(mount: object) -> str:
    if not isinstance(mount, dict):
        return ""
    return next((key for key in ("subPath", "subPathExpr") if mount.get(key)), "")


def single_file(scene: Scene) -> Iterator[Found]:
    for found, path in _mounts(scene, _FILES):
        yield found._replace(message=f"{path} is a single file of its volume")


def secret(scene: Scene) -> Iterator[Found]:
    for found, path in _mounts(scene, ("secret",)):
        yield found._replace(message=f"{path} is a single file of a Secret")


SINGLE_FILE = Rule("single-file-mount", single_file)
SECRET = Rule("secret-subpath", secret)
