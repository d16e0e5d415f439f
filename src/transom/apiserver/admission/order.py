"""The admission plugins, in the order of Kubernetes 1.20: the one place that says which there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
)
from transom.apiserver.admission.chain import Plugin
from transom.apiserver.admission.claim_resize import PersistentVolumeClaimResize
from transom.apiserver.admission.default_ingress_class import DefaultIngressClass
from transom.apiserver.admission.default_storage_class import DefaultStorageClass
from transom.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from transom.apiserver.admission.escalation import RoleEscalation
from transom.apiserver.admission.gmsa import WindowsGmsa
from transom.apiserver.admission.limit_ranger import LimitRanger
from transom.apiserver.admission.mutating_webhooks import MutatingAdmissionWebhook
from transom.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from transom.apiserver.admission.node_restriction import NodeRestriction
from transom.apiserver.admission.priority import Priority
from transom.apiserver.admission.resource_quota import ResourceQuota
from transom.apiserver.admission.runtime_class import RuntimeClass
from transom.apiserver.admission.service_account import ServiceAccount
from transom.apiserver.admission.storage_protection import StorageObjectInUseProtection
from transom.apiserver.admission.taint_nodes import TaintNodesByCondition
from transom.apiserver.admission.validating_webhooks import ValidatingAdmissionWebhook

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

_PROJECTED_TOKENS_SINCE = (1, 21)


def plugins(server: ApiServer) -> list[Plugin]:
    storage, resource, security = server.storage, server.resource, server.security
    storage_classes = resource("storage.k8s.io", "v1", "storageclasses")
    return [
        NamespaceLifecycle(storage, resource("", "v1", "namespaces")),
        LimitRanger(storage, resource("", "v1", "limitranges")),
        ServiceAccount(
            storage, resource("", "v1", "serviceaccounts"), resource("", "v1", "secrets"), storage.generate_name,
            projected=_release(server.release) >= _PROJECTED_TOKENS_SINCE,
        ),
        NodeRestriction(server.find_core),
        TaintNodesByCondition(),
        Priority(storage, resource("scheduling.k8s.io", "v1", "priorityclasses")),
        DefaultTolerationSeconds(),
        DefaultStorageClass(storage, storage_classes),
        StorageObjectInUseProtection(),
        PersistentVolumeClaimResize(storage, storage_classes),
        RuntimeClass(storage, resource("node.k8s.io", "v1", "runtimeclasses")),
        CertificateApproval(security.decide),
        CertificateSigning(security.decide),
        CertificateSubjectRestriction(),
        DefaultIngressClass(storage, resource("networking.k8s.io", "v1", "ingressclasses")),
        MutatingAdmissionWebhook(server.admission_webhooks.mutating, server.admission_webhooks.dispatch),
        # No plugin of Kubernetes: it stands where its webhook would, behind those that may still name an account.
        *([WindowsGmsa(server)] if server.options.gmsa else []),
        # Nor is this: Kubernetes' storage of roles checks the object as admission has left it.
        RoleEscalation(security.rbac, security.decide),
        *_windows_limits(server),
        ValidatingAdmissionWebhook(server.admission_webhooks.validating, server.admission_webhooks.dispatch),
        # Last of all: what is charged here must be what is written, in the same turn of the loop.
        ResourceQuota(storage, resource("", "v1", "resourcequotas")),
    ]


def _windows_limits(server: ApiServer) -> list[Plugin]:
    """No plugin of Kubernetes: it looks at what all those that change a pod have made of it."""
    if server.options.windows is None:
        return []
    from transom.apiserver.admission.windows_limits import WindowsLimits  # servers without nodes need not know

    return [WindowsLimits(server, server.options.windows)]


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
