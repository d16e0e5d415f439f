"""Writes the files of a volume so that a container sees all of one version or all of another.

The files lie in a directory named by the time; the link `..data` points to it and is switched; what a container sees at
the top are links through `..data`.
"""

from __future__ import annotations

import posixpath
import re
import time

from transom.kubelet.base import Env, VolumeFailure
from transom.kubelet.volumes.plugin import Payload, Projection

_DATA = "..data"
_MAX_NAME, _MAX_PATH = 255, 4096
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")  # nothing is wrong with these, and nearly all are


def write(env: Env, directory: str, payload: Payload, *, empty: bool = False) -> bool:
    """The directory exists; `empty` when it was made just now. Whether anything was written. Raises VolumeFailure and
    OSError."""
    files, join = env.host.files, env.os.join
    clean = {_checked(env, path): projection for path, projection in payload.items()}
    data = join(directory, _DATA)
    old = "" if empty else _link(env, data)
    stale: set[str] = set()
    if old:
        had = _tree(env, join(directory, old))
        stale = had.keys() - _with_parents(clean)
        if not stale and all(had.get(path) == projection.data for path, projection in clean.items()):
            return False
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime(env.clock.time())) + f"{env.rng.randrange(10**9):09d}"
    fresh = join(directory, stamp)
    files.mkdir(fresh, 0o755)
    try:
        _fill(env, fresh, clean)
        tops = sorted({path.split("/", 1)[0] for path in clean})
        links = [(top, join(_DATA, top), 0) for top in tops if empty or not _link(env, join(directory, top))]
        if old:
            files.fill(directory, links)
            env.os.replace_link(files, stamp, data)
        else:
            files.fill(directory, [*links, (_DATA, stamp, 0)])
    except (OSError, VolumeFailure):
        files.remove(fresh, recursive=True)
        raise
    for path in stale:
        if "/" not in path:
            files.remove(join(directory, path))
    if old:
        files.remove(join(directory, old), recursive=True)
    return True


def _checked(env: Env, path: str) -> str:
    """The path with slashes, cleaned. Raises VolumeFailure."""
    if _PLAIN.fullmatch(path):
        return path
    if not path:
        raise VolumeFailure('invalid path: must not be empty: ""')
    if path.startswith("/"):
        raise VolumeFailure(f"invalid path: must be relative path: {path}")
    if len(path) > _MAX_PATH:
        raise VolumeFailure(f"invalid path: must be less than or equal to {_MAX_PATH} characters")
    parts = env.os.split(path)
    for part in parts:
        if part == "..":
            raise VolumeFailure(f"invalid path: must not contain '..': {path}")
        if len(part) > _MAX_NAME:
            raise VolumeFailure(f"invalid path: filenames must be less than or equal to {_MAX_NAME} characters")
    if parts[0].startswith(".."):
        raise VolumeFailure(f"invalid path: must not start with '..': {path}")
    return posixpath.normpath("/".join(parts))


def _fill(env: Env, directory: str, payload: Payload) -> None:
    files = env.host.files
    flat = [(path, p.data, p.mode) for path, p in payload.items() if "/" not in path and p.user is None]
    files.fill(directory, flat)
    if len(flat) == len(payload):
        return
    for path, projection in payload.items():
        if "/" not in path and projection.user is None:
            continue
        whole = env.os.join(directory, path)
        if "/" in path:
            files.mkdir(env.os.join(directory, path.rpartition("/")[0]), 0o777)
        files.write(whole, projection.data, projection.mode)
        if projection.user is not None:
            env.os.set_owner(files, whole, projection.user)


def _link(env: Env, path: str) -> str:
    try:
        return env.host.files.readlink(path)
    except OSError:
        return ""


def _tree(env: Env, directory: str, prefix: str = "") -> dict[str, bytes | None]:
    """All paths below a directory; directories have no bytes."""
    files = env.host.files
    if not files.exists(directory):
        return {}
    out: dict[str, bytes | None] = {}
    for name in files.listdir(directory):
        path = env.os.join(directory, name)
        if files.stat(path, follow=False).kind == "directory":
            out[prefix + name] = None
            out |= _tree(env, path, f"{prefix}{name}/")
        else:
            out[prefix + name] = files.read(path)
    return out


def _with_parents(payload: dict[str, Projection]) -> set[str]:
    out: set[str] = set()
    for path in payload:
        while path:
            out.add(path)
            path = path.rpartition("/")[0]
    return out


