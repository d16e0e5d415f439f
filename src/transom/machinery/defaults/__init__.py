"""Defaulting: what the API fills in before anything else processes an object.

`apply_defaults` changes a normalised object in place, by the rules of 1.20 for the version of the
request. What depends on the cluster (addresses, accounts, priorities) or on the verb (status,
generation) belongs to strategies and admission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.defaults import core, others, pods, workloads
from transom.machinery.kinds import GVK

Rule = Callable[[dict[str, Any]], None]

_BY_KIND: dict[tuple[str, str], Rule] = {
    ("", "Endpoints"): core.set_defaults_endpoints,
    ("", "EphemeralContainers"): pods.set_defaults_ephemeral_containers,
    ("", "LimitRange"): core.set_defaults_limit_range,
    ("", "Namespace"): core.set_defaults_namespace,
    ("", "Node"): core.set_defaults_node,
    ("", "PersistentVolume"): core.set_defaults_persistent_volume,
    ("", "PersistentVolumeClaim"): core.set_defaults_persistent_volume_claim,
    ("", "Pod"): pods.set_defaults_pod,
    ("", "PodTemplate"): core.set_defaults_pod_template,
    ("", "ReplicationController"): core.set_defaults_replication_controller,
    ("", "ResourceQuota"): core.set_defaults_resource_quota,
    ("", "Secret"): core.set_defaults_secret,
    ("", "Service"): core.set_defaults_service,
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
    ): others.set_defaults_mutating_webhooks,
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
    ): others.set_defaults_validating_webhooks,
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
    ): others.set_defaults_custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): others.set_defaults_api_service,
    ("apps", "DaemonSet"): workloads.set_defaults_daemon_set_v1,
    ("apps", "Deployment"): workloads.set_defaults_deployment,
    ("apps", "ReplicaSet"): workloads.set_defaults_replica_set,
    ("apps", "StatefulSet"): workloads.set_defaults_stateful_set,
    ("authentication.k8s.io", "TokenRequest"): others.set_defaults_token_request,
    ("autoscaling", "HorizontalPodAutoscaler"): others.set_defaults_autoscaler_v2,
    ("batch", "CronJob"): workloads.set_defaults_cron_job,
    ("batch", "Job"): workloads.set_defaults_job,
    ("discovery.k8s.io", "EndpointSlice"): others.set_defaults_endpoint_slice,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): others.set_defaults_flow_schema,
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
    ): others.set_defaults_priority_level_v1,
    ("networking.k8s.io", "NetworkPolicy"): others.set_defaults_network_policy,
    ("policy", "PodSecurityPolicy"): others.set_defaults_pod_security_policy,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): others.set_defaults_role_binding,
    ("rbac.authorization.k8s.io", "RoleBinding"): others.set_defaults_role_binding,
    ("scheduling.k8s.io", "PriorityClass"): others.set_defaults_priority_class,
    ("storage.k8s.io", "CSIDriver"): others.set_defaults_csi_driver,
    ("storage.k8s.io", "StorageClass"): others.set_defaults_storage_class,
    ("storage.k8s.io", "VolumeAttachment"): others.set_defaults_volume_attachment,
}

# Versions with different rules.
_BY_VERSION: dict[tuple[str, str, str], Rule] = {
    (
        "apiextensions.k8s.io",
        "v1beta1",
        "CustomResourceDefinition",
    ): others.set_defaults_custom_resource_definition_v1beta1,
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        "MutatingWebhookConfiguration",
    ): others.set_defaults_mutating_webhooks_v1beta1,
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        "ValidatingWebhookConfiguration",
    ): others.set_defaults_validating_webhooks_v1beta1,
    ("apps", "v1beta1", "Deployment"): workloads.set_defaults_deployment_v1beta1,
    ("apps", "v1beta1", "StatefulSet"): workloads.set_defaults_stateful_set_v1beta1,
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): others.set_defaults_autoscaler_v1,
    ("autoscaling", "v2beta1", "HorizontalPodAutoscaler"): others.set_defaults_autoscaler_v2beta1,
    (
        "certificates.k8s.io",
        "v1beta1",
        "CertificateSigningRequest",
    ): others.set_defaults_signing_request_v1beta1,
    ("extensions", "v1beta1", "DaemonSet"): workloads.set_defaults_daemon_set_extensions,
    ("extensions", "v1beta1", "Deployment"): workloads.set_defaults_deployment_extensions,
    ("extensions", "v1beta1", "Ingress"): others.set_defaults_ingress_v1beta1,
    ("extensions", "v1beta1", "NetworkPolicy"): others.set_defaults_network_policy,
    ("extensions", "v1beta1", "PodSecurityPolicy"): others.set_defaults_pod_security_policy,
    ("extensions", "v1beta1", "ReplicaSet"): workloads.set_defaults_replica_set_extensions,
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta1",
        "PriorityLevelConfiguration",
    ): others.set_defaults_priority_level_v1beta1,
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta2",
        "PriorityLevelConfiguration",
    ): others.set_defaults_priority_level_v1beta1,
    (
        "flowcontrol.apiserver.k8s.io",
        "v1beta3",
        "PriorityLevelConfiguration",
    ): others.set_defaults_priority_level_v1beta3,
    ("networking.k8s.io", "v1beta1", "Ingress"): others.set_defaults_ingress_v1beta1,
}


def find_default_rule(gvk: GVK) -> Rule | None:
    """The rule for objects of this group, version and kind."""
    return _BY_VERSION.get(gvk) or _BY_KIND.get((gvk.group, gvk.kind))


def apply_defaults(gvk: GVK, obj: dict[str, Any]) -> None:
    """Fills in missing fields of an object of this group, version and kind, in place."""
    rule = find_default_rule(gvk)
    if rule is not None:
        rule(obj)
