"""Troubleshooting, as the documents describe it: node setup, symptoms and solutions, reports."""

from __future__ import annotations

from typing import Final

from transom.windows.records import WindowsSupport

_S: Final = "Troubleshooting"


def _ids(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"TRB-{n:02d}" for n in range(first, last + 1))


SUPPORT: Final = (
    WindowsSupport(
        "SUP-TRB-001",
        "Where to look first",
        "Use the general guide for clusters, then the logs, collected as SIG Windows describes.",
        "procedure",
        checklist=("TRB-01", "TRB-02"),
        section=_S,
        topics=("logs",),
    ),
    WindowsSupport(
        "SUP-TRB-002",
        "start.ps1 has worked",
        "kubelet, kube-proxy and, with flannel, flanneld run, each with its log, "
        "and the node is Ready.",
        "symptom",
        until=(1, 23),
        checklist=_ids(3, 6),
        section=_S,
        topics=("start.ps1",),
    ),
    WindowsSupport(
        "SUP-TRB-003",
        "Node processes as Windows services",
        "kubelet and kube-proxy run as native services, restarted "
        'when they fail: sc.exe create NAME binPath= "PATH --windows-service ARGUMENTS", '
        "Start-Service, Stop-Service, "
        "Get-Service.",
        "procedure",
        checklist=_ids(7, 14),
        section=_S,
        topics=("sc.exe", "service"),
        note="The flag --service of the documentation is also accepted.",
    ),
    WindowsSupport(
        "SUP-TRB-004",
        "Services by nssm",
        "nssm.exe runs flanneld, kubelet and kube-proxy; register-svc.ps1 sets all "
        "three up, with defaults l2bridge, 10.244.0.0/16, 10.96.0.10 and C:\\k.",
        "procedure",
        until=(1, 23),
        checklist=_ids(15, 22),
        section=_S,
        topics=("nssm", "register-svc.ps1"),
    ),
    WindowsSupport(
        "SUP-TRB-005",
        "flanneld by nssm",
        "Its binary, parameters, NODE_NAME and directory.",
        "procedure",
        until=(1, 23),
        checklist=_ids(23, 31),
        section=_S,
        topics=("nssm", "flanneld"),
    ),
    WindowsSupport(
        "SUP-TRB-006",
        "kubelet by nssm",
        "The binary and all flags of the documentation start as printed.",
        "procedure",
        until=(1, 23),
        checklist=_ids(32, 53),
        section=_S,
        topics=("nssm", "kubelet"),
        note=(
            "Kubelets since 1.15 do not have --allow-privileged; Transom accepts and ignores it."
        ),
    ),
    WindowsSupport(
        "SUP-TRB-007",
        "kube-proxy by nssm",
        "Kernelspace mode; KUBE_NETWORK on l2bridge, --network-name, --source-vip and "
        "WinOverlay on overlay.",
        "procedure",
        until=(1, 23),
        checklist=_ids(54, 69),
        section=_S,
        topics=("nssm", "kube-proxy"),
        note="The printed line lacks a space before --kubeconfig.",
    ),
    WindowsSupport(
        "SUP-TRB-008",
        "Output of services",
        "nssm writes stdout and stderr to a file.",
        "procedure",
        until=(1, 23),
        checklist=_ids(70, 71),
        section=_S,
        topics=("nssm", "logs"),
    ),
    WindowsSupport(
        "SUP-TRB-009",
        "Pods have no connectivity",
        "On virtual machines, MAC spoofing is off.",
        "symptom",
        checklist=("TRB-72",),
        enable="Turn MAC spoofing on for all network adapters of the machine.",
        section=_S,
    ),
    WindowsSupport(
        "SUP-TRB-010",
        "cni.conf",
        "A static file; edits count for new pods. ExceptionList names the subnets of cluster, "
        "services and hosts, for which there is no NAT.",
        "default",
        checklist=("TRB-75", "TRB-76", "TRB-79", "TRB-80", "TRB-81"),
        section=_S,
        topics=("ExceptionList",),
    ),
    WindowsSupport(
        "SUP-TRB-011",
        "Endpoints of containers are deleted",
        "kube-proxy does not know the name of its node.",
        "symptom",
        checklist=("TRB-84", "TRB-85"),
        enable="kube-proxy.exe --hostname-override=$(hostname)",
        section=_S,
        topics=("hostname-override", "HNS"),
    ),
    WindowsSupport(
        "SUP-TRB-012",
        "A node that rejoins with flannel has problems",
        "It gets a new subnet while files of the old subnet still exist.",
        "symptom",
        checklist=_ids(86, 88),
        enable="Remove C:\\k\\SourceVip.json and C:\\k\\SourceVipRequest.json.",
        section=_S,
        topics=("flannel",),
    ),
    WindowsSupport(
        "SUP-TRB-013",
        "flanneld waits for the network to be created",
        "The management address was not set in time.",
        "symptom",
        checklist=_ids(89, 92),
        enable="Restart it with start.ps1, or manually with NODE_NAME set.",
        section=_S,
        topics=("flanneld",),
    ),
    WindowsSupport(
        "SUP-TRB-014",
        "subnet.env is missing",
        "flannel did not start.",
        "symptom",
        checklist=_ids(93, 99),
        enable="Restart flanneld, or copy subnet.env from the control plane and change FLANNEL_SUBNET.",
        section=_S,
        topics=("subnet.env", "flannel"),
    ),
    WindowsSupport(
        "SUP-TRB-015",
        "The kubelet finds no network adapter",
        "The virtual network was not created; Get-HnsNetwork and Get-NetAdapter show nothing.",
        "symptom",
        checklist=_ids(101, 106),
        enable=(
            "Pass the adapter name to start.ps1 with -InterfaceName; read the output of start-kubelet.ps1."
        ),
        section=_S,
        topics=("cbr0", "vEthernet"),
    ),
    WindowsSupport(
        "SUP-TRB-016",
        "Images tagged latest",
        "The pause image's Dockerfile and the sample service expect that tag.",
        "rule",
        checklist=("TRB-110",),
        section=_S,
        topics=("pause",),
    ),
    WindowsSupport(
        "SUP-TRB-017",
        "DNS does not work",
        "Look at the limits of DNS.",
        "symptom",
        checklist=("TRB-112",),
        section=_S,
        topics=("dns",),
    ),
    WindowsSupport(
        "SUP-TRB-018",
        "The node is behind a proxy",
        "Downloads and pulls need HTTP_PROXY and HTTPS_PROXY in the machine's environment.",
        "symptom",
        checklist=_ids(116, 118),
        since=(1, 17),
        enable=(
            "[Environment]::SetEnvironmentVariable(NAME, URL, [EnvironmentVariableTarget]::Machine)"
        ),
        section=_S,
        topics=("proxy",),
    ),
    WindowsSupport(
        "SUP-TRB-019",
        "Reporting",
        "Search the tracker first; ask SIG Windows on Slack; then report with version, "
        "environment, steps and logs, tagged /sig windows.",
        "procedure",
        checklist=tuple(f"REP-{n:02d}" for n in range(1, 9)),
        section="Reporting issues",
        topics=("bug", "sig-windows"),
    ),
)
