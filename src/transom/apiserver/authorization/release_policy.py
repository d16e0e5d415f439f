"""What the bootstrap policy of releases after 1.20 grants in addition, for controllers and the
scheduler.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from transom.apiserver.authorization.bootstrap_policy import Rules, resource_rule
from transom.machinery.releases import TABLES_SINCE, Release
from transom.machinery.releases.features import is_enabled

_READ: Final = "get list watch"
_EVENTS: Final = resource_rule("create patch update", "core events.k8s.io", "events")
_RESOURCE: Final = "resource.k8s.io"


class _Addition(NamedTuple):
    gate: str  # the feature that needs the rules; "" for all releases with a table
    role: str
    rules: Rules


_ADDITIONS: Final = (
    _Addition(
        "DynamicResourceAllocation",
        "system:kube-scheduler",
        (
            resource_rule(_READ, _RESOURCE, "deviceclasses resourceslices"),
            resource_rule("get list patch update watch", _RESOURCE, "resourceclaims"),
            resource_rule("get list patch update watch", _RESOURCE, "resourceclaims/status"),
            resource_rule("update", "core", "pods/finalizers"),
        ),
    ),
    _Addition(
        "DRAExtendedResource",
        "system:kube-scheduler",
        (resource_rule("create delete", _RESOURCE, "resourceclaims"),),
    ),
    _Addition(
        "DRAResourceClaimGranularStatusAuthorization",
        "system:kube-scheduler",
        (resource_rule("patch update", _RESOURCE, "resourceclaims/binding"),),
    ),
    _Addition(
        "",
        "system:kube-scheduler",
        (
            resource_rule(_READ, "core", "namespaces"),
            resource_rule(_READ, "storage.k8s.io", "csidrivers csistoragecapacities"),
        ),
    ),
    _Addition(
        "PodDisruptionConditions",
        "system:controller:disruption-controller",
        (resource_rule("patch update", "core", "pods/status"),),
    ),
    _Addition(
        "PodDisruptionConditions",
        "system:controller:pod-garbage-collector",
        (resource_rule("patch", "core", "pods/status"),),
    ),
    _Addition(
        "NodeOutOfServiceVolumeDetach",
        "system:controller:pod-garbage-collector",
        (resource_rule("get", "core", "nodes"),),
    ),
    _Addition(
        "PodDisruptionConditions",
        "system:controller:node-controller",
        (
            resource_rule("get", "core", "pods"),
            resource_rule("patch", "core", "pods/status"),
        ),
    ),
    _Addition(
        "JobTrackingWithFinalizers",
        "system:controller:job-controller",
        (resource_rule("patch", "batch", "jobs"),),
    ),
    _Addition(
        "StatefulSetAutoDeletePVC",
        "system:controller:statefulset-controller",
        (
            resource_rule("delete update", "core", "persistentvolumeclaims"),
            resource_rule("update", "core", "pods/finalizers"),
        ),
    ),
    _Addition(
        "GenericEphemeralVolume",
        "system:controller:ephemeral-volume-controller",
        (
            resource_rule(_READ, "core", "pods"),
            resource_rule("update", "core", "pods/finalizers"),
            resource_rule("create get list watch", "core", "persistentvolumeclaims"),
            _EVENTS,
        ),
    ),
    _Addition(
        "DynamicResourceAllocation",
        "system:controller:resource-claim-controller",
        (
            resource_rule(_READ, "core", "pods"),
            resource_rule("update", "core", "pods/finalizers"),
            resource_rule("create delete get list watch", _RESOURCE, "resourceclaims"),
            resource_rule("patch update", _RESOURCE, "resourceclaims resourceclaims/status"),
            resource_rule("patch update", "core", "pods/status"),
            _EVENTS,
        ),
    ),
    _Addition(
        "DRAResourceClaimGranularStatusAuthorization",
        "system:controller:resource-claim-controller",
        (resource_rule("patch update", _RESOURCE, "resourceclaims/binding"),),
    ),
    _Addition(
        "MultiCIDRServiceAllocator",
        "system:controller:service-cidrs-controller",
        (
            resource_rule("get list patch update watch", "networking.k8s.io", "servicecidrs"),
            resource_rule("patch update", "networking.k8s.io", "servicecidrs/finalizers"),
            resource_rule("patch update", "networking.k8s.io", "servicecidrs/status"),
            resource_rule(_READ, "networking.k8s.io", "ipaddresses"),
            _EVENTS,
        ),
    ),
    _Addition(
        "LegacyServiceAccountTokenCleanUp",
        "system:controller:legacy-service-account-token-cleaner",
        (
            resource_rule(
                "get", "core", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"
            ),
            resource_rule("delete patch", "core", "secrets"),
        ),
    ),
)


def added_rules(release: Release) -> dict[str, Rules]:
    """Rules by the role that gets them; a role that 1.20 does not have is new."""
    out: dict[str, Rules] = {}
    if release < TABLES_SINCE:
        return out
    for gate, role, rules in _ADDITIONS:
        if not gate or is_enabled(release, gate):
            out[role] = (*out.get(role, ()), *rules)
    return out
