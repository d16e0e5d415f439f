"""The names of the feature gates of kubelet and kube-proxy: those of 1.20, and those of the
release. Their effects are implemented elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from transom.machinery.releases import TABLES_SINCE, Release
from transom.machinery.releases.features import feature_gates
from transom.windows.releases import GATES

_NAMES: Final = """
APIListChunking APIPriorityAndFairness APIResponseCompression APIServerIdentity AdvancedAuditing AllAlpha AllBeta
AllowInsecureBackendProxy AnyVolumeDataSource AppArmor AttachVolumeLimit BalanceAttachedNodeVolumes BlockVolume
BoundServiceAccountTokenVolume CPUManager CRIContainerLogRotation CSIBlockVolume CSIDriverRegistry CSIInlineVolume
CSIMigration CSIMigrationAWS CSIMigrationAWSComplete CSIMigrationAzureDisk CSIMigrationAzureDiskComplete
CSIMigrationAzureFile CSIMigrationAzureFileComplete CSIMigrationGCE CSIMigrationGCEComplete CSIMigrationOpenStack
CSIMigrationOpenStackComplete CSIMigrationvSphere CSIMigrationvSphereComplete CSINodeInfo CSIServiceAccountToken
CSIStorageCapacity CSIVolumeFSGroupPolicy ConfigurableFSGroupPolicy CronJobControllerV2 CustomCPUCFSQuotaPeriod
DefaultPodTopologySpread DevicePlugins DisableAcceleratorUsageMetrics DownwardAPIHugePages DryRun DynamicKubeletConfig
EfficientWatchResumption EndpointSlice EndpointSliceNodeName EndpointSliceProxying EndpointSliceTerminatingCondition
EphemeralContainers EvenPodsSpread ExecProbeTimeout ExpandCSIVolumes ExpandInUsePersistentVolumes ExpandPersistentVolumes
ExperimentalHostUserNamespaceDefaulting ExternalPolicyForExternalIP GenericEphemeralVolume GracefulNodeShutdown
HPAContainerMetrics HPAScaleToZero HugePageStorageMediumSize HyperVContainer IPv6DualStack ImmutableEphemeralVolumes
KubeletCredentialProviders KubeletPodResources LegacyNodeRoleBehavior LocalStorageCapacityIsolation
LocalStorageCapacityIsolationFSQuotaMonitoring MixedProtocolLBService MyFeature NodeDisruptionExclusion NodeLease
NonPreemptingPriority PodDisruptionBudget PodOverhead ProcMountType QOSReserved RemainingItemCount RemoveSelfLink
RootCAConfigMap RotateKubeletClientCertificate RotateKubeletServerCertificate RunAsGroup RuntimeClass SCTPSupport
SelectorIndex ServerSideApply ServiceAccountIssuerDiscovery ServiceAppProtocol ServiceLBNodePortControl ServiceNodeExclusion
ServiceTopology SetHostnameAsFQDN SizeMemoryBackedVolumes StartupProbe StorageObjectInUseProtection StorageVersionAPI
StorageVersionHash StreamingProxyRedirects SupportNodePidsLimit SupportPodPidsLimit Sysctls TTLAfterFinished TokenRequest
TokenRequestProjection TopologyManager ValidateProxyRedirects VolumePVCDataSource VolumeSnapshotDataSource VolumeSubpath
WarningHeaders WatchBookmark WinDSR WinOverlay WindowsEndpointSliceProxying WindowsGMSA WindowsRunAsUserName
"""
KNOWN: Final = frozenset(_NAMES.split()) | {name for name, gate in GATES.items() if gate.flag}


def unrecognized_gates(names: Iterable[str], release: tuple[int, int] = (1, 20)) -> str:
    """A program's message about the first unknown gate; empty if all gates are known."""
    unknown = [name for name in names if name not in KNOWN]
    if unknown and Release(*release) >= TABLES_SINCE:
        unknown = [name for name in unknown if name not in feature_gates(Release(*release))]
    return f"unrecognized feature gate: {unknown[0]}" if unknown else ""


def cluster_gates(settings: Iterable[str], release: tuple[int, int]) -> dict[str, bool]:
    """The feature gates of a cluster (`Name=true`) that a kubelet of a release can set. The gates
    of clusters of 1.20 are those of its API server only.
    """
    if Release(*release) < TABLES_SINCE:
        return {}
    known = feature_gates(Release(*release))
    given = (setting.strip().partition("=") for setting in settings)
    return {
        name: value.lower() == "true"
        for name, _, value in given
        if name in known and not known[name].locked
    }
