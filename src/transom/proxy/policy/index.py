"""Network policies of the whole cluster, kept up to date event by event and shared by the agents of all nodes.

An event costs as much as the rules it may concern: clauses are found by the namespaces they can look into, and what a clause
selects is worked out when somebody asks. A node's number goes up when something changed for one of its pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transom.machinery.selectors import SelectorError
from transom.proxy.policy.rules import (
    OPEN,
    Clause,
    ClauseKey,
    Isolation,
    Key,
    Peers,
    Pod,
    Policy,
    has_network,
    isolation_of,
    peers,
    pod_of,
    policy_of,
    told_addresses,
)

log = logging.getLogger("transom.policy")
Object = Mapping[str, Any]


class PolicyIndex:
    def __init__(self) -> None:
        self.listeners: list[Callable[[frozenset[str]], None]] = []
        """Told the nodes whose pods are concerned by a change."""
        self._pods: dict[Key, Pod] = {}
        self._of_node: dict[str, dict[Key, None]] = {}
        self._of_namespace: dict[str, dict[Key, None]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._policies: dict[Key, Policy] = {}
        self._policies_in: dict[str, dict[Key, Policy]] = {}
        self._subjects: dict[Key, set[Key]] = {}  # policy -> pods it selects
        self._looking_into: dict[str, tuple[Clause, ...]] = {}  # namespace -> clauses that may select pods there
        self._peers: dict[ClauseKey | None, Peers] = {}
        self._versions: dict[str, int] = {}
        self._waiting: dict[Key, Object] = {}  # pods without addresses
        self._given: dict[Key, tuple[str, tuple[str, ...]]] = {}  # uid and addresses, until the status tells them

    # ---- what agents ask -----------------------------------------------------------------------------------------

    def version(self, node: str) -> int:
        return self._versions.get(node, 0)

    def pods_on(self, node: str) -> list[Pod]:
        return [self._pods[key] for key in self._of_node.get(node, ())]

    def isolation(self, pod: Key) -> Isolation:
        known = self._pods.get(pod)
        here = self._policies_in.get(pod[0])
        if known is None or not here:
            return OPEN
        selecting = [here[key] for key in sorted(here) if pod in self._subjects[key]]
        return isolation_of(known, selecting, self._select) if selecting else OPEN

    # ---- events --------------------------------------------------------------------------------------------------

    def put_pod(self, obj: Object) -> None:
        key = _key(obj)
        if not has_network(obj):
            self.remove_pod(obj)
            return
        addresses, given = told_addresses(obj), self._given.get(key)
        if given is not None and given[0] == obj["metadata"].get("uid") and given[1] != addresses:
            addresses = given[1]  # its status is behind
        else:
            self._given.pop(key, None)
        if addresses:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = obj
        self._set_pod(key, pod_of(obj, addresses))

    def remove_pod(self, obj: Object) -> None:
        key = _key(obj)
        self._given.pop(key, None)
        self._waiting.pop(key, None)
        self._set_pod(key, None)

    def place_pod(self, key: Key, uid: str, addresses: Iterable[str]) -> None:
        """A pod just got these addresses, which its status will tell when it already runs: too late to keep it in."""
        if not self._policies:
            return
        self._given[key] = uid, tuple(addresses)
        waiting = self._waiting.get(key)
        if waiting is not None:
            self.put_pod(waiting)

    def put_namespace(self, obj: Object) -> None:
        self._set_namespace(obj["metadata"]["name"], obj["metadata"].get("labels") or {})

    def remove_namespace(self, obj: Object) -> None:
        self._set_namespace(obj["metadata"]["name"], {})
        self._namespaces.pop(obj["metadata"]["name"], None)

    def put_policy(self, obj: Object) -> None:
        try:
            policy = policy_of(obj)
        except SelectorError as error:
            log.warning("network policy %s/%s is not enforced: %s", *_key(obj), error)
            self._set_policy(_key(obj), None)
            return
        self._set_policy(policy.key, policy)

    def remove_policy(self, obj: Object) -> None:
        self._set_policy(_key(obj), None)

    # ---- pods ----------------------------------------------------------------------------------------------------

    def _set_pod(self, key: Key, now: Pod | None) -> None:
        before = self._pods.get(key)
        if before == now:
            return
        if now is None:
            del self._pods[key]
        else:
            self._pods[key] = now
        if before is None or now is None or before.node != now.node:
            if before is not None:
                self._of_node[before.node].pop(key)
            if now is not None:
                self._of_node.setdefault(now.node, {})[key] = None
        self._place(key, now)
        if not self._policies:
            return
        nodes: set[str] = set()
        for policy in self._policies_in.get(key[0], {}).values():
            subjects = self._subjects[policy.key]
            if before is not None and key in subjects:
                nodes.add(before.node)
                subjects.discard(key)
            if now is not None and policy.selects(now):
                nodes.add(now.node)
                subjects.add(key)
        nodes |= self._peer_changed(before, now)
        self._touch(nodes)

    def _place(self, key: Key, now: Pod | None) -> None:
        inside = self._of_namespace.setdefault(key[0], {})
        if now is not None:
            inside[key] = None
        else:
            inside.pop(key, None)
            if not inside:
                del self._of_namespace[key[0]]

    def _peer_changed(self, before: Pod | None, now: Pod | None) -> set[str]:
        """Nodes with pods whose rules name a pod that was, or is, this one."""
        either = now or before
        assert either is not None
        labels = self._namespaces.get(either.namespace, {})
        same = before is not None and now is not None and (before.addresses, before.ports) == (now.addresses, now.ports)
        nodes: set[str] = set()
        for clause in self._clauses_into(either.namespace):
            was = before is not None and clause.selects(before, labels)
            is_now = now is not None and clause.selects(now, labels)
            if was != is_now or (is_now and not same):
                nodes |= self._forget(clause)
        if not same:
            self._peers.pop(None, None)
            nodes |= self._nodes_of(
                policy for policy in self._policies.values() if any(c.everybody and c.named for c in policy.egress or ())
            )
        return nodes

    # ---- namespaces ----------------------------------------------------------------------------------------------

    def _set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        before = self._namespaces.get(name, {})
        self._namespaces[name] = labels
        if before == labels:
            return
        looked = {clause.key: clause for clause in self._clauses_into(name, before)}
        self._looking_into.pop(name, None)
        nodes: set[str] = set()
        pods = [self._pods[key] for key in self._of_namespace.get(name, ())]
        for clause in (looked | {clause.key: clause for clause in self._clauses_into(name)}).values():
            if any(clause.selects(pod, before) != clause.selects(pod, labels) for pod in pods):
                nodes |= self._forget(clause)
        self._touch(nodes)

    def _clauses_into(self, namespace: str, labels: Mapping[str, str] | None = None) -> tuple[Clause, ...]:
        """Those that may select pods of a namespace."""
        found = self._looking_into.get(namespace)
        if found is None:
            known = self._namespaces.get(namespace, {}) if labels is None else labels
            found = self._looking_into[namespace] = tuple(
                clause
                for policy in self._policies.values()
                for clause in policy.clauses
                if clause.may_select_in(namespace, known)
            )
        return found

    # ---- policies ------------------------------------------------------------------------------------------------

    def _set_policy(self, key: Key, now: Policy | None) -> None:
        before = self._policies.get(key)
        if before == now:
            return
        nodes: set[str] = set()
        if before is not None:
            nodes |= self._nodes_of((before,))
            for clause in before.clauses:
                self._peers.pop(clause.key, None)
            del self._policies[key], self._subjects[key], self._policies_in[key[0]][key]
        if now is not None:
            self._policies[key] = now
            self._policies_in.setdefault(key[0], {})[key] = now
            self._subjects[key] = {pod for pod in self._of_namespace.get(key[0], ()) if now.selects(self._pods[pod])}
            nodes |= self._nodes_of((now,))
        self._looking_into.clear()
        self._touch(nodes)

    # ---- what is remembered --------------------------------------------------------------------------------------

    def _select(self, clause: Clause | None) -> Peers:
        key = clause.key if clause is not None else None
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = peers(sorted(self._candidates(clause), key=_pod_key))
        return found

    def _candidates(self, clause: Clause | None) -> Iterable[Pod]:
        if clause is None:
            yield from self._pods.values()
            return
        for namespace, keys in self._of_namespace.items():
            labels = self._namespaces.get(namespace, {})
            if clause.may_select_in(namespace, labels):
                for key in keys:
                    if clause.selects(self._pods[key], labels):
                        yield self._pods[key]

    def _forget(self, clause: Clause) -> set[str]:
        self._peers.pop(clause.key, None)
        return self._nodes_of((self._policies[clause.policy],))

    def _nodes_of(self, policies: Iterable[Policy]) -> set[str]:
        return {self._pods[pod].node for policy in policies for pod in self._subjects[policy.key]}

    def _touch(self, nodes: set[str]) -> None:
        if not nodes:
            return
        for node in nodes:
            self._versions[node] = self._versions.get(node, 0) + 1
        for listener in self.listeners:
            listener(frozenset(nodes))


def _pod_key(pod: Pod) -> Key:
    return pod.namespace, pod.name


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
