"""Mounts that a container's program makes: who may, and who sees them.

On Linux a privileged container may; the node and its other containers see it where the container's own mount propagates
both ways, else it stays inside. On Windows a container asks csi-proxy, a program on the node, by its named pipes.
"""

from __future__ import annotations

import errno
import ntpath
import posixpath
from typing import Final

from transom.hosts.filesystems import FileSystem
from transom.hosts.linux import LinuxHost
from transom.hosts.windows.host import WindowsHost
from transom.runtime.api import Mount
from transom.runtime.sim.records import ContainerRecord

PROXY: Final = "\\\\.\\pipe\\csi-proxy-filesystem-"
_VERSIONS: Final = ("v1beta1", "v1beta2", "v1")


def mount(
    host: LinuxHost | WindowsHost, container: ContainerRecord, system: FileSystem, path: str, read_only: bool
) -> None:
    """Raises OSError."""
    above, there = _on_host(container, path, windows=isinstance(host, WindowsHost))
    if isinstance(host, WindowsHost):
        _ask_proxy(host, container)
        host.files.mkdir(there)
        host.files.mount(system, there, read_only)
        return
    linux = container.config.linux
    if linux is None or not linux.privileged:
        why = "mount failed: exit status 1: mount: permission denied (are you root?)"
        raise PermissionError(errno.EPERM, why, path)
    if above is not None and above.propagation == "bidirectional":
        host.files.mkdir(there, 0o750)
        host.files.mount(system, there, read_only)
    else:
        container.files.mkdir(path, 0o750)
        container.files.mount(system, path, read_only)


def unmount(host: LinuxHost | WindowsHost, container: ContainerRecord, path: str) -> None:
    above, there = _on_host(container, path, windows=isinstance(host, WindowsHost))
    shared = isinstance(host, WindowsHost) or (above is not None and above.propagation == "bidirectional")
    if isinstance(host, WindowsHost):
        _ask_proxy(host, container)
    files, where = (host.files, there) if shared else (container.files, path)
    while files.exists(where) and files.is_mount(where):
        files.unmount(where)


def _on_host(container: ContainerRecord, path: str, *, windows: bool) -> tuple[Mount | None, str]:
    """The mount that a path of the container is in, and the path on the node; the same path where there is none, as
    csi-proxy is told paths of the node."""
    paths = ntpath if windows else posixpath
    best: Mount | None = None
    for one in container.config.mounts:
        top = paths.normpath(one.container_path)
        inside = paths.normcase(paths.normpath(path) + paths.sep).startswith(paths.normcase(top.rstrip(paths.sep) + paths.sep))
        if inside and (best is None or len(top) > len(paths.normpath(best.container_path))):
            best = one
    if best is None:
        return None, path
    rest = paths.normpath(path)[len(paths.normpath(best.container_path)) :].lstrip(paths.sep)
    return best, paths.join(best.host_path, rest) if rest else best.host_path


def _ask_proxy(host: WindowsHost, container: ContainerRecord) -> None:
    pipes = [one.host_path for one in container.config.mounts if one.host_path.lower().startswith(PROXY)]
    if not any(host.files.exists(pipe) for pipe in pipes):
        raise FileNotFoundError(
            errno.ENOENT, f"open {PROXY}{_VERSIONS[0]}: The system cannot find the file specified.", f"{PROXY}{_VERSIONS[0]}"
        )
