"""Checks of nodes through the API: conditions, versions, reserved resources, events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.node_inspection import NodeState
from transom.doctor.node_state import (
    broken_link,
    correct_server,
    not_running_text,
    start_again,
    start_command,
)
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    condition_text,
    is_windows_node,
    name_of_object,
    place_of_object,
    reported_windows_build,
    status_condition,
)
from transom.doctor.texts import recognised_texts
from transom.kit.versions import version_numbers
from transom.machinery import quantity
from transom.windows import releases
from transom.windows.builds import BUILDS
from transom.windows.wording import build_name

_RESERVED: Final = 600 << 20  # bytes that eviction thresholds alone may subtract from the capacity
_PRESSURE: Final = {
    "MemoryPressure": "Free memory on {node}: lower the requests of its pods, move pods away, or add memory.",
    "DiskPressure": (
        "Free disk space on {node}: remove images that are not used and files that pods wrote, "
        "or add disk."
    ),
    "PIDPressure": "Remove the pods with too many processes from {node}.",
    "NetworkUnavailable": "Look at the network plugin's agent on {node}.",
}


def check_nodes(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    if s.pods and not s.nodes and not s.unreachable and "nodes" not in s.unread:
        yield DoctorFinding(
            "warning",
            "there are no nodes",
            (),
            "None of the pods can run.",
            _add_nodes(s),
        )
    for node in s.nodes:
        where, called = place_of_object("node", node), name_of_object(node)
        ready = status_condition(node, "Ready")
        if called in s.unusable:  # reported by check_unusable
            continue
        if ready.get("status") != "True":
            yield _not_ready(s, node, ready, where)
        for kind, remedy in _PRESSURE.items():
            found = status_condition(node, kind)
            if found.get("status") == "True":
                why = (
                    "No pods are placed there."
                    if kind == "NetworkUnavailable"
                    else "Pods are evicted, and none are placed there."
                )
                yield DoctorFinding(
                    "error",
                    f"{kind}: {condition_text(found)}",
                    (where,),
                    why,
                    remedy.format(node=called),
                )
        yield from _wrong_labels(node, where)
        if node["spec"].get("unschedulable"):
            yield DoctorFinding(
                "info",
                "is cordoned",
                (where,),
                "No new pods are placed there.",
                f"kubectl uncordon {called}",
            )


def _wrong_labels(node: Object, where: str) -> Iterator[DoctorFinding]:
    """Labels that differ from what the kubelet reports: selectors send pods to the wrong nodes."""
    labels = node["metadata"].get("labels") or {}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    for label, field in (
        ("kubernetes.io/os", "operatingSystem"),
        ("kubernetes.io/arch", "architecture"),
    ):
        actual, called = str(info.get(field) or ""), name_of_object(node)
        if actual and labels.get(label) != actual:
            has = f"is {labels[label]}" if label in labels else "is missing"
            yield DoctorFinding(
                "error",
                f"its label {label} {has}, and its kubelet reports {actual}",
                (where,),
                "Pods that select nodes by this label are placed on the wrong nodes, or on none.",
                f"kubectl label node {called} {label}={actual} --overwrite",
            )


def check_unusable(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Nodes that cannot start since a pod has changed their files."""
    for name, node in s.unusable.items():
        start, ways = f"transom node start {name}", []
        if node["files"]:
            ways.append(f"Repair the file below {node['files']}, then: {start}")
        if node["replace"]:
            ways.append(f"replace the node: transom node delete {name} && {node['replace']}")
        if not ways:
            ways.append("create the cluster again: transom delete && transom up")
        remedy = "; or ".join(ways)
        yield DoctorFinding(
            "error",
            f"its machine has not started: {node['reason']}",
            (f"node/{name}",),
            "Its pods are not served. A pod with a hostPath volume can damage the files of its node.",
            remedy[0].upper() + remedy[1:],
        )


def _add_nodes(s: ClusterSnapshot) -> str:
    if s.inside:
        return "Add nodes: transom node add NAME"
    if s.store:  # one of our clusters, without machines
        return "Add nodes; a cluster of transom that runs with --no-nodes: transom down, then transom up --nodes"
    return "Add nodes to the cluster."


def _not_ready(s: ClusterSnapshot, node: Object, ready: Object, where: str) -> DoctorFinding:
    what, called = (
        f"is not Ready: {condition_text(ready) or 'its kubelet has never reported'}",
        name_of_object(node),
    )
    if is_windows_node(node) and (
        found := recognised_texts(ready.get("reason", ""), ready.get("message", ""), what, where)
    ):
        return found
    why = "Its pods are not served, and are moved away after five minutes."
    inside = s.inside.get(called)
    text = str(ready.get("message", ""))
    if inside is not None and inside.state == "stopped":
        return DoctorFinding(
            "error", f"{what} The machine is off.", (where,), why, f"transom node start {called}"
        )
    if inside is None and s.inside:
        return DoctorFinding(
            "error",
            f"{what} There is no machine of this name.",
            (where,),
            why,
            (
                f"Remove the Node: kubectl delete node {called}; or add the machine: transom "
                f"node add {called}"
            ),
        )
    if inside is not None and "kubelet" in inside.stopped:
        last = inside.stopped["kubelet"]
        return DoctorFinding(
            "error",
            f"{what} Its {not_running_text('kubelet', last)}",
            (where,),
            why,
            start_again(inside, "kubelet", last),
        )
    if inside is not None and "kubelet" in inside.unreachable:
        return DoctorFinding(
            "error",
            f"{what} No API server answers its kubelet at {inside.unreachable['kubelet']}",
            (where,),
            why,
            correct_server(inside, "kubelet"),
        )
    broken = broken_link(inside) if inside is not None else None
    if broken is not None:
        return DoctorFinding("error", f"{what} And {broken[0]}.", (where,), why, broken[1])
    if inside is not None and inside.missing_features:
        return DoctorFinding(
            "error",
            f"{what} Windows' feature {inside.missing_features[0]} is not installed.",
            (where,),
            why,
            f"transom node exec {called} -- Install-WindowsFeature {inside.missing_features[0]}; "
            f"then transom node reboot {called}",
        )
    if re.search(r"cni|network plugin|NetworkReady=false", text, re.IGNORECASE):
        return DoctorFinding(
            "error",
            what,
            (where,),
            why,
            f"Correct the CNI configuration and the network plugin on {called}.",
            commands=(f"transom node reboot {called}",)
            if inside is not None and inside.simulated
            else (),
        )
    if "PLEG" in text or "container runtime" in text.lower():
        return DoctorFinding("error", what, (where,), why, _start_runtime(node, inside))
    if ready.get("status") == "Unknown" or not ready:
        return DoctorFinding(
            "error",
            what,
            (where,),
            why,
            (
                f"Check that the machine {called} runs, that its kubelet runs, and that it "
                "reaches the API server."
            ),
        )
    return DoctorFinding("error", what, (where,), why, f"Read the kubelet's log on {called}.")


def _start_runtime(node: Object, inside: NodeState | None) -> str:
    called = name_of_object(node)
    if inside is None or not inside.simulated:
        return f"Check the container runtime on {called}."
    info = (node.get("status") or {}).get("nodeInfo") or {}
    runtime = str(info.get("containerRuntimeVersion", "")).partition(":")[0]
    return f"Start the container runtime: {start_command(inside, runtime)}"


def check_kubelet_answers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Logs, exec, port forwarding and metrics are connections from the API server to the kubelet."""
    for name, problem in s.silent_kubelets.items():
        if name in s.unusable:  # reported by check_unusable
            continue
        inside = s.inside.get(name)
        blocked = inside.kubelet_blocked if inside is not None else ""
        yield DoctorFinding(
            "error",
            "its kubelet does not answer the API server on port 10250: " + (blocked or problem),
            (f"node/{name}",),
            "kubectl logs, exec, port-forward and top fail for its pods.",
            _let_in(name, blocked),
        )


_RULE_NAME: Final = re.compile(r'by the rule "([^"]+)"')


def _let_in(name: str, blocked: str) -> str:
    rule = _RULE_NAME.search(blocked)
    if rule is not None:
        return (
            "Remove the rule: "
            f"transom node exec {name} -- \"Remove-NetFirewallRule -DisplayName '{rule[1]}'\""
        )
    if "no inbound rule" in blocked:
        words = (
            "New-NetFirewallRule -DisplayName kubelet -Direction Inbound -Protocol TCP "
            "-LocalPort 10250 -Action Allow"
        )
        return f'Allow it: transom node exec {name} -- "{words}"'
    if blocked:
        words = "Set-NetFirewallProfile -All -AllowInboundRules True"
        return f'Let rules allow connections: transom node exec {name} -- "{words}"'
    return (
        f"Let the control plane reach TCP port 10250 of {name}: check its firewall and the routes."
    )


def check_skew(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """A kubelet may be some minor versions older than the API server, but not newer."""
    server = _minor(str(s.version.get("gitVersion", "")))
    allowed = 3 if server >= 28 else 2
    for node in s.nodes:
        version = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))
        minor = _minor(version)
        if server and minor and not server - allowed <= minor <= server:
            what = f"its kubelet is {version}, the API server {s.version['gitVersion']}"
            yield DoctorFinding(
                "warning",
                what,
                (place_of_object("node", node),),
                (
                    f"A kubelet may be up to {allowed} minor versions older than the API server, "
                    "and never newer."
                ),
                "Upgrade the older of them.",
            )


def _minor(version: str) -> int:
    found = re.match(r"v1\.(\d+)", version)
    return int(found[1]) if found else 0


def check_reservations(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Windows does not limit the memory of the kubelet and the system: pods can use all memory that
    is not reserved.
    """
    for node in filter(is_windows_node, s.nodes):
        status = node.get("status") or {}
        capacity, allocatable = (
            _bytes(status.get(name) or {}) for name in ("capacity", "allocatable")
        )
        if capacity and capacity - allocatable <= _RESERVED:
            yield known_finding(
                "SUP-RES-005",
                "reserves no memory for its system and its kubelet",
                place_of_object("node", node),
                severity="warning",
                why="Windows never ends processes for lack of memory: pods that use all of it "
                "make the node page and stop "
                "answering.",
                remedy="Start its kubelet with --system-reserved=memory=2Gi (cluster file: "
                "systemReserved; transom node add "
                "--system-reserved memory=2Gi). If it was started by hand: transom node reboot "
                f"{name_of_object(node)}",
            )


def _bytes(amounts: Object) -> int:
    return quantity.parse_quantity(str(amounts.get("memory", "0"))).value()


def check_unsupported(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Windows builds and runtimes that the kubelet's release does not support."""
    for node in filter(is_windows_node, s.nodes):
        info = (node.get("status") or {}).get("nodeInfo") or {}
        try:
            release = releases.parse_release_version(str(info.get("kubeletVersion", "")))
        except ValueError:
            continue
        for what, remedy in unsupported_parts(
            release, reported_windows_build(node), str(info.get("containerRuntimeVersion", ""))
        ):
            yield DoctorFinding(
                "warning",
                what,
                (place_of_object("node", node),),
                "Pods there may fail in untested ways.",
                remedy,
            )


def unsupported_parts(
    release: tuple[int, int], number: int, runtime: str
) -> Iterator[tuple[str, str]]:
    """Properties of a Windows node that a release does not support, and the supported ones."""
    facts = releases.release_facts(release)
    text = releases.release_text(release)
    if number and number not in facts.builds and number in BUILDS:
        names = ", ".join(map(build_name, facts.builds))
        yield (
            f"Kubernetes {text} does not support Windows build {build_name(number)}",
            f"Use a node of build {names}.",
        )
    called, _, version = runtime.partition("://")
    supported = facts.runtimes()
    if called in ("docker", "containerd"):
        oldest = supported.get(called)
        choices = " or ".join(f"{one} {since} or later" for one, since in supported.items())
        if oldest is None:
            yield f"Kubernetes {text} does not support {called} on Windows nodes", f"Use {choices}."
        elif version_numbers(version) < version_numbers(oldest):
            yield (
                (
                    f"Kubernetes {text} needs {called} {oldest} or later on Windows nodes, not "
                    f"{version}"
                ),
                f"Use {choices}.",
            )


def check_machines(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """In our own clusters, every machine has a Node, and one of them is the control plane."""
    if not s.inside or "nodes" in s.unread:
        return
    for machine in s.inside.values():
        if machine.name not in s.node and machine.state == "running" and not machine.stopped:
            yield DoctorFinding(
                "error",
                "its machine runs, but there is no Node of this name",
                (f"node/{machine.name}",),
                "No pod can run there.",
                (
                    "Restart its kubelet, which registers it again: transom node reboot "
                    f"{machine.name}"
                ),
            )
    first = [one for one in s.inside.values() if one.control_plane]
    if not first and all(one["replace"] for one in s.unusable.values()):
        yield DoctorFinding(
            "error",
            "the cluster has no control-plane node",
            (),
            (
                "The API server's service and the cluster's DNS have the address of that node: "
                "pods reach neither."
            ),
            "Add it again: transom node add control-plane --role control-plane",
        )
    for machine in first:
        if machine.state == "stopped":
            yield DoctorFinding(
                "error",
                "the machine of the control plane is off",
                (f"node/{machine.name}",),
                (
                    "The API server's service and the cluster's DNS have its address: pods reach "
                    "neither."
                ),
                f"transom node start {machine.name}",
            )
