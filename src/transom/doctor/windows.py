"""Checks of Windows nodes and their pods. Some need data that only the node itself has."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from transom.doctor import repairs
from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.node_inspection import NodeState
from transom.doctor.node_state import NEEDED, not_running_text, start_again
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    is_windows_node,
    key_of_object,
    name_of_object,
    place_of_object,
    pod_is_ready,
    reported_windows_build,
)
from transom.doctor.texts import recognised_texts
from transom.machinery.placement import matches_node
from transom.machinery.podutil import current_pod_ips
from transom.machinery.tolerations import untolerated_taints
from transom.network.api import DnsConfig
from transom.network.resolver import limit_config
from transom.windows.advice import Advisor
from transom.windows.images import image_os
from transom.windows.limits import LIMITS
from transom.windows.policy import WarningPolicy
from transom.windows.registry import RECORDS
from transom.windows.target_nodes import target_nodes_of_cluster
from transom.windows.targeting import find_target_os
from transom.windows.wording import record_remedy as remedy_of

# SERVICE.NAMESPACE, alone or as the host of a URL.
_SHORT_NAME: Final = re.compile(r"(?:^|//|@|=)([a-z0-9-]+)\.([a-z0-9-]+)(?=$|[:/,])")
_NAME: Final = r"([A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?)"
# How programs report a name that cannot be resolved.
_UNRESOLVED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"[Cc]ould not resolve host:? '?{_NAME}",
        rf"lookup {_NAME}(?: on [\d.:\[\]]+)?: no such host",
        rf"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) {_NAME}",
        rf"remote name could not be resolved: '{_NAME}'",
        rf"could not find host {_NAME}",
        rf"can't find {_NAME}:",
        rf"{_NAME} : DNS name does not exist",
        rf"No such host is known\.? \({_NAME}:\d+\)",
        rf"bad address '{_NAME}'",
    )
)
_DOMAIN: Final = "cluster.local"
SOURCE_VIP_FLAG: Final = re.compile(r"--source-vip[= ](\S+)")
HOSTNAME: Final = re.compile(r"""--?hostname-override(?:=|\s+)["']?([^\s"']+)""")
_JOINED_FLAG: Final = re.compile(r"(.*?)(--[a-z][a-z-]*)=")
_LINUX_PATH: Final = re.compile(
    r"/(?:var|etc|proc|sys|dev|usr|run|root|home|opt|tmp|mnt|bin|lib|srv)(?:/|$)"
)
_BACK: Final = chr(92)
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY")


def _nodes(s: ClusterSnapshot) -> Iterator[tuple[NodeState, str]]:
    for found in s.inside.values():
        if found.windows and found.state != "stopped":
            yield found, f"node/{found.name}"


# ---- pods, by their objects ----


def check_selectors(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Pods that may be scheduled to either operating system."""
    nodes = [node for node in s.nodes if not node["spec"].get("unschedulable")]
    windows = [node for node in nodes if is_windows_node(node)]
    linux = [node for node in nodes if not is_windows_node(node)]
    if not windows or not linux:
        return
    for pod in s.pods:
        if (
            (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            or find_target_os(pod).pinned
            or _by_daemon_set(pod)
        ):
            continue
        if any(_takes(node, pod) for node in windows) and any(_takes(node, pod) for node in linux):
            yield known_finding(
                "WIN-POD-010",
                "selects no operating system, and nothing keeps it from nodes of the other one",
                place_of_object("pod", pod),
                severity="warning",
                commands=_select_system(s, pod),
            )


def _select_system(s: ClusterSnapshot, pod: Object) -> tuple[str, ...]:
    """Selects the operating system of the pod's images, or of the node on which it is ready."""
    systems = {image_os(str(one.get("image", ""))) for one in pod["spec"].get("containers") or ()}
    if not systems <= {"linux", "windows"} and pod_is_ready(pod):
        systems = {"windows" if s.on_windows(pod) else "linux"}
    if len(systems) != 1 or not systems <= {"linux", "windows"}:
        return ()
    return repairs.change_pod(s, pod, {"nodeSelector": {"kubernetes.io/os": systems.pop()}})


def _by_daemon_set(pod: Object) -> bool:
    return any(
        owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ()
    )


def _takes(node: Object, pod: Object) -> bool:
    """Whether the pod selects the node and tolerates its taints."""
    spec = pod.get("spec") or {}
    labels = node["metadata"].get("labels") or {}
    return matches_node(spec, name_of_object(node), labels) and not untolerated_taints(
        spec.get("tolerations") or (), node["spec"].get("taints") or ()
    )


def check_build_selectors(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Pods whose images run on some of the builds that they select, but not on others."""
    builds = {
        number
        for node in s.nodes
        if is_windows_node(node) and (number := reported_windows_build(node))
    }
    if len(builds) < 2:
        return
    advisor = Advisor(target_nodes_of_cluster(s.nodes), WarningPolicy(), _no_class)
    for pod in s.pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        unplaced = {
            **pod,
            "spec": {k: v for k, v in (pod.get("spec") or {}).items() if k != "nodeName"},
        }
        for found in advisor.about_pods("Pod", unplaced):
            if found.limit.id == "WIN-OS-013":
                yield known_finding(
                    "WIN-OS-013",
                    found.message,
                    place_of_object("pod", pod),
                    severity="warning",
                    remedy=found.remedy,
                )


def _no_class(_: str) -> None:
    return None


def check_host_paths(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """On a Windows node, a Linux path is a directory below C:\\ that the kubelet may create, and
    that is empty.
    """
    for pod in s.pods:
        if not s.on_windows(pod) or (pod.get("status") or {}).get("phase") in (
            "Succeeded",
            "Failed",
        ):
            continue
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            path = str((volume.get("hostPath") or {}).get("path", ""))
            if _LINUX_PATH.match(path):
                yield known_finding(
                    "WIN-STO-017",
                    (
                        f"its hostPath {path} is a path of Linux: on a Windows node it means "
                        f"C:{path.replace('/', _BACK)}"
                    ),
                    place_of_object("pod", pod),
                    severity="warning",
                    why="The pod does not see the files that it expects, or cannot be created.",
                )


def check_names(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Names that programs in Windows pods failed to resolve, from their logs."""
    for pod in s.pods:
        log = s.logs.get(key_of_object(pod), "") if s.on_windows(pod) else ""
        for requested in dict.fromkeys(
            found for pattern in _UNRESOLVED for found in pattern.findall(log)
        ):
            yield _unresolved(s, pod, requested.rstrip("."))


def _unresolved(s: ClusterSnapshot, pod: Object, requested: str) -> DoctorFinding:
    namespace = key_of_object(pod)[0]
    suffixes = (f"{namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN)
    record = limit_config(requested, DnsConfig((), suffixes), "windows")
    what, where = (
        f"its log reports that the name {requested} is not found",
        place_of_object("pod", pod),
    )
    labels = requested.split(".")
    meant = (labels[1], labels[0]) if len(labels) > 1 else (namespace, labels[0])
    if len(labels) in (2, 3) and labels[2:] in ([], ["svc"]) and meant in s.service:
        full = f"{meant[1]}.{meant[0]}.svc.{_DOMAIN}"
        known_as = RECORDS[record]
        return known_finding(
            "SUP-TRB-017",
            what,
            where,
            why=f"{record}: {known_as.statement}",
            remedy=f"Write {full}. transom explain {record} shows more.",
        )
    if len(labels) == 1 and meant not in s.service:
        return known_finding(
            "SUP-TRB-017",
            what,
            where,
            severity="warning",
            why=f"There is no service {requested} in {namespace}.",
            remedy="Make it, or write NAME.NAMESPACE.svc.cluster.local.",
        )
    return known_finding(
        "SUP-TRB-017",
        what,
        where,
        severity="warning",
        why=f"Windows resolves names otherwise than Linux: {RECORDS[record].statement}"
        if record
        else "",
        remedy="Check the name. " + (f"transom explain {record} shows more." if record else ""),
    )


def check_lost_endpoints(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """HNS removes endpoints together with their network: the pods keep running but are
    unreachable.
    """
    for node, _ in _nodes(s):
        for pod in node.lost_endpoints:
            yield known_finding(
                "SUP-TRB-015",
                (
                    f"runs on {node.name}, and the host networking service there has no endpoint "
                    "with its address"
                ),
                f"pod/{pod}",
                why="Nothing reaches the pod, and the pod reaches nothing.",
                remedy="Delete the pod, so that its controller creates another; if the network is "
                "missing: transom node "
                f"reboot {node.name}",
            )


def check_leaked_endpoints(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        if node.leaked_endpoints:
            count = len(node.leaked_endpoints)
            yield known_finding(
                "SUP-TRB-015",
                f"the host networking service keeps {count} endpoints of pods that are gone: "
                f"{', '.join(node.leaked_endpoints[:3])}",
                where,
                severity="warning",
                why=(
                    "The next pod that gets one of these addresses fails (0x1392: the object "
                    "already exists)."
                ),
                remedy="Remove the endpoints on the node, or reboot it.",
                commands=tuple(_removal(node.name, address) for address in node.leaked_endpoints),
            )


def check_paging(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Nodes whose programs have committed more memory than there is."""
    for node, where in _nodes(s):
        if node.paged:
            yield known_finding(
                "WIN-RES-002",
                f"{node.paged >> 20} MiB of its programs is in the page file: everything is slow",
                where,
                severity="warning",
                remedy="Set memory limits of containers; kubectl top pods shows who uses it.",
            )


def check_short_names(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """SERVICE.NAMESPACE in variables and arguments of Windows pods."""
    known = s.service
    nodes = set(windows_nodes(s))
    for pod in s.pods:
        spec = pod.get("spec") or {}
        if spec.get("nodeName") not in nodes:
            continue
        for text in _texts_of(spec):
            for name, namespace in _SHORT_NAME.findall(text):
                if (namespace, name) in known:
                    yield known_finding(
                        "WIN-DNS-002",
                        f"{name}.{namespace} gets no suffix on Windows and is not found",
                        place_of_object("pod", pod),
                        severity="warning",
                        remedy=f"Write {name}.{namespace}.svc.cluster.local.",
                    )


def _texts_of(spec: Object) -> Iterator[str]:
    for container in spec.get("containers") or ():
        yield from (str(one.get("value", "")) for one in container.get("env") or ())
        yield from (str(word) for word in container.get("args") or ())


def check_stale_endpoints(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Remote endpoints in HNS whose address belongs to no endpoint of a Service any more."""
    used = {
        address
        for pod in s.pods
        if not pod["metadata"].get("deletionTimestamp")
        for address in current_pod_ips(pod)
    } | {
        str(address.get("address", ""))
        for node in s.nodes
        for address in (node.get("status") or {}).get("addresses") or ()
    }
    if "pods" in s.unread or "nodes" in s.unread:
        return
    ranges = [
        ipaddress.ip_network(cidr)
        for node in s.nodes
        for cidr in (node.get("spec") or {}).get("podCIDRs") or ()
    ]
    for node, where in _nodes(s):
        stale = [
            address
            for address in node.remote_endpoints
            if address not in used and any(ipaddress.ip_address(address) in cidr for cidr in ranges)
        ]
        if stale:
            yield DoctorFinding(
                "warning",
                f"the host networking service has remote endpoints that no pod has: "
                f"{', '.join(stale[:3])}",
                (where,),
                "When a new pod gets such an address, Services send its traffic to the wrong place "
                "(kubernetes/kubernetes#135144).",
                "Remove the endpoints on the node, then restart kube-proxy; the kube-proxy of 1.35 "
                "removes them.",
                commands=(
                    *(_removal(node.name, address) for address in stale),
                    f"transom node exec {node.name} -- Restart-Service kube-proxy",
                ),
            )


def _removal(node: str, address: str) -> str:
    return (
        f'transom node exec {node} -- "Get-HnsEndpoint | Where-Object IPAddress -eq {address} | '
        'Remove-HnsEndpoint"'
    )


def check_lost_balancers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        without_network = bool(node.network) and node.network not in node.networks
        if node.lost_balancers and not without_network and not node.stopped_services:
            listed = ", ".join(node.lost_balancers[:3])
            more = " ..." if len(node.lost_balancers) > 3 else ""
            yield DoctorFinding(
                "error",
                f"the host networking service has lost the load balancers of {listed}{more}",
                (where,),
                "Pods of the node do not reach these services; kube-proxy does not notice.",
                f"transom node exec {node.name} -- Restart-Service kube-proxy",
            )


# ---- nodes, from inside ----


def check_virtual_network(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        if not node.network or node.network in node.networks:
            if node.network and not node.networks[node.network]:
                what = (
                    f"the network {node.network} has no management address: flanneld waits for "
                    "it, or has given up"
                )
                yield known_finding("SUP-TRB-013", what, where, remedy=_renew(node))
            continue
        if node.fault:
            what = f"the network {node.network} was not made: {node.fault}"
            found = recognised_texts("", node.fault, what, where)
            if found is not None:
                yield found
                continue
        switches = [adapter for adapter in node.adapters if adapter.startswith("vEthernet (")]
        adapters = "no vEthernet adapter" if not switches else f"adapters {', '.join(switches)}"
        yield known_finding(
            "SUP-TRB-015",
            (
                f"the host networking service has no network {node.network}, and the machine "
                f"{adapters}"
            ),
            where,
            why=(
                "The virtual network, which the kubelet needs, was not made or has been removed: "
                "pods there get no addresses."
            ),
            remedy=f"{remedy_of(RECORDS['SUP-TRB-015'])} Here: transom hns {node.name} networks, "
            "then transom node reboot "
            f"{node.name}.",
            statements=("TRB-101", "TRB-102", "TRB-103", "TRB-104"),
        )


def _renew(node: NodeState) -> str:
    """A network without a management address stays that way: flanneld creates another only if there
    is none.
    """
    return (
        f"On the node: Get-HnsNetwork | ? Name -ieq {node.network} | Remove-HnsNetwork. "
        f"{remedy_of(RECORDS['SUP-TRB-013'])} Here: transom node reboot {node.name}"
    )


def check_mac_spoofing(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        if not node.mac_spoofing:
            yield known_finding(
                "SUP-TRB-009",
                "the virtual machine's network adapter drops what pods send: MAC spoofing is off",
                where,
                why="Pods on this node reach nothing outside of it.",
                remedy=(
                    f"{remedy_of(RECORDS['SUP-TRB-009'])} Here: transom node set {node.name} "
                    "mac-spoofing=on"
                ),
            )


def check_kube_proxy(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        yield from _called(node.kube_proxy_hostname, node.name, where)
        problem = node.kube_proxy_problem
        if problem:
            what = f"kube-proxy does not work: {problem}"
            record = next(
                (
                    r.id
                    for r in LIMITS.values()
                    if r.message and "{" not in r.message and r.message in problem
                ),
                "",
            )
            why = "Services are not reached from this node's pods."
            yield (
                known_finding(record, what, where, why=why)
                if record
                else DoctorFinding("error", what, (where,), why, "Look at its log on the node.")
            )


def check_proxy_pods(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """If kube-proxy runs in pods, their command lines show the same."""
    for pod in s.pods:
        if "kube-proxy" not in name_of_object(pod) or not s.on_windows(pod):
            continue
        for container in pod["spec"].get("containers") or ():
            line = " ".join(
                map(str, (*(container.get("command") or ()), *(container.get("args") or ())))
            )
            called = HOSTNAME.search(line)
            if called is not None and "$" not in called[1]:  # otherwise only the node knows it
                yield from _called(called[1], pod["spec"]["nodeName"], place_of_object("pod", pod))


def _called(called: str, node: str, where: str) -> Iterator[DoctorFinding]:
    """The name that kube-proxy uses for its node."""
    joined = _JOINED_FLAG.match(called)
    if joined is not None:
        flag = joined[2]
        yield known_finding(
            "SUP-TRB-007",
            f"kube-proxy takes {called} for its node's name: the flag {flag} was swallowed",
            where,
            why=f"A space is missing before {flag}, as in the line that the document prints: "
            "kube-proxy knows neither its node "
            f"nor what {flag} says.",
            remedy=f"Write --hostname-override={joined[1] or node} {flag}=...",
            statements=("TRB-56", "TRB-59"),
        )
    elif called and called != node:
        yield known_finding(
            "SUP-TRB-011",
            f"kube-proxy takes {called} for its node's name",
            where,
            why="It takes the pods of its own node for remote ones, and deletes their endpoints.",
            remedy=f"kube-proxy.exe --hostname-override={node}",
        )


def check_processes(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        no_address = node.networks.get(node.network) == ""  # `check_virtual_network` reports this
        for process, last in node.stopped.items():
            if process == "flanneld" and no_address:
                continue
            yield known_finding(
                "SUP-TRB-002",
                not_running_text(process, last),
                where,
                why=NEEDED[process],
                remedy=start_again(node, process, last),
                statements=("TRB-03", "TRB-04"),
            )


def check_windows_services(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        for service in node.stopped_services:
            yield DoctorFinding(
                "error",
                f"Windows' service {service} does not run",
                (where,),
                "Pods there cannot be created or removed, and kube-proxy cannot change load balancers.",
                f"transom node exec {node.name} -- Start-Service {service}; if it is disabled, first transom node "
                f"exec {node.name} -- Set-Service {service} -StartupType Automatic",
            )


def check_source_vip(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        again = f"Then start kube-proxy again: transom node reboot {node.name}"
        remove = f"{remedy_of(RECORDS['SUP-TRB-012'])} {again}"
        if "no IP addresses available" in node.source_vip_problem:
            remove = (
                "Remove the files of pods that are gone from "
                rf"C:\var\lib\cni\networks\{node.network or 'vxlan0'} on the node. {again}"
            )
        if node.source_vip_problem:
            yield known_finding(
                "SUP-TRB-012",
                f"kube-proxy has no source VIP: {node.source_vip_problem}",
                where,
                why="Services are not reached from this node's pods.",
                remedy=remove,
            )
        elif node.source_vip and node.pod_cidr and not _within(node.source_vip, node.pod_cidr):
            yield known_finding(
                "SUP-TRB-012",
                f"the source VIP {node.source_vip} is not of the node's subnet {node.pod_cidr}",
                where,
                why="The node has joined again with another subnet, and files of the old one are still there: "
                "what its load balancers send gets no answer.",
                remedy=remove,
            )
        elif node.kube_proxy_source_vip not in ("", node.source_vip):
            yield known_finding(
                "SUP-TRB-012",
                f"kube-proxy runs with --source-vip={node.kube_proxy_source_vip}, and the node's source VIP is "
                f"{node.source_vip}",
                where,
                why="What its load balancers send gets no answer.",
                remedy="Correct the flag in the service's command line, then start it again.",
                commands=(_new_flag(node),),
            )


def _new_flag(node: NodeState) -> str:
    key = r"HKLM:\SYSTEM\CurrentControlSet\Services\kube-proxy"
    flag = f'"--source-vip=[^ ]+","--source-vip={node.source_vip}"'
    change = (
        f"Set-ItemProperty {key} ImagePath ((Get-ItemProperty {key}).ImagePath -replace {flag})"
    )
    return f"transom node exec {node.name} -- '{change}; Restart-Service kube-proxy'"


def _within(address: str, prefix: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(prefix)
    except ValueError:
        return False


def check_subnet_env(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        if node.plugin != "flannel" or not node.pod_cidr:
            continue
        if node.subnet_env is None:
            yield known_finding(
                "SUP-TRB-014",
                r"C:\run\flannel\subnet.env is missing",
                where,
                remedy="Restart flanneld.",
                commands=(f"transom node exec {node.name} -- Restart-Service flanneld",),
                why="flannel's plugin needs it: pods there get no network.",
            )
            continue
        subnet = dict(line.partition("=")[::2] for line in node.subnet_env.splitlines()).get(
            "FLANNEL_SUBNET", ""
        )
        if subnet and not _within(subnet.partition("/")[0], node.pod_cidr):
            yield known_finding(
                "SUP-TRB-014",
                f"subnet.env says {subnet}, and the node's subnet is {node.pod_cidr}",
                where,
                severity="warning",
                why="Pods get addresses to which other nodes have no route.",
            )


def check_behind_proxy(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for node, where in _nodes(s):
        has = {variable.upper() for variable, value in node.variables.items() if value}
        missing = [variable for variable in _PROXIES if variable not in has]
        if node.proxy and missing:
            machine = "[EnvironmentVariableTarget]::Machine"
            lines = [
                f'[Environment]::SetEnvironmentVariable("{each}", "{node.proxy}", {machine})'
                for each in missing
            ]
            yield known_finding(
                "SUP-TRB-018",
                f"the node is behind the proxy {node.proxy}, and {' and '.join(missing)} "
                f"{'are' if len(missing) > 1 else 'is'} not set",
                where,
                why="Images cannot be pulled there.",
                remedy=f"On the node: {'; '.join(lines)}",
            )


def windows_nodes(s: ClusterSnapshot) -> list[str]:
    return [name_of_object(node) for node in s.nodes if is_windows_node(node)]
