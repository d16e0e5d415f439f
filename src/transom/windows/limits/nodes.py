"""Limits of a Windows node: flags of its kubelet, eviction, port forwarding."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Field, Limit

_KUBELET: Final = "KubeletConfiguration"

LIMITS: Final = (
    Limit(
        id="WIN-NODE-001",
        title="The kubelet cannot enforce allocatable resources",
        statement="There are no cgroups to enforce them with: a kubelet on Windows starts only with an empty "
        "--enforce-node-allocatable.",
        effect="rejected",
        remedy='Start the kubelet with --enforce-node-allocatable="".',
        checklist=("FLAG-04", "TRB-48"),
        fields=(Field("enforceNodeAllocatable", kind=_KUBELET),),
        message="invalid configuration: EnforceNodeAllocatable (--enforce-node-allocatable) {value} is not supported on "
        "Windows",
        section="Kubelet flags",
        note="The document writes --enforce-node-allocable, which is accepted too.",
        topics=("kubelet", "cgroups", "eviction"),
    ),
    Limit(
        id="WIN-NODE-002",
        title="The kubelet has no cgroups",
        statement="A kubelet on Windows starts only with --cgroups-per-qos=false.",
        effect="rejected",
        remedy="Start the kubelet with --cgroups-per-qos=false.",
        checklist=("TRB-45",),
        fields=(Field("cgroupsPerQOS", "is", True, kind=_KUBELET),),
        message="invalid configuration: CgroupsPerQOS (--cgroups-per-qos) {value} is not supported on Windows",
        section="Troubleshooting",
        topics=("kubelet", "cgroups"),
    ),
    Limit(
        id="WIN-NODE-003",
        title="Pods are not evicted when memory runs short",
        statement="--eviction-hard and --eviction-soft for memory evict nothing on Windows; a hard threshold is still taken "
        "off allocatable memory.",
        effect="ignored",
        remedy="Set limits on containers and reserve memory for the system.",
        checklist=("FLAG-05", "FLAG-06"),
        until=(1, 30),
        section="Kubelet flags",
        note="Thresholds for disks do evict.",
        topics=("eviction", "memory", "eviction-hard", "eviction-soft"),
    ),
    Limit(
        id="WIN-NODE-004",
        title="MemoryPressure never becomes true",
        statement="The condition is there and stays False.",
        effect="ignored",
        remedy="Watch the node's committed memory.",
        checklist=("FLAG-07",),
        until=(1, 30),
        section="Kubelet flags",
        topics=("condition", "memory"),
    ),
    Limit(
        id="WIN-NODE-005",
        title="Only Windows' own priority classes can be given",
        statement="--windows-priorityclass takes the names of Windows' process priority classes.",
        effect="rejected",
        remedy="Use ABOVE_NORMAL_PRIORITY_CLASS or higher for the kubelet.",
        checklist=("FLAG-12",),
        since=(1, 19),
        message="unknown priority class {value}, valid ones are available at "
        "https://docs.microsoft.com/en-us/windows/win32/procthread/scheduling-priorities",
        section="Kubelet flags",
        topics=("kubelet", "priority", "windows-priorityclass"),
    ),
    Limit(
        id="WIN-NODE-006",
        title="Ports cannot be forwarded at 1.14",
        statement="`kubectl port-forward` to Windows pods came with 1.15.",
        effect="fails",
        remedy="Use a Service, or upgrade.",
        checklist=("LNET-19", "TRB-113"),
        until=(1, 14),
        message="unable to do port forwarding: socat not found.",
        section="Networking",
        note="The document's text says wincat not found; no kubelet has that text.",
        topics=("port-forward", "wincat"),
    ),
    Limit(
        id="WIN-NODE-007",
        title="Port forwarding needs wincat in the pause image",
        statement="The kubelet runs wincat.exe in the pod's pause container. A pause image without it cannot forward ports.",
        effect="fails",
        remedy="Use the pause image of the release, or put wincat.exe into your own.",
        checklist=("TRB-113", "TRB-114", "TRB-115"),
        since=(1, 15),
        message="The system cannot find the file specified.",
        section="Troubleshooting",
        topics=("port-forward", "wincat", "pause"),
    ),
    Limit(
        id="WIN-NODE-008",
        title="The kubelet's default pause image is for Linux",
        statement="Without --pod-infra-container-image a kubelet on Windows asks for an image that exists for Linux only, "
        "and no pod starts.",
        effect="fails",
        remedy="Give the flag the pause image of the release.",
        checklist=("RT-01", "TRB-36", "TRB-107"),
        until=(1, 20),
        reason="FailedCreatePodSandBox",
        section="Pause image",
        topics=("pause", "pod-infra-container-image"),
    ),
    Limit(
        id="WIN-NODE-009",
        title="There is no /etc/resolv.conf on a Windows node",
        statement="--resolv-conf defaults to a file that Windows does not have; without an empty value pods get no sandbox.",
        effect="fails",
        remedy='Start the kubelet with --resolv-conf="".',
        checklist=("TRB-37",),
        fields=(Field("resolvConf", "matches", "^/", kind=_KUBELET),),
        reason="FailedCreatePodSandBox",
        message="open {path}: The system cannot find the path specified.",
        section="Troubleshooting",
        topics=("kubelet", "resolv.conf", "dns"),
    ),
)
