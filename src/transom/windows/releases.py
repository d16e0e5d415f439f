"""What each Kubernetes release has for Windows: builds that make nodes, runtimes, the pause image, feature gates.

The rows for 1.14 and for 1.17 to 1.20 are the documents'; 1.15 and 1.16, which they leave out, have what both neighbours
have. Later releases are for those who ask about clusters that are not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from transom.windows.records import Release, Runtime

Stage = Literal["", "alpha", "beta", "stable", "deprecated"]


class Facts(NamedTuple):
    release: Release
    builds: tuple[int, ...]  # supported as nodes, the long-term one first
    docker: str  # the oldest version that is supported, "" for none
    containerd: str
    containerd_stage: Stage
    pause: str  # the infrastructure image for Windows nodes
    edition: Literal["1.14", "1.20", ""] = ""  # the document that says so

    @property
    def runtime(self) -> Runtime:
        """The usual one."""
        return "docker" if self.docker else "containerd"

    def runtimes(self) -> dict[str, str]:
        """The supported ones and their oldest versions."""
        return {name: version for name, version in (("docker", self.docker), ("containerd", self.containerd)) if version}


class Gate(NamedTuple):
    """A feature and the releases in which it came; None for what did not happen yet, or never."""

    name: str
    about: str
    alpha: Release | None = None
    beta: Release | None = None
    stable: Release | None = None
    removed: Release | None = None  # the first release without the feature (gates of stable features go, too)
    deprecated: Release | None = None
    flag: bool = True  # whether a feature gate of that name turns it on

    def stage(self, release: Release) -> Stage:
        if self.removed is not None and release >= self.removed:
            return ""
        steps: tuple[tuple[Stage, Release | None], ...] = (
            ("deprecated", self.deprecated), ("stable", self.stable), ("beta", self.beta), ("alpha", self.alpha),
        )
        return next((stage for stage, since in steps if since is not None and release >= since), "")

    def default(self, release: Release) -> bool:
        """Whether it works without being asked for."""
        return self.stage(release) in ("beta", "stable")


_MCR: Final = "mcr.microsoft.com/oss/kubernetes/pause:1.4.1"
_OLD_MCR: Final = "mcr.microsoft.com/k8s/core/pause:1.2.0"

RELEASES: Final[Mapping[Release, Facts]] = {
    facts.release: facts
    for facts in (
        Facts((1, 14), (17763,), "18.09", "", "", _OLD_MCR, "1.14"),
        Facts((1, 15), (17763,), "18.09", "", "", _OLD_MCR),
        Facts((1, 16), (17763,), "18.09", "", "", _OLD_MCR),
        Facts((1, 17), (17763,), "19.03", "", "", _MCR, "1.20"),
        Facts((1, 18), (17763, 18362, 18363), "19.03", "1.4.0", "alpha", _MCR, "1.20"),
        Facts((1, 19), (17763, 18363, 19041), "19.03", "1.4.0", "beta", _MCR, "1.20"),
        Facts((1, 20), (17763, 18363, 19041), "19.03", "1.4.0", "stable", _MCR, "1.20"),
        Facts((1, 21), (17763, 19041, 19042), "19.03", "1.4.0", "stable", _MCR),
        Facts((1, 22), (17763, 19041, 19042), "19.03", "1.4.0", "stable", "k8s.gcr.io/pause:3.5"),
        Facts((1, 23), (17763, 20348, 19042), "19.03", "1.4.0", "stable", "k8s.gcr.io/pause:3.6"),
        Facts((1, 24), (17763, 20348, 19042), "", "1.6.0", "stable", "k8s.gcr.io/pause:3.7"),
        Facts((1, 25), (17763, 20348), "", "1.6.0", "stable", "registry.k8s.io/pause:3.8"),
        *(Facts((1, minor), (17763, 20348), "", "1.6.0", "stable", "registry.k8s.io/pause:3.9") for minor in range(26, 31)),
        *(Facts((1, minor), (17763, 20348), "", "1.7.0", "stable", "registry.k8s.io/pause:3.10") for minor in (31, 32)),
        *(
            Facts((1, minor), (17763, 20348, 26100), "", "1.7.0", "stable", "registry.k8s.io/pause:3.10.2")
            for minor in (33, 34)
        ),
    )
}
DEFAULT: Final[Release] = (1, 20)

GATES: Final[Mapping[str, Gate]] = {
    gate.name: gate
    for gate in (
        Gate("WindowsGMSA", "group managed service accounts", (1, 14), (1, 16), (1, 18)),
        Gate("WindowsRunAsUserName", "windowsOptions.runAsUserName", (1, 16), (1, 17), (1, 18)),
        Gate("HyperVContainer", "Hyper-V isolation by annotation, with Docker", (1, 10), None, None, (1, 21), (1, 20)),
        Gate("WinOverlay", "kube-proxy on overlay networks", (1, 14), (1, 20), (1, 34)),
        Gate("WinDSR", "direct server return in kube-proxy", (1, 14), (1, 33), (1, 34)),
        Gate("WindowsEndpointSliceProxying", "EndpointSlices in kube-proxy", (1, 19), (1, 21), (1, 22)),
        Gate("IPv6DualStack", "IPv4 and IPv6 together, on l2bridge", (1, 16), (1, 21), (1, 23)),
        Gate("WindowsHostProcessContainers", "containers that are processes of the node", (1, 22), (1, 23), (1, 26)),
        Gate("IdentifyPodOS", "spec.os", (1, 23), (1, 24), (1, 25)),
        Gate("WindowsHostNetwork", "hostNetwork for Windows pods", (1, 26), None, None, (1, 33)),
        Gate("NodeLogQuery", "logs of the node's services through the API", (1, 27), (1, 30)),
        Gate("RuntimeClassInImageCriApi", "images chosen by runtime class", (1, 29)),
        Gate("WindowsGracefulNodeShutdown", "pods are stopped before the node", (1, 32), (1, 34)),
        Gate("WindowsCPUAndMemoryAffinity", "CPU and memory managers", (1, 32)),
        Gate("CRIContainerD", "containerd on Windows nodes", (1, 18), (1, 19), (1, 20), flag=False),
        Gate("CSIWindows", "CSI drivers, with csi-proxy", (1, 18), (1, 19), (1, 22), flag=False),
    )
}

# Which builds the pause images are made for.
PAUSE_BUILDS: Final[Mapping[str, tuple[int, ...]]] = {
    _OLD_MCR: (17763, 18362),
    "mcr.microsoft.com/oss/kubernetes/pause:1.4.0": (17763, 18362, 18363, 19041),
    _MCR: (17763, 18362, 18363, 19041, 19042),
    "k8s.gcr.io/pause:3.5": (17763, 18362, 18363, 19041, 19042),
    "k8s.gcr.io/pause:3.6": (17763, 18362, 18363, 19041, 19042, 20348),
}


def parse(text: str) -> Release:
    """"1.20", "v1.20.15" -> (1, 20). Raises ValueError."""
    parts = text.strip().removeprefix("v").split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        raise ValueError(f"not a Kubernetes release: {text!r}")
    return int(parts[0]), int(parts[1])


def text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def facts(release: Release) -> Facts:
    """Of a release, or of the nearest that is known."""
    if release in RELEASES:
        return RELEASES[release]
    known = [other for other in RELEASES if other < release]
    return RELEASES[max(known) if known else min(RELEASES)]


def supports(release: Release, build: int) -> bool:
    return build in facts(release).builds
