"""Checks of Windows nodes and their pods. Some need to know what only the node itself knows."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from transom.doctor.findings import Finding, known
from transom.doctor.inside import Inside
from transom.doctor.snapshot import Object, Snapshot, is_windows, key, name, place
from transom.doctor.texts import recognised
from transom.network.api import DnsConfig
from transom.network.resolver import limit
from transom.windows.limits import LIMITS
from transom.windows.registry import RECORDS
from transom.windows.targeting import verdict
from transom.windows.wording import remedy as remedy_of

_NAME: Final = r"([A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?)"
# How programs say that they do not find a name.
_UNRESOLVED: Final = tuple(re.compile(pattern) for pattern in (
    rf"[Cc]ould not resolve host:? '?{_NAME}", rf"lookup {_NAME}(?: on [\d.:\[\]]+)?: no such host",
    rf"getaddrinfo (?:ENOTFOUND|EAI_AGAIN) {_NAME}", rf"remote name could not be resolved: '{_NAME}'",
    rf"could not find host {_NAME}", rf"can't find {_NAME}:", rf"{_NAME} : DNS name does not exist",
    rf"No such host is known\.? \({_NAME}:\d+\)", rf"bad address '{_NAME}'",
))  # fmt: skip
_DOMAIN: Final = "cluster.local"
HOSTNAME: Final = re.compile(r"""--?hostname-override(?:=|\s+)["']?([^\s"']+)""")
_SWALLOWED: Final = re.compile(r"(.*?)(--[a-z][a-z-]*)=")
_NEEDED: Final = {
    "kubelet": "Nothing on the node starts, ends or is looked after.",
    "kube-proxy": "Services and their endpoints are as they were when it ended.",
    "flanneld": "Ways to pods of other nodes are as they were when it ended.",
}
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY")


def _nodes(s: Snapshot) -> Iterator[tuple[Inside, str]]:
    for found in s.inside.values():
        if found.windows and found.state != "stopped":
            yield found, f"node/{found.name}"


# ---- pods, by their objects ------------------------------------------------------------------------------------------


def selectors(s: Snapshot) -> Iterator[Finding]:
    """Pods that may land on either system."""
    nodes = [node for node in s.nodes if not node["spec"].get("unschedulable")]
    windows = [node for node in nodes if is_windows(node)]
    if not windows or len(windows) == len(nodes):
        return
    for pod in s.pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or verdict(pod).pinned or _by_daemon_set(pod):
            continue
        if any(_takes(node, pod) for node in windows):
            yield known("WIN-POD-010", "names no operating system, and nothing keeps it from nodes of the other one",
                        place("pod", pod), severity="warning")  # fmt: skip


def _by_daemon_set(pod: Object) -> bool:
    return any(owner.get("kind") == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or ())


def _takes(node: Object, pod: Object) -> bool:
    """Whether the pod tolerates the taints that keep others away."""
    tolerated = (pod.get("spec") or {}).get("tolerations") or ()
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerated)
        for taint in node["spec"].get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")
    )  # fmt: skip


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value") or "") == (taint["key"], taint.get("value") or "")


def names(s: Snapshot) -> Iterator[Finding]:
    """Names that programs in Windows pods did not find, from their logs."""
    for pod in s.pods:
        log = s.logs.get(key(pod), "") if s.on_windows(pod) else ""
        for asked in dict.fromkeys(found for pattern in _UNRESOLVED for found in pattern.findall(log)):
            yield _unresolved(s, pod, asked.rstrip("."))


def _unresolved(s: Snapshot, pod: Object, asked: str) -> Finding:
    namespace = key(pod)[0]
    suffixes = (f"{namespace}.svc.{_DOMAIN}", f"svc.{_DOMAIN}", _DOMAIN)
    record = limit(asked, DnsConfig((), suffixes), "windows")
    what, where = f"its log says that the name {asked} is not found", place("pod", pod)
    labels = asked.split(".")
    meant = (labels[1], labels[0]) if len(labels) > 1 else (namespace, labels[0])
    if len(labels) in (2, 3) and labels[2:] in ([], ["svc"]) and meant in s.service:
        full = f"{meant[1]}.{meant[0]}.svc.{_DOMAIN}"
        known_as = RECORDS[record]
        return known("SUP-TRB-017", what, where, why=f"{record}: {known_as.statement}",
                     remedy=f"Write {full}. transom explain {record} tells more.")  # fmt: skip
    if len(labels) == 1 and meant not in s.service:
        return known("SUP-TRB-017", what, where, severity="warning", why=f"There is no service {asked} in {namespace}.",
                     remedy="Make it, or write NAME.NAMESPACE.svc.cluster.local.")  # fmt: skip
    return known("SUP-TRB-017", what, where, severity="warning",
                 why=f"Windows resolves names otherwise than Linux: {RECORDS[record].statement}" if record else "",
                 remedy="Check the name. " + (f"transom explain {record} tells more." if record else ""))  # fmt: skip


# ---- nodes, from inside ----------------------------------------------------------------------------------------------


def virtual_network(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        if not node.network or node.network in node.networks:
            if node.network and not node.networks[node.network]:
                what = f"the network {node.network} has no management address: flanneld waits for it, or has given up"
                yield known("SUP-TRB-013", what, where)
            continue
        if node.fault:
            what = f"the network {node.network} was not made: {node.fault}"
            found = recognised("", node.fault, what, where)
            if found is not None:
                yield found
                continue
        switches = [adapter for adapter in node.adapters if adapter.startswith("vEthernet (")]
        adapters = "no vEthernet adapter" if not switches else f"adapters {', '.join(switches)}"
        yield known(
            "SUP-TRB-015", f"the host networking service has no network {node.network}, and the machine {adapters}", where,
            why="The virtual network, which the kubelet needs, was not made or has been removed: pods there get no addresses.",
            remedy=f"{remedy_of(RECORDS['SUP-TRB-015'])} Here: transom hns {node.name} networks, then transom node reboot "
            f"{node.name}.", statements=("TRB-101", "TRB-102", "TRB-103", "TRB-104"),
        )  # fmt: skip


def mac_spoofing(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        if not node.mac_spoofing:
            yield known("SUP-TRB-009", "the virtual machine's network adapter drops what pods send: MAC spoofing is off", where,
                        why="Pods on this node reach nothing outside of it.",
                        remedy=f"{remedy_of(RECORDS['SUP-TRB-009'])} Here: transom node set {node.name} mac-spoofing=on")


def kube_proxy(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        yield from _called(node.kube_proxy_hostname, node.name, where)
        told = node.kube_proxy_problem
        if told:
            what = f"kube-proxy does not work: {told}"
            record = next((r.id for r in LIMITS.values() if r.message and "{" not in r.message and r.message in told), "")
            why = "Services are not reached from this node's pods."
            yield known(record, what, where, why=why) if record else Finding(
                "error", what, (where,), why, "Look at its log on the node."
            )


def proxy_pods(s: Snapshot) -> Iterator[Finding]:
    """Where kube-proxy runs in pods, their command lines tell the same."""
    for pod in s.pods:
        if "kube-proxy" not in name(pod) or not s.on_windows(pod):
            continue
        for container in pod["spec"].get("containers") or ():
            line = " ".join(map(str, (*(container.get("command") or ()), *(container.get("args") or ()))))
            called = HOSTNAME.search(line)
            if called is not None and "$" not in called[1]:  # else it is known on the node alone
                yield from _called(called[1], pod["spec"]["nodeName"], place("pod", pod))


def _called(called: str, node: str, where: str) -> Iterator[Finding]:
    """What kube-proxy takes for its node's name."""
    swallowed = _SWALLOWED.match(called)
    if swallowed is not None:
        flag = swallowed[2]
        yield known(
            "SUP-TRB-007", f"kube-proxy takes {called} for its node's name: the flag {flag} was swallowed", where,
            why=f"A space is missing before {flag}, as in the line that the document prints: kube-proxy knows neither its node "
            f"nor what {flag} says.", remedy=f"Write --hostname-override={swallowed[1] or node} {flag}=...",
            statements=("TRB-56", "TRB-59"),
        )  # fmt: skip
    elif called and called != node:
        yield known("SUP-TRB-011", f"kube-proxy takes {called} for its node's name", where,
                    why="It takes the pods of its own node for remote ones, and deletes their endpoints.",
                    remedy=f"kube-proxy.exe --hostname-override={node}")  # fmt: skip


def processes(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        for process, last in node.stopped.items():
            what = f"{process} does not run" + (f"; its log ends with: {last}" if last else "")
            yield known("SUP-TRB-002", what, where, why=_NEEDED[process],
                        remedy=f"Read its log, then start it again; as a service: Start-Service {process}",
                        statements=("TRB-03", "TRB-04"))  # fmt: skip


def source_vip(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        if node.source_vip and node.pod_cidr and not _within(node.source_vip, node.pod_cidr):
            yield known("SUP-TRB-012", f"the source VIP {node.source_vip} is not of the node's subnet {node.pod_cidr}", where,
                        why="The node has joined again with another subnet, and files of the old one are still there: what its "
                        "load balancers send gets no answer.",
                        remedy=f"{remedy_of(RECORDS['SUP-TRB-012'])} Then start kube-proxy again.")  # fmt: skip


def _within(address: str, prefix: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(prefix)
    except ValueError:
        return False


def subnet_env(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        if node.plugin != "flannel" or not node.pod_cidr:
            continue
        if node.subnet_env is None:
            yield known("SUP-TRB-014", r"C:\run\flannel\subnet.env is missing", where,
                        why="flannel's plugin needs it: pods there get no network.")  # fmt: skip
            continue
        subnet = dict(line.partition("=")[::2] for line in node.subnet_env.splitlines()).get("FLANNEL_SUBNET", "")
        if subnet and not _within(subnet.partition("/")[0], node.pod_cidr):
            yield known("SUP-TRB-014", f"subnet.env says {subnet}, and the node's subnet is {node.pod_cidr}", where,
                        severity="warning", why="Pods get addresses to which other nodes have no route.")  # fmt: skip


def behind_proxy(s: Snapshot) -> Iterator[Finding]:
    for node, where in _nodes(s):
        has = {variable.upper() for variable, value in node.variables.items() if value}
        missing = [variable for variable in _PROXIES if variable not in has]
        if node.proxy and missing:
            machine = "[EnvironmentVariableTarget]::Machine"
            lines = [f'[Environment]::SetEnvironmentVariable("{each}", "{node.proxy}", {machine})' for each in missing]
            yield known("SUP-TRB-018", f"the node is behind the proxy {node.proxy}, and {' and '.join(missing)} "
                        f"{'are' if len(missing) > 1 else 'is'} not set", where,
                        why="Images cannot be pulled there.", remedy=f"On the node: {'; '.join(lines)}")  # fmt: skip


def windows_nodes(s: Snapshot) -> list[str]:
    return [name(node) for node in s.nodes if is_windows(node)]
