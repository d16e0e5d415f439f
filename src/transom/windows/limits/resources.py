"""Limits of memory and CPU: no OOM killer, paging, reservations that are not enforced."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

LIMITS: Final = (
    WindowsLimit(
        id="WIN-RES-001",
        title="No process is killed for using too much memory",
        statement="Windows has no OOM killer. Memory beyond the physical memory goes to the page "
        "file; an allocation above the container limit fails inside the process.",
        effect="degraded",
        remedy="Set memory limits, and monitor working sets instead of OOMKilled.",
        checklist=("RES-07", "RES-09", "FLAG-08"),
        section="Memory reservations",
        topics=("OOM", "OOMKilled", "memory", "pagefile"),
    ),
    WindowsLimit(
        id="WIN-RES-002",
        title="An over-provisioned node pages and slows down",
        statement=(
            "When all physical memory is in use, processes page to disk: pods keep running, but slowly."
        ),
        effect="degraded",
        remedy=(
            "Set limits on all containers and reserve at least 2 GB for the system, so that the "
            "scheduler does not overcommit the node."
        ),
        checklist=("RES-10",),
        section="Memory reservations",
        topics=("memory", "paging"),
    ),
    WindowsLimit(
        id="WIN-RES-003",
        title="Containers without memory limits can starve a Windows node",
        statement="Only a limit bounds the memory of a Windows container, and the kubelet does not evict it.",
        effect="degraded",
        remedy=(
            "Set resources.limits.memory; the request defaults to it, and the scheduler counts it."
        ),
        checklist=("RES-12", "API-20"),
        check="memory-limits",
        severity="warning",
        section="Memory reservations",
        topics=("limits", "memory"),
    ),
    WindowsLimit(
        id="WIN-RES-004",
        title="Requests below limits over-provision a Windows node",
        statement="Only the scheduler uses requests: they are not guaranteed on a node whose "
        "limits add up to more than its resources.",
        effect="degraded",
        remedy="Set only limits, or requests equal to limits.",
        checklist=("RES-12", "API-20"),
        check="requests-differ",
        severity="info",
        section="Memory reservations",
        topics=("requests", "limits", "memory"),
    ),
    WindowsLimit(
        id="WIN-RES-005",
        title="Huge pages are not available",
        statement=(
            "Huge pages need a privilege that containers cannot have, so Windows nodes offer none."
        ),
        effect="fails",
        remedy="Drop them.",
        checklist=("FEAT-05", "API-17"),
        fields=(
            RecordField("spec.containers[*].resources.limits.hugepages-*"),
            RecordField("spec.containers[*].resources.requests.hugepages-*"),
            RecordField("spec.volumes[*].emptyDir.medium", "matches", r"^HugePages"),
        ),
        severity="error",
        reason="FailedScheduling",
        message="Insufficient {resource}",
        section="V1.Container",
        topics=("hugepages",),
    ),
    WindowsLimit(
        id="WIN-RES-006",
        title="CPU limits are fractions of the whole machine",
        statement=(
            "A CPU limit becomes a share of all processors of the node, in units of 1/10000, at "
            "least one unit."
        ),
        effect="degraded",
        remedy="Treat limits below 1/10000 of the node as 1/10000.",
        checklist=("API-15",),
        section="V1.Container",
        note=(
            "The documentation describes relative shares, as in 1.14; later kubelets set a maximum."
        ),
        topics=("cpu", "limits", "shares"),
    ),
    WindowsLimit(
        id="WIN-RES-007",
        title="Reservations do not limit the kubelet or the system",
        statement="Reserved memory reduces allocatable memory, but it does not limit the kubelet "
        "or other processes of the node; they can exhaust the node while the scheduler still sees "
        "free memory.",
        effect="degraded",
        remedy="Reserve at least 2 GB, and monitor the processes of the node.",
        checklist=("FLAG-09", "FLAG-10"),
        section="Kubelet flags",
        topics=("kube-reserved", "system-reserved"),
    ),
    WindowsLimit(
        id="WIN-RES-008",
        title="A container always runs in a job object",
        statement=(
            "A Windows container is a job object with a filtered view of the system; this cannot "
            "be turned off."
        ),
        effect="degraded",
        remedy="From 1.22, use HostProcess containers for work on the node.",
        checklist=("RES-04",),
        section="Resource handling",
        topics=("job object", "isolation"),
    ),
)
