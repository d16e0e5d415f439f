"""The nodes and their pods as columns: one row for each node, one array for each property.

The snapshot is live and not copied for a cycle: a cycle does not wait, so nothing changes while it
runs. To evaluate a node without a pod, remove the pod, run the filters, and add it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from transom.machinery.objects import Object
from transom.scheduler.arrays import Codes, Ints, Mask, RowCache, Rows, no_rows, np
from transom.scheduler.counters import PodCounters, TermCounters
from transom.scheduler.images import ImageStates
from transom.scheduler.labels import LabelColumns
from transom.scheduler.pods import ALL_ADDRESSES, HostPort, PodInfo, has_claims, has_disks
from transom.scheduler.resources import ResourceRequests, resource_list_values, resource_totals
from transom.scheduler.zones import ZoneTree, zone_key

_FIRST_CAPACITY = 64
AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"

Taint = tuple[str, str, str]  # key, value, effect


class NodeInfo:
    """A node and its pods. `node` is None if pods are bound to a node that does not exist."""

    __slots__ = ("allocatable", "claims", "disks", "name", "node", "pods", "row")

    def __init__(self, name: str, row: int) -> None:
        self.name = name
        self.row = row
        self.node: Object | None = None
        self.allocatable: ResourceRequests = ResourceRequests()
        self.pods: dict[str, PodInfo] = {}
        self.claims: dict[str, PodInfo] = {}  # pods with persistent volume claims
        self.disks: dict[str, PodInfo] = {}  # pods with cloud disks

    @property
    def labels(self) -> dict[str, str]:
        return (self.node["metadata"].get("labels") or {}) if self.node is not None else {}


class Snapshot:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.rows: list[NodeInfo | None] = []
        self.labels = LabelColumns()
        self.counters = PodCounters()
        self.images = ImageStates()
        # Pods with affinity and anti-affinity terms.
        self.anti_affinity, self.affinity = TermCounters(), TermCounters()
        self.preferred, self.avoided = TermCounters(), TermCounters()
        self.static = RowCache()  # columns that depend on the Node object
        self.usage = RowCache()  # columns that depend on allocatable and requested resources
        self._zones = ZoneTree()
        self._order: Rows | None = None
        self._free: list[int] = []
        self._ports: dict[tuple[str, int], dict[str, dict[int, int]]] = {}
        self._taint_codes: dict[tuple[Taint, ...], int] = {(): 0}
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        # Row -> annotation with the controllers whose pods should avoid the node.
        self.avoiders: dict[int, str] = {}
        self.capacity = 0
        empty = np.zeros(0, np.int64)
        self.alloc_cpu = self.alloc_memory = self.alloc_ephemeral = self.alloc_pods = empty
        self.used_cpu = self.used_memory = self.used_ephemeral = self.used_pods = empty
        self.counted_cpu = self.counted_memory = empty
        self.unschedulable: Mask = np.zeros(0, np.bool_)
        self.taints: Codes = np.zeros(0, np.int32)
        self._position: Rows = no_rows()
        self._zeros: Ints = np.zeros(0, np.int64)
        self.scalars: dict[str, tuple[Ints, Ints]] = {}  # name -> allocatable, used
        self._grow(_FIRST_CAPACITY)

    # ---- rows ----

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity

        def longer(column: Ints) -> Ints:
            return np.concatenate([column, np.zeros(more, column.dtype)])

        for name in (
            "alloc_cpu",
            "alloc_memory",
            "alloc_ephemeral",
            "alloc_pods",
            "used_cpu",
            "used_memory",
            "used_ephemeral",
            "used_pods",
            "counted_cpu",
            "counted_memory",
            "unschedulable",
            "taints",
        ):
            setattr(self, name, longer(getattr(self, name)))
        self._zeros = np.zeros(capacity, np.int64)
        self.scalars = {name: (longer(a), longer(u)) for name, (a, u) in self.scalars.items()}
        self._free += range(capacity - 1, self.capacity - 1, -1)
        self.rows += [None] * more
        self.capacity = capacity
        for part in (
            self.labels,
            self.counters,
            self.anti_affinity,
            self.affinity,
            self.preferred,
            self.avoided,
        ):
            part.grow(capacity)
        self.static.resize(capacity)
        self.usage.resize(capacity)
        self._order = None

    def _row(self, name: str) -> NodeInfo:
        info = self.nodes.get(name)
        if info is None:
            if not self._free:
                self._grow(self.capacity * 2)
            row = self._free.pop()
            info = self.nodes[name] = self.rows[row] = NodeInfo(name, row)
        return info

    def _drop_if_empty(self, info: NodeInfo) -> None:
        if info.node is None and not info.pods:
            del self.nodes[info.name]
            self.rows[info.row] = None
            self._free.append(info.row)

    def at(self, row: int) -> NodeInfo:
        info = self.rows[row]
        assert info is not None
        return info

    def name(self, row: int) -> str:
        return self.at(row).name

    @property
    def order(self) -> Rows:
        """The rows of all nodes in the order of evaluation."""
        if self._order is None:
            self._order = np.array(self._zones.order(), np.intp)
            self._position = np.zeros(self.capacity, np.intp)
            self._position[self._order] = np.arange(len(self._order))
        return self._order

    def position(self, row: int) -> int:
        """The position of a row in the order."""
        return int(self._position[row])

    def __len__(self) -> int:
        return len(self._zones)

    # ---- nodes ----

    def set_node(self, node: Object) -> None:
        """Add or update a node."""
        info = self._row(node["metadata"]["name"])
        old, info.node = info.node, node
        row = info.row
        meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
        labels = meta.get("labels") or {}
        if self._zones.add(row, zone_key(labels)):
            self._order = None
        if old is None or _static(old) != _static(node):
            self.labels.set(row, info.name, labels)
            self.unschedulable[row] = bool(spec.get("unschedulable"))
            self.taints[row] = self._taint_code(spec.get("taints") or ())
            avoid = (meta.get("annotations") or {}).get(AVOID_PODS, "")
            if avoid:
                self.avoiders[row] = avoid
            else:
                self.avoiders.pop(row, None)
            self.static.touch(row)
        if self.images.set(row, status.get("images") or ()):
            self.static.touch(row)
        if old is None or (old.get("status") or {}).get("allocatable") != status.get("allocatable"):
            self._set_allocatable(
                info, resource_totals(resource_list_values(status.get("allocatable")))
            )

    def remove_node(self, name: str) -> None:
        info = self.nodes.get(name)
        if info is None or info.node is None:
            return
        info.node = None
        self._zones.remove(info.row)
        self._order = None
        self.labels.set(info.row, None, {})
        self.images.set(info.row, ())
        self.avoiders.pop(info.row, None)
        self._set_allocatable(info, ResourceRequests())
        self.static.touch(info.row)
        self._drop_if_empty(info)

    def _set_allocatable(self, info: NodeInfo, has: ResourceRequests) -> None:
        row = info.row
        self.alloc_cpu[row], self.alloc_memory[row] = has.cpu, has.memory
        self.alloc_ephemeral[row], self.alloc_pods[row] = has.ephemeral, has.pods
        for name, _ in info.allocatable.scalars:
            self.scalar(name)[0][row] = 0
        for name, value in has.scalars:
            self.scalar(name)[0][row] = value
        info.allocatable = has
        self.usage.touch(row)

    def scalar_amounts(self, name: str) -> tuple[Ints, Ints]:
        """The allocatable and requested amounts of a scalar resource, to read. Names that only
        pending pods use take no memory.
        """
        return self.scalars.get(name) or (self._zeros, self._zeros)

    def scalar(self, name: str) -> tuple[Ints, Ints]:
        """The same, to change."""
        columns = self.scalars.get(name)
        if columns is None:
            columns = self.scalars[name] = (
                np.zeros(self.capacity, np.int64),
                np.zeros(self.capacity, np.int64),
            )
        return columns

    def _taint_code(self, taints: Iterable[Object]) -> int:
        key = tuple((t.get("key", ""), t.get("value", ""), t.get("effect", "")) for t in taints)
        code = self._taint_codes.get(key)
        if code is None:
            code = self._taint_codes[key] = len(self.taint_sets)
            self.taint_sets.append(key)
        return code

    # ---- pods ----

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        info = self._row(node_name)
        pod.row = info.row
        info.pods[pod.uid] = pod
        self._account(pod, info.row, 1)
        self.counters.add(pod)
        if pod.pod["spec"].get("volumes"):
            if has_claims(pod.pod):
                info.claims[pod.uid] = pod
            if has_disks(pod.pod):
                info.disks[pod.uid] = pod

    def remove_pod(self, pod: PodInfo) -> None:
        info = self.at(pod.row)
        del info.pods[pod.uid]
        info.claims.pop(pod.uid, None)
        info.disks.pop(pod.uid, None)
        self._account(pod, info.row, -1)
        self.counters.remove(pod)
        self._drop_if_empty(info)

    def replace_pod(self, old: PodInfo, new: PodInfo) -> None:
        """Replace a pod by a newer state on the same node."""
        if (
            old.shape is new.shape
            and old.identity is new.identity
            and old.terminating == new.terminating
        ):
            # No column changes. This is the case for almost all updates of a running pod.
            new.row = old.row
            info = self.at(old.row)
            info.pods[new.uid] = new
            for pods in (info.claims, info.disks):
                if new.uid in pods:
                    pods[new.uid] = new
            self.counters.replace(new)
            return
        name = self.at(old.row).name
        self.remove_pod(old)
        self.add_pod(new, name)

    def _account(self, pod: PodInfo, row: int, sign: int) -> None:
        shape = pod.shape
        requested = shape.requests
        self.used_cpu[row] += sign * requested.cpu
        self.used_memory[row] += sign * requested.memory
        self.used_pods[row] += sign
        self.counted_cpu[row] += sign * shape.counted_cpu
        self.counted_memory[row] += sign * shape.counted_memory
        if requested.ephemeral:
            self.used_ephemeral[row] += sign * requested.ephemeral
        for name, value in requested.scalars:
            self.scalar(name)[1][row] += sign * value
        for port in shape.ports:
            self._use_port(port, row, sign)
        terms = shape.terms
        if terms.any:
            self.anti_affinity.change(terms.anti_affinity, row, sign)
            self.affinity.change(terms.affinity, row, sign)
            self.preferred.change(terms.preferred, row, sign)
            self.avoided.change(terms.avoided, row, sign)
        self.usage.touch(row)

    def _use_port(self, port: HostPort, row: int, sign: int) -> None:
        rows = self._ports.setdefault((port.protocol, port.port), {}).setdefault(port.ip, {})
        rows[row] = rows.get(row, 0) + sign
        if not rows[row]:
            del rows[row]

    def port_users(self, port: HostPort) -> set[int]:
        """The rows where the port is in use on the same address or on all addresses."""
        users = self._ports.get((port.protocol, port.port), {})
        addresses = users if port.ip == ALL_ADDRESSES else (ALL_ADDRESSES, port.ip)
        return {row for address in addresses for row in users.get(address, ())}

    # ---- simulation ----

    @contextmanager
    def with_pods(self, pods: Iterable[PodInfo], node_name: str) -> Iterator[list[PodInfo]]:
        """Adds these pods to the node temporarily; returns the added pods."""
        added: list[PodInfo] = []
        try:
            for pod in pods:
                guest = PodInfo(pod.pod)
                # Another UID: the pod may be nominated here while it is assumed elsewhere.
                guest.uid = f"{pod.uid}/nominated"
                self.add_pod(guest, node_name)
                added.append(guest)
            yield added
        finally:
            for guest in reversed(added):
                self.remove_pod(guest)


def _static(node: Object) -> tuple[object, ...]:
    meta, spec = node["metadata"], node.get("spec") or {}
    return (
        meta.get("labels"),
        (meta.get("annotations") or {}).get(AVOID_PODS),
        spec.get("taints"),
        bool(spec.get("unschedulable")),
        ((node.get("status") or {}).get("nodeInfo") or {}).get("operatingSystem"),
    )
