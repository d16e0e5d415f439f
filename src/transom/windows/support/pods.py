"""Pods, controllers and related objects that work on Windows as on Linux."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "Compute"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-POD-001",
        "Windows pods behave like Linux pods",
        (
            "For the API and for kubectl there is little difference: same verbs, status, events "
            "and conditions."
        ),
        checklist=("POD-01", "POD-02"),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-002",
        "Containers run in pods, a pod on one node",
        (
            "All containers of a pod run on one node, and a node has one operating system and "
            "architecture."
        ),
        "rule",
        checklist=("POD-03", "POD-05"),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-003",
        "Several containers in a pod",
        "A pod has one or more containers, each with process isolation: none sees the processes of another.",
        checklist=("POD-06",),
        section=_S,
        topics=("sidecar",),
    ),
    WindowsSupport(
        "SUP-POD-004",
        "Volumes shared in a pod",
        "Containers of a pod share the files of its volumes.",
        checklist=("POD-07",),
        section=_S,
        topics=("emptyDir",),
    ),
    WindowsSupport(
        "SUP-POD-005",
        "Pod status",
        "Phase, conditions, addresses and container statuses are reported.",
        checklist=("POD-08",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-006",
        "Readiness probes",
        "A pod whose probe fails is not ready and is removed from its Services.",
        checklist=("POD-09",),
        section=_S,
        topics=("probe",),
    ),
    WindowsSupport(
        "SUP-POD-007",
        "Liveness probes",
        "A container whose probe fails is killed and restarted.",
        checklist=("POD-10",),
        section=_S,
        topics=("probe",),
    ),
    WindowsSupport(
        "SUP-POD-008",
        "postStart hooks",
        "Run when a container has started.",
        checklist=("POD-11",),
        section=_S,
        topics=("lifecycle",),
    ),
    WindowsSupport(
        "SUP-POD-009",
        "preStop hooks",
        "Run before the container is stopped; the kubelet waits for them.",
        checklist=("POD-12",),
        section=_S,
        topics=("lifecycle", "grace period"),
    ),
    WindowsSupport(
        "SUP-POD-010",
        "ConfigMaps",
        "As environment variables and as volumes; changes are visible in the files.",
        checklist=("POD-13", "API-43"),
        section=_S,
        topics=("configMap", "env"),
    ),
    WindowsSupport(
        "SUP-POD-011",
        "Secrets",
        "As environment variables and as volumes; changes are visible in the files.",
        checklist=("POD-14", "API-42"),
        section=_S,
        topics=("secret", "env"),
    ),
    WindowsSupport(
        "SUP-POD-012",
        "emptyDir",
        "A directory on the disk of the node; kept across container restarts, removed with the pod.",
        checklist=("POD-15", "API-41"),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-013",
        "Named pipes of the node",
        "A hostPath volume of a named pipe, without a type, mounted at the same path.",
        checklist=("POD-16",),
        enable="hostPath: {path: '\\\\.\\pipe\\NAME'}, mountPath: '\\\\.\\pipe\\NAME'",
        section=_S,
        topics=("hostPath", "docker_engine"),
    ),
    WindowsSupport(
        "SUP-POD-014",
        "Resource limits",
        "CPU and memory limits apply to the container.",
        checklist=("POD-17", "API-16"),
        section=_S,
        topics=("limits",),
    ),
    WindowsSupport(
        "SUP-POD-015",
        "Pod templates",
        "Controllers maintain the number of Windows pods.",
        checklist=("CTL-01",),
        section=_S,
        topics=("controller",),
    ),
    WindowsSupport(
        "SUP-POD-016", "ReplicaSet", "Works with Windows pods.", checklist=("CTL-02",), section=_S
    ),
    WindowsSupport(
        "SUP-POD-017",
        "ReplicationController",
        "Works with Windows pods.",
        checklist=("CTL-03",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-018",
        "Deployment",
        "Works with Windows pods: rollouts and rollbacks.",
        checklist=("CTL-04",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-019",
        "StatefulSet",
        "Works with Windows pods: names, order, claims.",
        checklist=("CTL-05",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-020",
        "DaemonSet",
        "One pod on each Windows node it selects.",
        checklist=("CTL-06",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-021",
        "Job",
        "A Windows pod that ends with 0 completes it.",
        checklist=("CTL-07",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-022",
        "CronJob",
        "Creates Jobs with Windows pods on a schedule.",
        checklist=("CTL-08",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-023",
        "Pod and container metrics",
        "`kubectl top` and /stats/summary show CPU and memory of Windows pods.",
        checklist=("LIFE-01",),
        section=_S,
        topics=("metrics", "stats"),
    ),
    WindowsSupport(
        "SUP-POD-024",
        "Horizontal Pod Autoscaler",
        "Scales Windows workloads by their metrics.",
        checklist=("LIFE-02",),
        section=_S,
        topics=("hpa", "autoscaling"),
    ),
    WindowsSupport(
        "SUP-POD-025",
        "kubectl exec",
        "Runs Windows commands: `kubectl exec -it POD -- cmd`.",
        checklist=("LIFE-03",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-POD-026",
        "Resource quotas",
        "Count Windows pods as any.",
        checklist=("LIFE-04",),
        section=_S,
        topics=("quota",),
    ),
    WindowsSupport(
        "SUP-POD-027",
        "Preemption",
        "A Windows pod with a higher priority preempts one with a lower priority.",
        checklist=("LIFE-05",),
        section=_S,
        topics=("priority",),
    ),
    WindowsSupport(
        "SUP-POD-028",
        "The pause container",
        "Each pod has an infrastructure container that is created first and holds its network; the "
        "other containers share its address and ports and can restart without losing them.",
        "rule",
        checklist=("RT-12", "RT-13", "RT-14", "TRB-119"),
        section="Pause image",
        topics=("pause", "sandbox"),
    ),
)
