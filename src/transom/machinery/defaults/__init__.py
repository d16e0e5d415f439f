"""Defaults: what the API fills in before anything else looks at an object.

`apply` changes a normalised object in place, by the rules of 1.20 for the version the request speaks. What depends on
the cluster (addresses, accounts, priorities) or on the verb (status, generation) belongs to strategies and admission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.defaults import core, others, pods, workloads
from transom.machinery.kinds import GVK

Rule = Callable[[dict[str, Any]], None]

_BY_KIND: dict[tuple[str, str], Rule] = {
    ("", "Endpoints"): core.endpoints,
    ("", "EphemeralContainers"): pods.ephemeral_containers,
    ("", "LimitRange"): core.limit_range,
    ("", "Namespace"): core.namespace,
    ("", "Node"): core.node,
    ("", "PersistentVolume"): core.persistent_volume,
    ("", "PersistentVolumeClaim"): core.persistent_volume_claim,
    ("", "Pod"): pods.pod,
    ("", "PodTemplate"): core.pod_template,
    ("", "ReplicationController"): core.replication_controller,
    ("", "ResourceQuota"): core.resource_quota,
    ("", "Secret"): core.secret,
    ("", "Service"): core.service,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): others.mutating_webhooks,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): others.validating_webhooks,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): others.custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): others.api_service,
    ("apps", "DaemonSet"): workloads.daemon_set,
    ("apps", "Deployment"): workloads.deployment,
    ("apps", "ReplicaSet"): workloads.replica_set,
    ("apps", "StatefulSet"): workloads.stateful_set,
    ("authentication.k8s.io", "TokenRequest"): others.token_request,
    ("autoscaling", "HorizontalPodAutoscaler"): others.autoscaler_v2,
    ("batch", "CronJob"): workloads.cron_job,
    ("batch", "Job"): workloads.job,
    ("discovery.k8s.io", "EndpointSlice"): others.endpoint_slice,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): others.flow_schema,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): others.priority_level_v1,
    ("networking.k8s.io", "NetworkPolicy"): others.network_policy,
    ("policy", "PodSecurityPolicy"): others.pod_security_policy,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): others.role_binding,
    ("rbac.authorization.k8s.io", "RoleBinding"): others.role_binding,
    ("scheduling.k8s.io", "PriorityClass"): others.priority_class,
    ("storage.k8s.io", "CSIDriver"): others.csi_driver,
    ("storage.k8s.io", "StorageClass"): others.storage_class,
    ("storage.k8s.io", "VolumeAttachment"): others.volume_attachment,
}

# Versions with rules of their own.
_BY_VERSION: dict[tuple[str, str, str], Rule] = {
    ("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition"): others.custom_resource_definition_v1beta1,
    ("admissionregistration.k8s.io", "v1beta1", "MutatingWebhookConfiguration"): others.mutating_webhooks_v1beta1,
    ("admissionregistration.k8s.io", "v1beta1", "ValidatingWebhookConfiguration"): others.validating_webhooks_v1beta1,
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): others.autoscaler_v1,
    ("autoscaling", "v2beta1", "HorizontalPodAutoscaler"): others.autoscaler_v2beta1,
    ("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"): others.signing_request_v1beta1,
    ("extensions", "v1beta1", "Ingress"): others.ingress_v1beta1,
    ("flowcontrol.apiserver.k8s.io", "v1beta1", "PriorityLevelConfiguration"): others.priority_level_v1beta1,
    ("networking.k8s.io", "v1beta1", "Ingress"): others.ingress_v1beta1,
}


def apply(gvk: GVK, obj: dict[str, Any]) -> None:
    """Fills in what the object of this group, version and kind leaves open, in place."""
    rule = _BY_VERSION.get(gvk) or _BY_KIND.get((gvk.group, gvk.kind))
    if rule is not None:
        rule(obj)
