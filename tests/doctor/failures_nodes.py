"""Failures of nodes that their own commands produce, as users type them. See `failures`."""

from __future__ import annotations

from tests.doctor.failures import Action, Failure, both, copy_file, node, pod, remove_file, sleep
from tests.doctor.virtual_cluster import VirtualCluster
from tests.node.login_session import run_login

LINUX = "node/linux-1"
WINDOWS = "node/windows-1"
OTHER_SERVER = "s#server: https://[^ }]*#server: https://192.0.2.1:6443#"
DROP_IN = "/etc/systemd/system/kube-proxy.service.d/10.conf"


def execute(name: str, *command: str, code: int = 0) -> Action:
    """`transom node exec NAME -- COMMAND`."""

    async def do(cluster: VirtualCluster) -> None:
        output = bytearray()
        process = run_login(
            cluster.pool.node(name), command, lambda _stream, data: output.extend(data)
        )
        assert await process.wait() == code, output.decode()

    return do


def reboot(name: str) -> Action:
    return both(node(name, "reboot"), sleep(5))


NODE_FAILURES: tuple[Failure, ...] = (
    Failure(
        "a Linux node with a wrong name server",
        LINUX,
        "its name server 192.0.2.53 does not answer",
        'transom node exec linux-1 --name doctor -- sed -i "s/192.0.2.53/10.0.2.3/" /etc/resolv.conf',
        do=execute("linux-1", "sed", "-i", "s/10.0.2.3/192.0.2.53/", "/etc/resolv.conf"),
        undo=execute("linux-1", "sed", "-i", "s/192.0.2.53/10.0.2.3/", "/etc/resolv.conf"),
    ),
    Failure(
        "a Windows node with a wrong name server",
        WINDOWS,
        "its name server 192.0.2.53 does not answer",
        "Set-DnsClientServerAddress -ResetServerAddresses",
        do=execute(
            "windows-1",
            "Get-NetAdapter | Set-DnsClientServerAddress -ServerAddresses 192.0.2.53",
        ),
        undo=execute(
            "windows-1",
            "Get-NetAdapter | Set-DnsClientServerAddress -ResetServerAddresses",
        ),
    ),
    Failure(
        "a pod with a dead name server",
        "pod/default/a",
        "the name server 192.0.2.53 of its dnsConfig does not answer",
        "Correct spec.dnsConfig.nameservers",
        (pod(spec={"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"]}}),),
        (pod(),),
    ),
    Failure(
        "a kube-proxy of a Linux node that was stopped",
        LINUX,
        "kube-proxy does not run",
        "transom node exec linux-1 --name doctor -- systemctl start kube-proxy",
        do=execute("linux-1", "systemctl", "stop", "kube-proxy"),
        undo=execute("linux-1", "systemctl", "start", "kube-proxy"),
    ),
    Failure(
        "a flanneld of a Linux node that was stopped",
        LINUX,
        "flanneld does not run",
        "transom node exec linux-1 --name doctor -- systemctl start flanneld",
        do=execute("linux-1", "systemctl", "stop", "flanneld"),
        undo=execute("linux-1", "systemctl", "start", "flanneld"),
    ),
    Failure(
        "a kubelet of a Linux node that was stopped",
        LINUX,
        "kubelet does not run",
        "transom node exec linux-1 --name doctor -- systemctl start kubelet",
        do=execute("linux-1", "systemctl", "stop", "kubelet"),
        undo=execute("linux-1", "systemctl", "start", "kubelet"),
    ),
    Failure(
        "a kubelet of a Linux node that is not Ready any more",
        LINUX,
        "is not Ready: NodeStatusUnknown: Kubelet stopped posting node status. Its kubelet does "
        "not run",
        "transom node exec linux-1 --name doctor -- systemctl start kubelet",
        do=both(execute("linux-1", "systemctl", "stop", "kubelet"), sleep(60)),
        undo=execute("linux-1", "systemctl", "start", "kubelet"),
    ),
    Failure(
        "a kube-proxy whose flags are wrong at boot",
        LINUX,
        "kube-proxy does not run; its log ends with: Error: unknown flag: --nope",
        "Correct what its log names, then start it again: transom node exec linux-1 --name doctor "
        "-- systemctl start kube-proxy",
        do=both(
            execute(
                "linux-1",
                f"mkdir -p {DROP_IN.rpartition('/')[0]} && printf "
                rf"'[Service]\nExecStart=\nExecStart=/usr/local/bin/kube-proxy --nope\n' > {DROP_IN}",
            ),
            reboot("linux-1"),
        ),
        undo=both(
            execute("linux-1", f"rm {DROP_IN}"),
            execute("linux-1", "systemctl", "start", "kube-proxy"),
        ),
    ),
    Failure(
        "a kube-proxy that is disabled",
        LINUX,
        "kube-proxy does not run",
        "systemctl start kube-proxy",
        do=both(execute("linux-1", "systemctl", "disable", "kube-proxy"), reboot("linux-1")),
        undo=execute("linux-1", "systemctl", "enable", "--now", "kube-proxy"),
    ),
    Failure(
        "a net-conf.json that flanneld cannot read at boot",
        LINUX,
        "flanneld does not run; its log ends with: ",
        "Correct what its log names",
        do=both(
            execute("linux-1", "cp /etc/kube-flannel/net-conf.json /root/kept"),
            execute("linux-1", "echo nonsense > /etc/kube-flannel/net-conf.json"),
            reboot("linux-1"),
        ),
        undo=both(
            execute("linux-1", "cp /root/kept /etc/kube-flannel/net-conf.json"),
            execute("linux-1", "systemctl", "start", "flanneld"),
        ),
        also=("is not Ready",),
    ),
    Failure(
        "a kubeconfig that the kubelet cannot read at boot",
        LINUX,
        "kubelet does not run; its log ends with: ",
        "Correct what its log names",
        do=both(
            execute("linux-1", "mv /etc/kubernetes/kubelet.conf /root/kept"),
            reboot("linux-1"),
        ),
        undo=both(
            execute("linux-1", "cp /root/kept /etc/kubernetes/kubelet.conf"),
            execute("linux-1", "systemctl", "restart", "kubelet", "kube-proxy", "flanneld"),
        ),
        also=("kube-proxy does not run", "flanneld does not run", "is not Ready"),
    ),
    Failure(
        "a containerd of a Linux node that was stopped",
        LINUX,
        "container runtime is down",
        "transom node exec linux-1 --name doctor -- systemctl start containerd",
        do=execute("linux-1", "systemctl", "stop", "containerd"),
        undo=execute("linux-1", "systemctl", "start", "containerd"),
    ),
    Failure(
        "a Docker of a Windows node that was stopped",
        WINDOWS,
        "container runtime is down",
        "transom node exec windows-1 --name doctor -- Start-Service docker",
        do=execute("windows-1", "Stop-Service docker -Force"),
        undo=execute("windows-1", "Start-Service docker"),
        runtime="docker",
    ),
    Failure(
        "a kube-proxy of a Windows node that was stopped and disabled",
        WINDOWS,
        "kube-proxy does not run",
        'transom node exec windows-1 --name doctor -- "Set-Service kube-proxy -StartupType '
        'Automatic; Start-Service kube-proxy"',
        do=execute(
            "windows-1", "Set-Service kube-proxy -StartupType Disabled; Stop-Service kube-proxy"
        ),
        undo=execute(
            "windows-1", "Set-Service kube-proxy -StartupType Automatic; Start-Service kube-proxy"
        ),
        record="SUP-TRB-002",
    ),
    Failure(
        "a kube-proxy of a Windows node whose kubeconfig is missing at boot",
        WINDOWS,
        "kube-proxy does not run; its log ends with: ",
        "transom node exec windows-1 --name doctor -- Start-Service kube-proxy",
        do=both(
            execute("windows-1", r"Move-Item C:\k\config C:\k\kept"),
            reboot("windows-1"),
        ),
        undo=both(
            execute("windows-1", r"Move-Item C:\k\kept C:\k\config"),
            execute("windows-1", "Start-Service kubelet"),
            execute("windows-1", "Start-Service flanneld"),
            execute("windows-1", "Start-Service kube-proxy"),
        ),
        record="SUP-TRB-002",
        also=("kubelet does not run", "flanneld does not run", "is not Ready"),
    ),
    Failure(
        "a kube-proxy that failed before the first login",
        "node/windows-2",
        "kube-proxy does not run; its log ends with: ",
        "transom node exec windows-2 --name doctor -- Start-Service kube-proxy",
        do=both(remove_file("windows-2", r"C:\k\config"), reboot("windows-2")),
        undo=both(
            copy_file("windows-1", "windows-2", r"C:\k\config"),
            execute("windows-2", "Start-Service flanneld"),
            execute("windows-2", "Start-Service kube-proxy"),
        ),
        record="SUP-TRB-002",
        also=("kubelet does not run", "flanneld does not run", "is not Ready"),
    ),
    Failure(
        "a pod on a node whose kubelet was killed",
        LINUX,
        "kubelet does not run",
        "systemctl start kubelet",
        first=(pod(),),
        do=execute("linux-1", "kill $(systemctl show -p MainPID --value kubelet)"),
        undo=execute("linux-1", "systemctl", "start", "kubelet"),
    ),
    Failure(
        "a clock that was set",
        LINUX,
        "its clock is ",
        "Synchronize the node's clock",
        do=execute("linux-1", "date -s '+600 seconds'"),
        undo=execute("linux-1", "date -s '-600 seconds'"),
        also=("ahead",),
    ),
    Failure(
        "a subnet.env of a Linux node that is missing",
        "pod/default/a",
        "flanneld's file /run/flannel/subnet.env is missing on node linux-1",
        "transom node exec linux-1 --name doctor -- systemctl restart flanneld",
        (pod(spec={"nodeName": "linux-1"}),),
        do=execute("linux-1", "rm /run/flannel/subnet.env"),
        undo=execute("linux-1", "systemctl", "restart", "flanneld"),
    ),
    Failure(
        "a kube-proxy with the address of another API server",
        LINUX,
        "kube-proxy does not reach the API server: none answers at https://192.0.2.1:6443",
        "systemctl restart kube-proxy",
        do=both(
            execute("linux-1", "cp /etc/kubernetes/kubelet.conf /root/kept"),
            execute("linux-1", f"sed -i '{OTHER_SERVER}' /etc/kubernetes/kubelet.conf"),
            execute("linux-1", "systemctl", "restart", "kube-proxy"),
        ),
        undo=both(
            execute("linux-1", "cp /root/kept /etc/kubernetes/kubelet.conf"),
            execute("linux-1", "systemctl", "restart", "kube-proxy"),
        ),
    ),
    Failure(
        "a kubelet with the address of another API server",
        LINUX,
        "No API server answers its kubelet at https://192.0.2.1:6443",
        "systemctl restart kubelet",
        do=both(
            execute("linux-1", "cp /etc/kubernetes/kubelet.conf /root/kept"),
            execute("linux-1", f"sed -i '{OTHER_SERVER}' /etc/kubernetes/kubelet.conf"),
            execute("linux-1", "systemctl", "restart", "kubelet"),
            sleep(60),
        ),
        undo=both(
            execute("linux-1", "cp /root/kept /etc/kubernetes/kubelet.conf"),
            execute("linux-1", "systemctl", "restart", "kubelet"),
        ),
    ),
    Failure(
        "a flanneld of nssm with wrong parameters",
        WINDOWS,
        "flanneld does not run; its log ends with: ",
        "Correct what its log names",
        do=both(
            execute("windows-1", "nssm set flanneld AppParameters --nope"),
            execute("windows-1", "Restart-Service flanneld -Force"),
            sleep(5),
        ),
        undo=both(
            execute(
                "windows-1",
                "nssm set flanneld AppParameters --kubeconfig-file=c:\\k\\config "
                "--ip-masq=1 --kube-subnet-mgr=1",
            ),
            execute("windows-1", "Restart-Service flanneld -Force"),
        ),
        record="SUP-TRB-002",
    ),
    Failure(
        "a host networking service that was stopped",
        "node/windows-1",
        "Windows' service hns does not run",
        "transom node exec windows-1 --name doctor -- Start-Service hns",
        do=execute("windows-1", "powershell", "Stop-Service hns -Force"),
        undo=execute("windows-1", "powershell", "Start-Service hns"),
    ),
)
