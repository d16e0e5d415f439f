"""What the documents plan for later, and the experimental isolation of 1.14."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Support

_S: Final = "What's next"

SUPPORT: Final = (
    Support("SUP-PLAN-001", "Hyper-V isolation", "Hypervisor isolation between pods, older images on newer nodes, CPU/NUMA "
            "settings, memory reservations; needs containerd.", "planned",
            checklist=("ROAD-01", "ROAD-02", "ROAD-03", "ROAD-04", "ROAD-05"), section=_S,
            topics=("hyperv",)),
    Support("SUP-PLAN-002", "kubeadm", "Windows support in kubeadm is in progress.", "planned",
            checklist=("ROAD-06", "ROAD-07"), section=_S),
    Support("SUP-PLAN-003", "Cluster API", "Windows nodes by cluster API.", "planned", checklist=("ROAD-08",), section=_S),
    Support("SUP-PLAN-004", "containerd, seen from 1.14", "Tested on Linux; 1.3 is to bring Windows and Hyper-V, a base for "
            "RuntimeClass.", "planned", checklist=("ROAD-09", "ROAD-10", "ROAD-11", "ROAD-12"), until=(1, 16), section=_S,
            topics=("containerd",)),
    Support("SUP-PLAN-005", "GMSA, CNI and storage, seen from 1.14", "Beta of group managed service accounts, more network and "
            "storage plugins.", "planned", checklist=("ROAD-19", "ROAD-20", "ROAD-21"), until=(1, 16), section=_S),
    Support("SUP-PLAN-006", "Hyper-V isolation by annotation", "Experimental: a pod of one container in a utility machine of "
            "its own.", checklist=("ROAD-13", "ROAD-14", "ROAD-15", "ROAD-17", "ROAD-18"), until=(1, 20), runtimes=("docker",),
            needs=("HyperVContainer",), enable="kubelet --feature-gates=HyperVContainer=true, and the annotation "
            "experimental.windows.kubernetes.io/isolation-type: hyperv", stage="alpha", section=_S, topics=("hyperv",)),
)
