"""Writes the files of a volume so that a container sees either the old or the new version.

The files are in a directory named by the time; the link `..data` points to it and is switched; the
container sees top-level links through `..data`.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Iterator
from typing import TypeVar

from transom.kit.lazy import lazy_pattern
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.plugin import Payload, Projection

_DATA = "..data"
_MAX_NAME, _MAX_PATH = 255, 4096
_MOST_KEYS = 100_000  # more than fit into a ConfigMap
_AT_ONCE = 500  # files to write before other tasks may run
_STAMP = lazy_pattern(r"\.\.\d{4}(_\d\d){5}\.\d{1,20}")  # the directory of one version
_PLAIN = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")  # valid, like nearly all names


async def write_payload(
    env: KubeletContext, directory: str, payload: Payload, *, empty: bool = False
) -> bool:
    """Returns whether anything was written. The directory must exist; `empty` when it was just
    created. Raises VolumeFailure and OSError. Other tasks may run after some hundred files.
    """
    files, join = env.host.files, env.os.join
    clean: dict[str, Projection] = {}
    for part in _parts(list(payload.items())):
        clean.update((_checked(env, path), projection) for path, projection in part)
        await _turn(payload)
    data = join(directory, _DATA)
    link = "" if empty else _link(env, data)
    # The old version is removed: a link that a pod with a hostPath has put there could name any
    # directory of the node (CVE-2017-1002102).
    old = link if _STAMP.fullmatch(link) else ""
    stale: set[str] = set()
    if old:
        longest = max((len(projection.data) for projection in clean.values()), default=0)
        had = await _tree(env, join(directory, old), longest + 1)
        stale = had.keys() - _with_parents(clean)
        if not stale and all(
            had.get(path) == projection.data for path, projection in clean.items()
        ):
            return False
    stamp = (
        time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime(env.clock.time()))
        + f"{env.rng.randrange(10**9):09d}"
    )
    fresh = join(directory, stamp)
    files.mkdir(fresh, 0o755)
    try:
        await _fill(env, fresh, clean)
        tops = sorted({path.split("/", 1)[0] for path in clean})
        links: list[tuple[str, str, int]] = []
        for some in _parts(tops):
            links += [
                (top, join(_DATA, top), 0)
                for top in some
                if empty or not _link(env, join(directory, top))
            ]
            await _turn(payload)
        for some_links in _parts(links):
            files.fill(directory, some_links)
            await _turn(payload)
        if link:
            env.os.replace_link(files, stamp, data)
        else:
            files.fill(directory, [(_DATA, stamp, 0)])
    except (OSError, VolumeFailure):
        files.remove(fresh, recursive=True)
        raise
    for path in stale:
        if "/" not in path:
            files.remove(join(directory, path))
    if old:
        files.remove(join(directory, old), recursive=True)
    return True


def _checked(env: KubeletContext, path: str) -> str:
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
            raise VolumeFailure(
                f"invalid path: filenames must be less than or equal to {_MAX_NAME} characters"
            )
    if parts[0].startswith(".."):
        raise VolumeFailure(f"invalid path: must not start with '..': {path}")
    return posixpath.normpath("/".join(parts))


_T = TypeVar("_T")


def _parts(items: list[_T]) -> Iterator[list[_T]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


async def _turn(payload: Payload) -> None:
    if len(payload) > _AT_ONCE:
        await asyncio.sleep(0)


async def _fill(env: KubeletContext, directory: str, payload: Payload) -> None:
    files = env.host.files
    flat = [
        (path, p.data, p.mode) for path, p in payload.items() if "/" not in path and p.user is None
    ]
    for part in _parts(flat):
        files.fill(directory, part)
        await _turn(payload)
    if len(flat) == len(payload):
        return
    for number, (path, projection) in enumerate(payload.items()):
        if "/" not in path and projection.user is None:
            continue
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        whole = env.os.join(directory, path)
        if "/" in path:
            files.mkdir(env.os.join(directory, path.rpartition("/")[0]), 0o777)
        files.write(whole, projection.data, projection.mode)
        if projection.user is not None:
            env.os.set_owner(files, whole, projection.user, env.config.release)


def _link(env: KubeletContext, path: str) -> str:
    try:
        return env.host.files.readlink(path)
    except OSError:
        return ""


async def _tree(
    env: KubeletContext, directory: str, most: int, prefix: str = ""
) -> dict[str, bytes | None]:
    """All paths below a directory, with the first `most` bytes of files: a pod with a hostPath may
    have put larger ones there. Directories have no bytes.
    """
    files = env.host.files
    if not files.exists(directory):
        return {}
    out: dict[str, bytes | None] = {}
    for number, name in enumerate(files.some_names(directory, _MOST_KEYS)):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        path = env.os.join(directory, name)
        if files.stat(path, follow=False).kind == "directory":
            out[prefix + name] = None
            out |= await _tree(env, path, most, f"{prefix}{name}/")
        else:
            out[prefix + name] = files.read(path, 0, most)
    return out


def _with_parents(payload: dict[str, Projection]) -> set[str]:
    out: set[str] = set()
    for path in payload:
        while path:
            out.add(path)
            path = path.rpartition("/")[0]
    return out
