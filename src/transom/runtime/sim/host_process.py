"""HostProcess containers of containerd on Windows: processes of the node itself, with its network,
files, registry, services and accounts. containerd 1.6 puts volumes below a directory of the node,
later ones also at their mount paths.
"""

from __future__ import annotations

import ntpath
from typing import Final

from transom.machines.api import HostPathMount
from transom.machines.container_files import LayeredFiles
from transom.machines.inodes import Inode
from transom.machines.windows.accounts import AccountDatabase, AccountError
from transom.machines.windows.host import WindowsHost
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.users import ContainerIdentity, windows_identity

_BINDS_SINCE: Final = (1, 7)
_GROUPS_SINCE: Final = (1, 7)
MOUNT_POINT: Final = "CONTAINER_SANDBOX_MOUNT_POINT"
_BOUND: Final = "C:\\hpc"
_PIPES: Final = "\\\\.\\pipe\\"
_SERVICE_ACCOUNTS: Final = frozenset(
    ("system", "local service", "localservice", "network service", "networkservice")
)
_SPELLED: Final = {"localservice": "local service", "networkservice": "network service"}
LOGON_FAILED: Final = (
    "failed to create user process token: failed to logon user: "
    "The user name or password is incorrect."
)


def workspace(container: SimContainer) -> str:
    """The directory of the node that is the volume of a HostProcess container."""
    return f"C:\\C\\{container.id}"


def mount_point(core: SimCore, container: SimContainer) -> str:
    """Where a HostProcess container finds its volume."""
    return _BOUND if core.version >= _BINDS_SINCE else workspace(container)


def host_process_files(core: SimCore, container: SimContainer, image: Inode) -> LayeredFiles:
    """The files of the node, and the volumes of the container. Raises OSError."""
    host = core.host
    own = workspace(container)
    host.files.mkdir(own)
    files = host.container_files(image)
    files.add_mounts((HostPathMount("C:\\", "C:\\"),))
    below = mount_point(core, container)
    binds = core.version >= _BINDS_SINCE
    if binds:
        files.add_mounts((HostPathMount(_BOUND, own),))
    for mount in container.config.mounts:
        if mount.host_path.startswith(_PIPES):
            continue  # pipes are reached by their own path
        if not host.files.exists(mount.host_path):
            host.files.mkdir(mount.host_path)
        where = ntpath.splitdrive(mount.container_path)[1].lstrip("\\/")
        targets = [ntpath.join(below, where), *([mount.container_path] if binds else [])]
        files.add_mounts(
            [HostPathMount(target, mount.host_path, mount.read_only) for target in targets]
        )
    return files


def discard_workspace(core: SimCore, container: SimContainer) -> None:
    files = core.host.files
    if files.exists(workspace(container)):
        files.remove(workspace(container), recursive=True)
    if isinstance(core.host, WindowsHost):
        name = _account_name(container)
        if any(user.name == name for user in core.host.account_database.users()):
            core.host.account_database.remove_user(name)


def host_process_identity(core: SimCore, container: SimContainer) -> ContainerIdentity | None:
    """A service account of Windows, or a new local account of the group that has the name; None if
    neither exists.
    """
    assert isinstance(core.host, WindowsHost), "only Windows has them"
    database = core.host.account_database
    windows = container.config.windows
    asked = windows.run_as_user_name if windows is not None else ""
    account = asked.rpartition("\\")[2].lower() or "system"
    if account in _SERVICE_ACCOUNTS:
        found = database.identity(_SPELLED.get(account, account))
        return windows_identity(found) if found is not None else None
    if core.version < _GROUPS_SINCE:
        return None
    return _member_of(database, asked, _account_name(container))


def _member_of(database: AccountDatabase, group: str, name: str) -> ContainerIdentity | None:
    try:
        database.group(group)
    except AccountError:
        return None
    database.add_user(name)
    database.join(group, name)
    found = database.identity(name)
    return windows_identity(found) if found is not None else None


def _account_name(container: SimContainer) -> str:
    return container.id[:20]  # of a local account, at most
