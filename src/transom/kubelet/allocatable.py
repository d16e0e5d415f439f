"""A node's capacity and allocatable resources: allocatable = capacity - reserved - hard eviction
threshold.

Pure functions on quantities. The configuration defines the reservations, the machine defines which
resources exist.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

from transom.kit.named_tuple import NamedTuple
from transom.machinery import quantity
from transom.machinery.quantity import BINARY_SI, Quantity
from transom.machines.cpus import parse_cpuset

if TYPE_CHECKING:  # the command line checks reservations before it starts a cluster
    from transom.kubelet.config import KubeletConfig
    from transom.kubelet.osrules import OsRules
    from transom.machines.api import Host

# Thresholds on these signals reduce allocatable.
_RESERVING_SIGNALS = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
SIGNALS = (
    "memory.available",
    "allocatableMemory.available",
    "imagefs.available",
    "imagefs.inodesFree",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
)

Resources = Mapping[str, Quantity]


class Threshold(NamedTuple):
    """An absolute quantity or a fraction of the capacity."""

    amount: Quantity | None
    part: float = 0.0

    def of(self, capacity: Quantity) -> Quantity:
        if self.amount is not None:
            return self.amount
        return Quantity(int(float(capacity.value()) * self.part), 0, BINARY_SI)


def parse_threshold(signal: str, text: str) -> Threshold | None:
    """None for a disabled threshold; raises ValueError with the kubelet's text for an invalid
    one.
    """
    if signal not in SIGNALS:
        raise ValueError(f"unsupported eviction signal {signal}")
    if text.endswith("%"):
        if text in ("0%", "100%"):
            return None
        try:
            part = _single(_single(float(text.rstrip("%"))) / 100)
        except ValueError:
            raise ValueError(
                f'strconv.ParseFloat: parsing "{text.rstrip("%")}": invalid syntax'
            ) from None
        if part < 0:
            raise ValueError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
        if part > 100:  # Kubernetes compares the fraction with 100, so 150% passes here
            raise ValueError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
        return Threshold(None, part)
    amount = quantity.parse_quantity(text)
    if amount.sign <= 0:
        raise ValueError(f"eviction threshold {signal} must be positive: {amount}")
    return Threshold(amount)


def parse_reserved(reserved: Mapping[str, str]) -> dict[str, Quantity]:
    """Raises ValueError with the kubelet's text for resources that cannot be reserved."""
    out = {}
    for name, text in reserved.items():
        if name not in _RESERVABLE:
            raise ValueError(f'cannot reserve "{name}" resource')
        amount = quantity.parse_quantity(text)
        if amount.sign < 0:
            raise ValueError(f'resource quantity for "{name}" cannot be negative: {text}')
        out[name] = amount
    return out


def hard_thresholds(config: KubeletConfig, rules: OsRules) -> Mapping[str, str]:
    return (
        rules.default_eviction(config.release)
        if config.eviction_hard is None
        else config.eviction_hard
    )


def machine_capacity(host: Host, rules: OsRules) -> dict[str, Quantity]:
    """The machine's capacity without the number of pods, which is a setting."""
    out = {
        "cpu": quantity.from_milli(host.hardware.cpus * 1000),
        "ephemeral-storage": quantity.from_int(host.disk().capacity, BINARY_SI),
        "memory": quantity.from_int(host.hardware.memory, BINARY_SI),
    }
    for name, text in rules.capacity_extras(host).items():
        out[name] = quantity.parse_quantity(text)
    return out


def pods_capacity(config: KubeletConfig, cpus: int) -> int:
    return (
        min(cpus * config.pods_per_core, config.max_pods)
        if config.pods_per_core > 0
        else config.max_pods
    )


def node_reservation(
    config: KubeletConfig, rules: OsRules, capacity: Resources
) -> dict[str, Quantity]:
    """For each resource of the machine, the amount that pods cannot use; resources without a
    reservation are omitted.
    """
    evicted: dict[str, Quantity] = {}
    for signal, text in hard_thresholds(config, rules).items():
        resource = _RESERVING_SIGNALS.get(signal)
        threshold = parse_threshold(signal, text) if resource else None
        if resource and threshold:
            evicted[resource] = threshold.of(capacity.get(resource, quantity.ZERO))
    system, kube = parse_reserved(config.system_reserved), parse_reserved(config.kube_reserved)
    if config.reserved_system_cpus:
        system["cpu"] = quantity.from_milli(1000 * len(parse_cpuset(config.reserved_system_cpus)))
        kube.pop("cpu", None)
    parts = (system, kube, evicted)
    out = {}
    for name in capacity:
        total = quantity.ZERO
        for part in parts:
            if name in part:
                total = total + part[name]
        if not total.is_zero:
            out[name] = total
    return out


def node_allocatable(capacity: Resources, reserved: Resources) -> dict[str, Quantity]:
    """Never negative. Preallocated huge pages do not count as memory."""
    out = {}
    for name, amount in capacity.items():
        left = amount - reserved[name] if name in reserved else amount
        out[name] = left if left.sign >= 0 else quantity.from_int(0, left.format)
    memory = out.get("memory")
    if memory is not None:
        for name, amount in capacity.items():
            if name.startswith("hugepages-") and not amount.is_zero:
                memory = memory - amount
                memory = memory if memory.sign >= 0 else quantity.from_int(0, BINARY_SI)
        out["memory"] = memory
    return out


def overcommitted(capacity: Resources, reserved: Resources) -> str:
    """Why a kubelet that enforces allocatable refuses to start; formats quantities the way Go
    prints the struct.
    """
    wrong = []
    for name in sorted(reserved):
        left = capacity[name] - reserved[name]
        if left.sign < 0:
            wrong.append(
                f'Resource "{name}" has an allocatable of {_struct(reserved[name])}, '
                f"capacity of {_struct(left)}"
            )
    return "invalid Node Allocatable configuration. " + " ".join(wrong) if wrong else ""


def _struct(amount: Quantity) -> str:
    return f"{{{{{amount.mantissa} {amount.exponent}}} {{<nil>}}  {amount.format}}}"


def _single(value: float) -> float:
    """Rounds to a 32-bit float: Kubernetes stores percentages in one, which shows in the last
    digits of allocatable.
    """
    return float(struct.unpack("f", struct.pack("f", value))[0])
