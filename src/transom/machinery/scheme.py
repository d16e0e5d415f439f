"""The kinds that the decoder knows beyond those it serves, and the names of their Go types.

The error for a body of another kind or version depends on whether the server knows that kind, and
names the Go types. Versions that are no longer served are still known.
"""

from __future__ import annotations

from transom.machinery import schema
from transom.machinery.kinds import GVK
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour

# The source path and line of each scheme in Kubernetes, which appear in its error messages; the line
# by the first release that has it.
_SCHEMES = {
    "apiextensions.k8s.io": (
        "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go",
        {33: 55, 31: 53, 29: 54, 27: 56, 23: 55, 0: 52},
    ),
    "apiregistration.k8s.io": (
        "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go",
        {26: 28, 0: 32},
    ),
    "meta.k8s.io": (
        "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go",
        {0: 27},
    ),
}
_MAIN_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"

_WORKLOADS = ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_RBAC = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_FLOW = ("FlowSchema", "PriorityLevelConfiguration")
_SLICES = ("EndpointSlice",)
# Known, but served neither by 1.20 nor here (or by 1.20 only, under another name).
_RETIRED: dict[tuple[str, str], tuple[str, ...]] = {
    ("admission.k8s.io", "v1beta1"): ("AdmissionReview",),
    ("apps", "v1beta1"): (
        "ControllerRevision",
        "Deployment",
        "DeploymentRollback",
        "Scale",
        "StatefulSet",
    ),
    ("apps", "v1beta2"): (*_WORKLOADS, "Scale"),
    ("batch", "v1beta1"): ("JobTemplate",),
    ("batch", "v2alpha1"): ("CronJob", "JobTemplate"),
    ("discovery.k8s.io", "v1alpha1"): _SLICES,
    ("extensions", "v1beta1"): (
        "DaemonSet",
        "Deployment",
        "DeploymentRollback",
        "NetworkPolicy",
        "PodSecurityPolicy",
        "ReplicaSet",
        "Scale",
    ),
    ("flowcontrol.apiserver.k8s.io", "v1alpha1"): _FLOW,
    ("imagepolicy.k8s.io", "v1alpha1"): ("ImageReview",),
    ("internal.apiserver.k8s.io", "v1alpha1"): ("StorageVersion",),
    ("node.k8s.io", "v1alpha1"): ("RuntimeClass",),
    ("rbac.authorization.k8s.io", "v1alpha1"): _RBAC,
    ("scheduling.k8s.io", "v1alpha1"): ("PriorityClass",),
    ("storage.k8s.io", "v1alpha1"): ("CSIStorageCapacity", "VolumeAttachment"),
    ("", "v1"): ("EphemeralContainers",),
}
_WITHOUT_LIST = frozenset(
    {
        "AdmissionReview",
        "DeploymentRollback",
        "ImageReview",
        "JobTemplate",
        "Scale",
        "EphemeralContainers",
    }
)

# Go packages of the internal types, for kinds whose package is not that of their group.
_INTERNAL_PACKAGES = {"": "core", "internal.apiserver.k8s.io": "apiserverinternal"}
_ELSEWHERE = {
    ("events.k8s.io", "Event"): "core",
    ("apps", "Scale"): "autoscaling",
    ("extensions", "DaemonSet"): "apps",
    ("extensions", "Deployment"): "apps",
    ("extensions", "DeploymentRollback"): "apps",
    ("extensions", "Ingress"): "networking",
    ("extensions", "NetworkPolicy"): "networking",
    ("extensions", "PodSecurityPolicy"): "policy",
    ("extensions", "ReplicaSet"): "apps",
    ("extensions", "Scale"): "autoscaling",
}
# Kinds that convert into one another although they are not the same.
_CONVERTIBLE = {("core.ReplicationController", "apps.ReplicaSet")}


def scheme_name(group: str, release: Release = DEFAULT) -> str:
    """The scheme that serves a group."""
    if group not in _SCHEMES:
        return _MAIN_SCHEME
    path, lines = _SCHEMES[group]
    return f"{path}:{next(line for since, line in lines.items() if release.minor >= since)}"


def is_registered(gvk: GVK, for_group: str) -> bool:
    """Whether the scheme that serves `for_group` has that kind registered."""
    if scheme_name(gvk.group) != scheme_name(for_group):
        return gvk.kind == "Status" and not gvk.group and gvk.version == "v1"
    kind = gvk.kind.removesuffix("List")
    retired = _RETIRED.get((gvk.group, gvk.version), ())
    if kind in retired and (kind == gvk.kind or kind not in _WITHOUT_LIST):
        return True
    known = schema.lookup_schema_type(gvk)
    return known is not None and "apiVersion" in known.properties


def go_type_of_kind(gvk: GVK) -> str:
    return f"{gvk.version}.{gvk.kind}"


def internal_type(gvk: GVK) -> str:
    """The Go type that a kind of any version is converted to."""
    kind = gvk.kind.removesuffix("List")
    package = (
        _ELSEWHERE.get((gvk.group, kind))
        or _INTERNAL_PACKAGES.get(gvk.group)
        or gvk.group.partition(".")[0]
    )
    return f"{package}.{gvk.kind}"


def not_registered(gvk: GVK, for_group: str, release: Release = DEFAULT) -> str:
    name = scheme_name(for_group, release)
    if has_behaviour(release, "TrimmedSourcePaths"):
        name = name.removeprefix("k8s.io/kubernetes/")
    return f'no kind "{gvk.kind}" is registered for version "{gvk.api_version}" in scheme "{name}"'


def kind_conversion_error(found: GVK, wanted: GVK) -> str | None:
    """Why an object of one kind cannot be converted to the internal type of another; None if it
    can.
    """
    source, target = internal_type(found), internal_type(wanted)
    if source == target or (source, target) in _CONVERTIBLE or (target, source) in _CONVERTIBLE:
        return None
    return f"converting ({go_type_of_kind(found)}) to ({target}): unknown conversion"
