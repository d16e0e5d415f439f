"""Limits of a Windows node: flags of its kubelet, eviction, port forwarding."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_KUBELET: Final = "KubeletConfiguration"

LIMITS: Final = (
    WindowsLimit(
        id="WIN-NODE-001",
        title="The kubelet cannot enforce allocatable resources",
        statement="Windows has no cgroups to enforce them: the kubelet on Windows starts only with "
        "an empty --enforce-node-allocatable.",
        effect="rejected",
        remedy='Start the kubelet with --enforce-node-allocatable="".',
        checklist=("FLAG-04", "TRB-48"),
        fields=(RecordField("enforceNodeAllocatable", kind=_KUBELET),),
        message="invalid configuration: EnforceNodeAllocatable (--enforce-node-allocatable) {value} "
        "is not supported on "
        "Windows",
        until=(1, 30),
        section="Kubelet flags",
        note="The spelling --enforce-node-allocable of the documentation is also accepted.",
        topics=("kubelet", "cgroups", "eviction"),
    ),
    WindowsLimit(
        id="WIN-NODE-002",
        title="The kubelet has no cgroups",
        statement="A kubelet on Windows starts only with --cgroups-per-qos=false.",
        effect="rejected",
        remedy="Start the kubelet with --cgroups-per-qos=false.",
        checklist=("TRB-45",),
        fields=(RecordField("cgroupsPerQOS", "is", True, kind=_KUBELET),),
        message=(
            "invalid configuration: CgroupsPerQOS (--cgroups-per-qos) {value} is not supported "
            "on Windows"
        ),
        until=(1, 30),
        section="Troubleshooting",
        topics=("kubelet", "cgroups"),
    ),
    WindowsLimit(
        id="WIN-NODE-003",
        title="Pods are not evicted under memory pressure",
        statement="--eviction-hard and --eviction-soft for memory evict no pods on Windows; a hard "
        "threshold still reduces allocatable memory.",
        effect="ignored",
        remedy="Set limits on containers and reserve memory for the system.",
        checklist=("FLAG-05", "FLAG-06"),
        until=(1, 30),
        section="Kubelet flags",
        note="Thresholds for disks do evict.",
        topics=("eviction", "memory", "eviction-hard", "eviction-soft"),
    ),
    WindowsLimit(
        id="WIN-NODE-004",
        title="MemoryPressure never becomes true",
        statement="The condition exists and stays False.",
        effect="ignored",
        remedy="Watch the node's committed memory.",
        checklist=("FLAG-07",),
        until=(1, 30),
        section="Kubelet flags",
        topics=("condition", "memory"),
    ),
    WindowsLimit(
        id="WIN-NODE-005",
        title="Only Windows priority classes are accepted",
        statement="--windows-priorityclass accepts the names of Windows process priority classes.",
        effect="rejected",
        remedy="Use ABOVE_NORMAL_PRIORITY_CLASS or higher for the kubelet.",
        checklist=("FLAG-12",),
        since=(1, 19),
        message="unknown priority class {value}, valid ones are available at "
        "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities",
        section="Kubelet flags",
        topics=("kubelet", "priority", "windows-priorityclass"),
    ),
    WindowsLimit(
        id="WIN-NODE-006",
        title="Ports cannot be forwarded at 1.14",
        statement="`kubectl port-forward` to Windows pods needs 1.15 or later.",
        effect="fails",
        remedy="Use a Service, or upgrade.",
        checklist=("LNET-19", "TRB-113"),
        until=(1, 14),
        message="unable to do port forwarding: socat not found.",
        section="Networking",
        note="The documentation shows another text, wincat not found; no kubelet prints that text.",
        topics=("port-forward", "wincat"),
    ),
    WindowsLimit(
        id="WIN-NODE-007",
        title="Port forwarding needs wincat in the pause image",
        statement=(
            "The kubelet runs wincat.exe in the pod's pause container. Port forwarding fails with "
            "a pause image that does not contain it."
        ),
        effect="fails",
        remedy="Use the pause image of the release, or add wincat.exe to your own image.",
        checklist=("TRB-113", "TRB-114", "TRB-115"),
        since=(1, 15),
        message="The system cannot find the file specified.",
        section="Troubleshooting",
        topics=("port-forward", "wincat", "pause"),
    ),
    WindowsLimit(
        id="WIN-NODE-008",
        title="The kubelet's default pause image is for Linux",
        statement="Without --pod-infra-container-image, the kubelet on Windows uses an image that "
        "exists only for Linux, and no pod starts.",
        effect="fails",
        remedy="Set the flag to the pause image of the release.",
        checklist=("RT-01", "TRB-36", "TRB-107"),
        until=(1, 20),
        reason="FailedCreatePodSandBox",
        section="Pause image",
        topics=("pause", "pod-infra-container-image"),
    ),
    WindowsLimit(
        id="WIN-NODE-009",
        title="There is no /etc/resolv.conf on a Windows node",
        statement=(
            "--resolv-conf defaults to a file that does not exist on Windows; unless it is empty, "
            "pods get no sandbox."
        ),
        effect="fails",
        remedy='Start the kubelet with --resolv-conf="".',
        checklist=("TRB-37",),
        fields=(RecordField("resolvConf", "matches", "^/", kind=_KUBELET),),
        reason="FailedCreatePodSandBox",
        message="open {path}: The system cannot find the path specified.",
        section="Troubleshooting",
        topics=("kubelet", "resolv.conf", "dns"),
    ),
)
