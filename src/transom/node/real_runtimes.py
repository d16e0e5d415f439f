"""Real containers: processes of this machine on the kernel data plane, under one monitor per
cluster, from one image store per machine.

They outlive this process: a restarted cluster finds them (`start`), `transom down` ends them, and
`transom delete` removes everything (`clear_real_containers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from subprocess import SubprocessError

from transom.kit.clock import Clock
from transom.kit.user_errors import UserError
from transom.machines import mounting, pinning
from transom.machines.api import Hardware
from transom.machines.realhost import RealHost, RealLinuxHost, RealWindowsHost
from transom.network.api import Dataplane, NetworkFailure, SandboxNetwork
from transom.network.kernel.dataplane import KernelDataplane
from transom.node.machine import NodeMachine
from transom.node.network import NodeNetwork
from transom.node.runtimes import (
    CONTAINERS,
    MACHINES,
    VOLUMES,
    WINE_DIRECTORY,
    image_store_folder,
)
from transom.node.settings import ClusterSettings, clusters_dir
from transom.node.spec import NodeSpec, windows_build
from transom.runtime.api import ContainerRuntime, RuntimeFailure
from transom.runtime.cri.address import RuntimeEndpointError
from transom.runtime.cri.runtime import CriRuntime
from transom.runtime.images.service import ImageService
from transom.runtime.native import cgroups
from transom.runtime.native import core as cores
from transom.runtime.native.client import Monitor
from transom.runtime.native.core import SandboxNetworking
from transom.runtime.native.runtime import NativeRuntime
from transom.runtime.native.store import NodeImages
from transom.runtime.oci.platform import LinuxPlatform
from transom.runtime.wine import installation, template
from transom.runtime.wine.platform import WinePlatform

log = logging.getLogger("transom.node")


class RealRuntimes:
    """Creates the real runtimes of one cluster's nodes."""

    def __init__(self, settings: ClusterSettings, clock: Clock, dataplane: Dataplane) -> None:
        self._settings = settings
        self._clock = clock
        self._dataplane = dataplane
        self.monitor = Monitor(settings.state / CONTAINERS)
        self.images = ImageService(image_store_folder())
        self._wine: dict[tuple[int, str, str], WinePlatform] = {}

    def make_machine(self, spec: NodeSpec, hardware: Hardware) -> RealHost:
        folder = self._settings.state / MACHINES / spec.name
        if spec.windows:
            return RealWindowsHost(
                spec.name,
                self._clock,
                folder,
                hardware,
                build=windows_build(spec),
                seed=self._settings.name,
            )
        return RealLinuxHost(spec.name, self._clock, folder, hardware, seed=self._settings.name)

    def make_native_runtime(
        self, spec: NodeSpec, machine: RealHost, network: NodeNetwork
    ) -> NativeRuntime:
        if not isinstance(self._dataplane, KernelDataplane):
            raise UserError("real containers need the kernel data plane", "--dataplane kernel")
        pods = _Pods(network, self._dataplane)
        return NativeRuntime(
            machine,
            self._clock,
            self.monitor,
            self._platform(spec),
            NodeImages(
                self.images,
                f"{self._settings.name}/{spec.name}",
                spec.os,
                spec.build,
                engine="docker" if spec.runtime == "docker" else "containerd",
            ),
            SandboxNetworking(pods, pods.paths.__getitem__, pods.node, pods.adopt, pods.give),
            f"/transom/{self._settings.name}",
        )

    def make_cri_runtime(self, machine: RealHost, endpoint: str) -> CriRuntime:
        """A containerd of this machine, through CRI. Its pods use containerd's network, not the
        cluster's.
        """
        try:
            return CriRuntime(self._clock, endpoint, files=machine.files)
        except RuntimeEndpointError as problem:
            raise UserError(
                f"{endpoint}: {problem}", "write it like unix:///run/containerd/containerd.sock"
            ) from problem

    def _platform(self, spec: NodeSpec) -> LinuxPlatform | WinePlatform:
        if not spec.windows:
            return LinuxPlatform(
                user_namespaces=spec.user_namespaces,
                version=spec.runtime_version if spec.runtime == "containerd" else "",
            )
        kind = (spec.build, spec.runtime, spec.runtime_version)
        found = self._wine.get(kind)
        if found is None:
            found = self._wine[kind] = WinePlatform(
                clusters_dir() / WINE_DIRECTORY,
                build=spec.build,
                engine="docker" if spec.runtime == "docker" else "containerd",
                version=spec.runtime_version,
            )
        return found

    async def prepare(self) -> None:
        """Creates in advance what the first container of a kind would have to wait for."""
        for platform in self._wine.values():
            try:
                await platform.prepare()
            except RuntimeFailure as problem:
                log.error("Windows containers cannot run: %s", problem.description)

    async def remove(self, runtime: ContainerRuntime, machine: NodeMachine) -> None:
        """Removes the containers and files of a node that was deleted."""
        if not isinstance(runtime, NativeRuntime) or not isinstance(machine, RealHost):
            return
        try:
            await runtime.destroy()
            machine.destroy()
            _remove(self._settings.state / VOLUMES / machine.name)
        except (RuntimeFailure, OSError) as problem:  # the rest is removed with the cluster
            log.warning("something is left of node %s: %s", machine.name, problem)

    def remove_files(self, name: str) -> None:
        """Removes the files of a node that cannot start."""
        for folder in (MACHINES, VOLUMES):
            try:
                _remove(self._settings.state / folder / name)
            except OSError as problem:  # the rest is removed with the cluster
                log.warning("something is left of node %s: %s", name, problem)

    async def close(self) -> None:
        """`transom down`: containers end; their files stay until the cluster is deleted."""
        await self.monitor.shutdown()
        _unmount(self._settings)


class _Pods:
    """A node's pod network, with the path of each sandbox's network namespace."""

    def __init__(self, network: NodeNetwork, dataplane: KernelDataplane) -> None:
        self._network = network
        self._dataplane = dataplane
        self.paths: dict[str, str] = {}

    async def node(self) -> str:
        """The node's own namespace, for pods on its network."""
        return str((await self._dataplane.namespace(self._network.spec.name)).path)

    def ready(self) -> str:
        return self._network.pods.ready()

    async def add(self, sandbox: SandboxNetwork) -> list[str]:
        return await self._with_path(sandbox.sandbox, await self._network.pods.add(sandbox))

    def give(self, sandbox: str, namespace: str) -> None:
        """Assigns an existing network namespace to the sandbox."""
        self._dataplane.adopt(self._stack(sandbox), namespace)

    async def adopt(
        self, sandbox: SandboxNetwork, addresses: tuple[str, ...], namespace: str
    ) -> None:
        self._dataplane.adopt(self._stack(sandbox.sandbox), namespace)
        try:
            await self._with_path(
                sandbox.sandbox, await self._network.pods.restore(sandbox, addresses)
            )
        except NetworkFailure as problem:
            log.warning(
                "pod %s/%s has lost its network: %s", sandbox.namespace, sandbox.pod, problem
            )

    async def remove(self, sandbox: str) -> None:
        self.paths.pop(sandbox, None)
        await self._network.pods.remove(sandbox)

    async def _with_path(self, sandbox: str, addresses: list[str]) -> list[str]:
        self.paths[sandbox] = (await self._dataplane.namespace(self._stack(sandbox))).path
        return addresses

    def _stack(self, sandbox: str) -> str:
        return f"{self._network.spec.name}/{sandbox}"


def _unmount(settings: ClusterSettings) -> None:
    for name in (CONTAINERS, MACHINES, VOLUMES):
        mounting.unmount_below(str(settings.state / name))


def _remove(folder: Path) -> None:
    """Raises OSError if something is still mounted below: its content is not ours to remove."""
    mounting.unmount_below(str(folder))
    with contextlib.suppress(OSError):
        pinning.remove_folder(str(folder))


def end_real_containers(settings: ClusterSettings) -> None:
    """Ends the containers of a cluster whose own process was killed."""
    asyncio.run(Monitor(settings.state / CONTAINERS).shutdown())
    _unmount(settings)


def clear_real_containers(settings: ClusterSettings) -> None:
    """Removes what a stopped cluster has left: processes, mounts and control groups, and its
    references to images.
    """
    stages = cores.stages_mounts(settings.state / CONTAINERS)
    end_real_containers(settings)
    if cgroups.is_writable_cgroup():
        cgroups.kill_and_remove_cgroup(f"/transom/{settings.name}")
        cgroups.remove_empty_cgroup(["/transom"])
    with contextlib.suppress(OSError):
        ImageService(image_store_folder()).release_all(f"{settings.name}/")
    for folder in (
        settings.state / CONTAINERS,
        settings.state / MACHINES,
        settings.state / VOLUMES,
        stages,
    ):
        with contextlib.suppress(OSError):
            pinning.remove_folder(str(folder))


def template_missing() -> bool:
    """Whether the first Windows container of this machine must wait for Wine's template."""
    found = installation.find_wine()
    try:
        place = (
            None
            if found is None
            else template.template_folder(clusters_dir() / WINE_DIRECTORY, found)
        )
        return place is not None and not place.is_dir()
    except (OSError, SubprocessError):
        return False  # no container waits: each reports the problem with Wine
