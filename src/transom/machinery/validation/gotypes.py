"""The Go types whose values Kubernetes prints into validation errors: their fields in order, with
types.

Some errors show a whole struct as Go prints it (`core.Toleration{Key:"a", ...}`), so the order of
the fields is part of the message. A row reads `Type: Field type, Field=jsonName type`; the JSON
name is written only if it does not follow from the Go name. A field with `^` is embedded: its
members are inlined in its parent in JSON. The tables here describe release 1.20;
`releases/internal_types.txt` has those of later releases.
"""

from __future__ import annotations

from functools import cache

from transom.kit.lazy import lazy_pattern
from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases import DEFAULT, Release, has_tables, in_range
from transom.machinery.releases.release import table_lines
from transom.machinery.validation.gotypes_more import TABLE


class GoField(NamedTuple):
    name: str
    json: str  # "" if the members of an embedded struct are inlined in the parent
    type: str


_CONTAINER = (
    "Name string, Image string, Command []string, Args []string, WorkingDir string, Ports "
    "[]core.ContainerPort, "
    "EnvFrom []core.EnvFromSource, Env []core.EnvVar, Resources core.ResourceRequirements, "
    "VolumeMounts []core.VolumeMount, VolumeDevices []core.VolumeDevice, LivenessProbe "
    "*core.Probe, "
    "ReadinessProbe *core.Probe, StartupProbe *core.Probe, Lifecycle *core.Lifecycle, "
    "TerminationMessagePath string, "
    "TerminationMessagePolicy core.TerminationMessagePolicy, ImagePullPolicy core.PullPolicy, "
    "SecurityContext *core.SecurityContext, Stdin bool, StdinOnce bool, TTY bool"
)

_TABLE = {
    "v1.ObjectMeta": (
        "Name string, GenerateName string, Namespace string, SelfLink string, UID types.UID, "
        "ResourceVersion string, "
        "Generation int64, CreationTimestamp v1.Time, DeletionTimestamp *v1.Time, "
        "DeletionGracePeriodSeconds *int64, "
        "Labels map[string]string, Annotations map[string]string, OwnerReferences "
        "[]v1.OwnerReference, "
        "Finalizers []string, ClusterName string, ManagedFields []v1.ManagedFieldsEntry"
    ),
    "v1.ManagedFieldsEntry": (
        "Manager string, Operation v1.ManagedFieldsOperationType, APIVersion string, Time "
        "*v1.Time, "
        "FieldsType string, FieldsV1 *v1.FieldsV1"
    ),
    "v1.LabelSelector": "MatchLabels map[string]string, MatchExpressions []v1.LabelSelectorRequirement",
    "v1.LabelSelectorRequirement": "Key string, Operator v1.LabelSelectorOperator, Values []string",
    "v1.OwnerReference": (
        "APIVersion string, Kind string, Name string, UID types.UID, Controller *bool, "
        "BlockOwnerDeletion *bool"
    ),
    "apps.DeploymentStrategy": "Type apps.DeploymentStrategyType, RollingUpdate *apps.RollingUpdateDeployment",
    "apps.RollingUpdateDeployment": "MaxUnavailable intstr.IntOrString, MaxSurge intstr.IntOrString",
    "apps.DaemonSetUpdateStrategy": "Type apps.DaemonSetUpdateStrategyType, RollingUpdate *apps.RollingUpdateDaemonSet",
    "apps.RollingUpdateDaemonSet": "MaxUnavailable intstr.IntOrString",
    "apps.StatefulSetUpdateStrategy": (
        "Type apps.StatefulSetUpdateStrategyType, RollingUpdate "
        "*apps.RollingUpdateStatefulSetStrategy"
    ),
    "apps.RollingUpdateStatefulSetStrategy": "Partition int32",
    "core.PodIP": "IP string",
    "core.PodTemplateSpec": "ObjectMeta=metadata v1.ObjectMeta, Spec core.PodSpec",
    "core.PodSpec": (
        "Volumes []core.Volume, InitContainers []core.Container, Containers []core.Container, "
        "EphemeralContainers []core.EphemeralContainer, RestartPolicy core.RestartPolicy, "
        "TerminationGracePeriodSeconds *int64, ActiveDeadlineSeconds *int64, DNSPolicy "
        "core.DNSPolicy, "
        "NodeSelector map[string]string, ServiceAccountName string, "
        "AutomountServiceAccountToken *bool, "
        "NodeName string, SecurityContext *core.PodSecurityContext, ImagePullSecrets "
        "[]core.LocalObjectReference, "
        "Hostname string, Subdomain string, SetHostnameAsFQDN *bool, Affinity "
        "*core.Affinity, SchedulerName string, "
        "Tolerations []core.Toleration, HostAliases []core.HostAlias, PriorityClassName "
        "string, Priority *int32, "
        "PreemptionPolicy *core.PreemptionPolicy, DNSConfig *core.PodDNSConfig, "
        "ReadinessGates []core.PodReadinessGate, RuntimeClassName *string, Overhead "
        "core.ResourceList, "
        "EnableServiceLinks *bool, TopologySpreadConstraints []core.TopologySpreadConstraint"
    ),
    "core.Container": _CONTAINER,
    "core.EphemeralContainer": "EphemeralContainerCommon^ core.EphemeralContainerCommon, TargetContainerName string",
    "core.EphemeralContainerCommon": _CONTAINER,
    "core.ContainerPort": (
        "Name string, HostPort int32, ContainerPort int32, Protocol core.Protocol, HostIP string"
    ),
    "core.EnvFromSource": "Prefix string, ConfigMapRef *core.ConfigMapEnvSource, SecretRef *core.SecretEnvSource",
    "core.ConfigMapEnvSource": "LocalObjectReference^ core.LocalObjectReference, Optional *bool",
    "core.SecretEnvSource": "LocalObjectReference^ core.LocalObjectReference, Optional *bool",
    "core.EnvVar": "Name string, Value string, ValueFrom *core.EnvVarSource",
    "core.EnvVarSource": (
        "FieldRef *core.ObjectFieldSelector, ResourceFieldRef *core.ResourceFieldSelector, "
        "ConfigMapKeyRef *core.ConfigMapKeySelector, SecretKeyRef *core.SecretKeySelector"
    ),
    "core.ObjectFieldSelector": "APIVersion string, FieldPath string",
    "core.ResourceFieldSelector": "ContainerName string, Resource string, Divisor resource.Quantity",
    "core.ConfigMapKeySelector": "LocalObjectReference^ core.LocalObjectReference, Key string, Optional *bool",
    "core.SecretKeySelector": "LocalObjectReference^ core.LocalObjectReference, Key string, Optional *bool",
    "core.LocalObjectReference": "Name string",
    "core.ResourceRequirements": "Limits core.ResourceList, Requests core.ResourceList",
    "core.VolumeMount": (
        "Name string, ReadOnly bool, MountPath string, SubPath string, "
        "MountPropagation *core.MountPropagationMode, SubPathExpr string"
    ),
    "core.VolumeDevice": "Name string, DevicePath string",
    "core.Probe": (
        "Handler^ core.Handler, InitialDelaySeconds int32, TimeoutSeconds int32, "
        "PeriodSeconds int32, "
        "SuccessThreshold int32, FailureThreshold int32"
    ),
    "core.Handler": "Exec *core.ExecAction, HTTPGet *core.HTTPGetAction, TCPSocket *core.TCPSocketAction",
    "core.ExecAction": "Command []string",
    "core.HTTPGetAction": (
        "Path string, Port intstr.IntOrString, Host string, Scheme core.URIScheme, "
        "HTTPHeaders []core.HTTPHeader"
    ),
    "core.HTTPHeader": "Name string, Value string",
    "core.TCPSocketAction": "Port intstr.IntOrString, Host string",
    "core.Lifecycle": "PostStart *core.Handler, PreStop *core.Handler",
    "core.SecurityContext": (
        "Capabilities *core.Capabilities, Privileged *bool, SELinuxOptions *core.SELinuxOptions, "
        "WindowsOptions *core.WindowsSecurityContextOptions, RunAsUser *int64, RunAsGroup "
        "*int64, RunAsNonRoot *bool, "
        "ReadOnlyRootFilesystem *bool, AllowPrivilegeEscalation *bool, ProcMount "
        "*core.ProcMountType, "
        "SeccompProfile *core.SeccompProfile"
    ),
    "core.PodSecurityContext": (
        "HostNetwork bool, HostPID bool, HostIPC bool, ShareProcessNamespace *bool, "
        "SELinuxOptions *core.SELinuxOptions, WindowsOptions "
        "*core.WindowsSecurityContextOptions, RunAsUser *int64, "
        "RunAsGroup *int64, RunAsNonRoot *bool, SupplementalGroups []int64, FSGroup *int64, "
        "FSGroupChangePolicy *core.PodFSGroupChangePolicy, Sysctls []core.Sysctl, "
        "SeccompProfile *core.SeccompProfile"
    ),
    "core.Capabilities": "Add []core.Capability, Drop []core.Capability",
    "core.SELinuxOptions": "User string, Role string, Type string, Level string",
    "core.WindowsSecurityContextOptions": (
        "GMSACredentialSpecName *string, GMSACredentialSpec *string, RunAsUserName *string"
    ),
    "core.SeccompProfile": "Type core.SeccompProfileType, LocalhostProfile *string",
    "core.Sysctl": "Name string, Value string",
    "core.Affinity": (
        "NodeAffinity *core.NodeAffinity, PodAffinity *core.PodAffinity, PodAntiAffinity "
        "*core.PodAntiAffinity"
    ),
    "core.NodeAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution *core.NodeSelector, "
        "PreferredDuringSchedulingIgnoredDuringExecution []core.PreferredSchedulingTerm"
    ),
    "core.NodeSelector": "NodeSelectorTerms []core.NodeSelectorTerm",
    "core.NodeSelectorTerm": (
        "MatchExpressions []core.NodeSelectorRequirement, MatchFields "
        "[]core.NodeSelectorRequirement"
    ),
    "core.NodeSelectorRequirement": "Key string, Operator core.NodeSelectorOperator, Values []string",
    "core.PreferredSchedulingTerm": "Weight int32, Preference core.NodeSelectorTerm",
    "core.PodAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution []core.PodAffinityTerm, "
        "PreferredDuringSchedulingIgnoredDuringExecution []core.WeightedPodAffinityTerm"
    ),
    "core.PodAntiAffinity": (
        "RequiredDuringSchedulingIgnoredDuringExecution []core.PodAffinityTerm, "
        "PreferredDuringSchedulingIgnoredDuringExecution []core.WeightedPodAffinityTerm"
    ),
    "core.PodAffinityTerm": "LabelSelector *v1.LabelSelector, Namespaces []string, TopologyKey string",
    "core.WeightedPodAffinityTerm": "Weight int32, PodAffinityTerm core.PodAffinityTerm",
    "core.Toleration": (
        "Key string, Operator core.TolerationOperator, Value string, Effect "
        "core.TaintEffect, TolerationSeconds *int64"
    ),
    "core.HostAlias": "IP string, Hostnames []string",
    "core.PodDNSConfig": "Nameservers []string, Searches []string, Options []core.PodDNSConfigOption",
    "core.PodDNSConfigOption": "Name string, Value *string",
    "core.PodReadinessGate": "ConditionType core.PodConditionType",
    "core.TopologySpreadConstraint": (
        "MaxSkew int32, TopologyKey string, WhenUnsatisfiable core.UnsatisfiableConstraintAction, "
        "LabelSelector *v1.LabelSelector"
    ),
    # volumes
    "core.Volume": "Name string, VolumeSource^ core.VolumeSource",
    "core.VolumeSource": (
        "HostPath *core.HostPathVolumeSource, EmptyDir *core.EmptyDirVolumeSource, "
        "GCEPersistentDisk *core.GCEPersistentDiskVolumeSource, "
        "AWSElasticBlockStore *core.AWSElasticBlockStoreVolumeSource, GitRepo "
        "*core.GitRepoVolumeSource, "
        "Secret *core.SecretVolumeSource, NFS *core.NFSVolumeSource, ISCSI "
        "*core.ISCSIVolumeSource, "
        "Glusterfs *core.GlusterfsVolumeSource, PersistentVolumeClaim "
        "*core.PersistentVolumeClaimVolumeSource, "
        "RBD *core.RBDVolumeSource, Quobyte *core.QuobyteVolumeSource, FlexVolume "
        "*core.FlexVolumeSource, "
        "Cinder *core.CinderVolumeSource, CephFS=cephfs *core.CephFSVolumeSource, "
        "Flocker *core.FlockerVolumeSource, DownwardAPI *core.DownwardAPIVolumeSource, FC "
        "*core.FCVolumeSource, "
        "AzureFile *core.AzureFileVolumeSource, ConfigMap *core.ConfigMapVolumeSource, "
        "VsphereVolume *core.VsphereVirtualDiskVolumeSource, AzureDisk "
        "*core.AzureDiskVolumeSource, "
        "PhotonPersistentDisk *core.PhotonPersistentDiskVolumeSource, Projected "
        "*core.ProjectedVolumeSource, "
        "PortworxVolume *core.PortworxVolumeSource, ScaleIO *core.ScaleIOVolumeSource, "
        "StorageOS=storageos *core.StorageOSVolumeSource, CSI *core.CSIVolumeSource, "
        "Ephemeral *core.EphemeralVolumeSource"
    ),
    "core.HostPathVolumeSource": "Path string, Type *core.HostPathType",
    "core.EmptyDirVolumeSource": "Medium core.StorageMedium, SizeLimit *resource.Quantity",
    "core.GCEPersistentDiskVolumeSource": "PDName string, FSType string, Partition int32, ReadOnly bool",
    "core.AWSElasticBlockStoreVolumeSource": "VolumeID string, FSType string, Partition int32, ReadOnly bool",
    "core.GitRepoVolumeSource": "Repository string, Revision string, Directory string",
    "core.SecretVolumeSource": "SecretName string, Items []core.KeyToPath, DefaultMode *int32, Optional *bool",
    "core.KeyToPath": "Key string, Path string, Mode *int32",
    "core.NFSVolumeSource": "Server string, Path string, ReadOnly bool",
    "core.ISCSIVolumeSource": (
        "TargetPortal string, IQN string, Lun int32, ISCSIInterface string, FSType string, "
        "ReadOnly bool, "
        "Portals []string, DiscoveryCHAPAuth=chapAuthDiscovery bool, "
        "SessionCHAPAuth=chapAuthSession bool, "
        "SecretRef *core.LocalObjectReference, InitiatorName *string"
    ),
    "core.GlusterfsVolumeSource": "EndpointsName=endpoints string, Path string, ReadOnly bool",
    "core.PersistentVolumeClaimVolumeSource": "ClaimName string, ReadOnly bool",
    "core.RBDVolumeSource": (
        "CephMonitors=monitors []string, RBDImage=image string, FSType string, RBDPool=pool "
        "string, "
        "RadosUser=user string, Keyring string, SecretRef *core.LocalObjectReference, ReadOnly bool"
    ),
    "core.QuobyteVolumeSource": (
        "Registry string, Volume string, ReadOnly bool, User string, Group string, Tenant string"
    ),
    "core.FlexVolumeSource": (
        "Driver string, FSType string, SecretRef *core.LocalObjectReference, ReadOnly bool, "
        "Options map[string]string"
    ),
    "core.CinderVolumeSource": "VolumeID string, FSType string, ReadOnly bool, SecretRef *core.LocalObjectReference",
    "core.CephFSVolumeSource": (
        "Monitors []string, Path string, User string, SecretFile string, SecretRef "
        "*core.LocalObjectReference, "
        "ReadOnly bool"
    ),
    "core.FlockerVolumeSource": "DatasetName string, DatasetUUID string",
    "core.DownwardAPIVolumeSource": "Items []core.DownwardAPIVolumeFile, DefaultMode *int32",
    "core.DownwardAPIVolumeFile": (
        "Path string, FieldRef *core.ObjectFieldSelector, ResourceFieldRef "
        "*core.ResourceFieldSelector, Mode *int32"
    ),
    "core.FCVolumeSource": "TargetWWNs []string, Lun *int32, FSType string, ReadOnly bool, WWIDs=wwids []string",
    "core.AzureFileVolumeSource": "SecretName string, ShareName string, ReadOnly bool",
    "core.ConfigMapVolumeSource": (
        "LocalObjectReference^ core.LocalObjectReference, Items []core.KeyToPath, "
        "DefaultMode *int32, Optional *bool"
    ),
    "core.VsphereVirtualDiskVolumeSource": (
        "VolumePath string, FSType string, StoragePolicyName string, StoragePolicyID string"
    ),
    "core.AzureDiskVolumeSource": (
        "DiskName string, DataDiskURI=diskURI string, CachingMode "
        "*core.AzureDataDiskCachingMode, FSType *string, "
        "ReadOnly *bool, Kind *core.AzureDataDiskKind"
    ),
    "core.PhotonPersistentDiskVolumeSource": "PdID string, FSType string",
    "core.ProjectedVolumeSource": "Sources []core.VolumeProjection, DefaultMode *int32",
    "core.VolumeProjection": (
        "Secret *core.SecretProjection, DownwardAPI *core.DownwardAPIProjection, "
        "ConfigMap *core.ConfigMapProjection, ServiceAccountToken "
        "*core.ServiceAccountTokenProjection"
    ),
    "core.SecretProjection": "LocalObjectReference^ core.LocalObjectReference, Items []core.KeyToPath, Optional *bool",
    "core.ConfigMapProjection": (
        "LocalObjectReference^ core.LocalObjectReference, Items []core.KeyToPath, Optional *bool"
    ),
    "core.DownwardAPIProjection": "Items []core.DownwardAPIVolumeFile",
    "core.ServiceAccountTokenProjection": "Audience string, ExpirationSeconds int64, Path string",
    "core.PortworxVolumeSource": "VolumeID string, FSType string, ReadOnly bool",
    "core.ScaleIOVolumeSource": (
        "Gateway string, System string, SecretRef *core.LocalObjectReference, SSLEnabled bool, "
        "ProtectionDomain string, StoragePool string, StorageMode string, VolumeName string, "
        "FSType string, "
        "ReadOnly bool"
    ),
    "core.StorageOSVolumeSource": (
        "VolumeName string, VolumeNamespace string, FSType string, ReadOnly bool, "
        "SecretRef *core.LocalObjectReference"
    ),
    "core.CSIVolumeSource": (
        "Driver string, ReadOnly *bool, FSType *string, VolumeAttributes map[string]string, "
        "NodePublishSecretRef *core.LocalObjectReference"
    ),
    "core.EphemeralVolumeSource": "VolumeClaimTemplate *core.PersistentVolumeClaimTemplate, ReadOnly bool",
    "core.PersistentVolumeClaimTemplate": "ObjectMeta=metadata v1.ObjectMeta, Spec core.PersistentVolumeClaimSpec",
    "core.PersistentVolumeClaimSpec": (
        "AccessModes []core.PersistentVolumeAccessMode, Selector *v1.LabelSelector, "
        "Resources core.ResourceRequirements, VolumeName string, StorageClassName *string, "
        "VolumeMode *core.PersistentVolumeMode, DataSource *core.TypedLocalObjectReference"
    ),
    "core.TypedLocalObjectReference": "APIGroup *string, Kind string, Name string",
}

# Members of the internal type that the published type has one level higher, in the pod spec itself.
LIFTED = {
    "core.PodSecurityContext": (
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    )
}

_HEAD = lazy_pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]+(?![a-z])|[A-Z]")


def json_name(name: str) -> str:
    """The usual JSON name of a Go field: a leading capital or acronym becomes lower case."""
    head = _HEAD.match(name)
    return name[: head.end()].lower() + name[head.end() :] if head else name


@cache
def struct_fields(go_type: str, release: Release = DEFAULT) -> tuple[GoField, ...] | None:
    """The fields of a struct type, None if it is not a struct of the table."""
    if has_tables(release) and go_type in _blocks():
        return _newer_fields(go_type, release)
    row = _TABLE.get(go_type) or TABLE.get(go_type)
    return None if row is None else tuple(_field(item) for item in row.split(", "))


def _field(item: str) -> GoField:
    name, kind = item.split(" ")
    if name.endswith("^"):
        return GoField(name[:-1], "", kind)
    if "=" in name:
        name, _, json = name.partition("=")
        return GoField(name, json, kind)
    return GoField(name, json_name(name), kind)


@cache
def _blocks() -> dict[str, list[str]]:
    """Type -> its lines, in all releases."""
    out: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in table_lines("internal_types.txt"):
        if line[0].islower():
            lines = out.setdefault(line.partition(" ")[0], [])
        else:
            lines.append(line)
    return out


def _newer_fields(go_type: str, release: Release) -> tuple[GoField, ...]:
    out = []
    for line in _blocks()[go_type]:
        item, at, where = line.partition(" @")
        if not at or in_range(where, release):
            out.append(_field(item))
    return tuple(out)
