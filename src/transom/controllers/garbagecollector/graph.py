"""Who owns whom, as far as watching tells: a graph of nodes by uid, and what its changes call for.

An owner that was heard of but not seen is a virtual node: somebody has to ask the server whether it exists, because
the owner's own event may still be on its way, or it may never have been there. References may disagree on what an owner
is called; a virtual node keeps one of these identities at a time, and every one of them gets its turn.

Nothing here talks to the server or waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from transom.machinery.field import go_quote
from transom.machinery.objects import Object

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_ABSENT_REMEMBERED = 500


class Identity(NamedTuple):
    """What an object is called. Compared in this order when one of several names has to be tried first."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return (
            f"[{self.api_version}/{self.kind}, namespace: {self.namespace}, name: {self.name}, uid: {self.uid}]"
        )


def referred(ref: Object, namespace: str) -> Identity:
    """The owner a reference names, if it is in this namespace."""
    return Identity(ref.get("kind", ""), ref.get("apiVersion", ""), namespace, ref.get("name", ""), ref.get("uid", ""))


class Node:
    """One object. Equal only to itself, so it can wait in a queue."""

    __slots__ = ("being_deleted", "deleting_dependents", "dependents", "identity", "owners", "virtual")

    def __init__(self, identity: Identity, owners: Sequence[Object] = (), *, virtual: bool = False) -> None:
        self.identity = identity
        self.owners = owners
        self.virtual = virtual
        self.being_deleted = False
        self.deleting_dependents = False
        self.dependents: dict[Node, None] = {}  # a set in order of arrival

    def renamed(self, identity: Identity) -> Node:
        """The same under another identity; those who hold the old one shall notice that it is not in the graph."""
        out = Node(identity, self.owners, virtual=self.virtual)
        out.being_deleted = self.being_deleted
        out.deleting_dependents = self.deleting_dependents
        out.dependents = dict(self.dependents)
        return out

    def blocking_dependents(self) -> list[Node]:
        uid = self.identity.uid
        return [
            dependent for dependent in self.dependents
            if any(ref.get("uid") == uid and ref.get("blockOwnerDeletion") for ref in dependent.owners)
        ]

    def __repr__(self) -> str:
        return str(self.identity)


class AbsentOwners:
    """Identities that were found not to exist; the ones used last."""

    def __init__(self, size: int = _ABSENT_REMEMBERED) -> None:
        self._size = size
        self._known: OrderedDict[Identity, None] = OrderedDict()

    def add(self, identity: Identity) -> None:
        self._known[identity] = None
        self._known.move_to_end(identity)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def __contains__(self, identity: object) -> bool:
        return identity in self._known


class Graph:
    """`check` is called with each node that may have to go, `orphan` with each whose dependents are to be let go, and
    `invalid` with a node whose reference names an owner of another namespace."""

    def __init__(
        self, check: Callable[[Node], None], check_later: Callable[[Node], None], orphan: Callable[[Node], None],
        invalid: Callable[[Node, Identity], None],
    ) -> None:
        self._check = check
        self._check_later = check_later
        self._orphan = orphan
        self._invalid = invalid
        self._nodes: dict[str, Node] = {}
        self.absent = AbsentOwners()

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def __len__(self) -> int:
        return len(self._nodes)

    # ---- what was seen -------------------------------------------------------------------------------------------

    def seen(self, api_version: str, kind: str, old: Object | None, obj: Object) -> None:
        """An object appeared or changed."""
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        identity = Identity(kind, api_version, meta.get("namespace", ""), meta["name"], meta["uid"])
        node = self._nodes.get(identity.uid)
        if node is None:
            node = Node(identity, owners)
            node.being_deleted = "deletionTimestamp" in meta
            node.deleting_dependents = _ends_with(obj, FOREGROUND)
            self._nodes[identity.uid] = node
            if owners:
                self._add_to_owners(node, owners)
        else:
            if node.virtual:
                node = self._observe(node, identity)
            self._update_owners(node, owners)
            if "deletionTimestamp" in meta:
                node.being_deleted = True
        self._begin_deletion(old, obj, node)

    def gone(self, identity: Identity) -> None:
        """An object that was seen is deleted."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            node = self._observe(node, identity)
        self._remove(node, identity)

    def absent_on_server(self, identity: Identity) -> None:
        """The server knows no such object."""
        node = self._nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            matching, others = _partition(node.dependents, identity)
            if not others:
                self._remove(node, identity)
                return
            # Some call the owner something else, so that may exist.
            self._lost(matching, identity)
            if node.identity == identity:
                replacement = _next_identity(others, identity)
                if replacement is not None:
                    other = node.renamed(replacement)
                    self._nodes[identity.uid] = other
                    self._check_later(other)
        elif node.identity == identity:
            self._remove(node, identity)
        else:
            # The object is there under another name: only those are lost who call it by this one.
            self._lost(_partition(node.dependents, identity)[0], identity)

    def _lost(self, dependents: Sequence[Node], identity: Identity) -> None:
        if dependents:
            self.absent.add(identity)
        for dependent in dependents:
            self._check(dependent)

    def _observe(self, node: Node, identity: Identity) -> Node:
        """A virtual node is a real one now."""
        if identity != node.identity:
            for dependent in _partition(node.dependents, identity)[1]:
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    self._report_namespace(dependent, identity.uid)
                self._check(dependent)
            node = node.renamed(identity)
            self._nodes[identity.uid] = node
        node.virtual = False
        return node

    def _remove(self, node: Node, identity: Identity) -> None:
        del self._nodes[node.identity.uid]
        self._remove_from_owners(node, node.owners)
        if node.dependents:
            self.absent.add(identity)
        for dependent in node.dependents:
            self._check(dependent)
        for ref in node.owners:
            owner = self._nodes.get(ref.get("uid", ""))
            if owner is not None and owner.deleting_dependents:
                self._check(owner)

    def _begin_deletion(self, old: Object | None, obj: Object, node: Node) -> None:
        if _begins_with(old, obj, ORPHAN):
            self._orphan(node)
        elif _begins_with(old, obj, FOREGROUND):
            node.deleting_dependents = True
            for dependent in node.dependents:
                self._check(dependent)
            self._check(node)

    # ---- edges ---------------------------------------------------------------------------------------------------

    def _update_owners(self, node: Node, owners: Sequence[Object]) -> None:
        if node.owners == owners:
            return
        before = {ref.get("uid", ""): ref for ref in node.owners}
        after = {ref.get("uid", "") for ref in owners}
        added = [ref for ref in owners if ref.get("uid", "") not in before]
        removed = [ref for uid, ref in before.items() if uid not in after]
        for ref in removed:
            if ref.get("blockOwnerDeletion"):
                self._check_uid(ref.get("uid", ""))
        for ref in owners:
            known = before.get(ref.get("uid", ""))
            if known is not None and known.get("blockOwnerDeletion") and not ref.get("blockOwnerDeletion"):
                self._check_uid(ref.get("uid", ""))
        node.owners = owners
        self._add_to_owners(node, added)
        self._remove_from_owners(node, removed)

    def _check_uid(self, uid: str) -> None:
        node = self._nodes.get(uid)
        if node is not None:
            self._check(node)

    def _add_to_owners(self, node: Node, owners: Iterable[Object]) -> None:
        doubtful = False
        for ref in owners:
            identity = referred(ref, node.identity.namespace)
            owner = self._nodes.get(identity.uid)
            if owner is None:
                owner = self._nodes[identity.uid] = Node(identity, virtual=True)
                owner.dependents[node] = None
                self._check(owner)
                continue
            owner.dependents[node] = None
            if not doubtful:
                doubtful = self._doubtful(node, owner, identity)
        if doubtful:
            self._check(node)

    def _doubtful(self, node: Node, owner: Node, identity: Identity) -> bool:
        """Whether the reference may not mean the owner that has this uid."""
        theirs, ours = owner.identity.namespace, node.identity.namespace
        if theirs and theirs != ours:
            if not owner.virtual:
                self._report_namespace(node, identity.uid)
            return True
        if owner.identity._replace(namespace=ours) != identity:
            return True
        # A namespaced kind that something without a namespace refers to by mistake.
        return not theirs and theirs != ours and owner.virtual

    def _remove_from_owners(self, node: Node, owners: Iterable[Object]) -> None:
        for ref in owners:
            owner = self._nodes.get(ref.get("uid", ""))
            if owner is not None:
                owner.dependents.pop(node, None)

    def _report_namespace(self, node: Node, uid: str) -> None:
        for ref in node.owners:
            if ref.get("uid") == uid:
                self._invalid(node, referred(ref, node.identity.namespace))
                return


def invalid_namespace_message(owner: Identity) -> str:
    return f"ownerRef {owner} does not exist in namespace {go_quote(owner.namespace)}"


def finalizers_of(obj: Object) -> Sequence[str]:
    return obj["metadata"].get("finalizers") or ()


def _ends_with(obj: Object, finalizer: str) -> bool:
    return "deletionTimestamp" in obj["metadata"] and finalizer in finalizers_of(obj)


def _begins_with(old: Object | None, obj: Object, finalizer: str) -> bool:
    """Whether this change is what sets off the end of the object by this finalizer."""
    return _ends_with(obj, finalizer) and (old is None or not _ends_with(old, finalizer))


def _partition(dependents: Iterable[Node], owner: Identity) -> tuple[list[Node], list[Node]]:
    """Those that refer to the owner by exactly this identity, and those that have its uid and mean something else. With
    two references to one uid a dependent can be in both."""
    matching, others = [], []
    for dependent in dependents:
        namespace = dependent.identity.namespace
        if owner.namespace and owner.namespace != namespace:
            others.append(dependent)
            continue
        wanted = owner._replace(namespace=namespace)
        same = {referred(ref, namespace) == wanted for ref in dependent.owners if ref.get("uid") == owner.uid}
        if True in same:
            matching.append(dependent)
        if False in same:
            others.append(dependent)
    return matching, others


def _next_identity(dependents: Iterable[Node], absent: Identity) -> Identity | None:
    """Another identity of an owner that these dependents know it by: the first after `absent`, or the first of all."""
    found: set[Identity] = set()
    for dependent in dependents:
        for ref in dependent.owners:
            if ref.get("uid") != absent.uid:
                continue
            other = referred(ref, dependent.identity.namespace)
            if not absent.namespace and (other.api_version, other.kind) == (absent.api_version, absent.kind):
                other = other._replace(namespace="")  # that kind is known to have none
            if other != absent:
                found.add(other)
    following = [identity for identity in found if identity > absent]
    return min(following or found, default=None)
