"""Resources of Windows nodes and the kubelet's flags for them."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_FLAGS: Final = "Kubelet flags"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-RES-001",
        "Pods are not cgroups",
        "Linux limits and measures a pod with its cgroup. Windows uses a job object for each "
        "container and statistics from the host compute service.",
        "rule",
        checklist=("RES-01", "RES-02", "RES-03"),
        section="Resource handling",
        topics=("cgroup", "job object"),
    ),
    WindowsSupport(
        "SUP-RES-002",
        "Memory is virtual",
        "User-mode memory can be paged to the page file, which every Windows machine has.",
        "rule",
        checklist=("RES-08",),
        section="Memory reservations",
        topics=("pagefile",),
    ),
    WindowsSupport(
        "SUP-RES-003",
        "Memory of the node's own processes",
        "Reserve it with kubelet flags; it reduces allocatable memory.",
        "procedure",
        checklist=("RES-11",),
        enable="--kube-reserved, --system-reserved",
        section="Memory reservations",
        note="The spellings --kubelet-reserve and --system-reserve of the documentation are also accepted.",
    ),
    WindowsSupport(
        "SUP-RES-004",
        "Limits count for the scheduler",
        "A limit without a request is also the request, so a full node gets no more pods.",
        "rule",
        checklist=("RES-13",),
        section="Memory reservations",
        topics=("limits",),
    ),
    WindowsSupport(
        "SUP-RES-005",
        "Reserve at least 2 GB",
        "For Windows, the runtime and Kubernetes processes.",
        "default",
        checklist=("RES-14",),
        enable="--system-reserved=memory=2Gi",
        section="Memory reservations",
    ),
    WindowsSupport(
        "SUP-RES-006",
        "Reserve CPU",
        "A share of the processors, more on larger machines; measure the system services at full "
        "density.",
        "procedure",
        checklist=("RES-15", "RES-16", "RES-17", "RES-18"),
        since=(1, 17),
        enable="--kube-reserved=cpu=..., --system-reserved=cpu=...",
        section="CPU reservations",
    ),
    WindowsSupport(
        "SUP-RES-007",
        "--kube-reserved",
        "Is taken off allocatable resources.",
        checklist=("FLAG-01",),
        section=_FLAGS,
        note="The spelling --kubelet-reserve of the documentation is also accepted.",
    ),
    WindowsSupport(
        "SUP-RES-008",
        "--system-reserved",
        "Is taken off allocatable resources.",
        checklist=("FLAG-02",),
        section=_FLAGS,
        note="The spelling --system-reserve of the documentation is also accepted.",
    ),
    WindowsSupport(
        "SUP-RES-009",
        "--eviction-hard",
        "Thresholds reduce allocatable resources.",
        checklist=("FLAG-03",),
        section=_FLAGS,
    ),
    WindowsSupport(
        "SUP-RES-010",
        "--windows-priorityclass",
        "Gives the kubelet more processor time than other processes; "
        "ABOVE_NORMAL_PRIORITY_CLASS or higher is recommended.",
        checklist=("FLAG-11", "FLAG-13"),
        since=(1, 19),
        enable="--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS",
        section=_FLAGS,
        topics=("priority",),
    ),
    WindowsSupport(
        "SUP-RES-011",
        "CPU requests",
        "Count against the processors of the node.",
        checklist=("API-18",),
        section="V1.Container",
        topics=("requests",),
    ),
    WindowsSupport(
        "SUP-RES-012",
        "Memory requests",
        "Count against the memory of the node.",
        checklist=("API-19",),
        section="V1.Container",
        topics=("requests",),
    ),
)
