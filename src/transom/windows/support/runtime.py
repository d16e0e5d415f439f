"""Container runtimes and pause images."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

SUPPORT: Final = (
    WindowsSupport(
        "SUP-RUN-001",
        "Docker EE",
        "Stable since 1.14, through dockershim in the kubelet.",
        checklist=("RT-02", "RT-04"),
        until=(1, 23),
        runtimes=("docker",),
        section="Docker EE",
        topics=("dockershim",),
    ),
    WindowsSupport(
        "SUP-RUN-002",
        "Docker EE-basic 19.03",
        "Recommended for all versions of Windows Server.",
        "default",
        checklist=("RT-03",),
        since=(1, 17),
        until=(1, 23),
        runtimes=("docker",),
        section="Docker EE",
    ),
    WindowsSupport(
        "SUP-RUN-003",
        "Docker EE-basic 18.09",
        "Required by 1.14 on Windows Server 2019.",
        "default",
        checklist=("RT-03", "OS-18"),
        until=(1, 16),
        runtimes=("docker",),
        section="Docker EE",
    ),
    WindowsSupport(
        "SUP-RUN-004",
        "containerd",
        "Version 1.4.0 or later: alpha in 1.18, beta in 1.19, stable since 1.20.",
        checklist=("RT-05", "RT-06", "RT-07"),
        since=(1, 18),
        runtimes=("containerd",),
        enable="`runtime: containerd` for a node in the cluster file",
        section="CRI-ContainerD",
        topics=("cri",),
    ),
    WindowsSupport(
        "SUP-RUN-005",
        "Pause image pause:1.4.1",
        (
            "mcr.microsoft.com/oss/kubernetes/pause:1.4.1 is the infrastructure container of "
            "Windows pods."
        ),
        "default",
        checklist=("RT-01", "RT-15", "TRB-36"),
        since=(1, 17),
        until=(1, 21),
        section="Pause image",
        topics=("pause",),
    ),
    WindowsSupport(
        "SUP-RUN-006",
        "Pause image pause:1.2.0",
        (
            "mcr.microsoft.com/k8s/core/pause:1.2.0 is the infrastructure container of Windows "
            "pods in 1.14."
        ),
        "default",
        checklist=("RT-01", "TRB-111", "TRB-36"),
        until=(1, 16),
        section="Pause image",
        topics=("pause",),
    ),
    WindowsSupport(
        "SUP-RUN-007",
        "Files as mounts with containerd",
        "A volume mount may have a single file as its target.",
        checklist=("LSTO-04",),
        since=(1, 18),
        runtimes=("containerd",),
        section="Storage",
        topics=("single file", "subPath"),
    ),
    WindowsSupport(
        "SUP-RUN-008",
        "GMSA and network shares with containerd",
        "With a Windows update, containers can open shares.",
        checklist=("RT-10",),
        since=(1, 18),
        builds=(17763, None),
        patches=((17763, 1817), (19041, 662)),
        runtimes=("containerd",),
        section="CRI-ContainerD",
        topics=("gmsa",),
    ),
)
