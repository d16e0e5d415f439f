"""Eviction signals, thresholds on them, and which thresholds are met. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from transom.kit.durations import parse_duration
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.allocatable import SIGNALS, Threshold, hard_thresholds, parse_threshold
from transom.kubelet.config import KubeletConfig
from transom.kubelet.osrules import OsRules
from transom.machinery import quantity
from transom.machinery.quantity import BINARY_SI, Quantity

MEMORY: Final = "memory.available"
ALLOCATABLE_MEMORY: Final = "allocatableMemory.available"
NODE_FS, NODE_INODES = "nodefs.available", "nodefs.inodesFree"
IMAGE_FS, IMAGE_INODES = "imagefs.available", "imagefs.inodesFree"
PIDS: Final = "pid.available"

CONDITIONS: Final[Mapping[str, str]] = {
    MEMORY: "MemoryPressure",
    ALLOCATABLE_MEMORY: "MemoryPressure",
    IMAGE_FS: "DiskPressure",
    IMAGE_INODES: "DiskPressure",
    NODE_FS: "DiskPressure",
    NODE_INODES: "DiskPressure",
    PIDS: "PIDPressure",
}
RESOURCES: Final[Mapping[str, str]] = {
    MEMORY: "memory",
    ALLOCATABLE_MEMORY: "memory",
    IMAGE_FS: "ephemeral-storage",
    NODE_FS: "ephemeral-storage",
    IMAGE_INODES: "inodes",
    NODE_INODES: "inodes",
    PIDS: "pids",
}


class SignalObservation(NamedTuple):
    available: int
    capacity: int


Observations = Mapping[str, SignalObservation]


class EvictionThreshold(NamedTuple):
    """A threshold on a signal. Hard thresholds have no grace period; `reclaim` is the minimum
    reclaim above the threshold.
    """

    signal: str
    value: Threshold
    grace: float = 0.0
    reclaim: Threshold | None = None

    @property
    def hard(self) -> bool:
        return self.grace == 0

    def crossed(self, seen: SignalObservation, with_reclaim: bool) -> bool:
        wanted = _amount(self.value, seen.capacity)
        if with_reclaim and self.reclaim is not None:
            wanted += _amount(self.reclaim, seen.capacity)
        return wanted > seen.available


def _amount(value: Threshold, capacity: int) -> int:
    if value.amount is not None:
        return value.amount.value()
    return value.of(Quantity(capacity, 0, BINARY_SI)).value()


def configured_thresholds(config: KubeletConfig, rules: OsRules) -> list[EvictionThreshold]:
    """All thresholds of a kubelet. Raises ValueError with the kubelet's text for an invalid
    configuration.
    """
    limits = _limits(hard_thresholds(config, rules))
    graces = _grace_periods(config.eviction_soft_grace_period)
    reclaims = _reclaims(config.eviction_minimum_reclaim)
    for soft in _limits(config.eviction_soft):
        if soft.signal not in graces:
            raise ValueError(
                f"grace period must be specified for the soft eviction threshold {soft.signal}"
            )
        limits.append(soft._replace(grace=graces[soft.signal]))
    limits = [limit._replace(reclaim=reclaims.get(limit.signal)) for limit in limits]
    if "pods" in config.enforce_node_allocatable:
        limits += [
            limit._replace(signal=ALLOCATABLE_MEMORY)
            for limit in limits
            if limit.signal == MEMORY and limit.hard
        ]
    return limits


def _limits(statements: Mapping[str, str]) -> list[EvictionThreshold]:
    parsed = ((signal, parse_threshold(signal, text)) for signal, text in statements.items())
    return [EvictionThreshold(signal, value) for signal, value in parsed if value is not None]


def _grace_periods(statements: Mapping[str, str]) -> dict[str, float]:
    out = {}
    for signal, text in statements.items():
        _check_signal(signal)
        seconds = parse_duration(text)
        if seconds < 0:
            raise ValueError(
                f"invalid eviction grace period specified: {text}, must be a positive value"
            )
        out[signal] = seconds
    return out


def _reclaims(statements: Mapping[str, str]) -> dict[str, Threshold]:
    out = {}
    for signal, text in statements.items():
        _check_signal(signal)
        if text.endswith("%"):
            part = parse_threshold(signal, text)
            if text == "100%":
                part = Threshold(None, 1.0)
            if part is None or part.part <= 0:
                raise ValueError(
                    f"eviction percentage minimum reclaim {signal} must be positive: {text}"
                )
            out[signal] = part
            continue
        amount = quantity.parse_quantity(text)
        if amount.sign < 0:
            raise ValueError(f"negative eviction minimum reclaim specified for {signal}")
        out[signal] = Threshold(amount)
    return out


def _check_signal(signal: str) -> None:
    if signal not in SIGNALS:
        raise ValueError(f"unsupported eviction signal {signal}")


def crossed_thresholds(
    limits: Iterable[EvictionThreshold], seen: Observations, *, with_reclaim: bool = False
) -> list[EvictionThreshold]:
    """The thresholds that are met now; signals that are not observed do not count."""
    out = []
    for limit in limits:
        observation = seen.get(limit.signal)
        if observation is not None and limit.crossed(observation, with_reclaim):
            out.append(limit)
    return out


def pressure_conditions(limits: Iterable[EvictionThreshold]) -> list[str]:
    return list(dict.fromkeys(CONDITIONS[limit.signal] for limit in limits))


def by_priority(limits: Sequence[EvictionThreshold]) -> list[EvictionThreshold]:
    """Memory comes first."""
    return sorted(limits, key=lambda limit: limit.signal not in (MEMORY, ALLOCATABLE_MEMORY))
