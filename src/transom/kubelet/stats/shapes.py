"""The small objects that /stats/summary consists of, and how they are added up. Pure; knows no operating system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.hosts.api import Disk
from transom.kit.clock import rfc3339
from transom.machinery.objects import Object
from transom.runtime.api import Interface

MEMORY = ("availableBytes", "usageBytes", "workingSetBytes", "rssBytes", "pageFaults", "majorPageFaults")
CPU = ("usageNanoCores", "usageCoreNanoSeconds")


def cpu(time: float, total: int, nano_cores: int | None) -> Object:
    out: Object = {"time": rfc3339(time)}
    if nano_cores is not None:
        out["usageNanoCores"] = nano_cores
    out["usageCoreNanoSeconds"] = total
    return out


def memory(time: float, **fields: int) -> Object:
    """`fields` by their names in JSON; the order is the API's."""
    return {"time": rfc3339(time), **{name: fields[name] for name in MEMORY if name in fields}}


def total(objects: Iterable[Object], field: str) -> int:
    return sum(each.get(field, 0) for each in objects)


def filesystem(time: float, disk: Disk, used: int | None = None, inodes_used: int | None = None) -> Object:
    """Inodes only where the file system counts them, unless somebody has counted those in use."""
    out: Object = {"time": rfc3339(time), "availableBytes": disk.available, "capacityBytes": disk.capacity}
    if used is not None:
        out["usedBytes"] = used
    if disk.inodes:
        out["inodesFree"] = disk.inodes - disk.inodes_used
        out["inodes"] = disk.inodes
    if inodes_used is not None:
        out["inodesUsed"] = inodes_used
    return out


def volume(time: float, disk: Disk, used: int, inodes_used: int, name: str, claim: Object | None) -> Object:
    """All numbers are there, also those that nobody knows."""
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


def ephemeral_storage(
    time: float, disk: Disk, containers: Sequence[Object], volumes: Sequence[Object], logs_too: bool
) -> Object:
    """What a pod has written: writable layers, logs and volumes. `logs_too`: inodes of logs are known exactly."""
    layers = [c["rootfs"] for c in containers if "rootfs" in c]
    logs = [c["logs"] for c in containers if "rootfs" in c and "logs" in c]
    counted = [*layers, *volumes, *(logs if logs_too else ())]
    used = [*layers, *volumes, *logs]
    out = filesystem(time, disk)
    if any("usedBytes" in each for each in used):
        out["usedBytes"] = total(used, "usedBytes")
    for name in ("inodesFree", "inodes"):  # after usedBytes, as everywhere
        if name in out:
            out[name] = out.pop(name)
    if any("inodesUsed" in each for each in counted):
        out["inodesUsed"] = total(counted, "inodesUsed")
    return out


def interface(item: Interface) -> Object:
    out: Object = {"name": item.name, "rxBytes": item.rx_bytes}
    if item.rx_errors is not None:
        out["rxErrors"] = item.rx_errors
    out["txBytes"] = item.tx_bytes
    if item.tx_errors is not None:
        out["txErrors"] = item.tx_errors
    return out


def network(time: float, interfaces: Sequence[Interface], default: Interface | None) -> Object:
    """`default` is also shown by itself; without one there is a name without text."""
    shown = interface(default) if default is not None else {"name": ""}
    return {"time": rfc3339(time), **shown, "interfaces": [interface(each) for each in interfaces]}
