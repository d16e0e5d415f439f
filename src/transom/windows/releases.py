"""Windows support of each Kubernetes release: node builds, runtimes, the pause image, feature
gates.

The rows for 1.14 and for 1.17 to 1.20 are from the documents; 1.15 and 1.16, which they omit, have
what both neighbours have. Later rows are from the editions of the documentation for those releases.
The stages of feature gates from 1.21 on are those of `machinery.releases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases import features
from transom.machinery.releases.release import Release as KubernetesRelease
from transom.machinery.releases.release import has_tables
from transom.windows.records import Release, Runtime

Stage = Literal["", "alpha", "beta", "stable", "deprecated"]


class ReleaseFacts(NamedTuple):
    release: Release
    builds: tuple[int, ...]  # supported as nodes, the recommended one first
    docker: str  # the oldest version that is supported, "" for none
    containerd: str
    containerd_stage: Stage
    pause: str  # the infrastructure image for Windows nodes
    edition: Literal["1.14", "1.20", ""] = ""  # the document that states it

    @property
    def runtime(self) -> Runtime:
        """The default runtime."""
        return "docker" if self.docker else "containerd"

    def runtimes(self) -> dict[str, str]:
        """The supported ones and their oldest versions."""
        return {
            name: version
            for name, version in (("docker", self.docker), ("containerd", self.containerd))
            if version
        }


class FeatureGate(NamedTuple):
    """A feature and the releases of its stages; None for a stage that it did not reach.

    From 1.21 on the table of Kubernetes' own gates decides; the stages here are for older releases,
    for features without a gate, and for what a gate that was removed had become.
    """

    name: str
    about: str
    alpha: Release | None = None
    beta: Release | None = None
    stable: Release | None = None
    removed: Release | None = None  # the first release without the feature
    deprecated: Release | None = None
    flag: bool = True  # whether a feature gate of that name turns it on
    beta_on: bool = True  # whether its beta was on by default before 1.21

    def stage(self, release: Release) -> Stage:
        found = self._gate(release)
        if found is not None:
            return found.stage  # type: ignore[return-value]
        if self.removed is not None and release >= self.removed:
            return ""
        steps: tuple[tuple[Stage, Release | None], ...] = (
            ("deprecated", self.deprecated),
            ("stable", self.stable),
            ("beta", self.beta),
            ("alpha", self.alpha),
        )
        return next((stage for stage, since in steps if since is not None and release >= since), "")

    def default(self, release: Release) -> bool:
        """Whether it is enabled by default."""
        found = self._gate(release)
        if found is not None:
            return found.default
        stage = self.stage(release)
        return stage == "stable" or (stage == "beta" and self.beta_on)

    def locked(self, release: Release) -> bool:
        """Whether the gate cannot be changed."""
        found = self._gate(release)
        return found is not None and found.locked

    def _gate(self, release: Release) -> features.Gate | None:
        if not self.flag or not has_tables(release):
            return None
        return features.feature_gates(KubernetesRelease(*release)).get(self.name)


_MCR: Final = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1"
_OLD_MCR: Final = "mcr.microsoft.com/k8s/core/pause:1.2.0"
_PAUSE_GCR: Final = "k8s.gcr.io/pause:3.6"
_PAUSE: Final = "registry.k8s.io/pause:3.6"
_PAUSE_2025: Final = "registry.k8s.io/pause:3.10.2"  # the first one with Windows Server 2025

RELEASES: Final[Mapping[Release, ReleaseFacts]] = {
    facts.release: facts
    for facts in (
        ReleaseFacts((1, 14), (17763,), "18.09", "", "", _OLD_MCR, "1.14"),
        ReleaseFacts((1, 15), (17763,), "18.09", "", "", _OLD_MCR),
        ReleaseFacts((1, 16), (17763,), "18.09", "", "", _OLD_MCR),
        ReleaseFacts((1, 17), (17763,), "19.03", "", "", _MCR, "1.20"),
        ReleaseFacts((1, 18), (17763, 18362, 18363), "19.03", "1.4.0", "alpha", _MCR, "1.20"),
        ReleaseFacts((1, 19), (17763, 18363, 19041), "19.03", "1.4.0", "beta", _MCR, "1.20"),
        ReleaseFacts((1, 20), (17763, 18363, 19041), "19.03", "1.4.0", "stable", _MCR, "1.20"),
        ReleaseFacts((1, 21), (17763, 19041, 19042), "19.03", "1.4.0", "stable", _MCR),
        ReleaseFacts(
            (1, 22), (17763, 19041, 19042), "19.03", "1.4.0", "stable", "k8s.gcr.io/pause:3.5"
        ),
        ReleaseFacts((1, 23), (17763, 20348, 19042), "19.03", "1.4.0", "stable", _PAUSE_GCR),
        ReleaseFacts((1, 24), (17763, 20348, 19042), "", "1.4.0", "stable", _PAUSE_GCR),
        ReleaseFacts((1, 25), (17763, 20348, 19042), "", "1.4.0", "stable", _PAUSE),
        # The kubelet needs CRI v1, which containerd 1.6 brought.
        *(
            ReleaseFacts((1, minor), (17763, 20348, 19042), "", "1.6.0", "stable", _PAUSE)
            for minor in range(26, 31)
        ),
        # From 1.31 on the guide for joining asks for Windows Server 2022.
        *(
            ReleaseFacts((1, minor), (20348, 17763, 19042), "", "1.6.0", "stable", _PAUSE)
            for minor in range(31, 35)
        ),
        *(
            ReleaseFacts((1, minor), (20348, 26100), "", "1.6.0", "stable", _PAUSE)
            for minor in (35, 36)
        ),
        # Support for containerd 1.x ends.
        ReleaseFacts((1, 37), (20348, 26100), "", "2.0.0", "stable", _PAUSE),
    )
}
DEFAULT: Final[Release] = (1, 20)

# The version that nodes have by default: of docker by the oldest version that their release
# supports, of containerd by the first release that has it.
_DOCKER_VERSIONS: Final[Mapping[str, str]] = {"18.09": "18.9.9", "19.03": "19.3.14"}
_CONTAINERD_VERSIONS: Final[tuple[tuple[Release, str], ...]] = (
    ((1, 36), "2.1.5"),
    ((1, 33), "2.0.7"),
    ((1, 27), "1.7.29"),
    ((1, 24), "1.6.36"),
    ((1, 14), "1.4.3"),
)

GATES: Final[Mapping[str, FeatureGate]] = {
    gate.name: gate
    for gate in (
        FeatureGate("WindowsGMSA", "group managed service accounts", (1, 14), (1, 16), (1, 18)),
        FeatureGate(
            "WindowsRunAsUserName", "windowsOptions.runAsUserName", (1, 16), (1, 17), (1, 18)
        ),
        FeatureGate(
            "HyperVContainer",
            "Hyper-V isolation by annotation, with Docker",
            (1, 10),
            None,
            None,
            (1, 21),
            (1, 20),
        ),
        FeatureGate("WinOverlay", "kube-proxy on overlay networks", (1, 14), (1, 20), (1, 34)),
        FeatureGate("WinDSR", "direct server return in kube-proxy", (1, 14), (1, 33), (1, 34)),
        FeatureGate(
            "WindowsEndpointSliceProxying",
            "EndpointSlices in kube-proxy",
            (1, 19),
            (1, 21),
            (1, 22),
        ),
        FeatureGate(
            "IPv6DualStack", "IPv4 and IPv6 together, on l2bridge", (1, 16), (1, 21), (1, 23)
        ),
        FeatureGate(
            "WindowsHostProcessContainers",
            "containers that are processes of the node",
            (1, 22),
            (1, 23),
            (1, 26),
        ),
        FeatureGate("IdentifyPodOS", "spec.os", (1, 23), (1, 24), (1, 25)),
        FeatureGate("WindowsHostNetwork", "hostNetwork for Windows pods"),
        FeatureGate("NodeLogQuery", "logs of the node's services through the API"),
        FeatureGate("RuntimeClassInImageCriApi", "images chosen by runtime class"),
        FeatureGate("WindowsGracefulNodeShutdown", "pods are stopped before the node"),
        FeatureGate("WindowsCPUAndMemoryAffinity", "CPU and memory managers"),
        FeatureGate("GracefulNodeShutdown", "the same on Linux nodes", (1, 20)),
        FeatureGate(
            "GracefulNodeShutdownBasedOnPodPriority", "times for the shutdown by pod priority"
        ),
        FeatureGate("ContainerStopSignals", "lifecycle.stopSignal"),
        FeatureGate("InPlacePodVerticalScaling", "resize of running pods, not on Windows"),
        FeatureGate("PodLevelResources", "resources of pods, not on Windows"),
        FeatureGate("PodLevelResourceManagers", "managers for them, not on Windows"),
        FeatureGate(
            "CSIMigrationAWS",
            "awsElasticBlockStore by its CSI driver",
            (1, 14),
            (1, 17),
            (1, 25),
            beta_on=False,
        ),
        FeatureGate(
            "CSIMigrationAzureDisk",
            "azureDisk by its CSI driver",
            (1, 15),
            (1, 19),
            (1, 24),
            beta_on=False,
        ),
        FeatureGate(
            "CSIMigrationAzureFile",
            "azureFile by its CSI driver",
            (1, 15),
            (1, 21),
            (1, 26),
            beta_on=False,
        ),
        FeatureGate(
            "CSIMigrationGCE",
            "gcePersistentDisk by its CSI driver",
            (1, 14),
            (1, 17),
            (1, 25),
            beta_on=False,
        ),
        FeatureGate(
            "CSIMigrationvSphere",
            "vsphereVolume by its CSI driver",
            (1, 18),
            (1, 19),
            (1, 26),
            beta_on=False,
        ),
        FeatureGate(
            "NodeOutOfServiceVolumeDetach",
            "volumes leave a node with the taint out-of-service",
            stable=(1, 28),
        ),
        FeatureGate("PodsAPI", "pods of a node by gRPC, not on Windows"),
        FeatureGate("EmptyDirVolumeMode", "emptyDir.mode, without effect on Windows"),
        FeatureGate("VolumeBindMountOptions", "bindMountOptions, without effect on Windows"),
        FeatureGate(
            "CRIContainerD", "containerd on Windows nodes", (1, 18), (1, 19), (1, 20), flag=False
        ),
        FeatureGate(
            "CSIWindows", "CSI drivers, with csi-proxy", (1, 18), (1, 19), (1, 22), flag=False
        ),
    )
}

# The builds that the pause images support.
PAUSE_BUILDS: Final[Mapping[str, tuple[int, ...]]] = {
    _OLD_MCR: (17763, 18362),
    "mcr.microsoft.com/oss/kubernetes/pause:1.4.0": (17763, 18362, 18363, 19041),
    _MCR: (17763, 18362, 18363, 19041, 19042),
    "k8s.gcr.io/pause:3.5": (17763, 18362, 18363, 19041, 19042),
    _PAUSE_GCR: (17763, 18362, 18363, 19041, 19042, 20348),
    _PAUSE: (17763, 18362, 18363, 19041, 19042, 20348),
    _PAUSE_2025: (17763, 20348, 26100),
}


def parse_release_version(text: str) -> Release:
    """ "1.20", "v1.20.15" -> (1, 20). Raises ValueError."""
    parts = text.strip().removeprefix("v").split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        raise ValueError(f"not a Kubernetes release: {text!r}")
    return int(parts[0]), int(parts[1])


def release_text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def release_facts(release: Release) -> ReleaseFacts:
    """The facts of a release, or of the nearest known one."""
    if release in RELEASES:
        return RELEASES[release]
    known = [other for other in RELEASES if other < release]
    return RELEASES[max(known) if known else min(RELEASES)]


def node_runtime_version(release: Release, runtime: Runtime, *, windows: bool) -> str:
    """The version of the runtime on nodes of a release, if no other one is asked for."""
    if runtime == "docker":
        facts = release_facts(release)
        return _DOCKER_VERSIONS[(facts.docker if windows else "") or "19.03"]
    return next(version for since, version in _CONTAINERD_VERSIONS if release >= since)


def node_build(release: Release) -> int:
    """The build of Windows nodes of a release, if no other one is asked for."""
    return release_facts(release).builds[0]


def node_pause_image(release: Release, build: int) -> str:
    """The pause image that a release recommends, or the first one for a build that it lacks; "" if
    there is none.
    """
    recommended = release_facts(release).pause
    if build in PAUSE_BUILDS.get(recommended, ()):
        return recommended
    return _PAUSE_2025 if build in PAUSE_BUILDS[_PAUSE_2025] and build > 20348 else ""


def supports_build(release: Release, build: int) -> bool:
    return build in release_facts(release).builds


def recommends_reserved_cpu(release: Release) -> bool:
    """The edition of 1.14 recommends to reserve memory only."""
    return release >= (1, 17)
