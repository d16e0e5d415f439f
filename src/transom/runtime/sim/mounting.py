"""Mounts that a container's program makes: permissions and visibility.

On Linux a privileged container may mount; the node and its other containers see it where the
container's own mount has bidirectional propagation, otherwise it stays inside. On Windows a
container calls csi-proxy, a program on the node, through its named pipes; a HostProcess container
does not need it.
"""

from __future__ import annotations

import errno
import ntpath
import posixpath
from typing import Final

from transom.machines.filesystems import FileSystem
from transom.machines.inodes import BlockContent
from transom.machines.linux import LinuxHost
from transom.machines.windows.host import WindowsHost
from transom.runtime.api import Mount
from transom.runtime.sim.records import SimContainer

PROXY: Final = "\\\\.\\pipe\\csi-proxy-filesystem-"
_VERSIONS: Final = ("v1beta1", "v1beta2", "v1")


def mount_in_container(
    host: LinuxHost | WindowsHost,
    container: SimContainer,
    system: FileSystem,
    path: str,
    read_only: bool,
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


def make_device(
    host: LinuxHost | WindowsHost, container: SimContainer, blocks: BlockContent, path: str
) -> None:
    """Raises OSError."""
    above, there = _on_host(container, path, windows=False)
    linux = container.config.linux
    if isinstance(host, WindowsHost) or linux is None or not linux.privileged:
        raise PermissionError(errno.EPERM, "operation not permitted", path)
    shared = above is not None and above.propagation == "bidirectional"
    files, where = (host.files, there) if shared else (container.files, path)
    files.remove(where, recursive=True)  # one from before a reboot is dangling
    files.make_device(where, blocks)


def unmount_in_container(host: LinuxHost | WindowsHost, container: SimContainer, path: str) -> None:
    above, there = _on_host(container, path, windows=isinstance(host, WindowsHost))
    shared = isinstance(host, WindowsHost) or (
        above is not None and above.propagation == "bidirectional"
    )
    if isinstance(host, WindowsHost):
        _ask_proxy(host, container)
    files, where = (host.files, there) if shared else (container.files, path)
    while files.exists(where) and files.is_mount(where):
        files.unmount(where)


def _on_host(container: SimContainer, path: str, *, windows: bool) -> tuple[Mount | None, str]:
    """The mount that contains a path of the container, and the path on the node; the same path
    where there is none, because csi-proxy receives paths of the node.
    """
    paths = ntpath if windows else posixpath
    best: Mount | None = None
    for one in container.config.mounts:
        top = paths.normpath(one.container_path)
        inside = paths.normcase(paths.normpath(path) + paths.sep).startswith(
            paths.normcase(top.rstrip(paths.sep) + paths.sep)
        )
        if inside and (best is None or len(top) > len(paths.normpath(best.container_path))):
            best = one
    if best is None:
        return None, path
    rest = paths.normpath(path)[len(paths.normpath(best.container_path)) :].lstrip(paths.sep)
    return best, paths.join(best.host_path, rest) if rest else best.host_path


def _ask_proxy(host: WindowsHost, container: SimContainer) -> None:
    if container.host_process:
        return  # it may mount itself
    pipes = [
        one.host_path for one in container.config.mounts if one.host_path.lower().startswith(PROXY)
    ]
    if not any(host.files.exists(pipe) for pipe in pipes):
        raise FileNotFoundError(
            errno.ENOENT,
            f"open {PROXY}{_VERSIONS[0]}: The system cannot find the file specified.",
            f"{PROXY}{_VERSIONS[0]}",
        )
