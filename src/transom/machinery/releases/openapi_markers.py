"""What only the OpenAPI documents show of types: defaults that they declare (`+default`), beside the
zero values of fields that are always emitted, required fields, and structs that are atomic by
themselves. The server sets defaults by `machinery.defaults` and requires fields by
`machinery.validation`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from transom.machinery.releases.release import Release, in_range

# Type, field -> (default, releases that show it)
_DECLARED: Final[dict[str, tuple[Any, str]]] = {
    "autoscaling/v1.ScaleSpec.replicas": (0, "34-"),
    "certificates/v1alpha1.PodCertificateRequestSpec.maxExpirationSeconds": (86400, "34"),
    "certificates/v1beta1.PodCertificateRequestSpec.maxExpirationSeconds": (86400, "35-"),
    "core/v1.AzureDiskVolumeSource.cachingMode": ("ReadWrite", "31-"),
    "core/v1.AzureDiskVolumeSource.fsType": ("ext4", "31-"),
    "core/v1.AzureDiskVolumeSource.kind": ("Shared", "31-"),
    "core/v1.AzureDiskVolumeSource.readOnly": (False, "31-"),
    "core/v1.ConfigMapEnvSource.name": ("", "31-"),
    "core/v1.ConfigMapKeySelector.name": ("", "31-"),
    "core/v1.ConfigMapProjection.name": ("", "31-"),
    "core/v1.ConfigMapVolumeSource.name": ("", "31-"),
    "core/v1.ContainerPort.protocol": ("TCP", "21-"),
    "core/v1.FileKeySelector.optional": (False, "34-"),
    "core/v1.GRPCAction.service": ("", "23-"),
    "core/v1.ISCSIPersistentVolumeSource.iscsiInterface": ("default", "31-"),
    "core/v1.ISCSIVolumeSource.iscsiInterface": ("default", "31-"),
    "core/v1.LocalObjectReference.name": ("", "31-"),
    "core/v1.RBDPersistentVolumeSource.keyring": ("/etc/ceph/keyring", "31-"),
    "core/v1.RBDPersistentVolumeSource.pool": ("rbd", "31-"),
    "core/v1.RBDPersistentVolumeSource.user": ("admin", "31-"),
    "core/v1.RBDVolumeSource.keyring": ("/etc/ceph/keyring", "31-"),
    "core/v1.RBDVolumeSource.pool": ("rbd", "31-"),
    "core/v1.RBDVolumeSource.user": ("admin", "31-"),
    "core/v1.ReplicationControllerSpec.minReadySeconds": (0, "33-"),
    "core/v1.ReplicationControllerSpec.replicas": (1, "33-"),
    "core/v1.ScaleIOPersistentVolumeSource.fsType": ("xfs", "31-"),
    "core/v1.ScaleIOPersistentVolumeSource.storageMode": ("ThinProvisioned", "31-"),
    "core/v1.ScaleIOVolumeSource.fsType": ("xfs", "31-"),
    "core/v1.ScaleIOVolumeSource.storageMode": ("ThinProvisioned", "31-"),
    "core/v1.SecretEnvSource.name": ("", "31-"),
    "core/v1.SecretKeySelector.name": ("", "31-"),
    "core/v1.SecretProjection.name": ("", "31-"),
    "core/v1.ServicePort.protocol": ("TCP", "21-"),
    "resource/v1.DeviceToleration.operator": ("Equal", "34-"),
    "resource/v1alpha3.DeviceToleration.operator": ("Equal", "33"),
    "resource/v1alpha3.ResourcePoolStatusRequestSpec.limit": (100, "36-"),
    "resource/v1beta1.DeviceToleration.operator": ("Equal", "33-"),
    "resource/v1beta2.DeviceToleration.operator": ("Equal", "33-"),
    "scheduling/v1alpha2.PodGroupSpec.disruptionMode": ("Pod", "36"),
    "scheduling/v1alpha3.PodGroupSpec.disruptionMode": ({"single": {}}, "37"),
}
# Fields that are marked as required although they are left out when empty -> releases
_REQUIRED: Final = {
    "admissionregistration/v1.ValidatingAdmissionPolicyBinding.spec": "36-",
    "admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec.policyName": "36-",
    "admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec.validationActions": "36-",
    "apps/v1.DaemonSet.spec": "37-",
    "apps/v1.Deployment.spec": "37-",
    "apps/v1.ReplicaSet.spec": "37-",
    "apps/v1.StatefulSet.spec": "37-",
    "authentication/v1.TokenReviewSpec.token": "36-",
    "autoscaling/v1.HorizontalPodAutoscaler.spec": "36-",
    "autoscaling/v2.HorizontalPodAutoscaler.spec": "36-",
    "batch/v1.CronJob.spec": "36-",
    "batch/v1.PodFailurePolicyRule.onPodConditions": "25-28",
    "coordination/v1beta1.LeaseCandidate.spec": "36-",
    "coordination/v1beta1.LeaseCandidateSpec.strategy": "33-",
    "core/v1.ContainerRestartRule.action": "34-",
    "core/v1.ContainerRestartRuleOnExitCodes.operator": "34-",
    "core/v1.ImageVolumeStatus.imageRef": "36-",
    "core/v1.PodCertificateProjection.keyType": "34-",
    "core/v1.PodCertificateProjection.signerName": "34-",
    "flowcontrol/v1.FlowSchema.spec": "37-",
    "flowcontrol/v1.FlowSchemaCondition.type": "37-",
    "flowcontrol/v1.LimitedPriorityLevelConfiguration.limitResponse": "37-",
    "flowcontrol/v1.PriorityLevelConfiguration.spec": "37-",
    "flowcontrol/v1.PriorityLevelConfigurationCondition.type": "37-",
    "networking/v1.IPAddress.spec": "36-",
    "networking/v1.IPAddressSpec.parentRef": "33-",
    "networking/v1.ParentReference.name": "33-",
    "networking/v1.ParentReference.resource": "33-",
    "networking/v1beta1.IPAddress.spec": "36-",
    "networking/v1beta1.IPAddressSpec.parentRef": "31-",
    "networking/v1beta1.ParentReference.name": "31-",
    "networking/v1beta1.ParentReference.resource": "31-",
    "resource/v1.CapacityRequestPolicyRange.min": "34-",
    "resource/v1.CounterSet.counters": "34-",
    "resource/v1.DeviceCounterConsumption.counters": "34-",
    "resource/v1.DeviceTaintRuleSpec.taint": "37-",
    "resource/v1beta1.CapacityRequestPolicyRange.min": "34-",
    "resource/v1beta1.CounterSet.counters": "33-",
    "resource/v1beta1.DeviceCounterConsumption.counters": "33-",
    "resource/v1beta2.CapacityRequestPolicyRange.min": "34-",
    "resource/v1beta2.CounterSet.counters": "33-",
    "resource/v1beta2.DeviceCounterConsumption.counters": "33-",
    "resource/v1beta2.DeviceTaintRuleSpec.taint": "36-",
}
# Packages and their structs that are atomic in all versions but the exceptions below.
_ATOMIC: Final = {
    "admissionregistration": ("MatchResources NamedRuleWithOperations ParamKind ParamRef Variable"),
    "autoscaling": "CrossVersionObjectReference",
    "core": (
        "ConfigMapKeySelector EndpointAddress EndpointPort FileKeySelector LocalObjectReference "
        "NodeSelector NodeSelectorTerm ObjectFieldSelector ObjectReference ResourceFieldSelector "
        "ScopeSelector SecretKeySelector SecretReference TopologySelectorTerm "
        "TypedLocalObjectReference"
    ),
    "discovery": "EndpointPort",
    "meta": "LabelSelector OwnerReference",
    "networking": "ServiceBackendPort",
    "rbac": "RoleRef Subject",
}
_NOT_ATOMIC: Final = (
    "admissionregistration/v1alpha1.Variable",
    "autoscaling/v2.CrossVersionObjectReference",
    "autoscaling/v2beta1.CrossVersionObjectReference",
    "autoscaling/v2beta2.CrossVersionObjectReference",
)


def is_atomic_struct(type_id: str) -> bool:
    """Whether the struct itself (`core/v1.ObjectReference`), not the fields with it, is atomic."""
    package, _, rest = type_id.partition("/")
    name = rest.partition(".")[2]
    return name in _ATOMIC.get(package, "").split() and type_id not in _NOT_ATOMIC


@cache
def declared_defaults(release: Release) -> dict[str, Any]:
    """`core/v1.ContainerPort.protocol` -> the default."""
    return {
        field: default
        for field, (default, releases) in _DECLARED.items()
        if in_range(releases, release)
    }


@cache
def marked_required(release: Release) -> frozenset[str]:
    """`core/v1.ContainerRestartRule.action`"""
    return frozenset(field for field, releases in _REQUIRED.items() if in_range(releases, release))
