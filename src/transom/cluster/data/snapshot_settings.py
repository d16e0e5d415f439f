"""Which settings of a snapshot reach beyond the simulated cluster, to files, addresses and programs
of this machine. A snapshot may come from another user: `restore` accepts such settings only when the
caller trusts the file. Settings that are not listed as harmless need that trust, so a new one does.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from transom.cluster.config import ClusterConfig, nodes_from_document
from transom.kit.user_errors import UserError
from transom.node.network_settings import NetworkSettings
from transom.node.settings import clusters_dir
from transom.node.spec import NodeSpec, complete_specs

_FIRST_ORDINARY_PORT = 1024
_HIGHEST_NUMBER = 1 << 16  # of a node: its index in the range of node addresses


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_own_file(path: str) -> bool:
    """Whether the file is one of this user's clusters."""
    return not path or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(clusters_dir()))


def _is_simulation(engine: str) -> bool:
    return engine in ("", "sim")


def _has_ordinary_ports(ports: Sequence[int]) -> bool:
    return ports[0] >= _FIRST_ORDINARY_PORT


# Fields that cannot reach the machine whatever they hold, and tests for values of others. Every
# other field is harmless only with its default.
_HARMLESS: Mapping[type, str] = {
    ClusterConfig: (
        "name home port release service_cidr pod_cidr node_cidr feature_gates network "
        "load_balancer_cidr no_nodes encrypt former_key_files runtime_config warn_windows "
        "reject_windows loop_budget store servers server_ports etcd_ports advertise_address "
        "cert_extra_sans kubeconfig in_memory virtual_time"
    ),
    NetworkSettings: (
        "mode plugin backend exceptions cni_version flannel_version proxy_mode dsr "
        "hostname_override dual_stack policy relay"
    ),
    NodeSpec: (
        "name os number build revision cpus threads_per_core numa_nodes memory disk swap runtime "
        "runtime_version kubelet_version network_mode labels taints kube_reserved system_reserved "
        "eviction_hard eviction_soft eviction_soft_grace_period image_gc_high feature_gates "
        "kubelet_config priority_class pause_image max_pods adapter mac_spoofing proxy "
        "user_namespaces csi_proxy flex_drivers stopped"
    ),
}
_HARMLESS_VALUES: Mapping[type, Mapping[str, Callable[[Any], bool]]] = {
    ClusterConfig: {
        "bind": _is_loopback,
        "engine": _is_simulation,
        "encryption_key_file": _is_own_file,
        "node_ports": _has_ordinary_ports,
    },
    NetworkSettings: {},
    NodeSpec: {"engine": _is_simulation},
}


def machine_settings(config: ClusterConfig, nodes: Sequence[NodeSpec]) -> list[str]:
    """The settings that reach this machine, for example "bind 0.0.0.0"."""
    return [
        *_reaching(config, ClusterConfig(), ""),
        *_reaching(config.network, NetworkSettings(), "network."),
        *(
            text
            for node in nodes
            for text in _reaching(node, NodeSpec(node.name), f"node {node.name}: ")
        ),
    ]


def _reaching(settings: Any, default: Any, prefix: str) -> Iterator[str]:
    kind = type(settings)
    all_harmless = _HARMLESS[kind].split()
    for field in fields(kind):
        name = field.name
        value = getattr(settings, name)
        if name in all_harmless or value == getattr(default, name):
            continue
        harmless = _HARMLESS_VALUES[kind].get(name)
        if harmless is None or not harmless(value):
            shown = ", ".join(map(str, value)) if isinstance(value, (tuple, dict)) else value
            yield f"{prefix}{name} {shown}"


def nodes_of_snapshot(config: ClusterConfig, document: bytes, path: Path) -> list[NodeSpec]:
    """The nodes with the checks of a cluster file, because their names become folders. Raises
    UserError.
    """
    try:
        nodes = nodes_from_document(document)
        for node in nodes:
            _check_types(node)
        return complete_specs(config, nodes)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UserError(
            f"{path} has no usable nodes: {error}", "restore it into an existing cluster"
        ) from error


def _check_types(node: NodeSpec) -> None:
    default = NodeSpec("")
    for field in fields(NodeSpec):
        value, usual = getattr(node, field.name), getattr(default, field.name)
        if usual is None:
            wanted = bool if field.name == "user_namespaces" else dict
            if value is not None and type(value) is not wanted:
                raise ValueError(f"{field.name} is not a {wanted.__name__}")
        elif type(value) is not type(usual):
            raise ValueError(f"{field.name} is not a {type(usual).__name__}")
    if not 0 <= node.number < _HIGHEST_NUMBER:
        raise ValueError(f"number {node.number} is not the number of a node")
