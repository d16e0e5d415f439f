"""What the documents announce for later releases, and the experimental isolation of 1.14."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "What's next"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-PLAN-001",
        "Hyper-V isolation",
        "Hypervisor isolation between pods, older images on newer nodes, CPU/NUMA "
        "settings, memory reservations; needs containerd.",
        "planned",
        until=(1, 21),
        checklist=("ROAD-01", "ROAD-02", "ROAD-03", "ROAD-04", "ROAD-05"),
        section=_S,
        topics=("hyperv",),
    ),
    WindowsSupport(
        "SUP-PLAN-002",
        "kubeadm",
        "Windows support in kubeadm is in progress.",
        "planned",
        until=(1, 21),
        checklist=("ROAD-06", "ROAD-07"),
        section=_S,
    ),
    WindowsSupport(
        "SUP-PLAN-003",
        "Cluster API",
        "Windows nodes by cluster API.",
        "planned",
        until=(1, 21),
        checklist=("ROAD-08",),
        section=_S,
    ),
    WindowsSupport(
        "SUP-PLAN-004",
        "containerd, seen from 1.14",
        "Tested on Linux; version 1.3 adds Windows and Hyper-V, a base for RuntimeClass.",
        "planned",
        checklist=("ROAD-09", "ROAD-10", "ROAD-11", "ROAD-12"),
        until=(1, 16),
        section=_S,
        topics=("containerd",),
    ),
    WindowsSupport(
        "SUP-PLAN-005",
        "GMSA, CNI and storage, seen from 1.14",
        "Beta of group managed service accounts, more network and storage plugins.",
        "planned",
        checklist=("ROAD-19", "ROAD-20", "ROAD-21"),
        until=(1, 16),
        section=_S,
    ),
    WindowsSupport(
        "SUP-PLAN-006",
        "Hyper-V isolation by annotation",
        "Experimental: a pod with one container in a separate utility VM.",
        checklist=("ROAD-13", "ROAD-14", "ROAD-15", "ROAD-17", "ROAD-18"),
        until=(1, 16),
        runtimes=("docker",),
        needs=("HyperVContainer",),
        enable="kubelet --feature-gates=HyperVContainer=true, and the annotation "
        "experimental.windows.kubernetes.io/isolation-type: hyperv",
        stage="alpha",
        section=_S,
        topics=("hyperv",),
    ),
)
