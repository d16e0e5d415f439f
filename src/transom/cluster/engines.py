"""What runs containers: the simulation, or real processes (runc for Linux, Wine for Windows) where this machine can.

Real containers live on the kernel data plane, below one monitor for the cluster, from one store of images for the machine.
They outlive this process: who comes after it finds them (`start`); a cluster that is taken down ends them, one that is
deleted leaves nothing of them behind (`clear`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any, NamedTuple

from transom.cluster.config import ClusterConfig, clusters_dir
from transom.cluster.errors import ClusterError
from transom.cluster.nodes import NodeSpec

if TYPE_CHECKING:
    from transom.cluster.nodenet import NodeNet
    from transom.hosts.api import Hardware
    from transom.kit.clock import Clock
    from transom.network.api import Dataplane, SandboxNetwork
    from transom.runtime.native.runtime import NativeRuntime

log = logging.getLogger("transom.cluster")

ENGINES = ("sim", "oci", "auto")
_CONTAINERS, _MACHINES = "containers", "machines"  # in the folder of a cluster
_WINE = "wine"
_IMAGE_GC_HIGH = 85  # Kubernetes' own


def store_folder() -> Path:
    """The images of all clusters of this user."""
    return clusters_dir() / "images"


class Chosen(NamedTuple):
    """What runs the containers of nodes, by operating system: "sim" or "oci"; and why not the other."""

    linux: str
    windows: str
    notes: tuple[str, ...] = ()

    def of(self, node: NodeSpec) -> str:
        """A node may have its own: "sim", "oci", or where a containerd listens."""
        return node.engine or (self.windows if node.windows else self.linux)


def choose(config: ClusterConfig, nodes: Iterable[NodeSpec]) -> Chosen:
    """Raises ClusterError when real containers were asked for and cannot be had."""
    nodes = list(nodes)
    own = [node for node in nodes if node.engine == "oci"]
    if config.engine == "sim" and not own:
        return Chosen("sim", "sim")
    problems = missing()
    for node in own:
        if problems[node.os]:
            raise ClusterError(f"node {node.name!r}: real containers cannot run here: {problems[node.os]}", "use engine: sim")
    if config.engine == "sim":
        return Chosen("sim", "sim")
    used = {node.os for node in nodes if not node.engine}
    if config.engine == "oci":
        for os in sorted(used):
            if problems[os]:
                raise ClusterError(
                    f"real containers cannot run on {os} nodes here: {problems[os]}",
                    "use --runtime auto for the best there is, or --runtime sim",
                )
        return Chosen("oci", "oci")
    simulated: dict[str, list[str]] = {}
    for os in sorted(used):
        simulated.setdefault(problems[os], []).append(os.capitalize())
    notes = tuple(f"containers on {' and '.join(names)} are simulated: {why}" for why, names in simulated.items() if why)
    linux, windows = ("sim" if problems[os] else "oci" for os in ("linux", "windows"))
    return Chosen(linux, windows, notes)


def check(node: NodeSpec, engine: str) -> None:
    """Raises ClusterError for a fault that a node with this engine cannot have."""
    if node.proxy and engine != "sim":
        raise ClusterError(
            f"node {node.name!r}: real images are pulled by this machine, whatever proxy the node is behind",
            "leave proxy out, or use engine: sim",
        )


def thresholds(node: NodeSpec, engine: str, usual: Mapping[str, str]) -> tuple[Mapping[str, str] | None, int]:
    """When a node evicts pods (None: as Kubernetes does, which is `usual`), and how full in percent a disk may be before images
    go. The disk of real containers is this machine's, and people have other things on it: it counts only if they say so."""
    if engine == "sim":
        return node.eviction_hard, node.image_gc_high or _IMAGE_GC_HIGH
    memory = {signal: value for signal, value in usual.items() if signal.startswith("memory.")}
    return memory if node.eviction_hard is None else node.eviction_hard, node.image_gc_high or 100


def missing() -> dict[str, str]:
    """By operating system, why this machine cannot run real containers for it; empty where it can."""
    return {"linux": _no_containers(), "windows": _no_containers() or _no_wine()}


def _no_containers() -> str:
    from transom.network.kernel import namespaces
    from transom.runtime.native import runc

    return namespaces.missing() or runc.find()[1]


def _no_wine() -> str:
    from transom.runtime.wine import installation

    return "" if installation.find() is not None else "Wine (package wine64) is not installed"


def template_missing() -> bool:
    """Whether the first Windows container of this machine has to wait for Wine's template."""
    from transom.runtime.wine import installation, template

    found = installation.find()
    try:
        return found is not None and not template.place(clusters_dir() / _WINE, found).is_dir()
    except (OSError, SubprocessError):
        return False  # no container will wait: each will say what is wrong with Wine


class Engines:
    """Makes the real runtimes of one cluster's nodes."""

    def __init__(self, config: ClusterConfig, clock: Clock, dataplane: Dataplane) -> None:
        from transom.runtime.images.service import ImageService
        from transom.runtime.native.client import Monitor

        self._config = config
        self._clock = clock
        self._dataplane: Any = dataplane  # the kernel's: it has namespaces
        self.monitor = Monitor(config.state / _CONTAINERS)
        self.images = ImageService(store_folder())
        self._wine: dict[tuple[int, str], Any] = {}

    def host(self, spec: NodeSpec, hardware: Hardware) -> Any:
        from transom.hosts.realhost import RealLinuxHost, RealWindowsHost
        from transom.windows import builds

        folder = self._config.state / _MACHINES / spec.name
        if spec.windows:
            return RealWindowsHost(
                spec.name, self._clock, folder, hardware, build=builds.BUILDS[spec.build], seed=self._config.name
            )
        return RealLinuxHost(spec.name, self._clock, folder, hardware, seed=self._config.name)

    def runtime(self, spec: NodeSpec, host: Any, network: NodeNet) -> NativeRuntime:
        from transom.runtime.native.core import Wiring
        from transom.runtime.native.runtime import NativeRuntime
        from transom.runtime.native.store import NodeImages

        pods = _Pods(network, self._dataplane)
        return NativeRuntime(
            host, self._clock, self.monitor, self._platform(spec),
            NodeImages(self.images, f"{self._config.name}/{spec.name}", spec.os, spec.build),
            Wiring(pods, pods.paths.__getitem__, pods.node, pods.adopt),
            f"/transom/{self._config.name}",
        )

    def containerd(self, host: Any, endpoint: str) -> Any:
        """A containerd of this machine's, by way of CRI. Its pods have its own network, not the cluster's."""
        from transom.runtime.cri.address import AddressError
        from transom.runtime.cri.runtime import CriRuntime

        try:
            return CriRuntime(self._clock, endpoint, files=host.files)
        except AddressError as problem:
            raise ClusterError(f"{endpoint}: {problem}", "write it like unix:///run/containerd/containerd.sock") from problem

    def _platform(self, spec: NodeSpec) -> Any:
        if not spec.windows:
            from transom.runtime.oci.platform import LinuxPlatform

            return LinuxPlatform()
        from transom.runtime.wine.platform import WinePlatform

        kind = (spec.build, spec.runtime)
        found = self._wine.get(kind)
        if found is None:
            found = self._wine[kind] = WinePlatform(
                clusters_dir() / _WINE, build=spec.build, engine="docker" if spec.runtime == "docker" else "containerd"
            )
        return found

    async def prepare(self) -> None:
        """What the first container of a kind would have to wait for, made before somebody wants one."""
        from transom.runtime.api import RuntimeFailure

        for platform in self._wine.values():
            try:
                await platform.prepare()
            except RuntimeFailure as problem:
                log.error("Windows containers cannot run: %s", problem.description)

    async def remove(self, runtime: Any, host: Any) -> None:
        """A node is no more: neither are its containers and its files."""
        from transom.runtime.api import RuntimeFailure
        from transom.runtime.native.runtime import NativeRuntime

        if not isinstance(runtime, NativeRuntime):
            return
        try:
            await runtime.destroy()
            host.destroy()
        except (RuntimeFailure, OSError) as problem:  # the rest goes with the cluster
            log.warning("something is left of node %s: %s", host.name, problem)

    async def close(self) -> None:
        """The cluster is taken down: containers end, what they wrote to disk stays until the cluster is deleted."""
        await self.monitor.shutdown()
        _unmount(self._config)


class _Pods:
    """A node's pod network, with the path of each sandbox's namespace for whoever puts processes into it."""

    def __init__(self, network: NodeNet, dataplane: Any) -> None:
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

    async def adopt(self, sandbox: SandboxNetwork, addresses: tuple[str, ...], namespace: str) -> None:
        from transom.network.api import NetworkFailure

        self._dataplane.adopt(self._stack(sandbox.sandbox), namespace)
        try:
            await self._with_path(sandbox.sandbox, await self._network.pods.restore(sandbox, addresses))
        except NetworkFailure as problem:
            log.warning("pod %s/%s has lost its network: %s", sandbox.namespace, sandbox.pod, problem)

    async def remove(self, sandbox: str) -> None:
        self.paths.pop(sandbox, None)
        await self._network.pods.remove(sandbox)

    async def _with_path(self, sandbox: str, addresses: list[str]) -> list[str]:
        self.paths[sandbox] = (await self._dataplane.namespace(self._stack(sandbox))).path
        return addresses

    def _stack(self, sandbox: str) -> str:
        return f"{self._network.spec.name}/{sandbox}"


def _unmount(config: ClusterConfig) -> None:
    from transom.hosts import mounting

    for name in (_CONTAINERS, _MACHINES):
        mounting.unmount_all(str(config.state / name))


def _used(config: ClusterConfig) -> bool:
    return (config.state / _CONTAINERS).exists() or (config.state / _MACHINES).exists()


def end(config: ClusterConfig) -> None:
    """The containers of a cluster whose own process was killed."""
    if _used(config):
        import asyncio

        from transom.runtime.native.client import Monitor

        asyncio.run(Monitor(config.state / _CONTAINERS).shutdown())
        _unmount(config)


def clear(config: ClusterConfig) -> None:
    """Of a cluster that does not run: processes, mounts and control groups that are left, and its hold on images."""
    if not _used(config):
        return
    from transom.runtime.images.service import ImageService
    from transom.runtime.native import cgroups

    end(config)
    if cgroups.writable():
        cgroups.remove_surely(f"/transom/{config.name}")
        cgroups.remove_empty(["/transom"])
    with contextlib.suppress(OSError):
        ImageService(store_folder()).release_all(f"{config.name}/")
    for name in (_CONTAINERS, _MACHINES):
        shutil.rmtree(config.state / name, ignore_errors=True)
