"""NodeRestriction: a kubelet may write only its own node, the status of its own pods, and tokens
and certificate requests for itself and its own pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from transom.apiserver.admission.plugin import MutatingPlugin
from transom.apiserver.authorization.node import LEASE_NAMESPACE, node_name
from transom.apiserver.authorization.node_graph import MIRROR
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.resources import Resource
from transom.kit.goquote import go_quote
from transom.machinery import errors
from transom.machinery.certificates import (
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    parse_certificate_request,
)
from transom.machinery.errors import GroupResource
from transom.machinery.objects import Object
from transom.machinery.pod_references import (
    api_object_reference,
    config_map_names,
    projected_sources,
    secret_names,
)
from transom.machinery.releases.behaviour import Behaviour, has_behaviour
from transom.machinery.releases.features import FeatureSet

Find = Callable[[str, str, str], Object | None]  # (plural, namespace, name) of the core group
_RESTRICTED = "node-restriction.kubernetes.io"
_KUBELET_LABELS = {
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
}
_KUBELET_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBERNETES_NAMESPACES = ("kubernetes.io", "k8s.io")
# Field of a pod's status, its name in errors, and the behaviour that protects it from nodes.
_CLAIM_STATUSES: Final[tuple[tuple[str, str, Behaviour], ...]] = (
    ("resourceClaimStatuses", "resource claim statues", "NodeResourceClaims"),
    (
        "extendedResourceClaimStatus",
        "extended resource claim status",
        "NodeReferencesOfEveryKind",
    ),
    (
        "nodeAllocatableResourceClaimStatuses",
        "node allocatable resource claim statuses",
        "NodePodCertificates",
    ),
)
_NODE_SIGNERS = (KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER)


class NodeRestriction(MutatingPlugin):
    name = "NodeRestriction"
    thread_safe = True

    def __init__(self, find: Find, features: FeatureSet) -> None:
        self._find = find
        self._features = features
        self._checks: dict[str, Callable[[str, Attributes], None]] = {
            "/Pod": self._pod,
            "/Node": self._node,
            "/PersistentVolumeClaim": self._claim,
            "/ServiceAccount": self._account,
            "coordination.k8s.io/Lease": self._lease,
            "storage.k8s.io/CSINode": self._csi_node,
        }
        release = features.release
        if has_behaviour(release, "NodeResourceSlices"):
            self._checks["resource.k8s.io/ResourceSlice"] = self._slice
        if has_behaviour(release, "NodeCertificateRequests") and not features.enabled(
            "AllowInsecureKubeletCertificateSigningRequests"
        ):
            self._checks["certificates.k8s.io/CertificateSigningRequest"] = self._csr
        self._checks["certificates.k8s.io/PodCertificateRequest"] = self._pod_certificate

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        return operation != "CONNECT"

    def admit(self, attributes: Attributes) -> None:
        node = node_name(attributes.ctx.user)
        if node is None:
            return
        if not node:
            raise attributes.forbidden(
                f"could not determine node from user {go_quote(attributes.ctx.user.name)}"
            )
        check = self._checks.get(attributes.kind_key)
        if check is not None:
            check(node, attributes)

    # ---- pods ----

    def _pod(self, node: str, a: Attributes) -> None:
        if a.subresource == "status":
            self._pod_status(node, a)
        elif a.subresource == "eviction":
            self._eviction(node, a)
        elif a.subresource:
            raise a.forbidden(
                f"unexpected pod subresource {go_quote(a.subresource)}, only 'status' and "
                "'eviction' are allowed"
            )
        elif a.operation == "CREATE":
            self._pod_create(node, a)
        elif a.operation == "DELETE":
            if not _on(self._existing("pods", a.namespace, a.name), node):
                raise a.forbidden(
                    f"node {go_quote(node)} can only delete pods with spec.nodeName set to itself"
                )
        else:
            raise a.forbidden(
                f"unexpected operation {go_quote(a.operation)}, node {go_quote(node)} can "
                "only create and delete "
                "mirror pods"
            )

    def _pod_create(self, node: str, a: Attributes) -> None:
        meta, spec, quoted = a.obj["metadata"], a.obj["spec"], go_quote(node)
        if MIRROR not in (meta.get("annotations") or {}):
            raise a.forbidden(
                f'pod does not have "{MIRROR}" annotation, node {quoted} can only create '
                "mirror pods"
            )
        if spec.get("nodeName") != node:
            raise a.forbidden(
                f"node {quoted} can only create pods with spec.nodeName set to itself"
            )
        self._owner(node, a, meta.get("ownerReferences") or [])
        uses = f"node {quoted} can not create pods that reference"
        everything = has_behaviour(self._features.release, "NodeReferencesOfEveryKind")
        found = api_object_reference(spec) if everything else _reference(spec)
        if found:
            raise a.forbidden(f"{uses} {found}")

    def _owner(self, node: str, a: Attributes, owners: list[Object]) -> None:
        only = f"node {go_quote(node)} can only create pods with"
        if len(owners) > 1:
            raise a.forbidden(f"{only} a single owner reference set to itself")
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise a.forbidden(f"{only} an owner reference set to itself")
        if not owner.get("controller"):
            raise a.forbidden(f"{only} a controller owner reference set to itself")
        if owner.get("blockOwnerDeletion"):
            raise a.forbidden(
                f"node {go_quote(node)} must not set blockOwnerDeletion on an owner reference"
            )
        uid = self._existing("nodes", "", node, "node")["metadata"]["uid"]
        if owner.get("uid") != uid:
            raise a.forbidden(
                f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
            )

    def _pod_status(self, node: str, a: Attributes) -> None:
        if a.operation != "UPDATE":
            raise a.forbidden(f"unexpected operation {go_quote(a.operation)}")
        if not _on(a.old or {}, node):
            raise a.forbidden(
                f"node {go_quote(node)} can only update pod status for pods with "
                "spec.nodeName set to itself"
            )
        if _labels(a.old) != _labels(a.obj):
            raise a.forbidden(f"node {go_quote(node)} cannot update labels through pod status")
        # The scheduler and a controller write these; they let the node read the claims.
        for field, name, since in _CLAIM_STATUSES:
            if not has_behaviour(self._features.release, since):
                continue
            if _status(a.old).get(field) != _status(a.obj).get(field):
                raise a.forbidden(f"node {go_quote(node)} cannot update {name}")

    def _eviction(self, node: str, a: Attributes) -> None:
        if a.operation != "CREATE":
            raise a.forbidden(f"unexpected operation {a.operation}")
        name = a.name or ((a.obj or {}).get("metadata") or {}).get("name", "")
        if not name:
            raise a.forbidden("could not determine pod from request data")
        if not _on(self._existing("pods", a.namespace, name), node):
            raise a.forbidden(f"node {node} can only evict pods with spec.nodeName set to itself")

    def _existing(self, plural: str, namespace: str, name: str, singular: str = "pod") -> Object:
        found = self._find(plural, namespace, name)
        if found is None:
            raise errors.not_found(GroupResource("", singular), name)
        return found

    # ---- nodes ----

    def _node(self, node: str, a: Attributes) -> None:
        # In a create only the object has the name.
        requested = a.name or ((a.obj or {}).get("metadata") or {}).get("name", "")
        if requested != node:
            raise a.forbidden(
                f"node {go_quote(node)} is not allowed to modify node {go_quote(requested)}"
            )
        if a.operation == "CREATE":
            if (a.obj.get("spec") or {}).get("configSource") is not None:
                raise a.forbidden(
                    f"node {go_quote(node)} is not allowed to create pods with a non-nil "
                    "configSource"
                )
            refused = _forbidden_labels(_labels(a.obj), {})
            if refused:
                raise a.forbidden(
                    f"node {go_quote(node)} is not allowed to set the following labels: "
                    f"{', '.join(refused)}"
                )
        elif a.operation == "UPDATE":
            self._node_update(node, a)

    def _node_update(self, node: str, a: Attributes) -> None:
        new, old = a.obj.get("spec") or {}, (a.old or {}).get("spec") or {}
        source = new.get("configSource")
        if source is not None and source != old.get("configSource"):
            raise a.forbidden(
                f"node {go_quote(node)} is not allowed to update configSource to a new "
                "non-nil configSource"
            )
        if (new.get("taints") or []) != (old.get("taints") or []):
            raise a.forbidden(f"node {go_quote(node)} is not allowed to modify taints")
        # The garbage collector would delete the node, which could create itself again with other
        # labels and taints (CVE-2025-5187).
        if _owners(a.obj) != _owners(a.old):
            raise a.forbidden(f"node {go_quote(node)} is not allowed to modify ownerReferences")
        refused = _forbidden_labels(_labels(a.obj), _labels(a.old))
        if refused:
            raise a.forbidden(f"is not allowed to modify labels: {', '.join(refused)}")

    # ---- other kinds ----

    def _claim(self, node: str, a: Attributes) -> None:
        if a.subresource != "status":
            raise a.forbidden("may only update PVC status")
        if a.operation != "UPDATE":
            raise a.forbidden(f"unexpected operation {go_quote(a.operation)}")
        allowed = ["capacity", "conditions"]
        if self._features.enabled("RecoverVolumeExpansionFailure"):
            allowed += ["allocatedResources", "allocatedResourceStatuses"]
        if _claim_essence(a.obj, allowed) != _claim_essence(a.old or {}, allowed):
            raise a.forbidden(
                f"node {go_quote(node)} is not allowed to update fields other than "
                "status.capacity and "
                "status.conditions"
            )

    def _account(self, node: str, a: Attributes) -> None:
        """Tokens must be bound to pods on the node."""
        if a.operation != "CREATE" or a.subresource != "token":
            return
        reference = (a.obj.get("spec") or {}).get("boundObjectRef") or {}
        name, uid = reference.get("name", ""), reference.get("uid", "")
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not name:
            raise a.forbidden("node requested token not bound to a pod")
        if not uid:
            raise a.forbidden("node requested token with a pod binding without a uid")
        pod = self._existing("pods", a.namespace, name)
        if uid != pod["metadata"]["uid"]:
            hidden = has_behaviour(self._features.release, "HiddenPodUids")
            known = "" if hidden else f" ({pod['metadata']['uid']})"
            raise a.forbidden(
                f"the UID in the bound object reference ({uid}) does not match the UID in record"
                f"{known}. The object might have been deleted and then recreated"
            )
        if not _on(pod, node):
            raise a.forbidden("node requested token bound to a pod scheduled on a different node")

    def _lease(self, node: str, a: Attributes) -> None:
        if a.namespace != LEASE_NAMESPACE:
            raise a.forbidden(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if _own_name(a) != node:
            raise a.forbidden(
                "can only access node lease with the same name as the requesting node"
            )

    def _csi_node(self, node: str, a: Attributes) -> None:
        if _own_name(a) != node:
            raise a.forbidden("can only access CSINode with the same name as the requesting node")

    def _slice(self, node: str, a: Attributes) -> None:
        """Other operations are checked by the Node authorizer, which does not see these objects."""
        if a.operation in ("CREATE", "DELETE"):
            found = a.obj if a.operation == "CREATE" else a.old or {}
            if (found.get("spec") or {}).get("nodeName") != node:
                raise a.forbidden(
                    f"can only {a.operation.lower()} ResourceSlice with the same NodeName as the "
                    "requesting node"
                )

    def _csr(self, node: str, a: Attributes) -> None:
        """A node may request certificates for itself only; the signer checks everything else."""
        spec = a.obj.get("spec") or {} if a.operation == "CREATE" else {}
        if spec.get("signerName") not in _NODE_SIGNERS:
            return
        request = parse_certificate_request(spec.get("request") or "")
        if request is None:
            raise a.forbidden("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
        if request.common_name != f"system:node:{node}":
            raise a.forbidden(f"can only create a node CSR with CN=system:node:{node}")

    def _pod_certificate(self, node: str, a: Attributes) -> None:
        """Certificates are for pods that run on the node."""
        if a.operation != "CREATE":
            raise a.forbidden(f"unexpected operation {a.operation}")
        if a.subresource:
            raise a.forbidden(f"unexpected subresource {a.subresource}")
        spec, quoted = a.obj.get("spec") or {}, go_quote(node)
        if spec.get("nodeName") != node:
            raise a.forbidden(
                f"PodCertificateRequest.Spec.NodeName={go_quote(spec.get('nodeName') or '')}, "
                f"which is not the requesting node {quoted}"
            )
        name = spec.get("podName") or ""
        pod = self._existing("pods", a.namespace, name)
        text = go_quote(f"{a.namespace}/{name}")
        if not _on(pod, node):
            raise a.forbidden(
                f"pod {text} is not running on node {quoted} named in the PodCertificateRequest"
            )
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            raise a.forbidden(f"pod {text} is a mirror pod")
        self._pod_certificate_ids(node, a, pod)

    def _pod_certificate_ids(self, node: str, a: Attributes, pod: Object) -> None:
        spec, account = a.obj["spec"], pod["spec"].get("serviceAccountName") or ""
        wanted = (
            ("nodeUID", self._existing("nodes", "", node, "node")["metadata"]["uid"]),
            ("podUID", pod["metadata"]["uid"]),
            ("serviceAccountName", account),
            (
                "serviceAccountUID",
                self._existing("serviceaccounts", a.namespace, account, "serviceaccount")[
                    "metadata"
                ]["uid"],
            ),
        )
        for field, value in wanted:
            if spec.get(field) != value:
                raise a.forbidden(
                    f"PodCertificateRequest for pod "
                    f"{go_quote(a.namespace + '/' + pod['metadata']['name'])} contains {field} "
                    f"({go_quote(spec.get(field) or '')}) that differs from the running pod's "
                    f"({go_quote(value)})"
                )


def _reference(spec: Object) -> str:
    """The API objects that mirror pods could not refer to before 1.34, or ""."""
    if spec.get("serviceAccountName"):
        return "a service account"
    if any(secret_names(spec)):
        return "secrets"
    if any(config_map_names(spec)):
        return "configmaps"
    if any("clusterTrustBundle" in source for source in projected_sources(spec)):
        return "clustertrustbundles"
    # A node could otherwise read claims that no pod of it uses (CVE-2025-4563).
    if spec.get("resourceClaims"):
        return "resourceclaims"
    if any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ()):
        return "persistentvolumeclaims"
    return ""


def _status(pod: Object | None) -> Object:
    return (pod or {}).get("status") or {}


def _own_name(a: Attributes) -> str:
    return a.obj["metadata"].get("name", "") if a.operation == "CREATE" else a.name


def _on(pod: Object, node: str) -> bool:
    return (pod.get("spec") or {}).get("nodeName") == node


def _labels(obj: Object | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _owners(obj: Object | None) -> list[Object]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


def _under(namespace: str, parents: tuple[str, ...]) -> bool:
    return any(namespace == parent or namespace.endswith("." + parent) for parent in parents)


def _forbidden_labels(new: dict[str, str], old: dict[str, str]) -> list[str]:
    """Changed labels that a kubelet must not set: they could attract workloads to the node."""
    out = []
    for label in sorted(new.keys() | old.keys()):
        if new.get(label) == old.get(label):
            continue
        namespace = label.partition("/")[0] if "/" in label else ""
        own = label in _KUBELET_LABELS or _under(namespace, _KUBELET_NAMESPACES)
        if _under(namespace, (_RESTRICTED,)) or (
            _under(namespace, _KUBERNETES_NAMESPACES) and not own
        ):
            out.append(label)
    return out


def _claim_essence(claim: Object, allowed: Sequence[str]) -> Object:
    out = {k: v for k, v in claim.items() if k not in ("kind", "apiVersion", "metadata", "status")}
    out["metadata"] = {
        k: v
        for k, v in (claim.get("metadata") or {}).items()
        if k not in ("resourceVersion", "managedFields")
    }
    out["status"] = {k: v for k, v in (claim.get("status") or {}).items() if k not in allowed}
    return out
