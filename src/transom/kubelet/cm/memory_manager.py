"""The memory manager: from which NUMA nodes containers get their memory.

With the policy Static (Linux) or BestEffort (Windows), containers of Guaranteed pods get memory of
as few NUMA nodes as possible. The texts of errors are Kubernetes' own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from transom.kubelet.cm.hints import NumaMask, TopologyHint, mask_bits, numa_masks
from transom.kubelet.cm.memory_state import (
    MachineMemory,
    MemoryBlock,
    MemoryManagerState,
    MemoryTable,
    NumaNode,
)
from transom.kubelet.config import MemoryReservation
from transom.machinery.objects import Object
from transom.machinery.podutil import persisted_qos_class
from transom.machinery.quantity import ZERO, Quantity, parse_quantity

MEMORY: Final = "memory"
_HUGE: Final = "hugepages-"

Hints = Mapping[str, Sequence[TopologyHint]]
"""By type of memory; empty without a preference."""


class MemoryAllocationError(Exception):
    """The pod cannot get its memory."""


def is_memory_type(name: str) -> bool:
    return name == MEMORY or name.startswith(_HUGE)


def check_reserved_memory(
    reserved: Sequence[MemoryReservation], node_reservation: Mapping[str, Quantity], numa_nodes: int
) -> None:
    """The reservations of all NUMA nodes are together what the node reserves. Raises ValueError."""
    totals: dict[str, Quantity] = {}
    for reservation in reserved:
        if not 0 <= reservation.numa_node < numa_nodes:
            raise ValueError(
                "the reserved memory configuration references a NUMA node "
                f"{reservation.numa_node} that does not exist on this machine"
            )
        for kind, text in reservation.limits.items():
            totals[kind] = totals.get(kind, ZERO) + parse_quantity(text)
    of_node = {kind: amount for kind, amount in node_reservation.items() if is_memory_type(kind)}
    for kind in sorted({*totals, *of_node}):
        total, wanted = totals.get(kind, ZERO), of_node.get(kind, ZERO)
        if total.value() != wanted.value():
            raise ValueError(
                f'the total amount "{total}" of type "{kind}" is not equal to the value '
                f'"{wanted}" determined by Node Allocatable feature'
            )


def machine_memory(
    memory: int,
    huge_pages: Mapping[str, int],
    numa_nodes: int,
    reserved: Sequence[MemoryReservation],
) -> MachineMemory:
    """The state without assignments. Every NUMA node has the same share of the memory."""
    kept = {
        (r.numa_node, kind): parse_quantity(text).value()
        for r in reserved
        for kind, text in r.limits.items()
    }
    nodes = {}
    for number in range(numa_nodes):
        pages = {kind: _share(size, number, numa_nodes) for kind, size in huge_pages.items()}
        tables = {}
        for kind, total in {**pages, MEMORY: _share(memory, number, numa_nodes)}.items():
            system = kept.get((number, kind), 0)
            left = total - system - (sum(pages.values()) if kind == MEMORY else 0)
            tables[kind] = MemoryTable(total, system, left, 0, left)
        nodes[number] = NumaNode(tables, (number,))
    return MachineMemory(nodes)


def _share(size: int, number: int, count: int) -> int:
    return size // count + (size % count if number == 0 else 0)


class StaticMemoryManager:
    """Raises ValueError when the saved state does not fit the machine."""

    def __init__(
        self, machine: MachineMemory, state: MemoryManagerState, *, strict_groups: bool
    ) -> None:
        """`machine` has no assignments. `strict_groups`: allocations check that a NUMA node is not
        used both alone and with others.
        """
        self._state = state
        self._strict = strict_groups
        # By NUMA nodes and type of memory: of the init containers of a pod.
        self._reusable: tuple[str, dict[tuple[NumaMask, str], int]] = ("", {})
        self._check_state(machine)

    def _check_state(self, machine: MachineMemory) -> None:
        state = self._state
        if not state.machine.nodes:
            if state.assignments:
                raise ValueError(
                    "[memorymanager] machine state can not be empty when it has memory assignments"
                )
            state.machine = machine
            state.save()
            return
        for uid, name, block in state.every_block():
            where = f"[memorymanager] (pod: {uid}, container: {name}) the memory assignment uses"
            if not machine.nodes.keys() >= set(block.numa_nodes):
                raise ValueError(f"{where} the NUMA that does not exist")
            if any(block.type not in machine.nodes[n].tables for n in block.numa_nodes):
                raise ValueError(f"{where} memory resource that does not exist")
            machine.take(block, block.size)
        if not state.machine.same_as(machine):
            raise ValueError(
                "[memorymanager] the expected machine state is different from the real one"
            )

    # ---- allocations ----

    def blocks_of(self, uid: str, container: str) -> Iterable[MemoryBlock]:
        return self._state.blocks(uid, container)

    def allocatable(self) -> Iterator[tuple[int, str, int]]:
        """NUMA node, type and bytes."""
        for number, node in sorted(self._state.machine.nodes.items()):
            for kind, table in sorted(node.tables.items()):
                if table.allocatable:
                    yield number, kind, table.allocatable

    def numa_nodes_of(self, uid: str, container: str) -> NumaMask:
        blocks = self._state.blocks(uid, container)
        return frozenset(number for block in blocks for number in block.numa_nodes)

    def allocate(self, pod: Object, container: Object, hint: TopologyHint) -> None:
        """For a container of a pod that `is_memory_managed`. Raises MemoryAllocationError."""
        uid, name, state = pod["metadata"]["uid"], container["name"], self._state
        known = state.blocks(uid, name)
        if known:
            self._update_reusable(pod, container, known)
            return
        requested = requested_memory(container)
        chosen = tuple(sorted(self._choose(pod, requested, hint)))
        blocks = tuple(MemoryBlock(chosen, kind, size) for kind, size in requested.items())
        for block in blocks:
            reusable = self._reusable_by(uid, frozenset(chosen), block.type)
            state.machine.take(block, max(0, block.size - reusable))
        self._update_reusable(pod, container, blocks)
        state.assignments.setdefault(uid, {})[name] = blocks
        self._shrink_init_blocks(pod, container, blocks)
        state.save()

    def _choose(self, pod: Object, requested: Mapping[str, int], hint: TopologyHint) -> NumaMask:
        machine, best = self._state.machine, hint
        if best.affinity is None:
            hints = self._hints(pod, requested)
            if not hints:
                raise MemoryAllocationError(
                    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with "
                    "enough memory is available"
                )
            default = _best_hint(hints[MEMORY])
            if hint.preferred and not default.preferred:
                raise MemoryAllocationError(
                    "[memorymanager] failed to find the default preferred hint"
                )
            best = default
        affinity = best.affinity or frozenset()
        if any(machine.free(affinity, kind) < size for kind, size in requested.items()):
            wider = [
                found
                for found in self._hints(pod, requested).get(MEMORY, ())
                if affinity <= (found.affinity or frozenset())
            ]
            if not wider:
                raise MemoryAllocationError(
                    "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
                )
            extended = _best_hint(wider)
            if best.preferred and not extended.preferred:
                raise MemoryAllocationError(
                    "[memorymanager] failed to find the extended preferred hint"
                )
            affinity = extended.affinity or frozenset()
        if self._strict and machine.mixes_groups(tuple(sorted(affinity))):
            raise MemoryAllocationError(
                "[memorymanager] preferred hint violates NUMA node allocation"
            )
        return affinity

    def remove_stale(self, active_pods: Iterable[Object]) -> None:
        """Frees the memory of containers of pods that are no longer active."""
        names = {
            pod["metadata"]["uid"]: {c["name"] for c in _containers(pod)} for pod in active_pods
        }
        stale = [
            (uid, name)
            for uid, found in self._state.assignments.items()
            for name in found
            if name not in names.get(uid, set())
        ]
        self._remove(stale)

    def release_init_containers(self, pod: Object, container: Object) -> None:
        """Frees the memory of the init containers that ended before this container starts."""
        uid, ended = pod["metadata"]["uid"], []
        for init in pod["spec"].get("initContainers") or ():
            if init["name"] == container["name"]:
                break
            if init.get("restartPolicy") != "Always" and self._state.blocks(uid, init["name"]):
                ended.append((uid, init["name"]))
        self._remove(ended)

    def _remove(self, found: Sequence[tuple[str, str]]) -> None:
        state = self._state
        for uid, name in found:
            for block in state.assignments[uid].pop(name):
                state.machine.release(block)
            if not state.assignments[uid]:
                del state.assignments[uid]
        if found:
            state.save()

    # ---- the memory of init containers ----

    def _reusable_by(self, uid: str, nodes: NumaMask, kind: str) -> int:
        return self._reusable[1].get((nodes, kind), 0) if self._reusable[0] == uid else 0

    def _update_reusable(
        self, pod: Object, container: Object, blocks: Iterable[MemoryBlock]
    ) -> None:
        """The containers after an init container may use its memory, those after a sidecar not."""
        uid = pod["metadata"]["uid"]
        known = self._reusable[1] if self._reusable[0] == uid else {}
        init = any(c["name"] == container["name"] for c in pod["spec"].get("initContainers") or ())
        reusable = init and container.get("restartPolicy") != "Always"
        for block in blocks:
            key = (frozenset(block.numa_nodes), block.type)
            before = known.get(key, 0)
            known[key] = max(before, block.size) if reusable else max(0, before - block.size)
        self._reusable = (uid, known)

    def _shrink_init_blocks(
        self, pod: Object, container: Object, blocks: Iterable[MemoryBlock]
    ) -> None:
        """What the container uses is no longer the init containers'."""
        uid = pod["metadata"]["uid"]
        assigned = self._state.assignments[uid]
        for block in blocks:
            left = block.size
            for init in pod["spec"].get("initContainers") or ():
                if init["name"] == container["name"]:
                    break
                if init.get("restartPolicy") == "Always" or init["name"] not in assigned:
                    continue
                changed = []
                for known in assigned[init["name"]]:
                    used = 0
                    if (known.type, known.numa_nodes) == (block.type, block.numa_nodes):
                        used = min(left, known.size)
                    left -= used
                    changed.append(known._replace(size=known.size - used))
                assigned[init["name"]] = tuple(changed)

    # ---- hints ----

    def container_hints(self, pod: Object, container: Object) -> Hints:
        if not is_memory_managed(pod):
            return {}
        requested = requested_memory(container)
        known = self._state.blocks(pod["metadata"]["uid"], container["name"])
        return _known_hints(known, requested) if known else self._hints(pod, requested)

    def pod_hints(self, pod: Object) -> Hints:
        if not is_memory_managed(pod):
            return {}
        requested = _pod_memory(pod)
        for container in _containers(pod):
            known = self._state.blocks(pod["metadata"]["uid"], container["name"])
            if known:
                return _known_hints(known, requested)
        return self._hints(pod, requested)

    def _hints(self, pod: Object, requested: Mapping[str, int]) -> Hints:
        machine, uid = self._state.machine, pod["metadata"]["uid"]
        fewest, fitting = len(machine.nodes), list[NumaMask]()
        if any(kind not in machine.nodes[0].tables for kind in requested):
            return {}
        for mask in numa_masks(len(machine.nodes)):
            if any(machine.allocatable(mask, kind) < size for kind, size in requested.items()):
                continue
            fewest = min(fewest, len(mask))
            nodes = tuple(sorted(mask))
            grouped = len(nodes) == 1 and len(machine.nodes[nodes[0]].cells) > 1
            if grouped or machine.mixes_groups(nodes):
                continue
            if all(
                machine.free(mask, kind) + self._reusable_by(uid, mask, kind) >= size
                for kind, size in requested.items()
            ):
                fitting.append(mask)
        if not fitting:
            return {}
        hints = [TopologyHint(mask, len(mask) == fewest) for mask in fitting]
        return dict.fromkeys(requested, hints)


def requested_memory(container: Object) -> dict[str, int]:
    requests: Mapping[str, str] = (container.get("resources") or {}).get("requests") or {}
    return {
        kind: parse_quantity(text).value()
        for kind, text in sorted(requests.items())
        if is_memory_type(kind)
    }


def _pod_memory(pod: Object) -> dict[str, int]:
    most, sidecars, own = dict[str, int](), dict[str, int](), dict[str, int]()
    for container in pod["spec"].get("initContainers") or ():
        for kind, size in requested_memory(container).items():
            if container.get("restartPolicy") == "Always":
                sidecars[kind] = sidecars.get(kind, 0) + size
            else:
                most[kind] = max(most.get(kind, 0), sidecars.get(kind, 0) + size)
    for container in pod["spec"]["containers"]:
        for kind, size in requested_memory(container).items():
            own[kind] = own.get(kind, 0) + size
    return {k: max(size + sidecars.get(k, 0), most.get(k, 0)) for k, size in own.items()}


def _known_hints(blocks: Sequence[MemoryBlock], requested: Mapping[str, int]) -> Hints:
    """Of a container that has its memory; without a preference if it requested other amounts."""
    if {block.type: block.size for block in blocks} != dict(requested):
        return {}
    return {block.type: [TopologyHint(frozenset(block.numa_nodes), True)] for block in blocks}


def _best_hint(hints: Sequence[TopologyHint]) -> TopologyHint:
    """A preferred one with the fewest NUMA nodes."""
    return min(
        hints,
        key=lambda hint: (
            not hint.preferred,
            len(hint.affinity or ()),
            mask_bits(hint.affinity or frozenset()),
        ),
    )


def is_memory_managed(pod: Object) -> bool:
    """Whether its containers get memory of chosen NUMA nodes."""
    return not pod["spec"].get("resources") and persisted_qos_class(pod) == "Guaranteed"


def _containers(pod: Object) -> Iterable[Object]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]
