"""The memory manager's state: the memory of each NUMA node and what containers have of it.

Saved in the kubelet's file memory_manager_state after every change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kubelet.cm.checkpoint import (
    memory_manager_checkpoint,
    read_memory_manager_checkpoint,
)
from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file


class MemoryBlock(NamedTuple):
    """Memory of a container; `type` is `memory` or `hugepages-SIZE`."""

    numa_nodes: tuple[int, ...]
    type: str
    size: int


@dataclass(slots=True)
class MemoryTable:
    """One type of memory of a NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int

    def take(self, size: int) -> int:
        """What is still missing."""
        taken = min(self.free, size)
        self.reserved += taken
        self.free -= taken
        return size - taken

    def release(self, size: int) -> int:
        """What other NUMA nodes must release."""
        released = min(self.reserved, size)
        self.reserved -= released
        self.free += released
        return size - released


@dataclass(slots=True)
class NumaNode:
    tables: dict[str, MemoryTable]
    cells: tuple[int, ...]  # the NUMA nodes whose memory is used together with this one's
    assignments: int = 0


@dataclass(slots=True)
class MachineMemory:
    nodes: dict[int, NumaNode] = field(default_factory=dict)

    def take(self, block: MemoryBlock, size: int) -> None:
        """`size` is less than that of the block when it uses the memory of init containers."""
        for number in block.numa_nodes:
            node = self.nodes[number]
            node.assignments += 1
            node.cells = block.numa_nodes
            size = node.tables[block.type].take(size)

    def release(self, block: MemoryBlock) -> None:
        size = block.size
        for number in block.numa_nodes:
            node = self.nodes[number]
            node.assignments -= 1
            if not node.assignments:
                node.cells = (number,)
            size = node.tables[block.type].release(size)

    def free(self, numa_nodes: Iterable[int], kind: str) -> int:
        return sum(self.nodes[number].tables[kind].free for number in numa_nodes)

    def allocatable(self, numa_nodes: Iterable[int], kind: str) -> int:
        return sum(self.nodes[number].tables[kind].allocatable for number in numa_nodes)

    def mixes_groups(self, numa_nodes: tuple[int, ...]) -> bool:
        """A NUMA node is used alone or always with the same other ones."""
        return len(numa_nodes) > 1 and any(
            node.assignments and node.cells != numa_nodes
            for node in (self.nodes[number] for number in numa_nodes)
        )

    def same_as(self, other: MachineMemory) -> bool:
        """Whether `other` can have the same assignments. The memory of a group of NUMA nodes can
        be divided in different ways.
        """
        return self.nodes.keys() == other.nodes.keys() and all(
            self._same_node(other, number) for number in self.nodes
        )

    def _same_node(self, other: MachineMemory, number: int) -> bool:
        ours, theirs = self.nodes[number], other.nodes[number]
        if (ours.assignments, ours.cells) != (theirs.assignments, theirs.cells):
            return False
        if ours.tables.keys() != theirs.tables.keys():
            return False
        return all(
            _fixed(table) == _fixed(theirs.tables[kind])
            and self.free(ours.cells, kind) == other.free(ours.cells, kind)
            for kind, table in ours.tables.items()
        )


class MemoryManagerState:
    __slots__ = ("_files", "_path", "_policy", "assignments", "machine")

    def __init__(self, files: Files, path: str, policy: str) -> None:
        """Raises ValueError when the file cannot be used with this policy."""
        self._files, self._path, self._policy = files, path, policy
        self.machine = MachineMemory()
        self.assignments: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
        if files.exists(path):
            self._restore()
        else:
            self.save()

    def blocks(self, uid: str, container: str) -> tuple[MemoryBlock, ...]:
        return self.assignments.get(uid, {}).get(container, ())

    def every_block(self) -> Iterator[tuple[str, str, MemoryBlock]]:
        for uid, containers in self.assignments.items():
            for name, blocks in containers.items():
                for block in blocks:
                    yield uid, name, block

    def save(self) -> None:
        machine = {
            str(number): {
                "numberOfAssignments": node.assignments,
                "memoryMap": {kind: _table_fields(t) for kind, t in sorted(node.tables.items())},
                "cells": list(node.cells),
            }
            for number, node in sorted(self.machine.nodes.items())
        }
        entries = {
            uid: {
                name: [_block_fields(b) for b in blocks] for name, blocks in sorted(found.items())
            }
            for uid, found in sorted(self.assignments.items())
        }
        self._files.write(
            self._path, memory_manager_checkpoint(self._policy, machine, entries), 0o600
        )

    def _restore(self) -> None:
        try:
            data = read_small_file(self._files, self._path)
            machine, entries = read_memory_manager_checkpoint(data, self._policy)
            self.machine = MachineMemory(
                {int(number): _read_node(node) for number, node in machine.items()}
            )
            self.assignments = {
                uid: {name: tuple(map(_read_block, blocks)) for name, blocks in found.items()}
                for uid, found in entries.items()
            }
        except (OSError, ValueError) as problem:
            raise ValueError(
                f"could not restore state from checkpoint: {problem}, please drain this node and "
                f'delete the memory manager checkpoint file "{self._path}" before restarting '
                "Kubelet"
            ) from problem


def _fixed(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _table_fields(table: MemoryTable) -> Mapping[str, int]:
    return {
        "total": table.total,
        "systemReserved": table.system_reserved,
        "allocatable": table.allocatable,
        "reserved": table.reserved,
        "free": table.free,
    }


def _block_fields(block: MemoryBlock) -> Mapping[str, Any]:
    return {"numaAffinity": list(block.numa_nodes), "type": block.type, "size": block.size}


def _read_node(node: Mapping[str, Any]) -> NumaNode:
    tables = {
        kind: MemoryTable(
            table["total"],
            table["systemReserved"],
            table["allocatable"],
            table["reserved"],
            table["free"],
        )
        for kind, table in node["memoryMap"].items()
    }
    return NumaNode(tables, tuple(node["cells"]), node["numberOfAssignments"])


def _read_block(block: Mapping[str, Any]) -> MemoryBlock:
    return MemoryBlock(tuple(block["numaAffinity"]), block["type"], block["size"])
