"""The rules of HostProcess containers that do not depend on how a container runs: the directory of
its volume, the accounts that it can run as, and the variable that its command line may contain.
"""

from __future__ import annotations

import ntpath
from collections.abc import Iterable
from typing import Final

from transom.machines.windows.accounts import AccountDatabase, AccountError, WindowsUser
from transom.machines.windows.registry import WindowsRegistry

Version = tuple[int, ...]

SINCE: Final = (1, 6)  # containerd
_BINDS_SINCE: Final = (1, 7)
_GROUPS_SINCE: Final = (1, 7)
MOUNT_POINT: Final = "CONTAINER_SANDBOX_MOUNT_POINT"
_BOUND: Final = "C:\\hpc"
_EXTRA_PATHS: Final = r"C:\WINDOWS\System32\WindowsPowerShell\v1.0\;C:\WINDOWS\System32\Wbem"
_SERVICE_ACCOUNTS: Final = frozenset(
    ("system", "local service", "localservice", "network service", "networkservice")
)
LOGON_FAILED: Final = (
    "failed to create user process token: failed to logon user: "
    "The user name or password is incorrect."
)

LOGON_DENIED: Final = "failed to create user process token: failed to logon user: Access is denied."
_RUNTIME_SERVICE: Final = r"HKLM\SYSTEM\CurrentControlSet\Services\containerd"
_MAY_LOG_ON: Final = frozenset(("localsystem", "system", "local service", "localservice"))


def binds_mounts(version: Version) -> bool:
    """Whether a container has a view of its own of the node's C: drive, with its volume in
    C:\\hpc and its mounts at their paths.
    """
    return version >= _BINDS_SINCE


def workspace(container_id: str) -> str:
    """The directory of the node that is the volume of a container without a view of its own."""
    return f"C:\\C\\{container_id}"


def mount_point(version: Version, container_id: str) -> str:
    """Where a HostProcess container finds its volume."""
    return _BOUND if binds_mounts(version) else workspace(container_id)


def mount_targets(version: Version, container_id: str, path: str) -> list[str]:
    """Where a volume mount of a HostProcess container is: below its volume, and since containerd
    1.7 at its own path.
    """
    below = ntpath.splitdrive(path)[1].lstrip("\\/")
    first = ntpath.join(mount_point(version, container_id), below)
    return [first, path] if binds_mounts(version) else [first]


def expand_mount_point(text: str, point: str) -> str:
    """The runtime replaces the variable in command lines, working directories and values of other
    variables, in the notations of cmd and PowerShell.
    """
    return text.replace(f"%{MOUNT_POINT}%", point).replace(f"$env:{MOUNT_POINT}", point)


def working_directory(version: Version, container_id: str, requested: str) -> str:
    """Without a view of its own, a directory is relative to the volume, unless it contains the
    variable.
    """
    point = mount_point(version, container_id)
    if not requested:
        return point
    expanded = expand_mount_point(requested, point)
    if expanded == requested and not binds_mounts(version):
        expanded = ntpath.join(point, ntpath.splitdrive(requested)[1].lstrip("\\/"))
    return ntpath.normpath(ntpath.join("C:\\", expanded))


def host_process_variables(
    variables: Iterable[tuple[str, str]], point: str
) -> list[tuple[str, str]]:
    """The environment with what the runtime adds: the variable, which ends with a backslash, and
    the volume in the search path.
    """
    made = [(name, expand_mount_point(value, point)) for name, value in variables]
    made = [
        (name, f"{value.rstrip(';')};{point}\\;{_EXTRA_PATHS}" if name.lower() == "path" else value)
        for name, value in made
    ]
    return [*made, (MOUNT_POINT, f"{point}\\")]


def may_log_on(registry: WindowsRegistry) -> bool:
    """Whether the account of containerd's service may create logon tokens: user accounts may not,
    not even those of administrators.
    """
    account = registry.get(_RUNTIME_SERVICE, "ObjectName")
    return account is None or str(account).rpartition("\\")[2].lower() in _MAY_LOG_ON


def log_on(
    database: AccountDatabase, version: Version, requested: str, account_name: str
) -> WindowsUser | None:
    """A service account of Windows, or a local account of the group that has the name, created if
    it does not exist; None if there is neither.
    """
    account = requested.rpartition("\\")[2].lower() or "system"
    if account in _SERVICE_ACCOUNTS:
        return database.identity(account)
    if version < _GROUPS_SINCE:
        return None
    try:
        database.group(requested)
    except AccountError:
        return None
    if database.identity(account_name) is None:
        user = database.add_user(account_name)
        if user.sid not in database.group(requested).members:  # all users are members of Users
            database.join(requested, account_name)
    return database.identity(account_name)


def log_off(database: AccountDatabase, account_name: str) -> None:
    """Removes the account that `log_on` created."""
    if any(user.name == account_name for user in database.users()):
        database.remove_user(account_name)


def account_of_container(container_id: str) -> str:
    return container_id[:20]  # the longest name of a local account
