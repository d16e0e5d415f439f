"""Failures of later releases, of nodes with containerd and of the network of machines; see
`failures`.
"""

from __future__ import annotations

from tests.doctor.failures import (
    Failure,
    both,
    copy_file,
    pod,
    remove,
    remove_file,
    service,
    sleep,
    switch,
    workload,
    write_file,
)
from tests.doctor.failures_nodes import execute, reboot

A = "pod/default/a"
LINUX, WINDOWS = "node/linux-1", "node/windows-1"
CNI_CONF = r"C:\etc\cni\net.d\cni.conf"
ON_WINDOWS = pod(os="windows", spec={"nodeName": "windows-1"})
ADAPTER = "vEthernet (Ethernet)"
HOST_PROCESS = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\Nobody"}

NEWER_FAILURES: tuple[Failure, ...] = (
    # ---- the network of machines ----
    Failure(
        "a network interface of a Linux node that is down",
        LINUX,
        "Kubelet stopped posting node status. And its network interface eth0 is down",
        "transom node reboot linux-1 --name doctor",
        do=execute("linux-1", "ip", "link", "set", "eth0", "down"),
        undo=reboot("linux-1"),
        also=("its network interface eth0 is down",),
    ),
    Failure(
        "a bridge of a Linux node that is down",
        LINUX,
        "its network interface cni0 is down",
        "transom node exec linux-1 --name doctor -- ip link set cni0 up",
        first=(pod(),),
        do=execute("linux-1", "ip", "link", "set", "cni0", "down"),
        undo=execute("linux-1", "ip", "link", "set", "cni0", "up"),
    ),
    Failure(
        "a Linux node without default route",
        LINUX,
        "it has no default route",
        "transom node reboot linux-1 --name doctor",
        do=execute("linux-1", "ip", "route", "del", "default"),
        undo=reboot("linux-1"),
    ),
    Failure(
        "a Linux node that forwards no packets",
        LINUX,
        "net.ipv4.ip_forward is 0",
        "transom node exec linux-1 --name doctor -- sysctl -w net.ipv4.ip_forward=1",
        do=execute("linux-1", "sysctl", "-w", "net.ipv4.ip_forward=0"),
        undo=execute("linux-1", "sysctl", "-w", "net.ipv4.ip_forward=1"),
    ),
    Failure(
        "an adapter of a Windows node that is disabled",
        WINDOWS,
        "its network interface vEthernet (Ethernet) is down",
        f'transom node exec windows-1 --name doctor -- Enable-NetAdapter -Name "{ADAPTER}"',
        do=execute("windows-1", f"Disable-NetAdapter -Name '{ADAPTER}' -Confirm:$false"),
        undo=execute("windows-1", "Enable-NetAdapter", "-Name", ADAPTER),
    ),
    Failure(
        "an adapter of a Windows node that is disabled for a while",
        WINDOWS,
        "Kubelet stopped posting node status. And its network interface vEthernet (Ethernet) is down",
        f'transom node exec windows-1 --name doctor -- Enable-NetAdapter -Name "{ADAPTER}"',
        do=both(
            execute("windows-1", f"Disable-NetAdapter -Name '{ADAPTER}' -Confirm:$false"), sleep(60)
        ),
        undo=execute("windows-1", "Enable-NetAdapter", "-Name", ADAPTER),
    ),
    Failure(
        "load balancers that a user has removed",
        WINDOWS,
        "has lost the load balancers of ",
        "transom node exec windows-1 --name doctor -- Restart-Service kube-proxy",
        first=(
            pod(),
            service("s", {"app": "a"}),
            pod("b", os="windows", spec={"nodeName": "windows-1"}),
        ),
        do=execute(
            "windows-1", r"Import-Module C:\k\hns.psm1; Get-HnsPolicyList | Remove-HnsPolicyList"
        ),
        undo=execute("windows-1", "Restart-Service kube-proxy"),
    ),
    Failure(
        "a node that was rebooted several times",
        A,
        "",
        "",
        first=(ON_WINDOWS,),
        do=both(*(both(reboot("windows-1"), sleep(30)) for _ in range(3))),
        harmless=True,
    ),
    # ---- Windows' services and features ----
    Failure(
        "a host networking service that is disabled",
        WINDOWS,
        "Windows' service hns does not run",
        "transom node exec windows-1 --name doctor -- Set-Service hns -StartupType Automatic",
        do=both(execute("windows-1", "Set-Service hns -StartupType Disabled"), reboot("windows-1")),
        undo=both(
            execute("windows-1", "Set-Service hns -StartupType Automatic"),
            execute("windows-1", "Start-Service hns"),
        ),
    ),
    Failure(
        "a Windows node without the feature Containers",
        WINDOWS,
        "Windows' feature Containers is not installed",
        "transom node exec windows-1 --name doctor -- Install-WindowsFeature Containers; "
        "then transom node reboot windows-1 --name doctor",
        do=both(execute("windows-1", "Uninstall-WindowsFeature Containers"), reboot("windows-1")),
        undo=both(execute("windows-1", "Install-WindowsFeature Containers"), reboot("windows-1")),
    ),
    # ---- containerd on Windows ----
    Failure(
        "a containerd of a Windows node that was stopped",
        WINDOWS,
        "is not Ready: KubeletNotReady: [container runtime is down",
        "transom node exec windows-1 --name doctor -- Start-Service containerd",
        do=execute("windows-1", "Stop-Service containerd"),
        undo=execute("windows-1", "Start-Service containerd"),
        runtime="containerd",
    ),
    Failure(
        "a pod on a node whose containerd was stopped",
        A,
        "is ContainerCreating: its node windows-1 is not Ready",
        "Repair the node: transom doctor windows-1 --name doctor",
        (ON_WINDOWS,),
        do=execute("windows-1", "Stop-Service containerd"),
        undo=execute("windows-1", "Start-Service containerd"),
        runtime="containerd",
        seconds=200,
    ),
    Failure(
        "an unreadable cni.conf of containerd",
        WINDOWS,
        "its CNI configuration cannot be used",
        "Correct the file",
        do=write_file("windows-1", CNI_CONF, b"{ not json"),
        undo=copy_file("windows-2", "windows-1", CNI_CONF),
        also=("is not Ready",),
        runtime="containerd",
    ),
    Failure(
        "a missing cni.conf of containerd",
        A,
        "the CNI configuration of node windows-1 is missing or cannot be used",
        r"with containerd: C:\etc\cni\net.d",
        (ON_WINDOWS,),
        do=remove_file("windows-1", CNI_CONF),
        undo=copy_file("windows-2", "windows-1", CNI_CONF),
        runtime="containerd",
    ),
    Failure(
        "an endpoint that containerd cannot delete",
        WINDOWS,
        "keeps 1 endpoints of pods that are gone",
        "Remove-HnsEndpoint",
        first=(ON_WINDOWS,),
        do=both(switch("windows-1", "refuse-deletes", True), remove(ON_WINDOWS)),
        undo=switch("windows-1", "refuse-deletes", False),
        record="SUP-TRB-015",
        runtime="containerd",
    ),
    Failure(
        "an image of a later Windows build for containerd",
        A,
        "no match for platform in manifest",
        "select nodes with a build that the image supports",
        (pod(os="windows", image="mcr.microsoft.com/windows/nanoserver:ltsc2025"),),
        record="WIN-OS-006",
        runtime="containerd",
    ),
    # ---- later releases ----
    Failure(
        "a scheduling gate",
        A,
        "waits for its scheduling gates: example.com/gate",
        "remove spec.schedulingGates",
        (pod(spec={"schedulingGates": [{"name": "example.com/gate"}]}),),
        seconds=700,
        since="1.36",
    ),
    Failure(
        "a gRPC probe of a port where nothing listens",
        A,
        "no gRPC server answers on port 9000 of the pod",
        "Correct grpc.port in the probe",
        (pod(readinessProbe={"grpc": {"port": 9000}, "periodSeconds": 2}),),
        since="1.36",
    ),
    Failure(
        "a HostProcess container with an account that the node does not have",
        A,
        "has no account of the name in runAsUserName",
        "NT AUTHORITY\\SYSTEM",
        (
            pod(
                os="windows",
                spec={"hostNetwork": True, "securityContext": {"windowsOptions": HOST_PROCESS}},
            ),
        ),
        since="1.36",
    ),
    Failure(
        "a service whose internal traffic stays on the node",
        "service/default/s",
        "it does not answer pods on windows-1, which have none of its ready pods",
        "set internalTrafficPolicy to Cluster",
        (
            workload(),
            service("s", {"app": "w"}, internalTrafficPolicy="Local"),
            pod("b", os="windows", spec={"nodeName": "windows-1"}),
        ),
        since="1.36",
    ),
)
