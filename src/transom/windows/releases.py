"""Windows support of each Kubernetes release: node builds, runtimes, the pause image, feature
gates.

The rows for 1.14 and for 1.17 to 1.20 are from the documents; 1.15 and 1.16, which they omit, have
what both neighbours have. Later releases are for queries about other clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from transom.windows.records import Release, Runtime

Stage = Literal["", "alpha", "beta", "stable", "deprecated"]


class ReleaseFacts(NamedTuple):
    release: Release
    builds: tuple[int, ...]  # supported as nodes, the long-term one first
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
    """A feature and the releases of its stages; None for a stage that it did not reach."""

    name: str
    about: str
    alpha: Release | None = None
    beta: Release | None = None
    stable: Release | None = None
    removed: Release | None = (
        None  # the first release without it (gates of stable features are removed, too)
    )
    deprecated: Release | None = None
    flag: bool = True  # whether a feature gate of that name turns it on

    def stage(self, release: Release) -> Stage:
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
        return self.stage(release) in ("beta", "stable")


_MCR: Final = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1"
_OLD_MCR: Final = "mcr.microsoft.com/k8s/core/pause:1.2.0"

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
        ReleaseFacts(
            (1, 23), (17763, 20348, 19042), "19.03", "1.4.0", "stable", "k8s.gcr.io/pause:3.6"
        ),
        ReleaseFacts((1, 24), (17763, 20348, 19042), "", "1.6.0", "stable", "k8s.gcr.io/pause:3.7"),
        ReleaseFacts((1, 25), (17763, 20348), "", "1.6.0", "stable", "registry.k8s.io/pause:3.8"),
        *(
            ReleaseFacts(
                (1, minor), (17763, 20348), "", "1.6.0", "stable", "registry.k8s.io/pause:3.9"
            )
            for minor in range(26, 31)
        ),
        *(
            ReleaseFacts(
                (1, minor), (17763, 20348), "", "1.7.0", "stable", "registry.k8s.io/pause:3.10"
            )
            for minor in (31, 32)
        ),
        *(
            ReleaseFacts(
                (1, minor),
                (17763, 20348, 26100),
                "",
                "1.7.0",
                "stable",
                "registry.k8s.io/pause:3.10.2",
            )
            for minor in (33, 34)
        ),
    )
}
DEFAULT: Final[Release] = (1, 20)

# The version that nodes have by default, for the oldest version that their release supports.
_NODE_VERSIONS: Final[Mapping[Runtime, Mapping[str, str]]] = {
    "docker": {"18.09": "18.9.9", "19.03": "19.3.14"},
    "containerd": {"1.4.0": "1.4.3", "1.6.0": "1.6.36", "1.7.0": "1.7.29"},
}

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
        FeatureGate(
            "WindowsHostNetwork", "hostNetwork for Windows pods", (1, 26), None, None, (1, 33)
        ),
        FeatureGate(
            "NodeLogQuery", "logs of the node's services through the API", (1, 27), (1, 30)
        ),
        FeatureGate("RuntimeClassInImageCriApi", "images chosen by runtime class", (1, 29)),
        FeatureGate(
            "WindowsGracefulNodeShutdown", "pods are stopped before the node", (1, 32), (1, 34)
        ),
        FeatureGate("WindowsCPUAndMemoryAffinity", "CPU and memory managers", (1, 32)),
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
    "k8s.gcr.io/pause:3.6": (17763, 18362, 18363, 19041, 19042, 20348),
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
    facts = release_facts(release)
    if runtime == "docker":
        return _NODE_VERSIONS["docker"][(facts.docker if windows else "") or "19.03"]
    return _NODE_VERSIONS["containerd"][facts.containerd or "1.4.0"]


def supports_build(release: Release, build: int) -> bool:
    return build in release_facts(release).builds
