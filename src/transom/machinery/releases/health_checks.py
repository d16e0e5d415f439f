"""The names of the health checks of kube-apiserver, in the order in which it registers them."""

from __future__ import annotations

from typing import Final

from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import in_range

# name, releases, feature gate. A hook that later releases register elsewhere has two rows.
_HOOKS: Final = (
    ("start-kube-apiserver-admission-initializer", "-29", ""),
    ("start-apiserver-admission-initializer", "30-", ""),
    ("generic-apiserver-start-informers", "-", ""),
    ("priority-and-fairness-config-consumer", "-", ""),
    ("priority-and-fairness-filter", "-", ""),
    ("storage-object-count-tracker-hook", "25-", ""),
    ("start-apiextensions-informers", "-", ""),
    ("start-apiextensions-controllers", "-", ""),
    ("crd-informer-synced", "-", ""),
    ("start-system-namespaces-controller", "27,31-", ""),
    ("bootstrap-controller", "-27", ""),
    (
        "start-kube-apiserver-coordinated-leader-election-controller",
        "31-",
        "CoordinatedLeaderElection",
    ),
    ("peer-endpoint-reconciler-controller", "31-", "UnknownVersionInteroperabilityProxy"),
    ("start-cluster-authentication-info-controller", "31-", ""),
    ("start-kube-apiserver-identity-lease-controller", "31-", "APIServerIdentity"),
    ("start-kube-apiserver-identity-lease-garbage-collector", "31-", "APIServerIdentity"),
    ("storage-readiness", "31-", "WatchCacheInitializationPostStartHook"),
    ("start-legacy-token-tracking-controller", "31-", ""),
    ("start-service-ip-repair-controllers", "28-", ""),
    ("rbac/bootstrap-roles", "-", ""),
    ("scheduling/bootstrap-system-priority-classes", "-", ""),
    ("priority-and-fairness-config-producer", "-", ""),
    ("start-system-namespaces-controller", "28-30", ""),
    ("bootstrap-controller", "28-", ""),
    ("start-kubernetes-service-cidr-controller", "29-", "MultiCIDRServiceAllocator"),
    ("peer-endpoint-reconciler-controller", "28-30", "UnknownVersionInteroperabilityProxy"),
    ("start-cluster-authentication-info-controller", "-30", ""),
    ("start-kube-apiserver-identity-lease-controller", "-30", "APIServerIdentity"),
    (
        "start-deprecated-kube-apiserver-identity-lease-garbage-collector",
        "27-28",
        "APIServerIdentity",
    ),
    ("start-kube-apiserver-identity-lease-garbage-collector", "-30", "APIServerIdentity"),
    ("start-legacy-token-tracking-controller", "26-30", "LegacyServiceAccountTokenTracking"),
    ("aggregator-reload-proxy-client-cert", "-", ""),
    ("start-kube-aggregator-informers", "-", ""),
    ("apiservice-status-local-available-controller", "31-", ""),
    ("apiservice-status-remote-available-controller", "31-", ""),
    ("apiservice-registration-controller", "-", ""),
    ("apiservice-status-available-controller", "-30", ""),
    ("apiservice-discovery-controller", "30-", "AggregatedDiscoveryEndpoint"),
    ("kube-apiserver-autoregistration", "-", ""),
)
_LAST_HOOKS: Final = (
    ("apiservice-openapi-controller", "-", ""),
    ("apiservice-openapiv3-controller", "24-", "OpenAPIV3"),
    ("apiservice-discovery-controller", "26-29", "AggregatedDiscoveryEndpoint"),
)
_LOOPBACK_CERTIFICATE: Final = "36-"
_ETCD_READINESS: Final = "25-"


def health_check_names(features: FeatureSet) -> tuple[str, ...]:
    """The checks of `/healthz` and `/livez`."""
    loopback = in_range(_LOOPBACK_CERTIFICATE, features.release)
    certificate = ("loopback-serving-certificate",) if loopback else ()
    return ("ping", "log", *certificate, "etcd", *_hooks(features))


def readiness_check_names(features: FeatureSet) -> tuple[str, ...]:
    """The checks of `/readyz`."""
    storage = ("etcd-readiness",) if in_range(_ETCD_READINESS, features.release) else ()
    return ("ping", "log", "etcd", *storage, "informer-sync", *_hooks(features), "shutdown")


def _hooks(features: FeatureSet) -> tuple[str, ...]:
    def registered(rows: tuple[tuple[str, str, str], ...]) -> list[str]:
        return [
            f"poststarthook/{name}"
            for name, releases, gate in rows
            if in_range(releases, features.release) and (not gate or features.enabled(gate))
        ]

    return (*registered(_HOOKS), "autoregister-completion", *registered(_LAST_HOOKS))
