"""The Node authorizer: a kubelet may read what its pods need, and write its own objects.

Its reasons are part of the error message, so they are Kubernetes' texts.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.apiserver.authorization import bootstrap_policy
from transom.apiserver.authorization.chain import ALLOWED, NO_OPINION, Decision
from transom.apiserver.authorization.node_graph import NodeGraph
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo
from transom.kit.goquote import go_quote
from transom.machinery.rbac import matches_path, matches_resource
from transom.store.api import Store

LEASE_NAMESPACE = "kube-node-lease"
NODES = "system:nodes"
_PREFIX = "system:node:"
_RULES = bootstrap_policy.CLUSTER_ROLES["system:node"]
_OWN_VERBS = ("get", "create", "update", "patch", "delete")


def node_name(user: UserInfo) -> str | None:
    """The name of the node that a user represents; None if the user is not a node, "" if it has no
    name.
    """
    if user.name.startswith(_PREFIX) and NODES in user.groups:
        return user.name[len(_PREFIX) :]
    return None


class NodeAuthorizer:
    def __init__(self, store: Store) -> None:
        self._graph = NodeGraph(store)
        self._general: dict[tuple[str, str, str, str], Decision] = {}
        self._special: dict[tuple[str, str], Callable[[str, RequestInfo], str]] = {
            ("", "secrets"): self._read,
            ("", "configmaps"): self._read,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._get,
            ("", "serviceaccounts"): self._token,
            ("storage.k8s.io", "volumeattachments"): self._get,
            ("coordination.k8s.io", "leases"): self._lease,
            ("storage.k8s.io", "csinodes"): self._csi_node,
        }

    def __call__(self, user: UserInfo, info: RequestInfo) -> Decision:
        node = node_name(user)
        if node is None:
            return NO_OPINION
        if not node:
            return Decision(None, f"unknown node for user {go_quote(user.name)}")
        if not info.is_resource:
            return (
                ALLOWED
                if any(matches_path(rule, info.verb, info.path) for rule in _RULES)
                else NO_OPINION
            )
        special = self._special.get((info.group, info.resource))
        if special is not None:
            reason = special(node, info)
            return Decision(None, reason) if reason else ALLOWED
        key = (info.verb, info.group, info.resource, info.subresource)
        decision = self._general.get(key)
        if decision is None:
            allowed = any(matches_resource(rule, *key) for rule in _RULES)
            decision = ALLOWED if allowed else NO_OPINION
            if allowed:  # denied requests are arbitrary, so they are not cached
                self._general[key] = decision
        return decision

    # ---- each returns the reason for a denial, or ""
    # --------------------------------------------------------------------------------

    def _related(self, node: str, info: RequestInfo) -> str:
        name = info.name
        if not name:
            return "No Object name found"
        if self._graph.related(node, info.resource, info.namespace, name):
            return ""
        return f"no relationship found between node '{node}' and this object"

    def _read(self, node: str, info: RequestInfo) -> str:
        if info.verb not in ("get", "list", "watch"):
            return "can only read resources of this type"
        if info.subresource:
            return "cannot read subresource"
        if not info.namespace:
            return "can only read namespaced object of this type"
        return self._related(node, info)

    def _get(self, node: str, info: RequestInfo) -> str:
        if info.verb != "get":
            return "can only get individual resources of this type"
        if info.subresource:
            return "cannot get subresource"
        return self._related(node, info)

    def _claim(self, node: str, info: RequestInfo) -> str:
        if info.subresource != "status":
            return self._get(node, info)
        if info.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
        return self._related(node, info)

    def _token(self, node: str, info: RequestInfo) -> str:
        if info.verb != "create" or not info.name:
            return "can only create tokens for individual service accounts"
        if info.subresource != "token":
            return "can only create token subresource of serviceaccount"
        return self._related(node, info)

    def _lease(self, node: str, info: RequestInfo) -> str:
        if info.verb not in _OWN_VERBS:
            return "can only get, create, update, patch, or delete a node lease"
        if info.namespace != LEASE_NAMESPACE:
            return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
        # In a create, the name is in the body; NodeRestriction checks it.
        if info.verb != "create" and info.name != node:
            return "can only access node lease with the same name as the requesting node"
        return ""

    def _csi_node(self, node: str, info: RequestInfo) -> str:
        if info.verb not in _OWN_VERBS:
            return "can only get, create, update, patch, or delete a CSINode"
        if info.subresource:
            return "cannot authorize CSINode subresources"
        if info.verb != "create" and info.name != node:
            return "can only access CSINode with the same name as the requesting node"
        return ""
