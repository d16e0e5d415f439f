"""The small objects that /stats/summary consists of, and how to sum them. Pure; independent of the
operating system.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from transom.kit.clock import rfc3339
from transom.machinery.objects import Object
from transom.machines.api import DiskSpace
from transom.runtime.api import InterfaceStats

MEMORY = (
    "availableBytes",
    "usageBytes",
    "workingSetBytes",
    "rssBytes",
    "pageFaults",
    "majorPageFaults",
)
CPU = ("usageNanoCores", "usageCoreNanoSeconds")


def cpu_stats(time: float, total: int, nano_cores: int | None) -> Object:
    out: Object = {"time": rfc3339(time)}
    if nano_cores is not None:
        out["usageNanoCores"] = nano_cores
    out["usageCoreNanoSeconds"] = total
    return out


def memory_stats(time: float, **fields: int) -> Object:
    """`fields` by their JSON names; the order is the API's."""
    return {"time": rfc3339(time), **{name: fields[name] for name in MEMORY if name in fields}}


def total_stats(objects: Iterable[Object], field: str) -> int:
    return sum(each.get(field, 0) for each in objects)


def filesystem_stats(
    time: float, disk: DiskSpace, used: int | None = None, inodes_used: int | None = None
) -> Object:
    """Includes inodes only where the file system counts them, unless those in use were counted."""
    out: Object = {
        "time": rfc3339(time),
        "availableBytes": disk.available,
        "capacityBytes": disk.capacity,
    }
    if used is not None:
        out["usedBytes"] = used
    if disk.inodes:
        out["inodesFree"] = disk.inodes - disk.inodes_used
        out["inodes"] = disk.inodes
    if inodes_used is not None:
        out["inodesUsed"] = inodes_used
    return out


class VolumeFill(Protocol):
    """The usage of a volume as its driver reports it."""

    @property
    def capacity(self) -> int: ...
    @property
    def available(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def inodes(self) -> int: ...
    @property
    def inodes_free(self) -> int: ...
    @property
    def inodes_used(self) -> int: ...


def driver_volume_stats(time: float, usage: VolumeFill, name: str, claim: Object | None) -> Object:
    out: Object = {
        "time": rfc3339(time),
        "availableBytes": usage.available,
        "capacityBytes": usage.capacity,
        "usedBytes": usage.used,
        "inodesFree": usage.inodes_free,
        "inodes": usage.inodes,
        "inodesUsed": usage.inodes_used,
        "name": name,
    }
    return out if claim is None else {**out, "pvcRef": claim}


def volume_stats(
    time: float, disk: DiskSpace, used: int, inodes_used: int, name: str, claim: Object | None
) -> Object:
    """Includes all numbers, even unknown ones."""
    out: Object = {
        "time": rfc3339(time),
        "availableBytes": disk.available,
        "capacityBytes": disk.capacity,
        "usedBytes": used,
        "inodesFree": disk.inodes - disk.inodes_used if disk.inodes else 0,
        "inodes": disk.inodes,
        "inodesUsed": inodes_used if disk.inodes else 0,
        "name": name,
    }
    if claim is not None:
        out["pvcRef"] = claim
    return out


def ephemeral_storage_stats(
    time: float,
    disk: DiskSpace,
    containers: Sequence[Object],
    volumes: Sequence[Object],
    logs_too: bool,
) -> Object:
    """What a pod has written: writable layers, logs and volumes. `logs_too`: the logs' inodes are
    known exactly.
    """
    layers = [c["rootfs"] for c in containers if "rootfs" in c]
    logs = [c["logs"] for c in containers if "rootfs" in c and "logs" in c]
    counted = [*layers, *volumes, *(logs if logs_too else ())]
    used = [*layers, *volumes, *logs]
    out = filesystem_stats(time, disk)
    if any("usedBytes" in each for each in used):
        out["usedBytes"] = total_stats(used, "usedBytes")
    for name in ("inodesFree", "inodes"):  # after usedBytes, as everywhere
        if name in out:
            out[name] = out.pop(name)
    if any("inodesUsed" in each for each in counted):
        out["inodesUsed"] = total_stats(counted, "inodesUsed")
    return out


def interface_stats(item: InterfaceStats) -> Object:
    out: Object = {"name": item.name, "rxBytes": item.rx_bytes}
    if item.rx_errors is not None:
        out["rxErrors"] = item.rx_errors
    out["txBytes"] = item.tx_bytes
    if item.tx_errors is not None:
        out["txErrors"] = item.tx_errors
    return out


def network_stats(
    time: float, interfaces: Sequence[InterfaceStats], default: InterfaceStats | None
) -> Object:
    """`default` is also shown separately; without one there is an empty name."""
    shown = interface_stats(default) if default is not None else {"name": ""}
    return {
        "time": rfc3339(time),
        **shown,
        "interfaces": [interface_stats(each) for each in interfaces],
    }
