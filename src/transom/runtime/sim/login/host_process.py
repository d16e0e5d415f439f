"""Programs in HostProcess containers: they see the processes, the registry, the services and the
network of their machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transom.kit.lazy import lazy_function
from transom.machines.power import PowerSwitch
from transom.machines.windows import host_process
from transom.machines.windows.system import SystemResources, WindowsSystem
from transom.runtime.sim import systems as sim_systems
from transom.runtime.sim.container_windows import ContainerWindows
from transom.runtime.sim.context import SimContext
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login.context import NodeView, machine_network
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.table import ProcessIdTable
from transom.userland.api import ImageInfo, Program, ProgramContext
from transom.userland.launch.windows_start import start_windows_program
from transom.userland.network_view import NetworkView

if TYPE_CHECKING:
    from transom.runtime.sim.login.machine import WindowsMachine
    from transom.runtime.sim.login.session import finder
    from transom.userland.api import NodeAccess
else:  # the shells are needed by few containers
    finder = lazy_function("transom.runtime.sim.login.session", "finder")

FindMachine = Callable[[], "WindowsMachine | None"]


class HostProcessWindows(ContainerWindows):
    """`WindowsAccess` of a HostProcess container: that of the machine."""

    __slots__ = ("_machine",)

    def __init__(self, machine: WindowsMachine, *args: Any) -> None:
        super().__init__(*args)
        self._machine = machine

    @property
    def network(self) -> NetworkView:
        return machine_network(self._core, self._machine.host, self._machine.hns)

    @property
    def system(self) -> WindowsSystem:
        return self._machine.system

    @property
    def resources(self) -> SystemResources:
        return sim_systems.machine_resources(self._core)

    @property
    def power(self) -> PowerSwitch:
        return self._machine.host.power


class HostProcessContext(SimContext):
    """The `ProgramContext` of programs in HostProcess containers."""

    __slots__ = ("_machine",)

    def __init__(
        self,
        machine: WindowsMachine | None,
        core: SimCore,
        container: SimContainer,
        *args: Any,
        **more: Any,
    ) -> None:
        self._machine = machine
        super().__init__(core, container, *args, **more)

    @property
    def processes(self) -> ProcessIdTable:
        return self._machine.processes if self._machine is not None else super().processes

    @property
    def env(self) -> dict[str, str]:
        env = super().env
        if host_process.MOUNT_POINT not in env:
            env |= host_process.host_process_variables(env.items(), self._mount_point)
        return env

    @property
    def _mount_point(self) -> str:
        return host_process.mount_point(self._core.version, self._container.id)

    @property
    def cwd(self) -> str:
        config, spec = self._container.config, self._container.spec
        requested = self._directory or config.working_dir or spec.working_dir
        return host_process.working_directory(self._core.version, self._container.id, requested)

    @property
    def image(self) -> ImageInfo:
        """The commands are those of the node, not those of the image."""
        info = super().image
        return info if info.userland == "any" else replace(info, userland="windows")

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
        return NodeView(self._core, self._machine)

    def start(self, context: ProgramContext) -> Program:
        """The programs of the node are found too: kube-proxy, CNI plugins, crictl."""
        if self._machine is None:
            return super().start(context)
        return start_windows_program(context, finder(self._machine))


def create_sim_program(
    find_machine: FindMachine,
    core: SimCore,
    container: SimContainer,
    argv: tuple[str, ...],
    **more: Any,
) -> SimContext:
    """The context of a program in a container."""
    if container.host_process:
        point = host_process.mount_point(core.version, container.id)
        argv = tuple(host_process.expand_mount_point(argument, point) for argument in argv)
        return HostProcessContext(find_machine(), core, container, argv, **more)
    return SimContext(core, container, argv, **more)
