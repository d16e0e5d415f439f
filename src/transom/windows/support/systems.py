"""Windows versions in a cluster, and their rules."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_VERSIONS: Final = "Windows OS version support"

SUPPORT: Final = (
    WindowsSupport(
        "SUP-OS-001",
        "Windows containers on Windows nodes",
        (
            "From 1.14, Windows containers run in production on Windows nodes, in one cluster with "
            "Linux containers."
        ),
        checklist=("OS-01", "OS-03"),
        section="Overview",
        topics=("windows",),
    ),
    WindowsSupport(
        "SUP-OS-002",
        "Windows nodes join a Linux cluster",
        "Add Windows nodes to a cluster to run Windows workloads.",
        "procedure",
        checklist=("OS-02", "OS-10"),
        enable="`transom up --windows N`, `transom node add NAME --os windows`",
        section="Overview",
        topics=("join", "mixed"),
    ),
    WindowsSupport(
        "SUP-OS-003",
        "The control plane stays on Linux",
        "Control-plane nodes are Linux machines; workers can be Linux or Windows, zero or more of each.",
        "rule",
        checklist=("OS-04", "OS-06", "OS-28"),
        section="Limitations",
        topics=("control plane",),
    ),
    WindowsSupport(
        "SUP-OS-004",
        "Windows containers use process isolation",
        ("By default, a Windows container is a job object on the kernel of its node."),
        "default",
        checklist=("OS-08",),
        section="Overview",
        topics=("process isolation",),
    ),
    WindowsSupport(
        "SUP-OS-005",
        "Nodes for 1.17",
        "Windows Server 2019 and version 1809 (build 17763).",
        checklist=("OS-12",),
        since=(1, 17),
        until=(1, 17),
        builds=(17763, 17763),
        section=_VERSIONS,
        topics=("build",),
    ),
    WindowsSupport(
        "SUP-OS-006",
        "Nodes for 1.18",
        "Windows Server 2019, versions 1809, 1903 and 1909 (builds 17763, 18362, 18363).",
        checklist=("OS-13",),
        since=(1, 18),
        until=(1, 18),
        builds=(17763, 18363),
        section=_VERSIONS,
        topics=("build",),
    ),
    WindowsSupport(
        "SUP-OS-007",
        "Nodes for 1.19",
        "Windows Server 2019, versions 1909 and 2004 (builds 17763, 18363, 19041).",
        checklist=("OS-14",),
        since=(1, 19),
        until=(1, 19),
        builds=(17763, 19041),
        section=_VERSIONS,
        topics=("build",),
    ),
    WindowsSupport(
        "SUP-OS-008",
        "Nodes for 1.20",
        "Windows Server 2019, versions 1909 and 2004 (builds 17763, 18363, 19041).",
        checklist=("OS-15",),
        since=(1, 20),
        until=(1, 20),
        builds=(17763, 19041),
        section=_VERSIONS,
        topics=("build",),
    ),
    WindowsSupport(
        "SUP-OS-009",
        "Nodes for 1.14",
        "Windows Server 2019 and version 1809 (build 17763), with Docker EE-basic 18.09.",
        checklist=("OS-18",),
        until=(1, 14),
        builds=(17763, 17763),
        runtimes=("docker",),
        section=_VERSIONS,
        topics=("build",),
    ),
    WindowsSupport(
        "SUP-OS-010",
        "Servicing channels",
        (
            "Windows Server comes in a long-term channel (LTSC) and a semi-annual one (SAC), "
            "each with its own support period."
        ),
        "rule",
        checklist=("OS-19",),
        section=_VERSIONS,
        topics=("LTSC", "SAC"),
    ),
    WindowsSupport(
        "SUP-OS-011",
        "Applications are upgraded with their nodes",
        "To move an application to a new Windows version, rebuild its images and use new nodes: add nodes of "
        "the new build, move workloads by "
        "their node.kubernetes.io/windows-build selector, drain the old nodes.",
        "procedure",
        checklist=("OS-20", "OS-21"),
        section=_VERSIONS,
        topics=("upgrade", "drain"),
    ),
    WindowsSupport(
        "SUP-OS-012",
        "Licences",
        "Windows Server hosts need a Windows Server licence; Windows base images come with "
        "supplemental licence terms. "
        "Simulated nodes contain no Windows.",
        "rule",
        until=(1, 21),
        checklist=("OS-23", "OS-24"),
        section=_VERSIONS,
        topics=("licence", "EULA"),
    ),
    WindowsSupport(
        "SUP-OS-013",
        "Build rules apply to process isolation",
        (
            "The build of an image must match its node because they share a kernel; with Hyper-V "
            "isolation it can be older."
        ),
        "rule",
        checklist=("OS-26",),
        section=_VERSIONS,
        topics=("build", "hyperv"),
    ),
)
