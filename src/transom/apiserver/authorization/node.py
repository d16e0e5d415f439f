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
from transom.machinery.field_selectors import parse_fields
from transom.machinery.rbac import matches_path, matches_resource
from transom.machinery.releases import DEFAULT, has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.bootstrap import node_rules
from transom.machinery.releases.features import FeatureSet
from transom.machinery.selectors import SelectorError
from transom.store.api import Store

DEFAULT_FEATURES = FeatureSet(DEFAULT)
LEASE_NAMESPACE = "kube-node-lease"
NODES = "system:nodes"
_PREFIX = "system:node:"
_NOT_ALLOWED = "-"  # denied without a reason
_POD_WRITES = frozenset(
    (
        ("", "create"),
        ("", "delete"),
        ("status", "update"),
        ("status", "patch"),
        ("eviction", "create"),
    )
)
# Either feature lets kubelets read the service accounts of their pods.
_ACCOUNT_READERS = ("KubeletServiceAccountTokenForCredentialProviders", "PodCertificateRequest")
_OWN_VERBS = ("get", "create", "update", "patch", "delete")


def node_name(user: UserInfo) -> str | None:
    """The name of the node that a user represents; None if the user is not a node, "" if it has no
    name.
    """
    if user.name.startswith(_PREFIX) and NODES in user.groups:
        return user.name[len(_PREFIX) :]
    return None


class NodeAuthorizer:
    def __init__(self, store: Store, features: FeatureSet = DEFAULT_FEATURES) -> None:
        self._graph = NodeGraph(store)
        self._features = features
        newer = has_tables(features.release)
        self._rules = (
            node_rules(features.release) if newer else bootstrap_policy.CLUSTER_ROLES["system:node"]
        )
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
        if has_behaviour(features.release, "NodeResourceClaims"):
            self._special["resource.k8s.io", "resourceclaims"] = self._get
            self._special["resource.k8s.io", "resourceslices"] = self._slice
        if features.enabled("AuthorizeNodeWithSelectors"):
            if features.enabled("PodCertificateRequest"):
                key = ("certificates.k8s.io", "podcertificaterequests")
                self._special[key] = self._pod_certificate
            self._special["", "nodes"] = self._node
            self._special["", "pods"] = self._pod

    def __call__(self, user: UserInfo, info: RequestInfo) -> Decision:
        node = node_name(user)
        if node is None:
            return NO_OPINION
        if not node:
            return Decision(None, f"unknown node for user {go_quote(user.name)}")
        if not info.is_resource:
            return (
                ALLOWED
                if any(matches_path(rule, info.verb, info.path) for rule in self._rules)
                else NO_OPINION
            )
        special = self._special.get((info.group, info.resource))
        if special is not None:
            reason = special(node, info)
            if reason == _NOT_ALLOWED:
                return NO_OPINION
            return Decision(None, reason) if reason else ALLOWED
        key = (info.verb, info.group, info.resource, info.subresource)
        decision = self._general.get(key)
        if decision is None:
            allowed = any(matches_resource(rule, *key) for rule in self._rules)
            decision = ALLOWED if allowed else NO_OPINION
            if allowed:  # denied requests are arbitrary, so they are not cached
                self._general[key] = decision
        return decision

    # ---- each returns the reason for a denial, or "" ----

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
        if (
            info.verb == "get"
            and not info.subresource
            and has_behaviour(self._features.release, "NodeServiceAccounts")
        ):
            if not any(map(self._features.enabled, _ACCOUNT_READERS)):
                return "not allowed to get service accounts"
            return self._read(node, info)
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

    def _slice(self, node: str, info: RequestInfo) -> str:
        if info.subresource:
            return "cannot authorize ResourceSlice subresources"
        if info.verb == "create":
            return ""
        if info.verb in ("get", "update", "patch", "delete"):
            return self._related(node, info)
        if info.verb not in ("watch", "list", "deletecollection"):
            return (
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, "
                "create, update, patch, delete, deletecollection"
            )
        if not self._features.enabled("AuthorizeNodeWithSelectors") or _selects_node(info, node):
            return ""
        return "can only list/watch/deletecollection resourceslices with nodeName field selector"

    def _pod_certificate(self, node: str, info: RequestInfo) -> str:
        if info.subresource:
            return "nodes may not access the status subresource of PodCertificateRequests"
        if info.verb == "create":  # NodeRestriction checks the object
            return ""
        if info.verb == "get":
            return self._related(node, info)
        if info.verb not in ("list", "watch"):
            return f"nodes may not {info.verb} podcertificaterequests"
        if _selects_node(info, node):
            return ""
        return "can only list/watch podcertificaterequests with nodeName field selector"

    def _node(self, node: str, info: RequestInfo) -> str:
        if info.subresource == "status" and info.verb in ("update", "patch"):
            return ""
        if info.subresource:
            return _NOT_ALLOWED
        if info.verb in ("create", "update", "patch"):
            return ""
        if info.verb not in ("get", "list", "watch"):
            return _NOT_ALLOWED
        if info.name == node:
            return ""
        others = f"'{info.name}'" if info.name else "all nodes"
        return f"node '{node}' cannot read {others}, only its own Node object"

    def _pod(self, node: str, info: RequestInfo) -> str:
        key = (info.subresource, info.verb)
        if key in _POD_WRITES:
            return ""
        if key == ("", "get"):
            return self._get(node, info)
        if key not in (("", "list"), ("", "watch")):
            return _NOT_ALLOWED
        if _selects_node(info, node, "spec.nodeName"):
            return ""
        if info.name:
            return self._related(node, info)
        return "can only list/watch pods with spec.nodeName field selector"


def _selects_node(info: RequestInfo, node: str, field: str = "spec.nodeName") -> bool:
    """Whether a list is limited to objects of the node."""
    try:
        return parse_fields(info.fields).exact(field) == node
    except SelectorError:
        return False
