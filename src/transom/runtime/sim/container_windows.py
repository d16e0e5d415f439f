"""`WindowsAccess` of programs in simulated Windows containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_import
from transom.machines.container_files import LayeredFiles
from transom.runtime.sim.container_network import ContainerNetwork
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.records import SimContainer
from transom.userland.network_view import NetworkView

if TYPE_CHECKING:
    from transom.machines.power import PowerSwitch
    from transom.machines.windows.accounts import WindowsUser as Account
    from transom.machines.windows.system import SystemResources, WindowsSystem
    from transom.runtime.sim import containers as sim_containers
    from transom.runtime.sim import systems as sim_systems
    from transom.userland.api import LaunchedProcess, Stdin
else:
    sim_containers = lazy_import("transom.runtime.sim.containers")
    sim_systems = lazy_import("transom.runtime.sim.systems")


class ContainerWindows:
    __slots__ = ("_account", "_container", "_core", "_files", "_network")

    def __init__(
        self,
        core: SimCore,
        container: SimContainer,
        account: Account | None,
        network: ContainerNetwork,
        files: Callable[[], LayeredFiles],
    ) -> None:
        self._core = core
        self._container = container
        self._account = account
        self._network = network
        self._files = files

    @property
    def network(self) -> NetworkView:
        return self._network.view(self.system.registry)

    @property
    def system(self) -> WindowsSystem:
        return sim_systems.system_of(self._core, self._container)

    @property
    def resources(self) -> SystemResources:
        return sim_systems.container_resources(self._core, self._container)

    @property
    def account(self) -> Account:
        assert self._account is not None, "only programs on Windows have one"
        return self._account

    @property
    def ntfs(self) -> LayeredFiles:
        return self._files()

    @property
    def credential_spec(self) -> str:
        windows = self._container.config.windows
        return windows.credential_spec if windows is not None else ""

    @property
    def power(self) -> PowerSwitch:
        return sim_containers.container_power(self._core, self._container)

    def launch(
        self,
        argv: Sequence[str],
        account: Account,
        env: Mapping[str, str],
        cwd: str,
        output: Callable[[bytes], None],
        stdin: Stdin | None = None,
    ) -> LaunchedProcess:
        launched = sim_systems.LaunchedService()
        sim_systems.launch_service(
            self._core, self._container, argv, account, env, cwd, output, launched, stdin
        )
        return launched
