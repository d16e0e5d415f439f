"""All checks, in order: first those for any cluster, as in Kubernetes' troubleshooting guide, then
those for Windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from transom.doctor import (
    control_plane,
    events,
    network_policies,
    node_state,
    nodes,
    pods,
    references,
    services,
    storage,
    windows,
    workloads,
)
from transom.doctor.findings import (
    DoctorFinding,
    is_safe_command,
    merged_findings,
    sole_command,
)
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    key_of_object,
    name_of_object,
    place_of_object,
    status_condition,
)
from transom.kit.user_errors import name_cluster

Check = Callable[[ClusterSnapshot], Iterator[DoctorFinding]]


class UnknownName(Exception):
    """The name is neither a node nor a pod of the cluster."""


class DoctorCheck(NamedTuple):
    title: str
    check: Check
    inside: bool = False  # needs data that only nodes of our own clusters report


GENERAL: Final = (
    DoctorCheck("the API server answers and is ready", control_plane.check_api_server),
    DoctorCheck("the data on disk is intact, and the disk has space", control_plane.check_store),
    DoctorCheck("certificates are valid", control_plane.check_certificates),
    DoctorCheck("clocks agree", control_plane.check_clocks),
    DoctorCheck("aggregated APIs are available", control_plane.check_api_services),
    DoctorCheck("webhooks can be called", control_plane.check_webhooks),
    DoctorCheck("custom resources are served", control_plane.check_custom_resources),
    DoctorCheck("custom resources can be converted", control_plane.check_conversions),
    DoctorCheck("certificate requests are decided", control_plane.check_signing_requests),
    DoctorCheck("nodes are Ready, without pressure and schedulable", nodes.check_nodes),
    DoctorCheck("the machines of nodes have started", nodes.check_unusable),
    DoctorCheck("kubelets answer the API server", nodes.check_kubelet_answers),
    DoctorCheck("kubelets are not too old or too new", nodes.check_skew),
    DoctorCheck("machines, nodes and the control plane belong together", nodes.check_machines),
    DoctorCheck("kubelet, kube-proxy and flanneld run on Linux nodes", node_state.programs, True),
    DoctorCheck("programs of nodes reach the API server", node_state.unreachable, True),
    DoctorCheck("network interfaces of nodes are up", node_state.check_links, True),
    DoctorCheck("name servers of nodes and pods answer", node_state.check_name_servers, True),
    DoctorCheck("the disks of nodes have space", node_state.check_disks, True),
    DoctorCheck(
        "the CNI configuration of nodes can be used", node_state.check_cni_configuration, True
    ),
    DoctorCheck("the cluster's DNS answers", services.check_cluster_dns),
    DoctorCheck("services have endpoints and ports that answer", services.check_services),
    DoctorCheck("external names can be resolved", references.check_external_names),
    DoctorCheck("Endpoints fit their Services", references.check_written_endpoints),
    DoctorCheck("load balancers have addresses", services.check_load_balancers),
    DoctorCheck("ingresses have a controller and backends", services.check_ingresses),
    DoctorCheck(
        "network policies let services be reached", network_policies.check_network_policies
    ),
    DoctorCheck("network policies let pods resolve names", network_policies.egress_to_dns),
    DoctorCheck(
        "Local services have pods on the nodes of clients", services.local_cluster_addresses
    ),
    DoctorCheck("node ports of Local services have pods on every node", services.local_node_ports),
    DoctorCheck("pods are scheduled, created, started and ready", pods.check_pods),
    DoctorCheck("pull secrets can be used", references.check_pull_secrets),
    DoctorCheck("roles and subjects of bindings exist", references.check_role_bindings),
    DoctorCheck("controllers can create their pods", workloads.check_creating),
    DoctorCheck("rollouts make progress", workloads.check_deployments),
    DoctorCheck("StatefulSets have their Service", workloads.check_stateful_sets),
    DoctorCheck("DaemonSets run on nodes", workloads.check_daemon_sets),
    DoctorCheck("CronJobs start Jobs", workloads.cron_jobs),
    DoctorCheck("Jobs succeed", workloads.check_jobs),
    DoctorCheck("autoscalers can scale", workloads.check_autoscalers),
    DoctorCheck("one autoscaler scales each workload", workloads.check_shared_targets),
    DoctorCheck("disruption budgets select pods and allow evictions", workloads.check_budgets),
    DoctorCheck("quotas are not used up", workloads.check_quotas),
    DoctorCheck("claims are bound", storage.check_persistent_volume_claims),
    DoctorCheck("one StorageClass is the default", storage.check_storage_classes),
    DoctorCheck("volumes are usable", storage.check_persistent_volumes),
    DoctorCheck("volumes can be attached", storage.check_attachments),
    DoctorCheck("volume snapshots are taken", storage.check_volume_snapshots),
    DoctorCheck(
        "disks of the cloud are attached and detached", storage.check_cloud_operations, True
    ),
    DoctorCheck("components report no other problems", events.check_events),
    DoctorCheck("namespaces end when they are deleted", control_plane.check_namespaces),
    DoctorCheck("objects end when they are deleted", control_plane.check_finalizers),
)
WINDOWS: Final = (
    DoctorCheck("Windows builds and runtimes are supported", nodes.check_unsupported),
    DoctorCheck("Windows nodes reserve memory for the system", nodes.check_reservations),
    DoctorCheck("pods of a mixed cluster select their operating system", windows.check_selectors),
    DoctorCheck(
        "pods select a Windows build where nodes have several", windows.check_build_selectors
    ),
    DoctorCheck("hostPath volumes name paths of Windows", windows.check_host_paths),
    DoctorCheck(
        "services have no more backends than Windows can load-balance", services.check_backends
    ),
    DoctorCheck("names that Windows pods look up can be resolved", windows.check_names),
    DoctorCheck("Windows pods use full names of services", windows.check_short_names),
    DoctorCheck("kube-proxy pods know their node", windows.check_proxy_pods),
    DoctorCheck(
        "kubelet, kube-proxy and flanneld run on Windows nodes", windows.check_processes, True
    ),
    DoctorCheck("Windows' container services run", windows.check_windows_services, True),
    DoctorCheck("the virtual network exists", windows.check_virtual_network, True),
    DoctorCheck("running pods have an HNS endpoint", windows.check_lost_endpoints, True),
    DoctorCheck("services have their load balancers in HNS", windows.check_lost_balancers, True),
    DoctorCheck("no HNS endpoints are left over", windows.check_leaked_endpoints, True),
    DoctorCheck("Windows nodes do not page", windows.check_paging, True),
    DoctorCheck("remote HNS endpoints belong to pods", windows.check_stale_endpoints, True),
    DoctorCheck(
        "network adapters of virtual machines allow MAC spoofing", windows.check_mac_spoofing, True
    ),
    DoctorCheck("kube-proxy works and knows its node", windows.check_kube_proxy, True),
    DoctorCheck("the source VIP is of the node's subnet", windows.check_source_vip, True),
    DoctorCheck("flannel has written subnet.env", windows.check_subnet_env, True),
    DoctorCheck("nodes behind a proxy know it", windows.check_behind_proxy, True),
)


def checks(s: ClusterSnapshot) -> list[DoctorCheck]:
    """The checks that apply to the cluster."""
    has_windows = bool(windows.windows_nodes(s)) or any(one.windows for one in s.inside.values())
    return [
        row for row in (*GENERAL, *(WINDOWS if has_windows else ())) if not row.inside or s.inside
    ]


def examine(
    s: ClusterSnapshot, about: Collection[str] = (), namespace: str = ""
) -> list[DoctorFinding]:
    """`about`: only report findings for these places ("node/windows-1"); none: all. `namespace`: only
    about this namespace and its objects. Raises UnknownName if there is no such namespace.
    """
    found: Iterable[DoctorFinding] = (finding for row in checks(s) for finding in row.check(s))
    if about:
        found = (finding for finding in found if set(finding.where) & set(about))
    if namespace:
        found = _in_namespace(s, namespace, found)
    return [
        one._replace(
            remedy=name_cluster(one.remedy, s.name_option),
            commands=tuple(
                name_cluster(line, s.name_option)
                for line in one.commands or sole_command(one.remedy)
                if is_safe_command(line)
            ),
        )
        for one in merged_findings(found)
    ]


def places_to_check(
    s: ClusterSnapshot, names: Iterable[str], namespace: str = "default"
) -> list[str]:
    """The places for the names that a user gave: a node with its pods, or a pod with its node.
    Raises UnknownName.
    """
    out: list[str] = []
    for text in names:
        parts = text.split("/")
        kind = _KINDS[parts.pop(0)] if len(parts) > 1 and parts[0] in _KINDS else ""
        if kind != "pod" and len(parts) == 1 and parts[0] in s.node:
            out += [
                f"node/{parts[0]}",
                *(place_of_object("pod", pod) for pod in s.pods if _node_of(pod) == parts[0]),
            ]
            continue
        wanted = parts if len(parts) > 1 else [namespace, *parts]
        pod = next((pod for pod in s.pods if list(key_of_object(pod)) == wanted), None)
        if kind == "node" or pod is None:
            raise UnknownName(text)
        out += [place_of_object("pod", pod), f"node/{_node_of(pod)}"]
    return out


def _in_namespace(
    s: ClusterSnapshot, namespace: str, found: Iterable[DoctorFinding]
) -> list[DoctorFinding]:
    """The findings about a namespace and its objects, before they are merged with those of others."""
    if "namespaces" not in s.unread and not any(
        name_of_object(one) == namespace for one in s.of("namespaces")
    ):
        raise UnknownName(namespace)

    def inside(where: str) -> bool:
        parts = where.split("/")
        return parts == ["namespace", namespace] or (len(parts) == 3 and parts[1] == namespace)

    return [
        one._replace(where=tuple(filter(inside, one.where)))
        for one in found
        if any(map(inside, one.where))
    ]


def _node_of(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName", ""))


_KINDS: Final = {
    "node": "node",
    "nodes": "node",
    "no": "node",
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
}


def pods_with_useful_logs(s: ClusterSnapshot, about: Collection[str] = ()) -> list[tuple[str, str]]:
    """Pods whose logs may help: on Windows nodes the named ones and those that restart or are not
    ready, on Linux nodes those that restart. A kubelet that is silent answers no request for logs.
    """
    return [
        key_of_object(pod)
        for pod in s.pods
        if not _kubelet_is_silent(s, pod)
        and (
            (s.on_windows(pod) and (place_of_object("pod", pod) in about or _is_unhealthy(pod)))
            or _restarts(pod)
        )
    ]


def _kubelet_is_silent(s: ClusterSnapshot, pod: Object) -> bool:
    node = s.node.get((pod.get("spec") or {}).get("nodeName", ""))
    return node is not None and status_condition(node, "Ready").get("status") == "Unknown"


def _restarts(pod: Object) -> bool:
    """Whether a container has failed; it may be running or starting again at this moment."""
    status = pod.get("status") or {}
    containers = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    ends = [
        (container.get(state) or {}).get("terminated") or {}
        for container in containers
        for state in ("state", "lastState")
    ]
    return any(end.get("exitCode") for end in ends)


def _is_unhealthy(pod: Object) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        container.get("restartCount") or not container.get("ready") for container in containers
    )
