"""All controllers: their names and identities, and the loop that runs them.

The names are those of `kube-controller-manager --controllers=`. Each controller has its own
identity, the service account `kube-system/IDENTITY`; the shared informers use the manager's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from transom.client.api import ApiClient
from transom.client.metrics import WorkQueueMetrics
from transom.controllers.attachdetach import AttachDetach
from transom.controllers.base import Controller, ControllerContext, ControllerSettings
from transom.controllers.bootstrap_tokens import BootstrapSigner, TokenCleaner
from transom.controllers.certificates import CsrApprover, CsrCleaner, CsrSigner
from transom.controllers.cronjob import CronJobs
from transom.controllers.daemonset import DaemonSets
from transom.controllers.deployment import Deployments
from transom.controllers.device_taint_eviction import DeviceTaintEviction
from transom.controllers.disruption import Disruption
from transom.controllers.early import EARLY_CONTROLLERS
from transom.controllers.endpoints import Endpoints
from transom.controllers.endpointslice import EndpointSliceMirroring, EndpointSlices
from transom.controllers.ephemeral_volume import EphemeralVolumes
from transom.controllers.garbagecollector import GarbageCollector
from transom.controllers.horizontalpodautoscaler import Autoscaler
from transom.controllers.job import job_controller
from transom.controllers.legacy_token_cleaner import LegacyTokenCleaner
from transom.controllers.namespace import NamespaceDeleter
from transom.controllers.persistentvolume import VolumeBinder
from transom.controllers.pod_certificate_cleaner import PodCertificateCleaner
from transom.controllers.podgc import PodCollector
from transom.controllers.replicaset import ReplicaSets, replication_controllers
from transom.controllers.resourceclaim import ResourceClaims
from transom.controllers.resourcequota import ResourceQuotas
from transom.controllers.runner import USER, USER_AGENT, ControllerRow, ControllerRunner
from transom.controllers.service_lb import LoadBalancers
from transom.controllers.servicecidr import ServiceCidrs
from transom.controllers.statefulset import StatefulSets
from transom.controllers.storage_version_migrator import StorageVersionMigrator
from transom.controllers.trust_bundle_publisher import TrustBundlePublisher
from transom.controllers.ttl_after_finished import FinishedJobs
from transom.controllers.validatingadmissionpolicystatus import ValidatingAdmissionPolicyStatus
from transom.controllers.volume_expand import VolumeExpansion
from transom.controllers.volume_protection import (
    AttributesClassProtection,
    ClaimProtection,
    VolumeProtection,
)
from transom.kit.clock import Clock
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet, is_enabled
from transom.machinery.releases.scheduling import scheduling_rules

__all__ = [
    "CONTROLLERS",
    "USER",
    "USER_AGENT",
    "ControllerManager",
    "ControllerRow",
    "UnknownController",
    "selected_controllers",
]


def _csr_signing(env: ControllerContext) -> Controller | None:
    return (
        CsrSigner(env, env.settings.sign_certificate)
        if env.settings.sign_certificate is not None
        else None
    )


def _load_balancers(env: ControllerContext) -> Controller | None:
    return LoadBalancers(env) if env.settings.load_balancers else None


def _ephemeral_volumes(env: ControllerContext) -> Controller | None:
    on = env.settings.features.enabled("GenericEphemeralVolume")
    return EphemeralVolumes(env) if on else None


def _resource_claims(env: ControllerContext) -> Controller | None:
    features = env.settings.features
    served = scheduling_rules(features.release).resource_claims
    on = features.enabled("DynamicResourceAllocation") and served
    return ResourceClaims(env) if on else None


def _device_taint_eviction(env: ControllerContext) -> Controller | None:
    features = env.settings.features
    on = features.enabled("DynamicResourceAllocation") and features.enabled("DRADeviceTaints")
    served = scheduling_rules(features.release).resource_claims
    return DeviceTaintEviction(env) if on and served else None


def _is_served(features: FeatureSet, gate: str) -> bool:
    """The API behind a gate is served from the release on in which the gate is on by default."""
    return features.enabled(gate) and is_enabled(features.release, gate)


def _trust_bundles(env: ControllerContext) -> Controller | None:
    features, has_ca = env.settings.features, bool(env.settings.root_ca)
    on = _is_served(features, "ClusterTrustBundle")
    return TrustBundlePublisher(env) if on and has_ca else None


def _pod_certificates(env: ControllerContext) -> Controller | None:
    features = env.settings.features
    on = _is_served(features, "PodCertificateRequest")
    return PodCertificateCleaner(env) if on else None


def _storage_version_migrator(env: ControllerContext) -> Controller | None:
    features = env.settings.features
    on = _is_served(features, "StorageVersionMigrator")
    return StorageVersionMigrator(env) if on else None


def _policy_status(env: ControllerContext) -> Controller | None:
    if not is_enabled(env.settings.release, "ValidatingAdmissionPolicy"):
        return None
    return ValidatingAdmissionPolicyStatus(env)


def _service_cidrs(env: ControllerContext) -> Controller | None:
    on = env.settings.features.enabled("MultiCIDRServiceAllocator")
    return ServiceCidrs(env) if on else None


def _attributes_classes(env: ControllerContext) -> Controller | None:
    on = has_behaviour(env.settings.release, "ProtectedAttributesClasses")
    return AttributesClassProtection(env) if on else None


def _legacy_tokens(env: ControllerContext) -> Controller | None:
    on = env.settings.features.enabled("LegacyServiceAccountTokenCleanUp")
    return LegacyTokenCleaner(env) if on else None


CONTROLLERS: tuple[ControllerRow, ...] = (
    *EARLY_CONTROLLERS,
    ControllerRow("garbagecollector", "generic-garbage-collector", GarbageCollector),
    ControllerRow("namespace", "namespace-controller", NamespaceDeleter),
    ControllerRow("deployment", "deployment-controller", Deployments),
    ControllerRow("replicaset", "replicaset-controller", ReplicaSets),
    ControllerRow("replicationcontroller", "replication-controller", replication_controllers),
    ControllerRow("statefulset", "statefulset-controller", StatefulSets),
    ControllerRow("daemonset", "daemon-set-controller", DaemonSets),
    ControllerRow("job", "job-controller", job_controller),
    ControllerRow("cronjob", "cronjob-controller", CronJobs),
    ControllerRow("ttl-after-finished", "ttl-after-finished-controller", FinishedJobs),
    ControllerRow("horizontalpodautoscaling", "horizontal-pod-autoscaler", Autoscaler),
    ControllerRow("disruption", "disruption-controller", Disruption),
    ControllerRow("endpoint", "endpoint-controller", Endpoints),
    ControllerRow("endpointslice", "endpointslice-controller", EndpointSlices),
    ControllerRow(
        "endpointslicemirroring", "endpointslicemirroring-controller", EndpointSliceMirroring
    ),
    ControllerRow("resourcequota", "resourcequota-controller", ResourceQuotas),
    ControllerRow("podgc", "pod-garbage-collector", PodCollector),
    ControllerRow("service", "service-controller", _load_balancers),
    ControllerRow("csrapproving", "certificate-controller", CsrApprover),
    ControllerRow("csrsigning", "certificate-controller", _csr_signing),
    ControllerRow("csrcleaner", "certificate-controller", CsrCleaner),
    ControllerRow("persistentvolume-binder", "persistent-volume-binder", VolumeBinder),
    ControllerRow("attachdetach", "attachdetach-controller", AttachDetach),
    ControllerRow("persistentvolume-expander", "expand-controller", VolumeExpansion),
    ControllerRow("pvc-protection", "pvc-protection-controller", ClaimProtection),
    ControllerRow("pv-protection", "pv-protection-controller", VolumeProtection),
    ControllerRow(
        "volumeattributesclass-protection-controller",
        "volumeattributesclass-protection-controller",
        _attributes_classes,
    ),
    ControllerRow("ephemeral-volume", "ephemeral-volume-controller", _ephemeral_volumes),
    ControllerRow("resource-claim-controller", "resource-claim-controller", _resource_claims),
    ControllerRow(
        "device-taint-eviction-controller",
        "device-taint-eviction-controller",
        _device_taint_eviction,
    ),
    ControllerRow(
        "validatingadmissionpolicy-status",
        "validatingadmissionpolicy-status-controller",
        _policy_status,
    ),
    ControllerRow("service-cidr-controller", "service-cidrs-controller", _service_cidrs),
    ControllerRow(
        "legacy-service-account-token-cleaner",
        "legacy-service-account-token-cleaner",
        _legacy_tokens,
    ),
    ControllerRow(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        _trust_bundles,
    ),
    ControllerRow(
        "podcertificaterequest-cleaner-controller",
        "podcertificaterequestcleaner",
        _pod_certificates,
    ),
    ControllerRow(
        "storage-version-migrator-controller",
        "storage-version-migrator-controller",
        _storage_version_migrator,
    ),
    ControllerRow("bootstrapsigner", "bootstrap-signer", BootstrapSigner, by_default=False),
    ControllerRow("tokencleaner", "token-cleaner", TokenCleaner, by_default=False),
)


class UnknownController(Exception):
    pass


def selected_controllers(
    wanted: Sequence[str], table: Sequence[ControllerRow] = CONTROLLERS
) -> list[ControllerRow]:
    """The controllers that `--controllers` selects: `*` for all that are on by default, `NAME` for
    one, `-NAME` to disable one.
    """
    known = {row.name for row in table}
    for name in wanted:
        if name != "*" and name.removeprefix("-") not in known:
            raise UnknownController(
                f'"{name.removeprefix("-")}" is not in the list of known controllers'
            )
    return [
        row
        for row in table
        if f"-{row.name}" not in wanted
        and (row.name in wanted or ("*" in wanted and row.by_default))
    ]


class ControllerManager:
    def __init__(
        self,
        clients: Callable[[str], ApiClient],
        clock: Clock,
        rng: random.Random,
        settings: ControllerSettings,
        *,
        controllers: Sequence[str] = ("*",),
        table: Sequence[ControllerRow] = CONTROLLERS,
        queues: WorkQueueMetrics | None = None,
    ) -> None:
        """`clients` creates the client of an identity ("" for the manager's own)."""
        self._rows = selected_controllers(controllers, table)
        self._runner = ControllerRunner(clients, clock, rng, settings, queues)
        self.informers = self._runner.informers

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        await self._runner.run(self._rows)
