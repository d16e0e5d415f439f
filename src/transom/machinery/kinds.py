"""The table of built-in kinds: each row has group, versions, kind, scope, names and sub-resources.

To add a kind, add a row here; everything else (routes, discovery, storage, tables) reads it. Custom
resources create rows of the same type at run time.
"""

from __future__ import annotations

from dataclasses import field

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION = ("create", "delete", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


class GVK(NamedTuple):
    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True)
class Subresource:
    """`group_version_kind` is its kind in discovery, if that is not the parent's own kind."""

    name: str
    verbs: tuple[str, ...] = STATUS_VERBS
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status")
SCALE = Subresource("scale", STATUS_VERBS, "Scale", "autoscaling", "v1")
_PROXY_VERBS = ("create", "delete", "get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    kind: str
    plural: str
    versions: tuple[str, ...] = ("v1",)  # served, preferred first
    storage: str = "v1"
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    singular: str = ""
    list_kind: str = ""
    custom: bool = False
    # Another group that also serves the same objects: {"events.k8s.io": ("v1",)}.
    also: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    # Versions whose sub-resources differ from `subresources`: custom resources choose them for each
    # version. Versions of another group are named with it: "extensions/v1beta1".
    version_subresources: tuple[tuple[str, tuple[Subresource, ...]], ...] = field(default=())
    # Custom resources: the paths of fields that field selectors may use, by version.
    selectable: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    # The storage version whose hash discovery shows, if it is not `storage`: clients of a release
    # see the one that Kubernetes uses.
    published_storage: str = ""
    # The name under which tables of rules find this kind: `apps/Deployment`, `/Pod`. Every request
    # reads it several times.
    key: str = field(init=False, repr=False, compare=False)

    # A custom resource may have thousands of versions.
    _by_version: dict[str, tuple[Subresource, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.group}/{self.kind}")
        object.__setattr__(self, "_by_version", dict(self.version_subresources))

    def __hash__(self) -> int:
        """Every write looks rules up by kind; equal kinds have equal keys."""
        return hash(self.key)

    @property
    def stored(self) -> bool:
        """Stored kinds can be watched. Others are requests, which can only be created, or
        responses, which can only be read.
        """
        return "watch" in self.verbs

    def subresources_of(self, version: str, group: str = "") -> tuple[Subresource, ...]:
        if not self.version_subresources:
            return self.subresources
        name = f"{group}/{version}" if group and group != self.group else version
        return self._by_version.get(name, self.subresources)

    def gvk(self, version: str = "") -> GVK:
        return GVK(self.group, version or self.storage, self.kind)

    @property
    def list_name(self) -> str:
        return self.list_kind or self.kind + "List"


def _k(group: str, kind: str, plural: str, **more: object) -> Kind:
    return Kind(group, kind, plural, **more)  # type: ignore[arg-type]


_ALL = ("all",)
_EXT = ("api-extensions",)
_CLUSTER = {"namespaced": False}
_BETA = {"versions": ("v1", "v1beta1")}  # same form in both unless conversion.py converts them
_REVIEW = {"verbs": ("create",)}

KINDS: tuple[Kind, ...] = (
    # core
    _k("", "Binding", "bindings", **_REVIEW),
    _k(
        "", "ComponentStatus", "componentstatuses", short=("cs",), verbs=("get", "list"), **_CLUSTER
    ),
    _k("", "ConfigMap", "configmaps", short=("cm",)),
    _k("", "Endpoints", "endpoints", short=("ep",)),
    _k("", "Event", "events", short=("ev",), also=(("events.k8s.io", ("v1", "v1beta1")),)),
    _k("", "LimitRange", "limitranges", short=("limits",)),
    _k(
        "",
        "Namespace",
        "namespaces",
        short=("ns",),
        verbs=NO_COLLECTION,
        **_CLUSTER,
        subresources=(Subresource("finalize", ("update",)), STATUS),
    ),
    _k(
        "",
        "Node",
        "nodes",
        short=("no",),
        **_CLUSTER,
        subresources=(Subresource("proxy", _PROXY_VERBS, "NodeProxyOptions"), STATUS),
    ),
    _k(
        "",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        short=("pvc",),
        subresources=(STATUS,),
    ),
    _k(
        "",
        "PersistentVolume",
        "persistentvolumes",
        short=("pv",),
        subresources=(STATUS,),
        **_CLUSTER,
    ),
    _k(
        "",
        "Pod",
        "pods",
        short=("po",),
        categories=_ALL,
        subresources=(
            Subresource("attach", ("create", "get"), "PodAttachOptions"),
            Subresource("binding", ("create",), "Binding"),
            Subresource("ephemeralcontainers"),
            Subresource("eviction", ("create",), "Eviction", "policy", "v1beta1"),
            Subresource("exec", ("create", "get"), "PodExecOptions"),
            Subresource("log", ("get",)),
            Subresource("portforward", ("create", "get"), "PodPortForwardOptions"),
            Subresource("proxy", _PROXY_VERBS, "PodProxyOptions"),
            STATUS,
        ),
    ),
    _k("", "PodTemplate", "podtemplates"),
    _k(
        "",
        "ReplicationController",
        "replicationcontrollers",
        short=("rc",),
        categories=_ALL,
        subresources=(SCALE, STATUS),
    ),
    _k("", "ResourceQuota", "resourcequotas", short=("quota",), subresources=(STATUS,)),
    _k("", "Secret", "secrets"),
    _k(
        "",
        "ServiceAccount",
        "serviceaccounts",
        short=("sa",),
        subresources=(
            Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),
        ),
    ),
    _k(
        "",
        "Service",
        "services",
        short=("svc",),
        categories=_ALL,
        verbs=NO_COLLECTION,
        subresources=(Subresource("proxy", _PROXY_VERBS, "ServiceProxyOptions"), STATUS),
    ),
    # apiregistration, apps, authentication, authorization, autoscaling
    _k(
        "apiregistration.k8s.io",
        "APIService",
        "apiservices",
        categories=_EXT,
        **_BETA,
        subresources=(STATUS,),
        **_CLUSTER,
    ),
    _k("apps", "ControllerRevision", "controllerrevisions"),
    _k("apps", "DaemonSet", "daemonsets", short=("ds",), categories=_ALL, subresources=(STATUS,)),
    _k(
        "apps",
        "Deployment",
        "deployments",
        short=("deploy",),
        categories=_ALL,
        subresources=(SCALE, STATUS),
    ),
    _k(
        "apps",
        "ReplicaSet",
        "replicasets",
        short=("rs",),
        categories=_ALL,
        subresources=(SCALE, STATUS),
    ),
    _k(
        "apps",
        "StatefulSet",
        "statefulsets",
        short=("sts",),
        categories=_ALL,
        subresources=(SCALE, STATUS),
    ),
    _k("authentication.k8s.io", "TokenReview", "tokenreviews", **_BETA, **_CLUSTER, **_REVIEW),
    _k("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", **_CLUSTER, **_REVIEW),
    _k(
        "authorization.k8s.io",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        **_BETA,
        **_REVIEW,
    ),
    _k(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        **_BETA,
        **_CLUSTER,
        **_REVIEW,
    ),
    _k(
        "authorization.k8s.io",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        **_BETA,
        **_CLUSTER,
        **_REVIEW,
    ),
    _k(
        "authorization.k8s.io",
        "SubjectAccessReview",
        "subjectaccessreviews",
        **_BETA,
        **_CLUSTER,
        **_REVIEW,
    ),
    _k(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=_ALL,
        versions=("v1", "v2", "v2beta1", "v2beta2"),
        storage="v2",
        subresources=(STATUS,),
    ),
    # batch, certificates, coordination, discovery, networking
    _k(
        "batch",
        "CronJob",
        "cronjobs",
        short=("cj",),
        categories=_ALL,
        **_BETA,
        subresources=(STATUS,),
    ),
    _k("batch", "Job", "jobs", categories=_ALL, subresources=(STATUS,)),
    _k(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        short=("csr",),
        **_BETA,
        **_CLUSTER,
        subresources=(Subresource("approval"), STATUS),
    ),
    _k("coordination.k8s.io", "Lease", "leases", **_BETA),
    _k("discovery.k8s.io", "EndpointSlice", "endpointslices", versions=("v1beta1", "v1")),
    _k("networking.k8s.io", "IngressClass", "ingressclasses", **_BETA, **_CLUSTER),
    _k(
        "networking.k8s.io",
        "Ingress",
        "ingresses",
        short=("ing",),
        **_BETA,
        subresources=(STATUS,),
        also=(("extensions", ("v1beta1",)),),
    ),
    _k("networking.k8s.io", "NetworkPolicy", "networkpolicies", short=("netpol",)),
    # node, policy, rbac, scheduling, storage
    _k("node.k8s.io", "RuntimeClass", "runtimeclasses", **_BETA, **_CLUSTER),
    _k(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        short=("pdb",),
        versions=("v1beta1", "v1"),
        subresources=(STATUS,),
    ),
    _k(
        "policy",
        "PodSecurityPolicy",
        "podsecuritypolicies",
        short=("psp",),
        versions=("v1beta1",),
        storage="v1beta1",
        **_CLUSTER,
    ),
    _k(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        "clusterrolebindings",
        **_BETA,
        **_CLUSTER,
    ),
    _k("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", **_BETA, **_CLUSTER),
    _k("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", **_BETA),
    _k("rbac.authorization.k8s.io", "Role", "roles", **_BETA),
    _k("scheduling.k8s.io", "PriorityClass", "priorityclasses", short=("pc",), **_BETA, **_CLUSTER),
    _k("storage.k8s.io", "CSIDriver", "csidrivers", **_BETA, **_CLUSTER),
    _k("storage.k8s.io", "CSINode", "csinodes", **_BETA, **_CLUSTER),
    _k("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", **_BETA),
    _k("storage.k8s.io", "StorageClass", "storageclasses", short=("sc",), **_BETA, **_CLUSTER),
    _k(
        "storage.k8s.io",
        "VolumeAttachment",
        "volumeattachments",
        subresources=(STATUS,),
        **_BETA,
        **_CLUSTER,
        version_subresources=(("v1beta1", ()),),
    ),
    # extension and flow control
    _k(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        categories=_EXT,
        **_BETA,
        **_CLUSTER,
    ),
    _k(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        categories=_EXT,
        **_BETA,
        **_CLUSTER,
    ),
    _k(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        short=("crd", "crds"),
        categories=_EXT,
        subresources=(STATUS,),
        **_BETA,
        **_CLUSTER,
    ),
    _k(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        "flowschemas",
        versions=("v1beta1", "v1"),
        storage="v1",
        subresources=(STATUS,),
        **_CLUSTER,
    ),
    _k(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        versions=("v1beta1", "v1"),
        storage="v1",
        subresources=(STATUS,),
        **_CLUSTER,
    ),
)

BY_KEY: dict[str, Kind] = {k.key: k for k in KINDS}
