"""Resizes that are never possible beside the managers of CPUs, memory and swap. The texts are
Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transom.kubelet.cm.memory_cgroup import has_swap
from transom.kubelet.config import KubeletConfig
from transom.kubelet.features import resize_features
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases.kubelet import kubelet_has

_SWAP: Final = "In-place resize of containers with swap is not supported."


def resize_problem(pod: Object, allocated: Object, config: KubeletConfig) -> str:
    """Why the allocated pod can never get the resources of this one; empty when it can."""
    return _swap_problem(pod, allocated, config) or _static_policy_problem(pod, allocated, config)


def _swap_problem(pod: Object, allocated: Object, config: KubeletConfig) -> str:
    """The part of the swap that a container has follows from its memory request."""
    for new, old in zip(_containers(pod), _containers(allocated), strict=True):
        policies = {p["resourceName"]: p["restartPolicy"] for p in new.get("resizePolicy") or ()}
        if _requests_same(new, old, "memory") or policies.get("memory") == "RestartContainer":
            continue
        if has_swap(pod, new, config) or has_swap(allocated, old, config):
            return _SWAP
    return ""


def _static_policy_problem(pod: Object, allocated: Object, config: KubeletConfig) -> str:
    """The static policies do not change what a running container has for itself."""
    if persisted_qos_class(pod) != "Guaranteed":
        return ""
    features = resize_features(config.release, config.feature_gates)
    any_resource = not kubelet_has(config.release, "ResizesBesideStaticPolicy")
    for manager, resource, policy, static, allowed in (
        ("CPU", "cpu", config.cpu_manager_policy, "static", features.exclusive_cpus),
        ("Memory", "memory", config.memory_manager_policy, "Static", features.exclusive_memory),
    ):
        if policy != static or allowed:
            continue
        if any_resource or not all(
            _requests_same(new, old, resource)
            for new, old in zip(_containers(pod), _containers(allocated), strict=True)
        ):
            shown = "static policy" if any_resource else f'policy "{static}"'
            return f"Resize is infeasible for Guaranteed Pods alongside {manager} Manager {shown}"
    return ""


def _requests_same(one: Object, other: Object, resource: str) -> bool:
    return _request(one, resource) == _request(other, resource)


def _request(container: Object, resource: str) -> int:
    requests = (container.get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get(resource, "0")).milli_value()


def _containers(pod: Object) -> Iterable[Object]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]
