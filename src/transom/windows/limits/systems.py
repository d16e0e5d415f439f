"""Limits of Windows versions: which ones can be nodes, and which image runs on which node."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_ISOLATION: Final = "metadata.annotations['experimental.windows.kubernetes.io/isolation-type']"

LIMITS: Final = (
    WindowsLimit(
        id="WIN-OS-001",
        title="Only listed Windows Server builds are supported as nodes",
        statement="A Kubernetes release supports certain Windows Server builds as nodes: Windows "
        "Server 2019 and, from 1.18, the semi-annual channel builds that were current at the "
        "time.",
        effect="degraded",
        remedy="Choose a build from `transom matrix --release RELEASE`.",
        checklist=("OS-05",),
        section="Windows OS version support",
        note=(
            "The text of the documentation names only Windows Server 2019, its table lists others; "
            "Transom follows the table."
        ),
        topics=("build", "version", "1809", "ltsc2019", "2004", "1909"),
    ),
    WindowsLimit(
        id="WIN-OS-002",
        title="Windows Server 1709 and 1803 are not supported as nodes",
        statement="Hosts older than Windows Server 1809 are not supported.",
        effect="rejected",
        remedy="Use Windows Server 2019 (build 17763).",
        checklist=("OS-16", "OS-17"),
        builds=(0, 17762),
        section="Windows OS version support",
        topics=("build", "1709", "1803"),
    ),
    WindowsLimit(
        id="WIN-OS-003",
        title="The control plane runs on Linux",
        statement="Windows machines can only be workers; a cluster cannot consist of Windows machines only.",
        effect="rejected",
        remedy=("Keep at least one Linux node for the control plane and for Linux-only workloads."),
        checklist=("OS-07", "OS-27"),
        section="Limitations",
        topics=("control plane", "master"),
    ),
    WindowsLimit(
        id="WIN-OS-004",
        title="A container of another Windows build does not start",
        statement="With process isolation, a container shares the kernel of the node, so its base "
        "image must have the build of the node. This also applies to the pause image.",
        effect="fails",
        remedy="Use an image for the node's build (a multi-build tag, or one that names the build), "
        "and select nodes by "
        "`node.kubernetes.io/windows-build`.",
        checklist=("OS-25", "OS-29", "TRB-107", "TRB-108", "TRB-109"),
        lifted_by=("hyperv", "HyperVContainer"),
        check="image-build",
        severity="error",
        reason="CrashLoopBackOff",
        message="The container operating system does not match the host operating system.",
        section="Operating system version restrictions",
        note="A pause image of another build shows as FailedCreatePodSandBox, with the same text. "
        "Docker does not even pull "
        "an image of a later build. From build 20348, with a recent containerd, hosts also run "
        "images of builds between the previous long-term release and their own build.",
        topics=("image", "build", "ltsc2019", "os.version", "process isolation"),
    ),
    WindowsLimit(
        id="WIN-OS-005",
        title="Docker finds no image for the build of the node",
        statement="A multi-platform image without an entry for the build of the node cannot be pulled.",
        effect="fails",
        remedy="Publish the image for that build, or select nodes with a build that the image supports.",
        checklist=("OS-25",),
        runtimes=("docker",),
        lifted_by=("hyperv", "HyperVContainer"),
        check="image-build",
        severity="error",
        reason="ErrImagePull",
        message="no matching manifest for {platform} in the manifest list entries",
        section="Operating system version restrictions",
        topics=("image", "manifest", "pull"),
    ),
    WindowsLimit(
        id="WIN-OS-006",
        title="containerd finds no image for the build of the node",
        statement="A multi-platform image without an entry for the build of the node cannot be pulled.",
        effect="fails",
        remedy="Publish the image for that build, or select nodes with a build that the image supports.",
        checklist=("OS-25",),
        runtimes=("containerd",),
        lifted_by=("hyperv",),
        check="image-build",
        severity="error",
        reason="ErrImagePull",
        message="no match for platform in manifest: not found",
        section="Operating system version restrictions",
        topics=("image", "manifest", "pull"),
    ),
    WindowsLimit(
        id="WIN-OS-007",
        title="Linux containers do not run on Windows nodes",
        statement="Windows containers run on Windows nodes and Linux containers on Linux nodes; a "
        "Linux image cannot be pulled or started on a Windows node.",
        effect="fails",
        remedy="Give the pod `nodeSelector: {kubernetes.io/os: linux}`, or taint the Windows nodes.",
        checklist=("OS-11",),
        check="image-os",
        severity="error",
        reason="ErrImagePull",
        message='image operating system "linux" cannot be used on this platform',
        section="Windows OS version support",
        topics=("image", "linux image", "nodeSelector"),
    ),
    WindowsLimit(
        id="WIN-OS-008",
        title="Images older than Windows Server 2019 cannot run on any node",
        statement="Containers of Windows versions before Windows Server 2019 (1607, 1709, 1803) are "
        "not supported: no supported node has such a build.",
        effect="fails",
        remedy="Rebuild the image from a base image of Windows Server 2019 or of the build of the node.",
        checklist=("OS-30",),
        builds=(17763, None),
        lifted_by=("hyperv", "HyperVContainer"),
        fields=(
            RecordField(
                "spec.containers[*].image",
                "matches",
                r"(?i)[:\-_](1607|ltsc2016|sac2016|1709|1803)([-_.]|$)",
            ),
        ),
        severity="error",
        reason="CrashLoopBackOff",
        message="The container operating system does not match the host operating system.",
        section="Operating system version restrictions",
        topics=("image", "ltsc2016", "1803"),
    ),
    WindowsLimit(
        id="WIN-OS-009",
        title="Hyper-V isolation is not available",
        statement="Windows containers use process isolation. The annotation for Hyper-V isolation "
        "of these releases has no effect without the kubelet feature gate HyperVContainer.",
        effect="ignored",
        remedy=(
            "Remove the annotation, or start the kubelet with the feature gate HyperVContainer."
        ),
        checklist=("OS-09", "OS-31", "ROAD-13", "ROAD-14"),
        until=(1, 16),
        lifted_by=("HyperVContainer",),
        fields=(RecordField(_ISOLATION),),
        severity="warning",
        fix="drop",
        section="What's next",
        topics=("hyperv", "isolation"),
    ),
    WindowsLimit(
        id="WIN-OS-010",
        title="A Hyper-V isolated pod has one container",
        statement="Hyper-V isolation by annotation is limited to one container in a pod.",
        effect="fails",
        remedy="Split the pod.",
        checklist=("ROAD-16",),
        until=(1, 16),
        runtimes=("docker",),
        needs=("HyperVContainer",),
        fields=(RecordField("spec.containers", "longer", 1),),
        given=(RecordField(_ISOLATION, "is", "hyperv"),),
        severity="error",
        reason="CreateContainerError",
        message="Hyper-V isolation is limited to 1 container per Pod",
        section="What's next",
        topics=("hyperv", "isolation"),
    ),
    WindowsLimit(
        id="WIN-OS-012",
        title="Hyper-V isolation by annotation is rejected",
        statement="Hyper-V isolation is planned for a later release and will require containerd. A "
        "pod that requests it gets no sandbox.",
        effect="fails",
        remedy="Drop the annotation.",
        checklist=("OS-09", "OS-31", "ROAD-05"),
        since=(1, 17),
        until=(1, 20),
        fields=(RecordField(_ISOLATION, "is", "hyperv"),),
        severity="error",
        fix="drop",
        reason="FailedCreatePodSandBox",
        message="Hyper-V isolation is not supported by Kubernetes {release}: support is planned for "
        "a later release and will"
        " require containerd",
        section="What's next",
        note="The kubelets of 1.17 to 1.20 still contain the experimental code behind the feature "
        "gate HyperVContainer; the documentation of these releases does not mention it. Without the "
        "gate the real kubelets ignore the annotation: the pod would run with less isolation than "
        "it asks for, or fail with an image of another build.",
        topics=("hyperv", "isolation"),
    ),
    WindowsLimit(
        id="WIN-OS-011",
        title="Nodes must not be newer than the control plane",
        statement="Windows nodes follow the Kubernetes version skew policy like Linux nodes: at most two "
        "minor releases older "
        "than the API server, never newer.",
        effect="rejected",
        remedy="Upgrade the control plane first.",
        checklist=("OS-22",),
        section="Windows OS version support",
        topics=("skew", "upgrade"),
    ),
    WindowsLimit(
        id="WIN-OS-013",
        title="An operating system selector does not choose a Windows build",
        statement="With process isolation an image runs on nodes of its own Windows build. In a "
        "cluster whose Windows nodes "
        "have several builds, a pod that selects only kubernetes.io/os can be scheduled to a node "
        "that cannot run its image.",
        effect="fails",
        remedy=(
            "Add the build to the node selector, for example `node.kubernetes.io/windows-build: "
            "10.0.17763`."
        ),
        checklist=("OS-25", "OS-29"),
        check="build-selector",
        severity="warning",
        section="Operating system version restrictions",
        topics=("build", "windows-build", "mixed builds"),
    ),
)
