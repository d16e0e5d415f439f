"""Behaviour that changed in a release and has no feature gate of its own in the tables.

Each entry names what servers do since that release. Most releases are those of the source at
Kubernetes' tags. Four are known from the recorded answers of 1.20, 1.32 and 1.36 only, and the
change may have come with another release in between: GroupNotFoundAsStatus, NetworkingErrors,
ServiceDeleteReturnsObject and TrimmedSourcePaths.
"""

from __future__ import annotations

from typing import Final, Literal

from transom.machinery.releases.release import TABLES_SINCE, Release

Behaviour = Literal[
    "AllocateLoadBalancerNodePorts",
    "ApplyErrorsNameObject",
    "DaemonSetSurge",
    "FieldValidationWarns",
    "GroupNotFoundAsStatus",
    "InternalTrafficPolicy",
    "JobControllerLabels",
    "JsonValuesInErrors",
    "ProjectedTokens",
    "RuleValuesInErrors",
    "AttributesClassInErrors",
    "ClaimDataSourceRefs",
    "DefaultGroupInErrors",
    "DotsInLabels",
    "AddressInRangeErrors",
    "AggregatedDiscoveryV2",
    "FlowControlV1",
    "LentSeats",
    "NodeHighLevel",
    "OptionalFlowTypes",
    "ReferencesNameGroups",
    "RequiredMaxReplicas",
    "RuntimeClassErrors",
    "UnhealthyPodEviction",
    "BatchGeneration",
    "ManualSelectorDefault",
    "NoZonesInSchedules",
    "StatefulSetClaims",
    "StatefulSetServiceName",
    "EndpointSliceWarnings",
    "NoTopologyInSlices",
    "LegacyAddressErrors",
    "SameIngressClass",
    "ExternalPolicyRequired",
    "ExternallyAccessible",
    "LoadBalancersOnAnyPort",
    "ServiceAllocationErrors",
    "SourceRangeItems",
    "ImmutableClassErrors",
    "MutableCSIDrivers",
    "MutableCSINodes",
    "ProtectedAttributesClasses",
    "ServiceDeleteReturnsObject",
    "TypedCustomErrors",
    "MetadataNameLabel",
    "NetworkingErrors",
    "NoTokenSecrets",
    "ExternalIPsDeprecated",
    "ObjectWarnings",
    "PodGeneration",
    "PreferCloseDeprecated",
    "VolumeWarnings",
    "StrictJsonDecoder",
    "TrimmedSourcePaths",
    "VolumePhaseTransitionTime",
    "WebhookErrorsNameCall",
]

_SINCE: Final[dict[Behaviour, Release]] = {
    "AllocateLoadBalancerNodePorts": Release(1, 22),
    "ApplyErrorsNameObject": Release(1, 23),
    "AttributesClassInErrors": Release(1, 29),
    # Claims of sources that only `dataSourceRef` may name lose `dataSource`; both get the same value.
    "ClaimDataSourceRefs": Release(1, 22),
    "DaemonSetSurge": Release(1, 22),
    "DefaultGroupInErrors": Release(1, 26),
    # A name that only has dots too many has its own error.
    "DotsInLabels": Release(1, 27),
    # Addresses and CIDRs of older fields all have the same errors.
    "LegacyAddressErrors": Release(1, 33),
    "SameIngressClass": Release(1, 27),
    "EndpointSliceWarnings": Release(1, 28),
    # v1 of EndpointSlice does not keep the topology of v1beta1.
    "NoTopologyInSlices": Release(1, 22),
    # Jobs, CronJobs and PodTemplates count changes of their spec.
    "BatchGeneration": Release(1, 22),
    "ManualSelectorDefault": Release(1, 29),
    "NoZonesInSchedules": Release(1, 29),
    "StatefulSetClaims": Release(1, 34),
    "StatefulSetServiceName": Release(1, 33),
    "FlowControlV1": Release(1, 29),
    "LentSeats": Release(1, 26),
    "NodeHighLevel": Release(1, 22),
    # A missing type of a priority level is required, earlier an unsupported value.
    "OptionalFlowTypes": Release(1, 36),
    # References of autoscalers name the group of their target.
    "ReferencesNameGroups": Release(1, 34),
    "RequiredMaxReplicas": Release(1, 36),
    "RuntimeClassErrors": Release(1, 36),
    "UnhealthyPodEviction": Release(1, 26),
    "AggregatedDiscoveryV2": Release(1, 30),
    "AddressInRangeErrors": Release(1, 24),
    # Services with external addresses have a policy of external traffic.
    "ExternallyAccessible": Release(1, 29),
    "ExternalPolicyRequired": Release(1, 23),
    "LoadBalancersOnAnyPort": Release(1, 33),
    "ServiceAllocationErrors": Release(1, 22),
    "SourceRangeItems": Release(1, 30),
    # `fieldValidation` defaults to Warn.
    "FieldValidationWarns": Release(1, 25),
    # An unknown version of a built-in group is a Status, earlier a plain page.
    "GroupNotFoundAsStatus": Release(1, 21),
    # Changes of a storage class are errors like those of other immutable fields.
    "ImmutableClassErrors": Release(1, 36),
    "InternalTrafficPolicy": Release(1, 22),
    "JobControllerLabels": Release(1, 27),
    # Field errors show bad values as JSON, earlier ones in Go syntax.
    "JsonValuesInErrors": Release(1, 34),
    "MetadataNameLabel": Release(1, 21),
    # Errors of ingresses and network policies name their own group, earlier ones `extensions`.
    "NetworkingErrors": Release(1, 22),
    # Most fields of a CSIDriver can be changed.
    "MutableCSIDrivers": Release(1, 30),
    "MutableCSINodes": Release(1, 33),
    "NoTokenSecrets": Release(1, 24),
    "ExternalIPsDeprecated": Release(1, 36),
    "ObjectWarnings": Release(1, 22),
    "PreferCloseDeprecated": Release(1, 35),
    "VolumeWarnings": Release(1, 28),
    "PodGeneration": Release(1, 33),
    "ProtectedAttributesClasses": Release(1, 33),
    # Pods get a projected token, earlier the Secret of their account.
    "ProjectedTokens": Release(1, 21),
    # Errors of CEL rules show the value, earlier its type.
    "RuleValuesInErrors": Release(1, 35),
    "ServiceDeleteReturnsObject": Release(1, 23),
    # Custom objects: errors have the reason of what is wrong, not always FieldValueInvalid.
    "TypedCustomErrors": Release(1, 24),
    # Bodies are decoded by sigs.k8s.io/json, whose errors are those of encoding/json.
    "StrictJsonDecoder": Release(1, 23),
    # Errors that name a source file do so relative to the module.
    "TrimmedSourcePaths": Release(1, 24),
    "VolumePhaseTransitionTime": Release(1, 29),
    "WebhookErrorsNameCall": Release(1, 22),
}


def has_behaviour(release: Release, name: Behaviour) -> bool:
    return release >= TABLES_SINCE and release >= _SINCE[name]
