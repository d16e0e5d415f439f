"""The admission plugins, in the order of Kubernetes 1.20. This is the only list of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from transom.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
    PodCertificateSigning,
)
from transom.apiserver.admission.claim_resize import PersistentVolumeClaimResize
from transom.apiserver.admission.claim_status import GATE as CLAIM_GATE
from transom.apiserver.admission.claim_status import ClaimStatusAuthorization
from transom.apiserver.admission.default_ingress_class import DefaultIngressClass
from transom.apiserver.admission.default_storage_class import DefaultStorageClass
from transom.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from transom.apiserver.admission.escalation import RoleEscalation
from transom.apiserver.admission.gmsa import WindowsGmsa
from transom.apiserver.admission.limit_ranger import LimitRanger
from transom.apiserver.admission.mutating_webhooks import MutatingAdmissionWebhook
from transom.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from transom.apiserver.admission.node_restriction import NodeRestriction
from transom.apiserver.admission.node_token_audience import (
    NodePodCertificateSigner,
    NodeTokenAudience,
)
from transom.apiserver.admission.plugin import AdmissionPlugin
from transom.apiserver.admission.pod_topology_labels import PodTopologyLabels
from transom.apiserver.admission.policies import AdmissionPolicies
from transom.apiserver.admission.priority import Priority
from transom.apiserver.admission.resource_quota import ResourceQuota
from transom.apiserver.admission.runtime_class import RuntimeClass
from transom.apiserver.admission.service_account import ServiceAccount
from transom.apiserver.admission.storage_protection import StorageObjectInUseProtection
from transom.apiserver.admission.taint_nodes import TaintNodesByCondition
from transom.apiserver.admission.validating_webhooks import ValidatingAdmissionWebhook
from transom.apiserver.admission.webhooks import AdmissionWebhooks
from transom.apiserver.admission.windows_limits import WindowsLimits
from transom.apiserver.core.names import NameGenerator
from transom.apiserver.core.objectstore import FindCore, ObjectStore
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.security import Security
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.machinery.quota import quota_rules
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet, is_enabled
from transom.windows.policy import WarningPolicy

# Only releases that have these plugins need them.
if TYPE_CHECKING:
    from transom.apiserver.admission import mutating_policies, pod_security, validating_policies
else:
    mutating_policies = lazy_import("transom.apiserver.admission.mutating_policies")
    pod_security = lazy_import("transom.apiserver.admission.pod_security")
    validating_policies = lazy_import("transom.apiserver.admission.validating_policies")


def admission_plugins(
    objects: ObjectStore,
    resources: ResourceRegistry,
    find: FindCore,
    security: Security,
    webhooks: AdmissionWebhooks,
    policies: AdmissionPolicies,
    names: NameGenerator,
    clock: Clock,
    release: str,
    *,
    features: FeatureSet,
    gmsa: bool,
    windows: WarningPolicy | None,
) -> list[AdmissionPlugin]:
    """`gmsa`: emulate the webhooks of windows-gmsa; `windows`: warn about Windows limitations."""
    resource = resources.require
    csi_drivers = resource("storage.k8s.io", "v1", "csidrivers")
    storage_classes = resource("storage.k8s.io", "v1", "storageclasses")
    return [
        NamespaceLifecycle(objects, resource("", "v1", "namespaces")),
        LimitRanger(objects, resource("", "v1", "limitranges")),
        ServiceAccount(
            objects,
            resource("", "v1", "serviceaccounts"),
            resource("", "v1", "secrets"),
            names.generate,
            clock,
            projected=has_behaviour(resources.release, "ProjectedTokens"),
        ),
        NodeRestriction(find, features),
        *(
            [NodeTokenAudience(find, partial(objects.find, csi_drivers, ""), security.decide)]
            if features.enabled("ServiceAccountNodeAudienceRestriction")
            else []
        ),
        *(
            [NodePodCertificateSigner(find, security.decide)]
            if has_behaviour(resources.release, "NodePodCertificates")
            else []
        ),
        TaintNodesByCondition(),
        Priority(objects, resource("scheduling.k8s.io", "v1", "priorityclasses")),
        DefaultTolerationSeconds(),
        DefaultStorageClass(
            objects,
            storage_classes,
            newest=has_behaviour(resources.release, "NewestDefaultClass"),
        ),
        StorageObjectInUseProtection(),
        PersistentVolumeClaimResize(objects, storage_classes),
        RuntimeClass(objects, resource("node.k8s.io", "v1", "runtimeclasses")),
        CertificateApproval(security.decide),
        CertificateSigning(security.decide),
        *(
            [ClusterTrustBundleAttest(security.decide)]
            if has_behaviour(resources.release, "ClusterTrustBundles")
            else []
        ),
        CertificateSubjectRestriction(),
        *(
            [PodTopologyLabels(find)]
            if is_enabled(resources.release, "PodTopologyLabelsAdmission")
            else []
        ),
        DefaultIngressClass(objects, resource("networking.k8s.io", "v1", "ingressclasses")),
        *(
            [mutating_policies.MutatingAdmissionPolicy(policies.mutating, security.decide)]
            if policies.mutating is not None
            else []
        ),
        MutatingAdmissionWebhook(webhooks.mutating, webhooks.dispatch),
        # Not a plugin of Kubernetes: it takes the place of its webhook, after the plugins that may
        # set a service account.
        *([WindowsGmsa(objects, resources, find, security.decide, webhooks)] if gmsa else []),
        # Not a plugin of Kubernetes, which checks this in the storage of roles, after mutating
        # admission.
        RoleEscalation(security.rbac, security.decide, objects.workers),
        # The same for the status of resource claims.
        *([ClaimStatusAuthorization(security.decide)] if features.enabled(CLAIM_GATE) else []),
        # The same for the status of pod certificate requests.
        *(
            [PodCertificateSigning(security.decide)]
            if has_behaviour(resources.release, "NodeCertificateRequests")
            else []
        ),
        # Not a plugin of Kubernetes: it sees pods after all mutating plugins.
        *([WindowsLimits(objects, resources, release, windows)] if windows is not None else []),
        *(
            [
                pod_security.PodSecurity(
                    objects,
                    resource("", "v1", "namespaces"),
                    resource("", "v1", "pods"),
                    resources.release,
                )
            ]
            if is_enabled(resources.release, "PodSecurity")
            else []
        ),
        *(
            [validating_policies.ValidatingAdmissionPolicy(policies.validating, security.decide)]
            if policies.validating is not None
            else []
        ),
        ValidatingAdmissionWebhook(webhooks.validating, webhooks.dispatch),
        # Last: the charge must match the write, in the same iteration of the event loop.
        ResourceQuota(
            objects,
            resource("", "v1", "resourcequotas"),
            names_containers=has_behaviour(resources.release, "QuotaNamesContainers"),
            rules=quota_rules(features),
        ),
    ]
