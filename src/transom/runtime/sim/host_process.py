"""HostProcess containers of containerd on Windows: processes of the node itself, with its network,
files, registry, services and accounts. containerd 1.6 puts volumes below a directory of the node,
later ones also at their mount paths.
"""

from __future__ import annotations

from typing import Final

from transom.machines.api import HostPathMount
from transom.machines.container_files import LayeredFiles
from transom.machines.inodes import Inode
from transom.machines.windows import host_process
from transom.machines.windows.host import WindowsHost
from transom.runtime.imagevolumes import IMAGE_VOLUMES_ON_WINDOWS
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.users import ContainerIdentity, windows_identity

_PIPES: Final = "\\\\.\\pipe\\"
LOGON_FAILED: Final = host_process.LOGON_FAILED


def host_process_files(core: SimCore, container: SimContainer, image: Inode) -> LayeredFiles:
    """The files of the node, and the volumes of the container. Raises OSError and
    RuntimeFailure.
    """
    host = core.host
    own = host_process.workspace(container.id)
    host.files.mkdir(own)
    files = host.container_files(image)
    files.add_mounts((HostPathMount("C:\\", "C:\\"),))
    point = host_process.mount_point(core.version, container.id)
    files.add_tree(point, host.container_files(image).share("C:\\", False))
    for mount in container.config.mounts:
        if mount.image:
            raise core.texts.create_failed(container.id, IMAGE_VOLUMES_ON_WINDOWS)
        if mount.host_path.startswith(_PIPES):
            continue  # pipes are reached by their own path
        if not host.files.exists(mount.host_path):
            host.files.mkdir(mount.host_path)
        targets = host_process.mount_targets(core.version, container.id, mount.container_path)
        files.add_mounts(
            [HostPathMount(target, mount.host_path, mount.read_only) for target in targets]
        )
    return files


def discard_workspace(core: SimCore, container: SimContainer) -> None:
    files = core.host.files
    own = host_process.workspace(container.id)
    if files.exists(own):
        files.remove(own, recursive=True)
    if isinstance(core.host, WindowsHost):
        account = host_process.account_of_container(container.id)
        host_process.log_off(core.host.account_database, account)


def host_process_identity(core: SimCore, container: SimContainer) -> ContainerIdentity | None:
    """None if the account does not exist."""
    assert isinstance(core.host, WindowsHost), "only Windows has them"
    windows = container.config.windows
    requested = windows.run_as_user_name if windows is not None else ""
    found = host_process.log_on(
        core.host.account_database,
        core.version,
        requested,
        host_process.account_of_container(container.id),
    )
    return windows_identity(found) if found is not None else None
