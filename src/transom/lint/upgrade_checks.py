"""What only an upgrade breaks: removed API versions, Docker, old builds, changed defaults. Records and
the checks that find them in objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from transom.kit.versions import version_numbers
from transom.lint.findings import span_of
from transom.lint.objects import ManifestObject
from transom.lint.tree import Steps
from transom.machinery.kinds import GVK
from transom.machinery.pod_security import LEVELS, evaluate_pod
from transom.machinery.releases import Release as KubernetesRelease
from transom.machinery.releases.release import TABLES_SINCE, has_tables
from transom.machinery.releases.served import find_deprecation, served_resources
from transom.windows.match import pod_in, steps_text
from transom.windows.records import NodeTarget, WindowsLimit
from transom.windows.releases import node_runtime_version
from transom.windows.targeting import pod_containers

Outcome = Literal["breaks", "changes", "works"]
_BUILD_LABEL: Final = "node.kubernetes.io/windows-build"
_DRIVE: Final = re.compile(r"(?i)^[d-z]:[\\/]?$")
_DOCKER_PIPE: Final = re.compile(r"(?i)pipe[\\/]docker_engine|docker\.sock")
_CSI_PROXY: Final = re.compile(r"(?i)pipe[\\/]csi-proxy")
_POLICY: Final = ("policy", "PodSecurityPolicy")
_MASTER: Final = "node-role.kubernetes.io/master"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_TOKEN_SECRET: Final = re.compile(r"-token-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_USERSPACE: Final = re.compile(r"--proxy-mode[= ]userspace")
_USERSPACE_MODE: Final = re.compile(r"(?m)^\s*mode:\s*[\"']?userspace")


def _record(number: int, title: str, statement: str, remedy: str, **more: Any) -> WindowsLimit:
    defaults: dict[str, Any] = {"effect": "fails", "severity": "error", "section": "Upgrade"}
    return WindowsLimit(
        id=f"WIN-UPG-{number:03d}",
        title=title,
        statement=statement,
        remedy=remedy,
        **{**defaults, **more},
    )


UPGRADE_RECORDS: Final[Mapping[str, WindowsLimit]] = {
    record.id: record
    for record in (
        _record(
            1,
            "The API version is no longer served",
            "A release removes API versions that earlier ones deprecated; kubectl apply then fails.",
            "Change apiVersion, and fields that differ between the versions.",
            effect="rejected",
        ),
        _record(
            2,
            "PodSecurityPolicy is removed",
            "1.25 removed PodSecurityPolicy. Pod Security admission replaces it.",
            "Label the namespaces with pod-security.kubernetes.io/enforce; HostProcess pods need "
            "the level privileged.",
            effect="rejected",
            since=(1, 25),
        ),
        _record(
            3,
            "The pipe of Docker is not there",
            "Nodes with containerd have no docker engine: mounts of its pipe or socket fail.",
            "Use the CRI pipe of containerd (\\\\.\\pipe\\containerd-containerd), or build images "
            "elsewhere.",
        ),
        _record(
            4,
            "csi-proxy is replaced by HostProcess containers",
            "Drivers of current releases run as HostProcess containers and need no csi-proxy on the "
            "node.",
            "Upgrade the driver to its HostProcess DaemonSet, or install csi-proxy on the new nodes.",
            effect="degraded",
            severity="warning",
            since=(1, 26),
        ),
        _record(
            5,
            "Volumes at drive letters need containerd 1.6.5",
            "Docker mounts a volume at a drive letter such as D:. containerd does so from 1.6.5 on; "
            "earlier versions fail or make a directory C:\\D (containerd 6589). With any containerd "
            "an image whose VOLUME instruction names a drive does not start (AKS 3471).",
            "Use containerd 1.6.5 or later, and remove VOLUME instructions that name a drive from "
            "the image; or mount the volume at a directory, for example C:\\data.",
        ),
        _record(
            6,
            "kube-proxy uses version 2 of the HNS API only",
            "1.25 removed version 1: kube-proxy does not start on builds before 17763, and network "
            "plugins that create version 1 networks leave it without a network.",
            "Use network plugins that create version 2 networks, and delete old networks of the "
            "nodes.",
            severity="none",
            since=(1, 25),
        ),
        _record(
            7,
            "The control plane has another label and taint",
            "kubeadm labels and taints the control plane with node-role.kubernetes.io/control-plane; "
            "the label node-role.kubernetes.io/master is gone since 1.24, its taint since 1.25.",
            "Use node-role.kubernetes.io/control-plane in selectors and tolerations.",
            since=(1, 24),
        ),
        _record(
            8,
            "containerd takes the place of Docker",
            "The kubelet has no dockershim since 1.24: docker commands on the node show no pods, "
            "logs and metrics agents that ask Docker find nothing, and images are pulled again.",
            "Use crictl on the nodes, and agents that read C:\\var\\log\\pods or ask containerd.",
            severity="none",
        ),
        _record(
            9,
            "The selector names the old build",
            "Nodes of the new build have another label node.kubernetes.io/windows-build: pods that "
            "select the old build stay Pending when the old nodes are gone.",
            "Select the new build, or use a RuntimeClass for each build.",
        ),
        _record(
            10,
            "In-tree volume plugins are replaced by CSI drivers",
            "The code of awsElasticBlockStore and azureDisk is removed in 1.27, of gcePersistentDisk "
            "in 1.28, of azureFile and vsphereVolume in 1.30. Volumes and classes that name them "
            "work only with the CSI driver.",
            "Install the CSI driver before the upgrade; existing volumes then go on to work.",
        ),
        _record(
            11,
            "Service accounts have no token Secret",
            "Since 1.24 no Secret with a token is created for a service account: pods get tokens "
            "that expire, and Secrets named like default-token-x7k2p are not in a new cluster.",
            "Use the token at /var/run/secrets/kubernetes.io/serviceaccount, or create a Secret of "
            "type kubernetes.io/service-account-token.",
            since=(1, 24),
        ),
        _record(
            12,
            "Windows nodes evict pods when memory is short",
            "Since 1.31 the kubelet watches the commit charge of a Windows node. The default "
            "threshold memory.available<500Mi also lowers what pods can request.",
            "Set memory requests and limits, and check that the pods still fit the nodes.",
            severity="none",
            effect="degraded",
            since=(1, 31),
        ),
        _record(
            13,
            "kube-proxy has no userspace mode",
            "1.26 removed the proxy mode userspace, on Windows too: kube-proxy does not start.",
            "Use --proxy-mode=kernelspace on Windows nodes.",
            since=(1, 26),
        ),
        _record(
            14,
            "containerd has no runtime handler docker",
            "Pods whose RuntimeClass names the handler docker get no sandbox on nodes with "
            "containerd.",
            "Name a handler of the nodes, for example runhcs-wcow-process.",
        ),
        _record(
            15,
            "Pod Security refuses the pod",
            "Pod Security is on since 1.23: the labels of a namespace decide which pods it accepts.",
            "Change the pod, set spec.os.name, or label the namespace with a weaker level; "
            "HostProcess pods need the level privileged.",
            effect="rejected",
            since=(1, 23),
        ),
    )
}


class UpgradeItem(NamedTuple):
    """One thing that an upgrade changes for an object."""

    record: WindowsLimit
    outcome: Outcome
    obj: str  # "Deployment default/web"
    place: str  # "deploy/web.yaml:12"
    path: str
    message: str
    remedy: str


def title_of(obj: ManifestObject) -> str:
    return f"{obj.kind} {obj.namespace}/{obj.name}" if obj.namespace else f"{obj.kind} {obj.name}"


# ---- changes between releases ----


def upgrade_record(number: int) -> WindowsLimit:
    return UPGRADE_RECORDS[f"WIN-UPG-{number:03d}"]


def begins_between(number: int, old: NodeTarget, new: NodeTarget) -> bool:
    """Whether the record applies to the new release and not yet to the old one."""
    return old.release < upgrade_record(number).since <= new.release


def _found(
    number: int,
    obj: ManifestObject,
    steps: Steps,
    message: str,
    remedy: str = "",
    breaks: bool = True,
) -> UpgradeItem:
    record = upgrade_record(number)
    outcome: Outcome = "breaks" if breaks and record.severity == "error" else "changes"
    span = span_of(obj, steps)
    line = obj.source.text.place(span.start)[0] if span is not None else 0
    place = f"{obj.source.name}:{line}" if line else obj.source.name
    path = steps_text(steps)
    return UpgradeItem(
        record, outcome, title_of(obj), place, path, message, remedy or record.remedy
    )


def _removed_api(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    release = KubernetesRelease(*new.release)
    group, _, version = str(obj.value.get("apiVersion", "")).rpartition("/")
    if not has_tables(release) or (group, obj.kind) == _POLICY or not version:
        return
    served = served_resources(release)
    known = {kind for other, _, kind in served if other == group} | _REMOVED_KINDS.get(group, set())
    if obj.kind not in known or (group, version, obj.kind) in served:
        return
    text = f"{obj.value['apiVersion']} {obj.kind} is not served by {release}"
    yield _found(
        1, obj, ("apiVersion",), text, _replacement(GVK(group, version, obj.kind), release)
    )


_REMOVED_KINDS: Final[Mapping[str, set[str]]] = {
    "extensions": {"Ingress", "Deployment", "DaemonSet", "ReplicaSet", "NetworkPolicy"},
}


def _replacement(gvk: GVK, release: KubernetesRelease) -> str:
    """What the last release that served it says, followed to a version that the new one serves, or
    else the version of that kind that it serves.
    """
    served = served_resources(release)
    found, seen = gvk, {gvk}
    for minor in range(TABLES_SINCE.minor, release.minor):
        known = find_deprecation(KubernetesRelease(1, minor), found)
        if known is not None and known.replacement is not None and known.replacement not in seen:
            found = known.replacement
            seen.add(found)
    if (found.group, found.version, found.kind) not in served:
        groups = (gvk.group, "apps", "networking.k8s.io")
        others = [
            GVK(group, version, kind)
            for group, version, kind in served
            if kind == gvk.kind and group in groups
        ]
        if not others:
            return ""
        # v1 before v1beta1
        found = min(others, key=lambda one: (one.group != gvk.group, len(one.version), one.version))
    return f"Use {found.api_version} {found.kind}."


def _policies(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if (obj.group, obj.kind) == _POLICY and begins_between(2, old, new):
        yield _found(2, obj, ("kind",), "PodSecurityPolicy is not served since 1.25")


def _pod_paths(obj: ManifestObject) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    held = pod_in(obj.kind, obj.value)
    if held is not None and isinstance(held[1].get("spec"), Mapping):
        yield (*held[0], "spec"), held[1]["spec"]


def _host_paths(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    for steps, spec in _pod_paths(obj):
        for i, volume in enumerate(spec.get("volumes") or ()):
            path = (volume.get("hostPath") or {}).get("path", "")
            at = (*steps, "volumes", i, "hostPath", "path")
            if new.runtime == "containerd" != old.runtime and _DOCKER_PIPE.search(path):
                yield _found(3, obj, at, f"{path} does not exist with containerd")
            if begins_between(4, old, new) and _CSI_PROXY.search(path):
                yield _found(4, obj, at, f"{path} needs csi-proxy on the node")


_DRIVES_SINCE: Final = (1, 6, 5)  # of containerd


def _drive_letters(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if new.runtime != "containerd" or old.runtime == "containerd":
        return
    recommended = node_runtime_version(new.release, "containerd", windows=True)
    fixed = version_numbers(recommended) >= _DRIVES_SINCE
    for steps, spec in _pod_paths(obj):
        for at, container in pod_containers(spec):
            for i, mount in enumerate(container.get("volumeMounts") or ()):
                if _DRIVE.match(str(mount.get("mountPath", ""))):
                    text = f"{mount['mountPath']} is a drive, not a directory"
                    where = (*steps, *at[1:], "volumeMounts", i, "mountPath")
                    yield _found(5, obj, where, text, breaks=not fixed)


def _old_role(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if not begins_between(7, old, new):
        return
    missing = f"no node has the label {_MASTER}"
    for steps, spec in _pod_paths(obj):
        if _MASTER in (spec.get("nodeSelector") or {}):
            yield _found(7, obj, (*steps, "nodeSelector"), missing)
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or ()
        if terms and all(_needs_master(term) for term in terms):
            yield _found(7, obj, (*steps, "affinity"), missing)
        keys = {one.get("key") for one in spec.get("tolerations") or ()}
        if _MASTER in keys and not keys & {_CONTROL_PLANE, None, ""}:
            text = f"the taint {_CONTROL_PLANE} is not tolerated"
            yield _found(7, obj, (*steps, "tolerations"), text, breaks=False)


def _needs_master(term: Mapping[str, Any]) -> bool:
    return any(
        one.get("key") == _MASTER and one.get("operator") in ("Exists", "In")
        for one in term.get("matchExpressions") or ()
    )


def _in_tree_storage(
    obj: ManifestObject, old: NodeTarget, new: NodeTarget
) -> Iterator[UpgradeItem]:
    """PersistentVolumes and StorageClasses; volumes of pods have limits of their own."""
    for field, provisioner, driver, removed in _IN_TREE:
        if not old.release < removed <= new.release:
            continue
        text = f"it needs the CSI driver {driver}"
        if obj.kind == "PersistentVolume" and field in (obj.value.get("spec") or {}):
            yield _found(10, obj, ("spec", field), text)
        if obj.kind == "StorageClass" and obj.value.get("provisioner") == provisioner:
            yield _found(10, obj, ("provisioner",), text)


_IN_TREE: Final = (
    ("awsElasticBlockStore", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", (1, 27)),
    ("azureDisk", "kubernetes.io/azure-disk", "disk.csi.azure.com", (1, 27)),
    ("gcePersistentDisk", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", (1, 28)),
    ("azureFile", "kubernetes.io/azure-file", "file.csi.azure.com", (1, 30)),
    ("vsphereVolume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", (1, 30)),
)


def _token_secrets(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if not begins_between(11, old, new):
        return
    for steps, spec in _pod_paths(obj):
        for i, volume in enumerate(spec.get("volumes") or ()):
            name = str((volume.get("secret") or {}).get("secretName", ""))
            if _TOKEN_SECRET.search(name):
                at = (*steps, "volumes", i, "secret", "secretName")
                yield _found(11, obj, at, f"no Secret {name} is created in a new cluster")


def _proxy_mode(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if not begins_between(13, old, new):
        return
    for steps, spec in _pod_paths(obj):
        for at, container in pod_containers(spec):
            for field in ("command", "args"):
                for i, word in enumerate(container.get(field) or ()):
                    if _USERSPACE.search(str(word)):
                        where = (*steps, *at[1:], field, i)
                        yield _found(13, obj, where, "kube-proxy has no mode userspace")
    data = obj.value.get("data") if obj.kind == "ConfigMap" else None
    for key, text in (data or {}).items():
        if "KubeProxyConfiguration" in str(text) and _USERSPACE_MODE.search(str(text)):
            yield _found(13, obj, ("data", key), "kube-proxy has no mode userspace")


def _docker_handler(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if obj.kind != "RuntimeClass" or new.runtime != "containerd" or old.runtime == "containerd":
        return
    spec = obj.value.get("spec") or {}  # of v1alpha1
    if obj.value.get("handler") == "docker":
        yield _found(14, obj, ("handler",), "containerd has no handler docker")
    elif spec.get("runtimeHandler") == "docker":
        yield _found(14, obj, ("spec", "runtimeHandler"), "containerd has no handler docker")


def find_pod_security(
    objects: Iterable[ManifestObject], old: NodeTarget, new: NodeTarget
) -> Iterator[UpgradeItem]:
    """Pods that the labels of their namespaces forbid, as far as the namespaces are among the
    objects.
    """
    objects = list(objects)
    if not begins_between(15, old, new):
        return
    levels = {
        obj.name: str(obj.labels.get(_ENFORCE, "")) for obj in objects if obj.kind == "Namespace"
    }
    for obj in objects:
        level = levels.get(obj.namespace or "default", "")
        held = pod_in(obj.kind, obj.value)
        if level not in LEVELS or held is None or not isinstance(held[1].get("spec"), Mapping):
            continue
        found = evaluate_pod(level, new.release, held[1].get("metadata") or {}, held[1]["spec"])
        if found:
            text = (
                f"level {level} of the namespace forbids {'; '.join(one.reason for one in found)}"
            )
            yield _found(15, obj, (*held[0], "spec"), text)


def _old_build(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if old.build == new.build:
        return
    for steps, spec in _selectors(obj):
        wanted = (spec.get("nodeSelector") or {}).get(_BUILD_LABEL)
        if wanted == f"10.0.{old.build}":
            yield _found(
                9, obj, (*steps, "nodeSelector"), f"no node of build {new.build} has {wanted}"
            )


def _selectors(obj: ManifestObject) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Pod specs, and the scheduling of RuntimeClasses."""
    yield from _pod_paths(obj)
    scheduling = obj.value.get("scheduling")
    if obj.kind == "RuntimeClass" and isinstance(scheduling, Mapping):
        yield ("scheduling",), scheduling


UPGRADE_CHECKS: Final[
    tuple[Callable[[ManifestObject, NodeTarget, NodeTarget], Iterator[UpgradeItem]], ...]
] = (
    _removed_api,
    _policies,
    _host_paths,
    _drive_letters,
    _old_role,
    _old_build,
    _in_tree_storage,
    _token_secrets,
    _proxy_mode,
    _docker_handler,
)
