"""Resources of Windows nodes and the kubelet's flags for them."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Support

_FLAGS: Final = "Kubelet flags"

SUPPORT: Final = (
    Support("SUP-RES-001", "Pods are no cgroups", "Linux bounds and measures a pod by its cgroup. Windows has a job object for "
            "each container, and statistics from the host compute service.",
            "rule", checklist=("RES-01", "RES-02", "RES-03"), section="Resource handling", topics=("cgroup", "job object")),
    Support("SUP-RES-002", "Memory is virtual", "User-mode memory may go to the page file, which every Windows machine has.",
            "rule", checklist=("RES-08",), section="Memory reservations", topics=("pagefile",)),
    Support("SUP-RES-003", "Memory of the node's own processes", "Reserve it by the kubelet's flags; allocatable memory "
            "shrinks by it.", "procedure", checklist=("RES-11",), enable="--kube-reserved, --system-reserved",
            section="Memory reservations", note="The document's --kubelet-reserve and --system-reserve are accepted too."),
    Support("SUP-RES-004", "Limits count for the scheduler", "A limit without a request is the request, so a full node gets no "
            "more pods.", "rule", checklist=("RES-13",), section="Memory reservations", topics=("limits",)),
    Support("SUP-RES-005", "Reserve at least 2 GB", "For Windows, the runtime and Kubernetes' own processes.",
            "default", checklist=("RES-14",), enable="--system-reserved=memory=2Gi", section="Memory reservations"),
    Support("SUP-RES-006", "Reserve CPU", "A part of the processors, more on larger machines, found by watching the system's "
            "services at full density.", "procedure", checklist=("RES-15", "RES-16", "RES-17", "RES-18"), since=(1, 17),
            enable="--kube-reserved=cpu=..., --system-reserved=cpu=...", section="CPU reservations"),
    Support("SUP-RES-007", "--kube-reserved", "Is taken off allocatable resources.", checklist=("FLAG-01",), section=_FLAGS,
            note="The document's spelling --kubelet-reserve is accepted too."),
    Support("SUP-RES-008", "--system-reserved", "Is taken off allocatable resources.", checklist=("FLAG-02",), section=_FLAGS,
            note="The document's spelling --system-reserve is accepted too."),
    Support("SUP-RES-009", "--eviction-hard", "Thresholds are taken off allocatable resources.", checklist=("FLAG-03",),
            section=_FLAGS),
    Support("SUP-RES-010", "--windows-priorityclass", "Gives the kubelet more processor time than other processes; "
            "ABOVE_NORMAL_PRIORITY_CLASS or higher is recommended.", checklist=("FLAG-11", "FLAG-13"), since=(1, 19),
            enable="--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS", section=_FLAGS, topics=("priority",)),
    Support("SUP-RES-011", "CPU requests", "Are counted against the node's processors.", checklist=("API-18",),
            section="V1.Container", topics=("requests",)),
    Support("SUP-RES-012", "Memory requests", "Are counted against the node's memory.", checklist=("API-19",),
            section="V1.Container", topics=("requests",)),
)
