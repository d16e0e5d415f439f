"""Common parts of the resource scores: allocatable and requested amounts of each node with the pod."""

from __future__ import annotations

from transom.machinery.objects import Object
from transom.machinery.resourcenames import CPU, EPHEMERAL, MEMORY, is_scalar_resource
from transom.scheduler.arrays import Ints, Some, np
from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.pods import PodShape
from transom.scheduler.resources import score_request
from transom.scheduler.snapshot import Snapshot

DEFAULT_RESOURCES = ((CPU, 1), (MEMORY, 1))


def read_resources(args: Object) -> tuple[tuple[str, int], ...]:
    """Names and weights from a plugin's arguments."""
    entries = args.get("resources") or ()
    return (
        tuple((entry.get("name", ""), entry.get("weight", 0)) for entry in entries)
        or DEFAULT_RESOURCES
    )


def check_weights(resources: tuple[tuple[str, int], ...], plugin: str) -> None:
    for name, weight in resources:
        if weight <= 0:
            text = f"resource Weight of {name} should be a positive value, got {weight}"
        elif weight > 100:
            text = f"resource Weight of {name} should be less than 100, got {weight}"
        else:
            continue
        raise SchedulerConfigError(f'initializing plugin "{plugin}": {text}')


def requests_of(shape: PodShape, resources: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """The requests of the pod in the order of `resources`."""
    key = ("counted", resources)
    found: tuple[int, ...] | None = shape.memo.get(key)
    if found is None:
        found = shape.memo[key] = tuple(score_request(shape.spec, name) for name, _ in resources)
    return found


def allocated_amounts(snapshot: Snapshot, name: str, wanted: int, rows: Some) -> tuple[Ints, Ints]:
    """Allocatable, and requested with the pod."""
    if name == CPU:
        return snapshot.alloc_cpu[rows], snapshot.counted_cpu[rows] + wanted
    if name == MEMORY:
        return snapshot.alloc_memory[rows], snapshot.counted_memory[rows] + wanted
    if name == EPHEMERAL:
        return snapshot.alloc_ephemeral[rows], snapshot.used_ephemeral[rows] + wanted
    if is_scalar_resource(name):
        has, used = snapshot.scalar(name)
        return has[rows], used[rows] + wanted
    nothing = np.zeros_like(snapshot.alloc_cpu[rows])
    return nothing, nothing
