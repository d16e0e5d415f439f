"""Limits of memory and CPU: no OOM killer, paging, reservations that nothing enforces."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Field, Limit

LIMITS: Final = (
    Limit(
        id="WIN-RES-001",
        title="Nothing is killed for using too much memory",
        statement="Windows has no OOM killer. Memory beyond what is physically there goes to the page file; an allocation "
        "beyond a container's limit fails inside the process.",
        effect="degraded",
        remedy="Set memory limits, and watch working sets instead of waiting for OOMKilled.",
        checklist=("RES-07", "RES-09", "FLAG-08"),
        section="Memory reservations",
        topics=("OOM", "OOMKilled", "memory", "pagefile"),
    ),
    Limit(
        id="WIN-RES-002",
        title="An over-provisioned node pages and slows down",
        statement="When all physical memory is in use, processes page to disk: pods keep running, slowly.",
        effect="degraded",
        remedy="Set limits on all containers and reserve at least 2 GB for the system, so that the scheduler stops in time.",
        checklist=("RES-10",),
        section="Memory reservations",
        topics=("memory", "paging"),
    ),
    Limit(
        id="WIN-RES-003",
        title="Containers without memory limits can starve a Windows node",
        statement="Nothing but a limit bounds what a Windows container takes, and nothing evicts it.",
        effect="degraded",
        remedy="Set resources.limits.memory; requests then default to it and the scheduler counts it.",
        checklist=("RES-12", "API-20"),
        check="memory-limits",
        severity="warning",
        section="Memory reservations",
        topics=("limits", "memory"),
    ),
    Limit(
        id="WIN-RES-004",
        title="Requests below limits over-provision a Windows node",
        statement="Requests are only counted by the scheduler: nothing guarantees them on a node whose limits add up to more "
        "than it has.",
        effect="degraded",
        remedy="Set limits alone, or requests equal to limits.",
        checklist=("RES-12", "API-20"),
        check="requests-differ",
        severity="info",
        section="Memory reservations",
        topics=("requests", "limits", "memory"),
    ),
    Limit(
        id="WIN-RES-005",
        title="Huge pages are not available",
        statement="Huge pages need a privilege that containers cannot be given, so Windows nodes offer none.",
        effect="fails",
        remedy="Drop them.",
        checklist=("FEAT-05", "API-17"),
        fields=(
            Field("spec.containers[*].resources.limits.hugepages-*"),
            Field("spec.containers[*].resources.requests.hugepages-*"),
            Field("spec.volumes[*].emptyDir.medium", "matches", r"^HugePages"),
        ),
        severity="error",
        reason="FailedScheduling",
        message="Insufficient {resource}",
        section="V1.Container",
        topics=("hugepages",),
    ),
    Limit(
        id="WIN-RES-006",
        title="CPU limits are parts of the whole machine",
        statement="A CPU limit becomes a share of all the node's processors, in ten-thousandths, with at least one.",
        effect="degraded",
        remedy="Count limits of less than a ten-thousandth of the node as that.",
        checklist=("API-15",),
        section="V1.Container",
        note="The document speaks of relative shares, which is how 1.14 did it; later kubelets set a maximum.",
        topics=("cpu", "limits", "shares"),
    ),
    Limit(
        id="WIN-RES-007",
        title="Reservations do not bind the kubelet or the system",
        statement="Reserved memory is taken off what pods may have, but nothing keeps the kubelet or other processes of the "
        "node within it; they can starve the node while the scheduler still sees room.",
        effect="degraded",
        remedy="Reserve generously (at least 2 GB) and watch the node's own processes.",
        checklist=("FLAG-09", "FLAG-10"),
        section="Kubelet flags",
        topics=("kube-reserved", "system-reserved"),
    ),
    Limit(
        id="WIN-RES-008",
        title="A container always runs in a job object",
        statement="A Windows container is a job object with a filtered view of the system; nothing turns that off.",
        effect="degraded",
        remedy="Use HostProcess containers from 1.22 on for work on the node.",
        checklist=("RES-04",),
        section="Resource handling",
        topics=("job object", "isolation"),
    ),
)
