"""HostProcess containers of containerd on Windows: processes of the node itself, with its network,
files, registry, services and accounts. containerd 1.6 puts volumes below a directory of the node,
later ones also at their mount paths.
"""

from __future__ import annotations

import ntpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.machines.api import HostPathMount
from transom.machines.container_files import LayeredFiles
from transom.machines.inodes import Inode
from transom.machines.windows.accounts import AccountDatabase, AccountError
from transom.machines.windows.host import WindowsHost
from transom.runtime.sim.container_windows import ContainerWindows
from transom.runtime.sim.context import SimContext
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.table import ProcessIdTable
from transom.runtime.sim.users import ContainerIdentity, windows_identity
from transom.userland.network_view import NetworkView

if TYPE_CHECKING:
    from transom.machines.windows.accounts import WindowsUser as Account
    from transom.machines.windows.system import SystemResources, WindowsSystem
    from transom.runtime.sim import systems as sim_systems
    from transom.runtime.sim.login import context as login_context
    from transom.runtime.sim.login.machine import WindowsMachine
    from transom.userland.api import LaunchedProcess, NodeAccess
else:
    sim_systems = lazy_import("transom.runtime.sim.systems")
    login_context = lazy_import("transom.runtime.sim.login.context")

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


class HostProcessWindows(ContainerWindows):
    """`WindowsAccess` of a HostProcess container: that of the machine."""

    __slots__ = ("_machine",)

    def __init__(self, machine: WindowsMachine, *args: Any) -> None:
        super().__init__(*args)
        self._machine = machine

    @property
    def network(self) -> NetworkView:
        return login_context.machine_network(self._core, self._machine.host, self._machine.hns)

    @property
    def system(self) -> WindowsSystem:
        return self._machine.system

    @property
    def resources(self) -> SystemResources:
        return sim_systems.machine_resources(self._core)

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
    ) -> LaunchedProcess:
        return super().launch(argv, account, env, cwd, output)


class HostProcessContext(SimContext):
    """The `ProgramContext` of programs in HostProcess containers."""

    __slots__ = ("_machine",)

    def __init__(self, core: SimCore, container: SimContainer, *args: Any, **more: Any) -> None:
        self._machine = core.machine()
        super().__init__(core, container, *args, **more)

    @property
    def processes(self) -> ProcessIdTable:
        return self._machine.processes if self._machine is not None else super().processes

    @property
    def env(self) -> dict[str, str]:
        env = super().env
        env.setdefault(MOUNT_POINT, mount_point(self._core, self._container))
        return env

    @property
    def cwd(self) -> str:
        config, spec = self._container.config, self._container.spec
        asked = self._directory or config.working_dir or spec.working_dir
        return ntpath.normpath(ntpath.join(mount_point(self._core, self._container), asked))

    @property
    def build(self) -> str:
        return self._core.host.identity.kernel_version

    @property
    def windows(self) -> ContainerWindows:
        if self._machine is None:
            return super().windows
        return HostProcessWindows(
            self._machine,
            self._core,
            self._container,
            self.identity.account,
            self.network,
            lambda: self.files,
        )

    @property
    def node(self) -> NodeAccess | None:
        return login_context.NodeView(self._core, self._machine)


def make_context(core: SimCore, container: SimContainer, *args: Any, **more: Any) -> SimContext:
    """The context of a program in a container."""
    kind = HostProcessContext if container.host_process else SimContext
    return kind(core, container, *args, **more)
