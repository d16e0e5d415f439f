"""The network policies of the whole cluster, updated event by event and shared by the agents of all
nodes.

The cost of an event is proportional to the rules that it may affect: clauses are indexed by the
namespaces they can select from, and the pods that a clause selects are computed on first use. A
node's sequence number increases when something changes for one of its pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from transom.machinery.selectors import SelectorError
from transom.proxy.policy.rules import (
    OPEN,
    ClauseKey,
    CompiledPolicy,
    Key,
    PodIsolation,
    PolicyClause,
    PolicyPeers,
    PolicyPod,
    compile_policy,
    has_network,
    isolation_of,
    policy_peers,
    policy_pod_of,
    reported_addresses,
)

log = logging.getLogger("transom.policy")
Object = Mapping[str, Any]
_LARGE: Final = 64 * 1024  # bytes of a policy that takes long to compile


class PolicyIndex:
    def __init__(self) -> None:
        self.listeners: list[Callable[[frozenset[str]], None]] = []
        """Called with the nodes whose pods are affected by a change."""
        self._pods: dict[Key, PolicyPod] = {}
        self._of_node: dict[str, dict[Key, None]] = {}
        self._of_namespace: dict[str, dict[Key, None]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._policies: dict[Key, CompiledPolicy] = {}
        self._policies_in: dict[str, dict[Key, CompiledPolicy]] = {}
        # policies with a rule for named ports of all pods
        self._naming_ports: dict[Key, CompiledPolicy] = {}
        self._subjects: dict[Key, set[Key]] = {}  # policy -> pods it selects
        # namespace -> clauses that may select pods in it
        self._looking_into: dict[str, tuple[PolicyClause, ...]] = {}
        self._peers: dict[ClauseKey | None, PolicyPeers] = {}
        self._prepared: tuple[Object, CompiledPolicy] | None = None
        self._versions: dict[str, int] = {}
        self._waiting: dict[Key, Object] = {}  # pods without addresses
        # uid and addresses, until the status has them
        self._given: dict[Key, tuple[str, tuple[str, ...]]] = {}

    # ---- queries of agents ----

    def version(self, node: str) -> int:
        return self._versions.get(node, 0)

    def pods_on(self, node: str) -> list[PolicyPod]:
        return [self._pods[key] for key in self._of_node.get(node, ())]

    def isolation(self, pod: Key) -> PodIsolation:
        known = self._pods.get(pod)
        here = self._policies_in.get(pod[0])
        if known is None or not here:
            return OPEN
        selecting = [here[key] for key in sorted(here) if pod in self._subjects[key]]
        return isolation_of(known, selecting, self._select) if selecting else OPEN

    # ---- events ----

    def put_pod(self, obj: Object) -> None:
        key = _key(obj)
        if not has_network(obj):
            self.remove_pod(obj)
            return
        addresses, given = reported_addresses(obj), self._given.get(key)
        if given is not None and given[0] == obj["metadata"].get("uid") and given[1] != addresses:
            addresses = given[1]  # its status is outdated
        else:
            self._given.pop(key, None)
        if addresses:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = obj
        self._set_pod(key, policy_pod_of(obj, addresses))

    def remove_pod(self, obj: Object) -> None:
        key = _key(obj)
        self._given.pop(key, None)
        self._waiting.pop(key, None)
        self._set_pod(key, None)

    def put_server(
        self, namespace: str, name: str, labels: Mapping[str, str], addresses: Iterable[str]
    ) -> None:
        """A server that is a pod in other clusters, such as cluster DNS: rules select it by its
        labels. It is on no node, so that no policy isolates it.
        """
        now = PolicyPod(namespace, name, labels, tuple(addresses), "")
        self._set_pod((namespace, name), now)

    def place_pod(self, key: Key, uid: str, addresses: Iterable[str]) -> None:
        """A pod just got these addresses. Its status has them only once it runs, which is too late
        to isolate it.
        """
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

    def prepare_policy(self, obj: Object) -> Awaitable[None] | None:
        """Compiles a policy in a thread if it is large, ahead of `put_policy`."""
        self._prepared = None
        return self._compile_beside(obj) if len(orjson.dumps(obj)) > _LARGE else None

    async def _compile_beside(self, obj: Object) -> None:
        try:
            self._prepared = obj, await asyncio.to_thread(compile_policy, obj)
        except SelectorError:
            log.debug("network policy %s/%s is not valid", *_key(obj))  # `put_policy` warns

    def put_policy(self, obj: Object) -> None:
        prepared, self._prepared = self._prepared, None
        try:
            if prepared is not None and prepared[0] is obj:
                policy = prepared[1]
            else:
                policy = compile_policy(obj)
        except SelectorError as error:
            log.warning("network policy %s/%s is not enforced: %s", *_key(obj), error)
            self._set_policy(_key(obj), None)
            return
        self._set_policy(policy.key, policy)

    def remove_policy(self, obj: Object) -> None:
        self._set_policy(_key(obj), None)

    # ---- pods ----

    def _set_pod(self, key: Key, now: PolicyPod | None) -> None:
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
                if not self._of_node[before.node]:
                    del self._of_node[before.node]
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

    def _place(self, key: Key, now: PolicyPod | None) -> None:
        inside = self._of_namespace.setdefault(key[0], {})
        if now is not None:
            inside[key] = None
        else:
            inside.pop(key, None)
            if not inside:
                del self._of_namespace[key[0]]

    def _peer_changed(self, before: PolicyPod | None, now: PolicyPod | None) -> set[str]:
        """Nodes with pods whose rules select this pod, before or after the change."""
        either = now or before
        assert either is not None
        labels = self._namespaces.get(either.namespace, {})
        same = (
            before is not None
            and now is not None
            and (before.addresses, before.ports) == (now.addresses, now.ports)
        )
        changed: dict[Key, CompiledPolicy] = {}
        for clause in self._clauses_into(either.namespace):
            was = before is not None and clause.selects(before, labels)
            is_now = now is not None and clause.selects(now, labels)
            if was != is_now or (is_now and not same):
                self._forget(clause, changed)
        if not same:
            self._peers.pop(None, None)
            changed |= self._naming_ports
        return self._nodes_of(changed.values())

    # ---- namespaces ----

    def _set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        before = self._namespaces.get(name, {})
        self._namespaces[name] = labels
        if before == labels:
            return
        looked = {clause.key: clause for clause in self._clauses_into(name, before)}
        self._looking_into.pop(name, None)
        changed: dict[Key, CompiledPolicy] = {}
        pods = [self._pods[key] for key in self._of_namespace.get(name, ())]
        for clause in (
            looked | {clause.key: clause for clause in self._clauses_into(name)}
        ).values():
            if any(clause.selects(pod, before) != clause.selects(pod, labels) for pod in pods):
                self._forget(clause, changed)
        self._touch(self._nodes_of(changed.values()))

    def _clauses_into(
        self, namespace: str, labels: Mapping[str, str] | None = None
    ) -> tuple[PolicyClause, ...]:
        """The clauses that may select pods of a namespace."""
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

    # ---- policies ----

    def _set_policy(self, key: Key, now: CompiledPolicy | None) -> None:
        before = self._policies.get(key)
        if before == now:
            return
        nodes: set[str] = set()
        if before is not None:
            nodes |= self._nodes_of((before,))
            for clause in before.clauses:
                self._peers.pop(clause.key, None)
            del self._policies[key], self._subjects[key], self._policies_in[key[0]][key]
            self._naming_ports.pop(key, None)
        if now is not None:
            self._policies[key] = now
            self._policies_in.setdefault(key[0], {})[key] = now
            if any(clause.all_peers and clause.named for clause in now.egress or ()):
                self._naming_ports[key] = now
            self._subjects[key] = {
                pod for pod in self._of_namespace.get(key[0], ()) if now.selects(self._pods[pod])
            }
            nodes |= self._nodes_of((now,))
        self._looking_into.clear()
        self._touch(nodes)

    # ---- caches ----

    def _select(self, clause: PolicyClause | None) -> PolicyPeers:
        key = clause.key if clause is not None else None
        found = self._peers.get(key)
        if found is None:
            found = self._peers[key] = policy_peers(sorted(self._candidates(clause), key=_pod_key))
        return found

    def _candidates(self, clause: PolicyClause | None) -> Iterable[PolicyPod]:
        if clause is None:
            yield from self._pods.values()
            return
        for namespace, keys in self._of_namespace.items():
            labels = self._namespaces.get(namespace, {})
            if clause.may_select_in(namespace, labels):
                for key in keys:
                    if clause.selects(self._pods[key], labels):
                        yield self._pods[key]

    def _forget(self, clause: PolicyClause, changed: dict[Key, CompiledPolicy]) -> None:
        """Drops the cached pods of a clause; adds its policy to the changed ones."""
        self._peers.pop(clause.key, None)
        changed[clause.policy] = self._policies[clause.policy]

    def _nodes_of(self, policies: Iterable[CompiledPolicy]) -> set[str]:
        """The nodes with pods that one of the policies selects."""
        nodes: set[str] = set()
        for policy in policies:
            if len(nodes) == len(self._of_node):
                break  # there are no others
            nodes.update([self._pods[pod].node for pod in self._subjects[policy.key]])
        return nodes

    def _touch(self, nodes: set[str]) -> None:
        if not nodes:
            return
        for node in nodes:
            self._versions[node] = self._versions.get(node, 0) + 1
        for listener in self.listeners:
            listener(frozenset(nodes))


def _pod_key(pod: PolicyPod) -> Key:
    return pod.namespace, pod.name


def _key(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
