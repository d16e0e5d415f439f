"""The names of the feature gates of kubelet and kube-proxy: those of 1.20, and those of the
release. Their effects are implemented elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from transom.machinery.releases import Release, has_tables
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
# Gates of every program that are not in the tables of the releases.
_OF_ALL: Final = frozenset(
    (
        "AllAlpha",
        "AllBeta",
        "ContextualLogging",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "LoggingStableOptions",
    )
)
KNOWN: Final = frozenset(_NAMES.split()) | {name for name, gate in GATES.items() if gate.flag}


def gate_problem(gates: Mapping[str, bool], release: tuple[int, int] = (1, 20)) -> str:
    """A program's message about the first gate that is unknown, or locked to another value; empty
    if there is none.
    """
    tabled = has_tables(release)
    table = feature_gates(Release(*release)) if tabled else {}
    known = table.keys() | _OF_ALL if tabled else KNOWN
    for name, value in gates.items():
        if name not in known:
            return f"unrecognized feature gate: {name}"
        gate = table.get(name)
        if gate is not None and gate.locked and value != gate.default:
            locked = str(gate.default).lower()
            return (
                f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to "
                f"{locked}"
            )
    return ""


def cluster_gates(settings: Iterable[str], release: tuple[int, int]) -> dict[str, bool]:
    """The feature gates of a cluster (`Name=true`) that a kubelet of a release can set. The gates
    of clusters of 1.20 are those of its API server only.
    """
    if not has_tables(release):
        return {}
    known = feature_gates(Release(*release))
    given = (setting.strip().partition("=") for setting in settings)
    return {
        name: value.lower() == "true"
        for name, _, value in given
        if name in known and not known[name].locked
    }
