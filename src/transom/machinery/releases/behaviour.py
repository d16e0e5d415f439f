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
    "JobInterimConditions",
    "JsonValuesInErrors",
    "ProjectedTokens",
    "RuleValuesInErrors",
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
    "AutoscalerEventsAreV2",
    "AutoscalerFailedMetrics",
    "AutoscalerPartialMetrics",
    "ScaleErrorsNameWorkload",
    "AutoscalerMetricTexts",
    "CronJobConditionText",
    "CronJobLastSuccess",
    "CleanupByRevision",
    "CronJobOwnersAreV1",
    "DisruptionConditions",
    "EmptyBudgetSelectorMatches",
    "EndpointSliceNodeName",
    "EndpointsManagedBy",
    "FnvEndpointOrder",
    "NewestDefaultClass",
    "NoTargetVersions",
    "QuotaNamesContainers",
    "NoTerminalEndpoints",
    "ProvisionerAnnotation",
    "ProvisioningEventText",
    "RootCaDescription",
    "ScalingEventRange",
    "StatefulSetTitleEvents",
    "UnmanagedPodsInBudgets",
    "WebhookErrorsNameCall",
]

_SINCE: Final[dict[Behaviour, Release]] = {
    "AllocateLoadBalancerNodePorts": Release(1, 22),
    "ApplyErrorsNameObject": Release(1, 23),
    "DaemonSetSurge": Release(1, 22),
    # `fieldValidation` defaults to Warn.
    "FieldValidationWarns": Release(1, 25),
    # An unknown version of a built-in group is a Status, earlier a plain page.
    "GroupNotFoundAsStatus": Release(1, 21),
    "InternalTrafficPolicy": Release(1, 22),
    "JobControllerLabels": Release(1, 27),
    # Jobs have FailureTarget and SuccessCriteriaMet before Failed and Complete.
    "JobInterimConditions": Release(1, 31),
    # Field errors show bad values as JSON, earlier ones in Go syntax.
    "JsonValuesInErrors": Release(1, 34),
    "MetadataNameLabel": Release(1, 21),
    # Errors of ingresses and network policies name their own group, earlier ones `extensions`.
    "NetworkingErrors": Release(1, 22),
    "NoTokenSecrets": Release(1, 24),
    "ExternalIPsDeprecated": Release(1, 36),
    "ObjectWarnings": Release(1, 22),
    "PreferCloseDeprecated": Release(1, 35),
    "VolumeWarnings": Release(1, 28),
    "PodGeneration": Release(1, 33),
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
    "AutoscalerEventsAreV2": Release(1, 23),
    # The status keeps empty entries for metrics that failed.
    "AutoscalerFailedMetrics": Release(1, 29),
    # Autoscalers do not scale down while a metric fails.
    "AutoscalerPartialMetrics": Release(1, 21),
    # The error of a missing workload's scale names the workload, earlier the subresource.
    "ScaleErrorsNameWorkload": Release(1, 33),
    "AutoscalerMetricTexts": Release(1, 25),
    "CronJobConditionText": Release(1, 31),
    "CronJobLastSuccess": Release(1, 21),
    # Deployments delete the ReplicaSets of the oldest revisions, earlier the oldest ReplicaSets.
    "CleanupByRevision": Release(1, 21),
    "CronJobOwnersAreV1": Release(1, 21),
    # PodDisruptionBudgets have the condition DisruptionAllowed.
    "DisruptionConditions": Release(1, 21),
    # Only policy/v1 is served, where an empty selector selects all pods.
    "EmptyBudgetSelectorMatches": Release(1, 25),
    # Endpoints name their node in a field, earlier in a topology label.
    "EndpointSliceNodeName": Release(1, 21),
    "EndpointsManagedBy": Release(1, 33),
    "FnvEndpointOrder": Release(1, 35),
    # Of several default StorageClasses the newest is used; earlier they are an error.
    "NewestDefaultClass": Release(1, 26),
    # Quotas name the containers that do not specify a resource.
    "QuotaNamesContainers": Release(1, 24),
    # Endpoints refer to pods without their resourceVersion.
    "NoTargetVersions": Release(1, 23),
    # Pods that have ended are not endpoints, whatever their restart policy.
    "NoTerminalEndpoints": Release(1, 22),
    # Claims have the GA annotation of their provisioner beside the beta one.
    "ProvisionerAnnotation": Release(1, 23),
    "ProvisioningEventText": Release(1, 28),
    "RootCaDescription": Release(1, 22),
    # Events of Deployments name the old number of replicas too.
    "ScalingEventRange": Release(1, 32),
    # Events of StatefulSets begin with a capital letter.
    "StatefulSetTitleEvents": Release(1, 35),
    # Budgets report pods without a controller instead of failing.
    "UnmanagedPodsInBudgets": Release(1, 22),
    "WebhookErrorsNameCall": Release(1, 22),
}


def has_behaviour(release: Release, name: Behaviour) -> bool:
    return release >= TABLES_SINCE and release >= _SINCE[name]
