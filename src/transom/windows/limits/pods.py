"""Limits of pods as a whole: placement, sharing with the node, termination."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

# Host-process pods, from 1.22 on; several limits do not apply to them.
HOST_PROCESS: Final = (
    RecordField("spec.securityContext.windowsOptions.hostProcess", "is", True),
    RecordField("spec.containers[*].securityContext.windowsOptions.hostProcess", "is", True),
)

LIMITS: Final = (
    WindowsLimit(
        id="WIN-POD-001",
        title="A pod cannot have both Linux and Windows containers",
        statement="All containers of a pod run on one node, and a node has one operating system.",
        effect="fails",
        remedy="Use two pods that communicate through a Service.",
        checklist=("POD-04",),
        check="mixed-images",
        severity="error",
        reason="ErrImagePull",
        message='image operating system "linux" cannot be used on this platform',
        section="Compute",
        topics=("sidecar", "mixed"),
    ),
    WindowsLimit(
        id="WIN-POD-002",
        title="hostNetwork fails with Docker",
        statement="A Windows pod cannot use the network of its node. Docker finds no network named "
        "host, and the sandbox of the pod is not created.",
        effect="fails",
        remedy=(
            "Remove hostNetwork; use a hostPort or a NodePort service, or, from 1.22, HostProcess "
            "containers."
        ),
        checklist=("LNET-05", "API-33"),
        runtimes=("docker",),
        fields=(RecordField("spec.hostNetwork", "is", True),),
        unless=HOST_PROCESS,
        severity="error",
        reason="FailedCreatePodSandBox",
        message=(
            'failed to start sandbox container for pod "{pod}": Error response from daemon: '
            "network host not found"
        ),
        section="Networking",
        topics=("host network",),
    ),
    WindowsLimit(
        id="WIN-POD-003",
        title="hostNetwork is ignored by containerd",
        statement=(
            "A Windows pod cannot use the network of its node. containerd gives it its own "
            "network, like any other pod."
        ),
        effect="ignored",
        remedy=(
            "Remove hostNetwork; use a hostPort or a NodePort service, or, from 1.22, HostProcess "
            "containers."
        ),
        checklist=("LNET-05", "API-33"),
        runtimes=("containerd",),
        fields=(RecordField("spec.hostNetwork", "is", True),),
        unless=HOST_PROCESS,
        severity="warning",
        fix="drop",
        section="Networking",
        note="The kubelet still treats it as a host network pod and does not configure cluster "
        "DNS. Kubernetes 1.26 to 1.32 had an alpha feature for it, WindowsHostNetwork, which was "
        "removed.",
        topics=("host network",),
    ),
    WindowsLimit(
        id="WIN-POD-004",
        title="hostPID is ignored",
        statement=(
            "Windows has no process namespace to share with the node: a container sees only its "
            "own processes."
        ),
        effect="ignored",
        remedy="Remove hostPID; from 1.22, HostProcess containers can see the processes of the node.",
        checklist=("API-32", "FEAT-07"),
        fields=(RecordField("spec.hostPID", "is", True),),
        severity="warning",
        fix="drop",
        section="V1.Pod",
        topics=("namespace",),
    ),
    WindowsLimit(
        id="WIN-POD-005",
        title="hostIPC is ignored",
        statement="Windows has no IPC namespace to share with the node.",
        effect="ignored",
        remedy="Remove hostIPC.",
        checklist=("API-31", "FEAT-07"),
        fields=(RecordField("spec.hostIPC", "is", True),),
        severity="warning",
        fix="drop",
        section="V1.Pod",
        topics=("namespace",),
    ),
    WindowsLimit(
        id="WIN-POD-006",
        title="shareProcessNamespace is ignored",
        statement=(
            "Containers of a Windows pod share the network and volumes, but not processes or root "
            "file systems."
        ),
        effect="ignored",
        remedy="Remove shareProcessNamespace; containers can communicate through files or localhost.",
        checklist=("API-36", "FEAT-07"),
        fields=(RecordField("spec.shareProcessNamespace", "is", True),),
        severity="warning",
        fix="drop",
        section="V1.Pod",
        topics=("namespace", "sidecar"),
    ),
    WindowsLimit(
        id="WIN-POD-007",
        title="Docker stops a Windows container after five seconds",
        statement="The process receives CTRL_SHUTDOWN_EVENT; after five seconds Windows ends all "
        "processes of the container, regardless of terminationGracePeriodSeconds.",
        effect="degraded",
        remedy="Do the work in a preStop hook, which the kubelet waits for; or raise "
        "WaitToKillServiceTimeout in the registry of the image; or use containerd, which respects "
        "the grace period.",
        checklist=("FEAT-01", "API-37", "API-38"),
        runtimes=("docker",),
        fields=(RecordField("spec.terminationGracePeriodSeconds", "above", 30),),
        severity="warning",
        section="Feature restrictions",
        topics=("grace period", "shutdown", "preStop", "CTRL_SHUTDOWN_EVENT"),
    ),
    WindowsLimit(
        id="WIN-POD-008",
        title="hostAliases are ignored before 1.21",
        statement="The kubelet does not write a hosts file in Windows containers.",
        effect="ignored",
        remedy=(
            "Use DNS (a Service without selector, or ExternalName), or add the file to the image."
        ),
        until=(1, 20),
        fields=(RecordField("spec.hostAliases"),),
        severity="warning",
        fix="drop",
        section="API",
        topics=("hosts file",),
    ),
    WindowsLimit(
        id="WIN-POD-009",
        title="hostAliases are ignored with Docker",
        statement="The hosts file is a single file, and Docker on Windows can mount only directories.",
        effect="ignored",
        remedy="Use DNS, or containerd.",
        since=(1, 21),
        runtimes=("docker",),
        fields=(RecordField("spec.hostAliases"),),
        severity="warning",
        fix="drop",
        section="API",
        topics=("hosts file",),
    ),
    WindowsLimit(
        id="WIN-POD-010",
        title="A pod without an operating system selector can be scheduled to any node",
        statement="The scheduler does not consider the operating system of an image when it "
        "schedules a pod. Without a node selector or a taint, a Linux pod can be scheduled to a "
        "Windows node, where it fails, and vice versa.",
        effect="fails",
        remedy="Add `nodeSelector: {kubernetes.io/os: ...}` to every pod of a mixed cluster; taint "
        "the Windows nodes "
        "with `os=windows:NoSchedule` and add a toleration to Windows pods.",
        checklist=("OS-11",),
        check="os-selector",
        severity="warning",
        reason="ErrImagePull",
        section="Windows OS version support",
        topics=("nodeSelector", "scheduling", "taint"),
    ),
    WindowsLimit(
        id="WIN-POD-011",
        title="A toleration of all taints allows Linux pods on Windows nodes",
        statement=(
            "`operator: Exists` without a key also tolerates the taint that keeps Linux pods away "
            "from Windows nodes."
        ),
        effect="fails",
        remedy="Add `nodeSelector: {kubernetes.io/os: linux}`, or name the taints to tolerate.",
        checklist=("OS-11",),
        check="tolerate-everything",
        severity="warning",
        reason="ErrImagePull",
        section="Windows OS version support",
        topics=("toleration", "taint"),
    ),
    WindowsLimit(
        id="WIN-POD-012",
        title="A DaemonSet without an operating system selector runs on all nodes",
        statement="A DaemonSet creates a pod on every eligible node; pods on nodes of the other "
        "operating system never start.",
        effect="fails",
        remedy="Create one DaemonSet per operating system, each with a node selector.",
        checklist=("OS-11",),
        check="daemonset-os",
        severity="warning",
        reason="ErrImagePull",
        section="Windows OS version support",
        topics=("daemonset", "nodeSelector"),
    ),
    WindowsLimit(
        id="WIN-POD-013",
        title="Ephemeral containers cannot see processes of another container",
        statement="targetContainerName needs shared process namespaces, which Windows does not have.",
        effect="ignored",
        remedy="Use `kubectl exec`, or a debugger on the node.",
        checklist=("API-36",),
        fields=(RecordField("spec.ephemeralContainers[*].targetContainerName"),),
        severity="info",
        section="V1.Pod",
        topics=("debug",),
    ),
    WindowsLimit(
        id="WIN-POD-014",
        title="The node problem detector is for Linux",
        statement="The node problem detector reads Linux kernel logs and needs privileged containers.",
        effect="fails",
        remedy="Select Linux nodes for it.",
        until=(1, 23),
        checklist=("FEAT-06",),
        fields=(
            RecordField(
                "spec.containers[*].image", "matches", r"(^|/)node-problem-detector(:|@|$)"
            ),
        ),
        severity="error",
        reason="ErrImagePull",
        section="Feature restrictions",
        topics=("npd",),
    ),
)
