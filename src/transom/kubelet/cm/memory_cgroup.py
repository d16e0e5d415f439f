"""What the kubelet writes to the cgroup v2 of a container: its part of the swap (NodeSwap), and how
its memory is protected and throttled (MemoryQoS). The formulas are Kubernetes' own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from transom.kubelet.config import KubeletConfig
from transom.kubelet.features import MemoryFeatures, memory_features
from transom.kubelet.labels import is_critical
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import parse_quantity
from transom.machines.api import Hardware

TIERED_RESERVATION: Final = "TieredReservation"
_PAGE: Final = 4096


def memory_cgroup_files(
    pod: Object, container: Object, config: KubeletConfig, hardware: Hardware, allocatable: int
) -> dict[str, str]:
    """The files and their contents. `allocatable` is the memory that the node has for pods."""
    features = memory_features(config.release, config.feature_gates)
    swap = swap_limit(pod, container, config, hardware)
    out = {} if swap is None else {"memory.swap.max": swap}
    if features.memory_qos:
        out |= _memory_qos(pod, container, config, features, allocatable)
    return out


def pod_memory_protection(pod: Object, request: int, config: KubeletConfig) -> dict[str, str]:
    """The files of the cgroup of the pod as a whole."""
    features = memory_features(config.release, config.feature_gates)
    return _protection(pod, request, config, features) if features.memory_qos else {}


# ---- swap ----


def swap_limit(
    pod: Object, container: Object, config: KubeletConfig, hardware: Hardware
) -> str | None:
    """The content of memory.swap.max; None if the kubelet leaves it alone."""
    features = memory_features(config.release, config.feature_gates)
    behavior = config.swap_behavior if features.node_swap else "NoSwap"
    if features.swap_only_with_gate:
        if behavior == "UnlimitedSwap":
            return "max"
        return "0" if features.node_swap and _memory(container, "limits") else None
    if behavior == "LimitedSwap":
        return str(_limited_swap(pod, container, features, hardware))
    unlimited = features.unlimited_by_default and features.node_swap
    return "max" if unlimited else "0"


def has_swap(pod: Object, container: Object, config: KubeletConfig) -> bool:
    """Whether the container gets a part of the node's swap, if it has any."""
    features = memory_features(config.release, config.feature_gates)
    request = _memory(container, "requests") or _memory(container, "limits")
    return (
        features.node_swap
        and config.swap_behavior == "LimitedSwap"
        and persisted_qos_class(pod) == "Burstable"
        and request not in (0, _memory(container, "limits"))
        and not (features.critical_pods_without_swap and is_critical(pod))
    )


def _limited_swap(
    pod: Object, container: Object, features: MemoryFeatures, hardware: Hardware
) -> int:
    """Burstable pods get the part of the swap that they request of the memory."""
    request, limit = _memory(container, "requests"), _memory(container, "limits")
    if persisted_qos_class(pod) != "Burstable" or request == limit:
        return 0
    if features.critical_pods_without_swap and is_critical(pod):
        return 0
    if request > hardware.memory:
        return 0
    return int(request / hardware.memory * hardware.swap)


# ---- memory QoS ----


def _memory_qos(
    pod: Object,
    container: Object,
    config: KubeletConfig,
    features: MemoryFeatures,
    allocatable: int,
) -> dict[str, str]:
    request, limit = _memory(container, "requests"), _memory(container, "limits")
    out = _protection(pod, request, config, features)
    factor = throttling_factor(config, features)
    if factor is None:
        return out
    if _is_throttled_by_pod(pod, limit, features):
        return out
    most = limit or allocatable
    if not features.throttles_above_request:
        high = int(most * factor)
    elif request == limit and not (features.throttles_best_effort and not request):
        return out
    else:
        high = int(math.floor(request + (most - request) * factor) / _PAGE) * _PAGE
    if high > request:
        out["memory.high"] = str(high)
    return out


def _protection(
    pod: Object, request: int, config: KubeletConfig, features: MemoryFeatures
) -> dict[str, str]:
    if not features.tiered_reservation:
        return {"memory.min": str(request)} if request else {}
    if not request or config.memory_reservation_policy != TIERED_RESERVATION:
        return {"memory.min": "0", "memory.low": "0"}
    guaranteed = persisted_qos_class(pod) == "Guaranteed"
    return {"memory.min" if guaranteed else "memory.low": str(request)}


def _is_throttled_by_pod(pod: Object, limit: int, features: MemoryFeatures) -> bool:
    """Whether the limit of the pod as a whole replaces memory.high of a container."""
    limits: Mapping[str, str] = (pod["spec"].get("resources") or {}).get("limits") or {}
    return features.throttles_best_effort and not limit and "memory" in limits


def throttling_factor(config: KubeletConfig, features: MemoryFeatures) -> float | None:
    if config.memory_throttling_factor is not None:
        return config.memory_throttling_factor
    return features.throttling_factor


def _memory(container: Object, kind: str) -> int:
    amounts: Mapping[str, str] = (container.get("resources") or {}).get(kind) or {}
    return parse_quantity(amounts.get("memory", "0")).value()
