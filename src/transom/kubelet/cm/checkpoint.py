"""The state files of the container manager, /var/lib/kubelet/cpu_manager_state for example.

Their checksum is Kubernetes': the FNV-1a hash of the object as Go prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from transom.machinery.hashes import fnv32a

CpuEntries = Mapping[str, Mapping[str, str]]  # by pod uid and container


@lru_cache(maxsize=16)
def _checksum(text: str) -> int:
    """Nodes start with the same few states."""
    return fnv32a(text.encode())


def cpu_manager_checkpoint(policy: str, default: str, entries: CpuEntries) -> bytes:
    text = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} "
        f"DefaultCPUSet:(string){default} Entries:(map[string]map[string]string)"
        f"{_go_map(entries)} Checksum:(checksum.Checksum)0}}"
    )
    content: dict[str, Any] = {"policyName": policy, "defaultCpuSet": default}
    if entries:
        content["entries"] = {uid: dict(sorted(entries[uid].items())) for uid in sorted(entries)}
    content["checksum"] = _checksum(text)
    return orjson.dumps(content)


def read_cpu_manager_checkpoint(data: bytes, policy: str) -> tuple[str, CpuEntries]:
    """The default set and the entries. Raises ValueError with the text of Kubernetes."""
    try:
        content = orjson.loads(data)
        default, entries = str(content["defaultCpuSet"]), dict(content.get("entries") or {})
        saved = str(content["policyName"])
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError("checkpoint is corrupted") from problem
    expected = orjson.loads(cpu_manager_checkpoint(saved, default, entries))
    if expected["checksum"] != content.get("checksum"):
        raise ValueError("checkpoint is corrupted")
    if saved != policy:
        raise ValueError(
            f'configured policy "{policy}" differs from state checkpoint policy "{saved}"'
        )
    return default, entries


def _go_map(entries: CpuEntries) -> str:
    pods = (
        f"{uid}:map[{' '.join(f'{name}:{cpus}' for name, cpus in sorted(found.items()))}]"
        for uid, found in sorted(entries.items())
    )
    return f"map[{' '.join(pods)}]"


# ---- the memory manager ----


def memory_manager_checkpoint(policy: str, machine: Any, entries: Any) -> bytes:
    """`machine` and `entries` have the shape of the file."""
    nodes = " ".join(map(_go_numa_node, sorted(machine.items())))
    pods = " ".join(map(_go_blocks, sorted(entries.items())))
    text = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){policy} "
        f"MachineState:(state.NUMANodeMap)map[{nodes}] "
        f"Entries:(state.ContainerMemoryAssignments)map[{pods}] "
        "Checksum:(checksum.Checksum)0}"
    )
    content: dict[str, Any] = {"policyName": policy, "machineState": machine}
    if entries:
        content["entries"] = entries
    content["checksum"] = _checksum(text)
    return orjson.dumps(content)


def read_memory_manager_checkpoint(data: bytes, policy: str) -> tuple[Any, Any]:
    """The machine's state and the entries. Raises ValueError with the text of Kubernetes."""
    try:
        content = orjson.loads(data)
        saved, machine = str(content["policyName"]), dict(content["machineState"])
        entries = dict(content.get("entries") or {})
        expected = orjson.loads(memory_manager_checkpoint(saved, machine, entries))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError("checkpoint is corrupted") from problem
    if expected["checksum"] != content.get("checksum"):
        raise ValueError("checkpoint is corrupted")
    if saved != policy:
        raise ValueError(
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy '
            f'"{saved}"'
        )
    return machine, entries


def _go_numa_node(item: tuple[str, Any]) -> str:
    number, node = item
    tables = " ".join(
        f"{name}:<*>{{TotalMemSize:(uint64){table['total']} "
        f"SystemReserved:(uint64){table['systemReserved']} "
        f"Allocatable:(uint64){table['allocatable']} "
        f"Reserved:(uint64){table['reserved']} Free:(uint64){table['free']}}}"
        for name, table in sorted(node["memoryMap"].items())
    )
    return (
        f"{number}:<*>{{NumberOfAssignments:(int){node['numberOfAssignments']} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{tables}] "
        f"Cells:([]int)[{' '.join(map(str, node['cells']))}]}}"
    )


def _go_blocks(item: tuple[str, Any]) -> str:
    uid, containers = item
    found = (
        f"{name}:[{' '.join(map(_go_block, blocks))}]"
        for name, blocks in sorted(containers.items())
    )
    return f"{uid}:map[{' '.join(found)}]"


def _go_block(block: Any) -> str:
    return (
        f"{{NUMAAffinity:([]int)[{' '.join(map(str, block['numaAffinity']))}] "
        f"Type:(v1.ResourceName){block['type']} Size:(uint64){block['size']}}}"
    )
