"""What `transom doctor` and `transom report` read from a running cluster: facts that only its
machines know.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transom.doctor.control_plane import certificate_ends
from transom.doctor.node_inspection import NodeState
from transom.doctor.windows import HOSTNAME, SOURCE_VIP_FLAG
from transom.kit import dnswire
from transom.machines.smallfiles import read_small_file
from transom.machines.windows.features import CONTAINERS, has_feature
from transom.machines.windows.services import KEY as SERVICES
from transom.machines.windows.services import STARTS
from transom.machines.windows.variables import machine_variables
from transom.network.cni import defaults
from transom.network.cni.flannel import SUBNET_FILE
from transom.network.cni.paths import join_cni_path
from transom.network.cni.sourcevip import FILE as SOURCE_VIP
from transom.network.cni.sourcevip import saved_source_vip
from transom.network.model.dataplane import ModelDataplane
from transom.node.inspect_dns import DeadNameServers, dead_name_servers
from transom.node.inspect_hns import VIEWS
from transom.node.machine import windows_machine
from transom.node.network_windows import WindowsNodeNetwork
from transom.node.settings import name_option
from transom.node.spec import is_control_plane
from transom.runtime.sim.engine import SimRuntime

if TYPE_CHECKING:
    from transom.machines.windows.registry import WindowsRegistry
    from transom.node.cluster_access import ControlPlaneFacts
    from transom.node.node import Node
    from transom.node.pool import NodePool, UnusableNode

# Network mode -> the HNS network that exists before the first pod; the other modes create it with
# the first pod.
_KUBELET_PORT: Final = 10250
# The services of a Windows node whose start type matters, and that of a disabled one.
_KUBERNETES_SERVICES: Final = ("kubelet", "kube-proxy", "flanneld", "docker", "containerd")
_DISABLED: Final = STARTS["disabled"]
_NETWORKS: Final = {
    "l2bridge": defaults.BRIDGE_NAME,
    "overlay": defaults.OVERLAY_NAME,
    "transparent": "external",
}
_REMOTE: Final = 1  # the flag of endpoints that represent pods of other nodes
_RECENT_SECONDS: Final = 300.0
_WINDOWS_SERVICES: Final = ("hns", "vmcompute")
_MAX_NAMES: Final = 50  # names of ExternalName services that are looked up
_PROGRAMS: Final = ("kubelet", "kube-proxy", "flanneld")
_HNS: Final = (
    "networks",
    "endpoints",
    "loadbalancers",
    "namespaces",
    "policies",
    "adapters",
    "faults",
)


async def inspect_nodes(pool: NodePool, control_plane: ControlPlaneFacts) -> dict[str, Any]:
    found = []
    nodes = pool.nodes()
    first = min((node.spec.number for node in nodes), default=0)
    targets = await pool.cluster.network.target_ports()
    for node in nodes:
        one = _inspect_node(pool, node)
        unheard, tcp_only = _pod_ports(pool, node, targets)
        reachable = not one.down_links and one.default_route
        dead = await dead_name_servers(pool, node) if reachable else DeadNameServers((), {})
        found.append(
            replace(
                one,
                stopped=await _stopped(node),
                unreachable={
                    name: server
                    for name in node.network.programs
                    if (server := node.programs.unreachable(name))
                },
                control_plane=_control_plane(node, first),
                unheard=unheard,
                tcp_only=tcp_only,
                dead_name_servers=dead.node,
                pod_name_servers=dead.pods,
            )
        )
        await asyncio.sleep(0)  # yield to other tasks: there may be a thousand nodes
    return {
        "items": [asdict(one) for one in found],
        "unusable": [_unusable(one) for one in pool.unusable()],
        "nameOption": name_option(pool.cluster.settings.name),
        "dns": await _dns(pool),
        "unresolved": await _unresolved(pool),
        "webhooks": control_plane.webhook_failures(_RECENT_SECONDS),
        "cloud": pool.cluster.cloud.problems(),
        "certificates": _certificates(pool, control_plane),
    }


def _unusable(node: UnusableNode) -> dict[str, Any]:
    """A node that cannot start, and the command that adds one like it; "" for the control plane,
    which cannot be deleted.
    """
    spec = node.spec
    option = f" --os windows --build {spec.build}" if spec.windows else ""
    return {
        "name": spec.name,
        "reason": node.reason,
        "files": node.files,
        "replace": "" if is_control_plane(spec) else f"transom node add {spec.name}{option}",
    }


def _control_plane(node: Node, first: int) -> bool:
    """The service `kubernetes` and cluster DNS use the address of the first node; it need not be
    labelled.
    """
    roles = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
    spec = node.spec
    return any(role in spec.labels for role in roles) or (
        spec.number == first == 1 and not spec.windows
    )


def _dns_client(pool: NodePool) -> str:
    """The address of a Linux node whose programs and network work; "" if there is none."""
    running = [
        node
        for node in pool.nodes()
        if not node.spec.windows
        and not node.spec.stopped
        and all(map(node.programs.is_up, node.network.programs))
        and not any(map(node.programs.unreachable, node.network.programs))
        and not _down_links(node)
        and _has_default_route(node)
    ]
    return pool.cluster.node_ips(running[-1].spec)[0] if running else ""


async def _unresolved(pool: NodePool) -> dict[str, str]:
    """Names of ExternalName services that cluster DNS does not resolve, and why."""
    names = {
        str(service["spec"].get("externalName") or "").rstrip(".")
        for service in pool.cluster.network.services.list()
        if service["spec"].get("type") == "ExternalName"
    }
    source = _dns_client(pool)
    if not source:
        return {}
    requested = sorted(filter(None, names))[:_MAX_NAMES]
    problems = await asyncio.gather(*(_name_problem(pool, source, name) for name in requested))
    return {name: problem for name, problem in zip(requested, problems, strict=True) if problem}


async def _name_problem(pool: NodePool, source: str, name: str) -> str:
    for record_type in (dnswire.A, dnswire.AAAA):
        try:
            answer = dnswire.parse_dns_message(await pool.query_dns(source, name, record_type))
        except (OSError, ValueError) as problem:
            return str(problem) or type(problem).__name__
        if answer.rcode:
            return dnswire.RCODES.get(answer.rcode, str(answer.rcode))
        if any(record.type == record_type for record in answer.answers):
            return ""
    return "it has no address"


async def _dns(pool: NodePool) -> dict[str, str]:
    """Whether cluster DNS answers a query from a Linux node, sent as its pods would send it. A node
    whose programs do not all run reaches no service; that is not the fault of the DNS server.
    """
    source = _dns_client(pool)
    if not source:
        return {}
    try:
        answer = await pool.query_dns(source)
    except OSError as problem:
        text = str(problem.strerror or problem) or type(problem).__name__
        remedy = (
            "Start the control-plane node, whose address the name server has (transom node "
            "list); then transom down and "
            "transom up"
        )
        return {"problem": text, "remedy": remedy}
    return (
        {}
        if answer
        else {
            "problem": "it does not know kubernetes.default",
            "remedy": "transom down, then transom up",
        }
    )


def _inspect_node(pool: NodePool, node: Node) -> NodeState:
    spec, network, settings = node.spec, node.network, pool.cluster.network.shared.settings
    common: dict[str, Any] = {
        "name": spec.name,
        "os": spec.os,
        "simulated": isinstance(node.runtime, SimRuntime),
        "mode": settings.mode,
        "state": "stopped"
        if spec.stopped
        else "running"
        if node.kubelet is not None
        else "starting",
        "plugin": network.plugin,
        "fault": network.pods.fault,
        "pod_cidr": network.pods.cidr.split(",")[0],
        "clock_offset": round(node.machine.clock.time() - pool.cluster.clock.time(), 1),
        "cni_problem": _cni_problem(node),
        "down_links": _down_links(node),
        "default_route": _has_default_route(node),
        "forwarding": spec.windows or spec.stopped or network.stack.forwarding,
    }
    if isinstance(node.runtime, SimRuntime):
        disk = node.machine.disk()
        common |= {"disk_capacity": disk.capacity, "disk_free": max(0, disk.capacity - disk.used)}
    return NodeState(**common, **(_windows(pool, node) if spec.windows else {}))


def _down_links(node: Node) -> tuple[str, ...]:
    links = () if node.spec.stopped else node.network.stack.links.values()
    return tuple(link.name for link in links if not link.up)


def _has_default_route(node: Node) -> bool:
    """The way to services too, on Linux: their addresses are in no other route."""
    routes = node.network.stack.routes()
    return node.spec.stopped or any(not route.destination.prefixlen for route in routes)


def _cni_problem(node: Node) -> str:
    """Checks the current files; a kubelet may still use a configuration that it read earlier."""
    pods = node.network.pods
    if not pods.cidr or node.spec.stopped:
        return ""
    found = pods.network()
    problem = found if isinstance(found, str) else pods.file_problem()
    return f"{pods.directory}: {problem}" if problem else pods.missing_plugin()


def _certificates(pool: NodePool, control_plane: ControlPlaneFacts) -> list[dict[str, Any]]:
    """Certificates of the control plane and of kubelets: their purpose, expiry and how to renew
    them.
    """
    option = name_option(pool.cluster.settings.name)
    found = []
    for label, file in control_plane.certificates.items():
        files = f"{file} {file.with_suffix('.key')}" if file.stem.endswith("ca") else str(file)
        restart = f"transom down{option} && transom up{option}"
        found.append(_certificate(label, "", file, f"rm {files} && {restart}"))
    for node in pool.nodes():
        name, file = node.spec.name, node.kubelet_certificate
        renew = f"rm {file} && transom node reboot {name}{option}"
        label = "the kubelet's serving certificate"
        found.append(_certificate(label, f"node/{name}", file, renew))
    return [one for one in found if one["end"] or one["problem"]]


def _certificate(label: str, where: str, file: Path, renew: str) -> dict[str, Any]:
    end, problem = 0.0, ""
    try:
        end = min(certificate_ends(file.read_bytes()), default=0.0)
    except FileNotFoundError:
        pass  # does not exist yet: a cluster without nodes, or a node that has not started
    except (OSError, ValueError) as error:
        problem = str(error)
    return {"label": label, "where": where, "end": end, "problem": problem, "renew": renew}


def _pod_ports(
    pool: NodePool, node: Node, targets: Mapping[str, set[tuple[str, int]]]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Ports of running pods that services target, by pod: those where nothing listens, and those that
    services target with UDP and that serve only TCP.
    """
    dataplane = pool.cluster.dataplane
    unheard: dict[str, tuple[int, ...]] = {}
    tcp_only: dict[str, tuple[int, ...]] = {}
    if not isinstance(dataplane, ModelDataplane) or not isinstance(node.runtime, SimRuntime):
        return unheard, tcp_only
    for sandbox in node.runtime.sandboxes():
        if sandbox.state != "ready" or not sandbox.ips:
            continue
        address, name = sandbox.ips[0], f"{sandbox.config.namespace}/{sandbox.config.name}"
        silent: list[int] = []
        other: list[int] = []
        for protocol, port in sorted(targets.get(address, ())):
            tcp = dataplane.serves(address, port)
            if protocol == "TCP" and not tcp:
                silent.append(port)
            elif protocol == "UDP" and tcp and not dataplane.serves(address, port, "udp"):
                other.append(port)
        if silent:
            unheard[name] = tuple(silent)
        if other:
            tcp_only[name] = tuple(other)
    return unheard, tcp_only


def _leaked_endpoints(node: Node) -> tuple[str, ...]:
    """Endpoints in the node's range without a running sandbox: their addresses cannot be reused."""
    hns, cidr = windows_machine(node.machine).hns, node.network.pods.cidr.split(",")[0]
    if not cidr or not isinstance(node.runtime, SimRuntime):
        return ()
    used = {
        address
        for sandbox in node.runtime.sandboxes()
        if sandbox.state == "ready"
        for address in sandbox.ips
    } | {_source_vip(node)}
    network = ipaddress.ip_network(cidr)
    return tuple(
        address["IpAddress"]
        for key, endpoint in hns.endpoints.items()
        if not endpoint.get("Flags", 0) & _REMOTE
        and hns.attachment(key)[0] not in ("host", "machine")
        for address in endpoint.get("IpConfigurations", ())
        if address["IpAddress"] not in used
        and ipaddress.ip_address(address["IpAddress"]) in network
    )


def _remote_endpoints(node: Node) -> tuple[str, ...]:
    """Addresses of the remote endpoints that kube-proxy made."""
    return tuple(
        address["IpAddress"]
        for endpoint in windows_machine(node.machine).hns.endpoints.values()
        if endpoint.get("Flags", 0) & _REMOTE
        for address in endpoint.get("IpConfigurations", ())
    )


def _lost_endpoints(node: Node) -> tuple[str, ...]:
    """Running pods whose address has no HNS endpoint."""
    if not isinstance(node.runtime, SimRuntime):
        return ()
    addresses = {
        address["IpAddress"]
        for endpoint in windows_machine(node.machine).hns.endpoints.values()
        for address in endpoint.get("IpConfigurations", ())
    }
    return tuple(
        f"{sandbox.config.namespace}/{sandbox.config.name}"
        for sandbox in node.runtime.sandboxes()
        if sandbox.state == "ready"
        and sandbox.ips
        and sandbox.ips[0] not in addresses
        and not sandbox.config.linux.host_network
    )


def _windows(pool: NodePool, node: Node) -> dict[str, Any]:
    spec, network, settings = node.spec, node.network, pool.cluster.network.shared.settings
    machine, proxier = windows_machine(node.machine), network.proxier
    hns, registry, flannel = machine.hns, machine.registry, node.network.plugin == "flannel"
    expected = (settings.backend.get("Name", "") if flannel else "") or _NETWORKS.get(
        settings.mode, ""
    )
    return {
        "network": expected if network.pods.cidr and network.plugin != "azure" else "",
        "networks": {
            one["Name"]: hns.management_ip(key) or "" for key, one in hns.networks.items()
        },
        "adapters": tuple(hns.adapters),
        "mac_spoofing": hns.mac_spoofing,
        "kube_proxy_problem": pool.cluster.network.proxy_problem(spec.name),
        "kube_proxy_hostname": _flag(node, registry, HOSTNAME) or network.proxy_hostname,
        "kube_proxy_source_vip": _flag(node, registry, SOURCE_VIP_FLAG),
        "subnet_env": _read(node, join_cni_path("windows", SUBNET_FILE)),
        "source_vip": _source_vip(node) if settings.mode == "overlay" else "",
        "leaked_endpoints": _leaked_endpoints(node) if not spec.stopped else (),
        "paged": machine.memory().paged,
        "remote_endpoints": _remote_endpoints(node) if not spec.stopped else (),
        "lost_endpoints": _lost_endpoints(node) if not spec.stopped else (),
        "source_vip_problem": _source_vip_problem(node) if settings.mode == "overlay" else "",
        "stopped_services": node.stopped_services(*_WINDOWS_SERVICES),
        "lost_balancers": tuple(proxier.lost()) if proxier is not None else (),
        "missing_features": () if has_feature(registry, CONTAINERS) else (CONTAINERS,),
        "kubelet_blocked": _kubelet_blocked(pool, node),
        "disabled": tuple(
            name
            for name in _KUBERNETES_SERVICES
            if registry.get(rf"{SERVICES}\{name}", "Start") == _DISABLED
        ),
        "proxy": spec.proxy,
        "variables": dict(machine_variables(registry)),
    }


def _kubelet_blocked(pool: NodePool, node: Node) -> str:
    """For connections from the API server, which runs on the first node."""
    first = min(pool.nodes(), key=lambda one: one.spec.number)
    network = node.network
    if node.spec.stopped or not isinstance(network, WindowsNodeNetwork):
        return ""
    return network.blocks_inbound(_KUBELET_PORT, first.network.address)


def _flag(node: Node, registry: WindowsRegistry, pattern: re.Pattern[str]) -> str:
    """A flag of kube-proxy: of its running command line, or of its service's."""
    running = node.programs.running("kube-proxy")
    if running is not None:
        line = " ".join(running.argv)
    else:
        key = rf"{SERVICES}\kube-proxy"
        line = str(
            registry.get(rf"{key}\Parameters", "AppParameters")
            or registry.get(key, "ImagePath")
            or ""
        )
    found = pattern.search(line)
    return found[1] if found is not None else ""


async def _stopped(node: Node) -> dict[str, str]:
    programs = node.programs
    if node.spec.stopped:
        return {}
    found = {}
    for name in node.network.programs:
        if not programs.is_up(name):
            await programs.log(name)
            failed = programs.unit_state(name).state in ("failed", "activating")
            found[name] = programs.why(name) if failed else ""
    return found


def _read(node: Node, path: str) -> str | None:
    try:
        content = read_small_file(node.machine.files, path)
    except OSError:
        return None
    return content.decode(errors="replace")


def _source_vip(node: Node) -> str:
    try:
        return saved_source_vip(node.machine.files)
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _source_vip_problem(node: Node) -> str:
    """Why kube-proxy has no source VIP: the script that requests it records the answer."""
    network = node.network
    if isinstance(network, WindowsNodeNetwork) and network.source_vip_problem:
        return network.source_vip_problem
    if not network.pods.cidr:
        return ""
    content = _read(node, SOURCE_VIP)
    if content is None:
        return f"{SOURCE_VIP} does not exist"
    return "" if _source_vip(node) else f"{SOURCE_VIP} is not valid: {content[:60]!r}"


async def node_logs(pool: NodePool, name: str) -> dict[str, Any]:
    """The logs of a node's programs, and the state of its host networking service."""
    node = pool.node(name)
    found: dict[str, Any] = {"node": name, "logs": {}, "hns": None}
    if node.spec.windows:
        pool.cluster.network.fabric.refresh_node(name)
        found["hns"] = {view: VIEWS[view](windows_machine(node.machine).hns) for view in _HNS}
        if isinstance(node.runtime, SimRuntime):
            found["logs"] = {
                program: (await node.programs.log(program)).decode(errors="replace")
                for program in _PROGRAMS
            }
    return found
