"""The owner references that watches show: a graph of nodes by uid, and the work that its changes
cause.

An owner that is referenced but was not observed is a virtual node: the collector must ask the
server whether it exists, because its own event may be delayed, or it may never have existed.
References may disagree about the identity of an owner; a virtual node has one of these identities
at a time, and each of them is tried in turn.

An object may have 25,000 references, and an owner may have as many dependents: each change is a
generator that yields between its steps, so that it need not block the event loop. `GraphChanges`
applies them one after the other.

This module does not call the server.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_ABSENT_REMEMBERED = 500
_STEP = 1000  # references or dependents that one step of a change handles

T = TypeVar("T")
Change = Iterator[None]  # the steps of a change
Steps = Generator[None, None, T]  # the steps towards a result


class OwnerIdentity(NamedTuple):
    """The identity of an object. Ordered, so that the choice among several identities is
    deterministic.
    """

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return (
            f"[{self.api_version}/{self.kind}, namespace: {self.namespace}, name: {self.name}, "
            f"uid: {self.uid}]"
        )


def referred_owner(ref: Object, namespace: str) -> OwnerIdentity:
    """The owner that a reference names, if it is in this namespace."""
    return OwnerIdentity(
        ref.get("kind", ""),
        ref.get("apiVersion", ""),
        namespace,
        ref.get("name", ""),
        ref.get("uid", ""),
    )


_NO_REFERENCES: dict[str, list[Object]] = {}  # shared by all nodes that are not indexed
_FEW = 8  # up to this many references of an object are searched linearly


class GraphNode:
    """One object. Equal only to itself, so it can be in a queue."""

    __slots__ = (
        "_by_uid",
        "_indexed",
        "being_deleted",
        "deleting_dependents",
        "dependents",
        "identity",
        "owners",
        "virtual",
    )

    def __init__(
        self, identity: OwnerIdentity, owners: Sequence[Object] = (), *, virtual: bool = False
    ) -> None:
        self.identity = identity
        self.owners = owners
        self.virtual = virtual
        self.being_deleted = False
        self.deleting_dependents = False
        self.dependents: dict[GraphNode, None] = {}  # a set in order of arrival
        self._by_uid = _NO_REFERENCES
        self._indexed: Sequence[Object] | None = None  # the references that `_by_uid` was made from

    def renamed(self, identity: OwnerIdentity) -> GraphNode:
        """A copy with another identity; holders of the old node see that it is no longer in the
        graph.
        """
        out = GraphNode(identity, self.owners, virtual=self.virtual)
        out.being_deleted = self.being_deleted
        out.deleting_dependents = self.deleting_dependents
        out.dependents = dict(self.dependents)
        return out

    def references_to(self, uid: str) -> Sequence[Object]:
        owners = self.owners
        if len(owners) <= _FEW:
            return [ref for ref in owners if ref.get("uid") == uid]
        if self._indexed is not owners:
            self._by_uid = {}
            for ref in owners:
                self._by_uid.setdefault(ref.get("uid", ""), []).append(ref)
            self._indexed = owners
        return self._by_uid.get(uid, ())

    def blocking_dependents(self) -> list[GraphNode]:
        uid = self.identity.uid
        return [
            dependent
            for dependent in self.dependents
            if any(ref.get("blockOwnerDeletion") for ref in dependent.references_to(uid))
        ]

    def __repr__(self) -> str:
        return str(self.identity)


class AbsentOwners:
    """A cache of identities that do not exist; keeps the most recently used ones."""

    def __init__(self, size: int = _ABSENT_REMEMBERED) -> None:
        self._size = size
        self._known: OrderedDict[OwnerIdentity, None] = OrderedDict()

    def add(self, identity: OwnerIdentity) -> None:
        self._known[identity] = None
        self._known.move_to_end(identity)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def __contains__(self, identity: object) -> bool:
        return identity in self._known


class GraphChanges:
    """Applies changes of the graph in the order in which they arrive. A small change is complete
    when `apply` returns; `run` completes large ones, and those that arrive meanwhile.
    """

    def __init__(self) -> None:
        self._pending: deque[Change] = deque()
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    def apply(self, change: Change) -> None:
        if not self._pending and _is_complete(change):
            return
        self._pending.append(change)
        self._drained.clear()
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending:
                if _is_complete(self._pending[0]):
                    self._pending.popleft()
                await asyncio.sleep(0)
            self._drained.set()

    async def drained(self) -> None:
        await self._drained.wait()


def _is_complete(change: Change) -> bool:
    """Runs the next step of a change; whether it was the last."""
    for _ in change:
        return False
    return True


class DependencyGraph:
    """The methods that return a Change do nothing until its steps run; see `GraphChanges`.

    `check` is called with each node that may have to be deleted, `orphan` with each whose
    dependents are to be orphaned, and `invalid` with a node whose reference names an owner in
    another namespace.
    """

    def __init__(
        self,
        check: Callable[[GraphNode], None],
        check_later: Callable[[GraphNode], None],
        orphan: Callable[[GraphNode], None],
        invalid: Callable[[GraphNode, OwnerIdentity], None],
    ) -> None:
        self._check = check
        self._check_later = check_later
        self._orphan = orphan
        self._invalid = invalid
        self._nodes: dict[str, GraphNode] = {}
        self.absent = AbsentOwners()

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def __len__(self) -> int:
        return len(self._nodes)

    # ---- observed objects ----

    def seen(self, api_version: str, kind: str, old: Object | None, obj: Object) -> Change:
        """An object appeared or changed."""
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        identity = OwnerIdentity(
            kind, api_version, meta.get("namespace", ""), meta["name"], meta["uid"]
        )
        node = self._nodes.get(identity.uid)
        if node is None:
            node = GraphNode(identity, owners)
            node.being_deleted = "deletionTimestamp" in meta
            node.deleting_dependents = _ends_with(obj, FOREGROUND)
            self._nodes[identity.uid] = node
            if owners:
                yield from self._add_to_owners(node, owners)
        else:
            if node.virtual:
                node = yield from self._observe(node, identity)
            yield from self._update_owners(node, owners)
            if "deletionTimestamp" in meta:
                node.being_deleted = True
        yield from self._begin_deletion(old, obj, node)

    def gone(self, identity: OwnerIdentity) -> Change:
        """An object that was seen is deleted."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            node = yield from self._observe(node, identity)
        yield from self._remove(node, identity)

    def absent_on_server(self, identity: OwnerIdentity) -> Change:
        """The server has no such object."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            matching, others = yield from _partition(node.dependents, identity)
            if not others:
                yield from self._remove(node, identity)
                return
            # Some dependents use another identity of the owner, which may exist.
            yield from self._lost(matching, identity)
            if node.identity == identity:
                replacement = yield from _next_identity(others, identity)
                if replacement is not None:
                    other = node.renamed(replacement)
                    self._nodes[identity.uid] = other
                    self._check_later(other)
        elif node.identity == identity:
            yield from self._remove(node, identity)
        else:
            # The object exists with another identity: only the dependents that use this one have
            # lost their owner.
            matching, _others = yield from _partition(node.dependents, identity)
            yield from self._lost(matching, identity)

    def _lost(self, dependents: Sequence[GraphNode], identity: OwnerIdentity) -> Change:
        if dependents:
            self.absent.add(identity)
        yield from self._check_all(dependents)

    def _check_all(self, nodes: Iterable[GraphNode]) -> Change:
        for count, node in enumerate(nodes, 1):
            self._check(node)
            if not count % _STEP:
                yield

    def _observe(self, node: GraphNode, identity: OwnerIdentity) -> Steps[GraphNode]:
        """Turns a virtual node into a real one."""
        if identity != node.identity:
            _matching, others = yield from _partition(node.dependents, identity)
            for count, dependent in enumerate(others, 1):
                if not count % _STEP:
                    yield
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    self._report_namespace(dependent, identity.uid)
                self._check(dependent)
            node = node.renamed(identity)
            self._nodes[identity.uid] = node
        node.virtual = False
        return node

    def _remove(self, node: GraphNode, identity: OwnerIdentity) -> Change:
        del self._nodes[node.identity.uid]
        yield from self._remove_from_owners(node, node.owners)
        if node.dependents:
            self.absent.add(identity)
            yield from self._check_all(node.dependents)
        for count, ref in enumerate(node.owners, 1):
            if not count % _STEP:
                yield
            owner = self._nodes.get(ref.get("uid", ""))
            if owner is not None and owner.deleting_dependents:
                self._check(owner)

    def _begin_deletion(self, old: Object | None, obj: Object, node: GraphNode) -> Change:
        if _begins_with(old, obj, ORPHAN):
            self._orphan(node)
        elif _begins_with(old, obj, FOREGROUND):
            node.deleting_dependents = True
            yield from self._check_all(node.dependents)
            self._check(node)

    # ---- edges ----

    def _update_owners(self, node: GraphNode, owners: Sequence[Object]) -> Change:
        if node.owners == owners:
            return
        before = {ref.get("uid", ""): ref for ref in node.owners}
        after = {ref.get("uid", "") for ref in owners}
        added = [ref for ref in owners if ref.get("uid", "") not in before]
        removed = [ref for uid, ref in before.items() if uid not in after]
        for count, ref in enumerate(removed, 1):
            if ref.get("blockOwnerDeletion"):
                self._check_uid(ref.get("uid", ""))
            if not count % _STEP:
                yield
        for count, ref in enumerate(owners, 1):
            if not count % _STEP:
                yield
            known = before.get(ref.get("uid", ""))
            if (
                known is not None
                and known.get("blockOwnerDeletion")
                and not ref.get("blockOwnerDeletion")
            ):
                self._check_uid(ref.get("uid", ""))
        node.owners = owners
        yield from self._add_to_owners(node, added)
        yield from self._remove_from_owners(node, removed)

    def _check_uid(self, uid: str) -> None:
        node = self._nodes.get(uid)
        if node is not None:
            self._check(node)

    def _add_to_owners(self, node: GraphNode, owners: Iterable[Object]) -> Change:
        doubtful = False
        for count, ref in enumerate(owners, 1):
            if not count % _STEP:
                yield
            identity = referred_owner(ref, node.identity.namespace)
            owner = self._nodes.get(identity.uid)
            if owner is None:
                owner = self._nodes[identity.uid] = GraphNode(identity, virtual=True)
                owner.dependents[node] = None
                self._check(owner)
                continue
            owner.dependents[node] = None
            if not doubtful:
                doubtful = self._doubtful(node, owner, identity)
        if doubtful:
            self._check(node)

    def _doubtful(self, node: GraphNode, owner: GraphNode, identity: OwnerIdentity) -> bool:
        """Whether the reference may mean a different object than the owner with this uid."""
        theirs, ours = owner.identity.namespace, node.identity.namespace
        if theirs and theirs != ours:
            if not owner.virtual:
                self._report_namespace(node, identity.uid)
            return True
        if owner.identity._replace(namespace=ours) != identity:
            return True
        # A cluster-scoped object refers to a namespaced kind by mistake.
        return not theirs and theirs != ours and owner.virtual

    def _remove_from_owners(self, node: GraphNode, owners: Iterable[Object]) -> Change:
        for count, ref in enumerate(owners, 1):
            if not count % _STEP:
                yield
            owner = self._nodes.get(ref.get("uid", ""))
            if owner is not None:
                owner.dependents.pop(node, None)

    def _report_namespace(self, node: GraphNode, uid: str) -> None:
        for ref in node.owners:
            if ref.get("uid") == uid:
                self._invalid(node, referred_owner(ref, node.identity.namespace))
                return


def invalid_namespace_message(owner: OwnerIdentity) -> str:
    return f"ownerRef {owner} does not exist in namespace {go_quote(owner.namespace)}"


def finalizers_of(obj: Object) -> Sequence[str]:
    return obj["metadata"].get("finalizers") or ()


def _ends_with(obj: Object, finalizer: str) -> bool:
    return "deletionTimestamp" in obj["metadata"] and finalizer in finalizers_of(obj)


def _begins_with(old: Object | None, obj: Object, finalizer: str) -> bool:
    """Whether this change starts the deletion of the object with this finalizer."""
    return _ends_with(obj, finalizer) and (old is None or not _ends_with(old, finalizer))


def _partition(
    dependents: Iterable[GraphNode], owner: OwnerIdentity
) -> Steps[tuple[list[GraphNode], list[GraphNode]]]:
    """The dependents that use exactly this identity of the owner, and those that use its uid with
    another identity. A dependent with two references to one uid can be in both.
    """
    matching, others = [], []
    for count, dependent in enumerate(dependents, 1):
        if not count % _STEP:
            yield
        namespace = dependent.identity.namespace
        if owner.namespace and owner.namespace != namespace:
            others.append(dependent)
            continue
        wanted = owner._replace(namespace=namespace)
        same = {
            referred_owner(ref, namespace) == wanted for ref in dependent.references_to(owner.uid)
        }
        if True in same:
            matching.append(dependent)
        if False in same:
            others.append(dependent)
    return matching, others


def _next_identity(
    dependents: Iterable[GraphNode], absent: OwnerIdentity
) -> Steps[OwnerIdentity | None]:
    """Another identity that these dependents use for the owner: the first after `absent`, or the
    first of all.
    """
    found: set[OwnerIdentity] = set()
    for count, dependent in enumerate(dependents, 1):
        if not count % _STEP:
            yield
        for ref in dependent.references_to(absent.uid):
            other = referred_owner(ref, dependent.identity.namespace)
            if not absent.namespace and (other.api_version, other.kind) == (
                absent.api_version,
                absent.kind,
            ):
                other = other._replace(namespace="")  # cluster-scoped kinds have no namespace
            if other != absent:
                found.add(other)
    following = [identity for identity in found if identity > absent]
    return min(following or found, default=None)
