"""The cgroup of a pod as a whole: `kubepods/[burstable|besteffort]/podUID`.

Its shares are what the pod requests. It has a limit where the pod has one for all its containers
together: its own, or the sum where each container has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transom.kubelet.cgroup_units import MIN_SHARES, cpu_quota, cpu_shares
from transom.kubelet.cm.memory_cgroup import pod_memory_protection
from transom.kubelet.config import KubeletConfig
from transom.machinery.objects import Object
from transom.machinery.podresources import pod_amounts
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import ZERO, parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.kubelet import kubelet_has
from transom.runtime.api import LinuxResources


def pod_cgroup_resources(
    pod: Object, config: KubeletConfig, *, limit_cpu: bool = True
) -> LinuxResources:
    """`limit_cpu`: not for a pod with CPUs of its own, if those have no quota."""
    spec, qos = pod["spec"], persisted_qos_class(pod)
    if qos == "BestEffort":
        return LinuxResources(cpu_period=config.cpu_period, cpu_shares=MIN_SHARES)
    requests, limits = pod_amounts(spec, "requests"), pod_amounts(spec, "limits")
    quota = memory = 0
    if (
        limit_cpu
        and config.cpu_cfs_quota
        and (qos == "Guaranteed" or _declares_limit(spec, "cpu", config))
    ):
        quota = cpu_quota(limits.get("cpu", ZERO).milli_value(), config.cpu_period)
    if qos == "Guaranteed" or _declares_limit(spec, "memory", config):
        memory = limits.get("memory", ZERO).value()
    return LinuxResources(
        cpu_period=config.cpu_period,
        cpu_quota=quota,
        cpu_shares=cpu_shares(requests.get("cpu", ZERO).milli_value()),
        memory_limit=memory,
        unified=pod_memory_protection(pod, requests.get("memory", ZERO).value(), config),
    )


def _declares_limit(spec: Object, name: str, config: KubeletConfig) -> bool:
    """Whether the pod has a limit, or each of its containers."""
    return _limits_resource(spec, name) or all(
        _limits_resource(container, name) for container in _counted_containers(spec, config)
    )


def _limits_resource(of: Object, name: str) -> bool:
    limits: Mapping[str, str] = (of.get("resources") or {}).get("limits") or {}
    return not parse_quantity(limits.get(name, "0")).is_zero


def _counted_containers(spec: Object, config: KubeletConfig) -> Iterable[Object]:
    yield from spec["containers"]
    if kubelet_has(Release(*config.release), "InitContainersOfPodCgroups"):
        yield from spec.get("initContainers") or ()
