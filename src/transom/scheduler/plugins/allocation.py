"""What scores by resources have in common: allocatable and requested amounts, as if the pod ran on each node."""

from __future__ import annotations

import numpy as np

from transom.machinery.objects import Object
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, is_scalar
from transom.scheduler.arrays import Ints, Some
from transom.scheduler.framework import ConfigError
from transom.scheduler.pods import Shape
from transom.scheduler.resources import score_request
from transom.scheduler.snapshot import Snapshot

DEFAULT_RESOURCES = ((CPU, 1), (MEMORY, 1))


def read_resources(args: Object) -> tuple[tuple[str, int], ...]:
    """Names and weights from a plugin's arguments."""
    entries = args.get("resources") or ()
    return tuple((entry.get("name", ""), entry.get("weight", 0)) for entry in entries) or DEFAULT_RESOURCES


def check_weights(resources: tuple[tuple[str, int], ...], plugin: str) -> None:
    for name, weight in resources:
        if weight <= 0:
            text = f"resource Weight of {name} should be a positive value, got {weight}"
        elif weight > 100:
            text = f"resource Weight of {name} should be less than 100, got {weight}"
        else:
            continue
        raise ConfigError(f'initializing plugin "{plugin}": {text}')


def requests_of(shape: Shape, resources: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """What the pod counts as, in the order of `resources`."""
    key = ("counted", resources)
    found: tuple[int, ...] | None = shape.memo.get(key)
    if found is None:
        found = shape.memo[key] = tuple(score_request(shape.spec, name) for name, _ in resources)
    return found


def amounts(snapshot: Snapshot, name: str, wanted: int, rows: Some) -> tuple[Ints, Ints]:
    """Allocatable, and requested with the pod."""
    if name == CPU:
        return snapshot.alloc_cpu[rows], snapshot.counted_cpu[rows] + wanted
    if name == MEMORY:
        return snapshot.alloc_memory[rows], snapshot.counted_memory[rows] + wanted
    if name == EPHEMERAL:
        return snapshot.alloc_ephemeral[rows], snapshot.used_ephemeral[rows] + wanted
    if is_scalar(name):
        has, used = snapshot.scalar(name)
        return has[rows], used[rows] + wanted
    nothing = np.zeros_like(snapshot.alloc_cpu[rows])
    return nothing, nothing
