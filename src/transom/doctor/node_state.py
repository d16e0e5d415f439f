"""Checks of the machines of nodes, for both operating systems: only nodes of our own clusters
report this state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from transom.doctor.findings import DoctorFinding
from transom.doctor.node_inspection import NodeState
from transom.doctor.snapshot import ClusterSnapshot, Object, key_of_object, status_condition
from transom.machines.linux import NAME_SERVER

_FULL: Final = 0.02  # of the disk
_LOW: Final = 0.10
_WITHOUT_ROUTES: Final = ("cni0", "lo")  # of other nodes and the outside
NEEDED: Final = {
    "kubelet": "Nothing on the node starts, ends or is looked after.",
    "kube-proxy": "Services and their endpoints are as they were when it ended; after a reboot "
    "there are none.",
    "flanneld": "Ways to pods of other nodes are as they were when it ended.",
}


def programs(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """For Linux nodes. A node whose kubelet is not running is reported as soon as it is not
    Ready.
    """
    for node in s.inside.values():
        if node.windows:
            continue
        ready = (
            status_condition(s.node.get(node.name, {"status": {}}), "Ready").get("status") == "True"
        )
        for program, last in node.stopped.items():
            if program != "kubelet" or ready:
                yield DoctorFinding(
                    "error",
                    not_running_text(program, last),
                    (f"node/{node.name}",),
                    NEEDED[program],
                    start_again(node, program, last),
                )


def check_links(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """A node that is not Ready for this reason is reported as such."""
    for node in s.inside.values():
        ready = status_condition(s.node.get(node.name, {"status": {}}), "Ready")
        # Programs that do not run are reported themselves; forwarding is off until they have run.
        found = None if node.stopped else broken_link(node)
        if found and ready.get("status") == "True":
            what, remedy = found
            yield DoctorFinding(
                "error",
                what,
                (f"node/{node.name}",),
                "Traffic of the node and its pods does not arrive.",
                remedy,
            )


def broken_link(node: NodeState) -> tuple[str, str] | None:
    """A network interface that is down, a missing default route, no forwarding; the repair."""
    if node.down_links:
        name = node.down_links[0]
        up = f"transom node exec {node.name} -- ip link set {name} up"
        if node.windows:
            up = f'transom node exec {node.name} -- Enable-NetAdapter -Name "{name}"'
        elif name not in _WITHOUT_ROUTES:  # its routes do not come back with it
            up = f"transom node reboot {node.name}"
        return f"its network interface {name} is down", up
    if not node.default_route:
        return "it has no default route", f"transom node reboot {node.name}"
    if not node.forwarding:
        allow = f"transom node exec {node.name} -- sysctl -w net.ipv4.ip_forward=1"
        return "it forwards no packets: net.ipv4.ip_forward is 0", allow
    return None


def check_name_servers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Name servers that were set on a machine or in a pod's dnsConfig and that do not answer."""
    for node in s.inside.values():
        for server in node.dead_name_servers:
            repair = f'sed -i "s/{server}/{NAME_SERVER}/" /etc/resolv.conf'
            if node.windows:
                repair = '"Get-NetAdapter | Set-DnsClientServerAddress -ResetServerAddresses"'
            yield DoctorFinding(
                "error",
                f"its name server {server} does not answer",
                (f"node/{node.name}",),
                "The node, and its pods with dnsPolicy Default, cannot resolve names.",
                f"transom node exec {node.name} -- {repair}",
            )
        for pod, servers in node.pod_name_servers.items():
            if _has_servers_of_kubelet(s, pod):
                yield DoctorFinding(
                    "warning",
                    f"its name server {', '.join(servers)} does not answer",
                    (f"pod/{pod}",),
                    "It has hostNetwork and the dnsPolicy ClusterFirst, so it uses the name servers "
                    "of its node; the kubelet has none (--resolv-conf is empty), and sets its own "
                    "address.",
                    "Set spec.dnsPolicy to ClusterFirstWithHostNet, or remove hostNetwork.",
                )
                continue
            yield DoctorFinding(
                "warning",
                f"the name server {', '.join(servers)} of its dnsConfig does not answer",
                (f"pod/{pod}",),
                "Its programs wait for the server, or cannot resolve names at all.",
                "Correct spec.dnsConfig.nameservers, or remove it.",
            )


def _has_servers_of_kubelet(s: ClusterSnapshot, key: str) -> bool:
    spec: Object = next((p["spec"] for p in s.pods if "/".join(key_of_object(p)) == key), {})
    return bool(spec.get("hostNetwork")) and not (spec.get("dnsConfig") or {}).get("nameservers")


def unreachable(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Programs whose kubeconfig is for another cluster, or for none."""
    for node in s.inside.values():
        ready = (
            status_condition(s.node.get(node.name, {"status": {}}), "Ready").get("status") == "True"
        )
        for program, server in node.unreachable.items():
            if program != "kubelet" or ready:
                yield DoctorFinding(
                    "error",
                    f"{program} does not reach the API server: none answers at {server}",
                    (f"node/{node.name}",),
                    NEEDED[program],
                    correct_server(node, program),
                )


def correct_server(node: NodeState, program: str) -> str:
    file = r"C:\k\config" if node.windows else "/etc/kubernetes/kubelet.conf"
    again = f"Restart-Service {program} -Force" if node.windows else f"systemctl restart {program}"
    return (
        f"Correct the server in {file} on the node (another node has the right one), then: "
        f"transom node exec {node.name} -- {again}"
    )


def not_running_text(program: str, last: str) -> str:
    return f"{program} does not run" + (f"; its log ends with: {last}" if last else "")


def start_command(node: NodeState, service: str) -> str:
    if not node.windows:
        return f"transom node exec {node.name} -- systemctl start {service}"
    if service in node.disabled:
        words = f"Set-Service {service} -StartupType Automatic; Start-Service {service}"
        return f'transom node exec {node.name} -- "{words}"'
    return f"transom node exec {node.name} -- Start-Service {service}"


def start_again(node: NodeState, program: str, last: str) -> str:
    """The remedy for a program that is not running. `last` is why it failed, if it did."""
    again = start_command(node, program)
    if not last:
        return f"Start it again: {again}"
    return f"Correct what its log names, then start it again: {again}"


def check_disks(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node in s.inside.values():
        if not node.disk_capacity or node.state == "stopped":
            continue
        free = node.disk_free / node.disk_capacity
        where = (f"node/{node.name}",)
        if free < _FULL:
            yield DoctorFinding(
                "error",
                (
                    f"its disk is full: {_size(node.disk_free)} of {_size(node.disk_capacity)} "
                    "are free"
                ),
                where,
                "Images cannot be pulled, containers cannot write, and pods are evicted.",
                (
                    f"Free space on {node.name}: delete pods that write much, remove images that "
                    "are not used, or add disk."
                ),
            )
        elif (
            free < _LOW
            and status_condition(s.node.get(node.name, {"status": {}}), "DiskPressure").get(
                "status"
            )
            != "True"
        ):
            yield DoctorFinding(
                "warning",
                (
                    f"its disk is nearly full: {_size(node.disk_free)} of "
                    f"{_size(node.disk_capacity)} are free"
                ),
                where,
                "Pods are evicted soon.",
                f"Free space on {node.name}, or add disk.",
            )


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB"


def check_cni_configuration(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node in s.inside.values():
        if node.cni_problem and not node.fault:
            yield DoctorFinding(
                "error",
                f"its CNI configuration cannot be used: {node.cni_problem}",
                (f"node/{node.name}",),
                "Pods there get no network once the kubelet or the runtime reads it again.",
                "Correct the file, or restore the plugin: copy it from another node of this operating system.",
                commands=_restored_network(node),
            )


def _restored_network(node: NodeState) -> tuple[str, ...]:
    """A boot writes the configuration again; the plugins are installed when the cluster starts."""
    if not node.simulated:
        return ()
    if "failed to find plugin" in node.cni_problem:
        return ("transom down", "transom up")
    return (f"transom node reboot {node.name}",)
