"""Which engine runs the containers of each node: the simulation, or real processes (runc for Linux,
Wine for Windows) where this machine can run them. Light to import; the runtimes themselves are in
`real_runtimes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.kit.user_errors import UserError
from transom.node.settings import ClusterSettings, clusters_dir
from transom.node.spec import NodeSpec

if TYPE_CHECKING:
    from transom.network.kernel import namespaces
    from transom.runtime.native import runc
    from transom.runtime.wine import installation
else:
    namespaces = lazy_import("transom.network.kernel.namespaces")
    runc = lazy_import("transom.runtime.native.runc")
    installation = lazy_import("transom.runtime.wine.installation")

# Directories of a cluster.
CONTAINERS, MACHINES, VOLUMES = "containers", "machines", "volumes"
_VOLUME_PLUGINS = "volume-plugins"
WINE_DIRECTORY: Final = "wine"
_IMAGE_GC_HIGH = 85  # Kubernetes' own


def image_store_folder() -> Path:
    """The image store of all clusters of this user."""
    return clusters_dir() / "images"


class EngineChoice(NamedTuple):
    """The engine for each operating system, "sim" or "oci", and why the other one is not used."""

    linux: str
    windows: str
    notes: tuple[str, ...] = ()

    def of(self, node: NodeSpec) -> str:
        """A node may override it: "sim", "oci", or the address of a containerd."""
        return node.engine or (self.windows if node.windows else self.linux)


def choose_engines(settings: ClusterSettings, nodes: Iterable[NodeSpec]) -> EngineChoice:
    """Raises UserError if real containers were requested but are not possible."""
    nodes = list(nodes)
    own = [node for node in nodes if node.engine == "oci"]
    if settings.engine == "sim" and not own:
        return EngineChoice("sim", "sim")
    problems = missing_requirements()
    for node in own:
        if problems[node.os]:
            raise UserError(
                f"node {node.name!r}: real containers cannot run here: {problems[node.os]}",
                "use engine: sim",
            )
    if settings.engine == "sim":
        return EngineChoice("sim", "sim")
    used = {node.os for node in nodes if not node.engine}
    if settings.engine == "oci":
        for os in sorted(used):
            if problems[os]:
                raise UserError(
                    f"real containers cannot run on {os} nodes here: {problems[os]}",
                    "use --runtime auto for the best there is, or --runtime sim",
                )
        return EngineChoice("oci", "oci")
    simulated: dict[str, list[str]] = {}
    for os in sorted(used):
        simulated.setdefault(problems[os], []).append(os.capitalize())
    notes = tuple(
        f"containers on {' and '.join(names)} are simulated: {why}"
        for why, names in simulated.items()
        if why
    )
    linux, windows = ("sim" if problems[os] else "oci" for os in ("linux", "windows"))
    return EngineChoice(linux, windows, notes)


def check_engine(node: NodeSpec, engine: str) -> None:
    """Raises UserError for a fault that this engine does not support."""
    if node.proxy and engine != "sim":
        raise UserError(
            f"node {node.name!r}: real images are pulled by this machine, whatever proxy the node is behind",
            "leave proxy out, or use engine: sim",
        )


def eviction_thresholds(
    node: NodeSpec, engine: str, usual: Mapping[str, str]
) -> tuple[Mapping[str, str] | None, int]:
    """The eviction thresholds of a node (None: Kubernetes' defaults, `usual`), and the disk usage
    in percent that triggers image garbage collection. Real containers share the user's own disk, so
    it counts only if configured explicitly.
    """
    if engine == "sim":
        return node.eviction_hard, node.image_gc_high or _IMAGE_GC_HIGH
    memory = {signal: value for signal, value in usual.items() if signal.startswith("memory.")}
    return memory if node.eviction_hard is None else node.eviction_hard, node.image_gc_high or 100


def driver_folders(settings: ClusterSettings, node: NodeSpec) -> tuple[str, str, tuple[str, ...]]:
    """The fields of the kubelet's DriverFolders. Drivers are outside the node's own files, because
    pods with a hostPath can write to those.
    """
    state = settings.state
    return (
        node.volume_plugins or str(state / _VOLUME_PLUGINS),
        str(state / VOLUMES / node.name),
        (str(state / MACHINES), str(state / CONTAINERS), str(image_store_folder())),
    )


def missing_requirements() -> dict[str, str]:
    """Why this machine cannot run real containers, by operating system; empty if it can."""
    linux = namespaces.missing_kernel_support() or runc.find_runc()[1]
    windows = (
        "" if installation.find_wine() is not None else "Wine (package wine64) is not installed"
    )
    return {"linux": linux, "windows": linux or windows}


def uses_real_containers(settings: ClusterSettings) -> bool:
    return any((settings.state / name).exists() for name in (CONTAINERS, MACHINES))
