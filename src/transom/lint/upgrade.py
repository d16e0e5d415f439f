"""The rehearsal of an upgrade: what of manifests and nodes breaks, changes or starts to work between
two kinds of Windows nodes, record by record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple

from transom.kit.lazy_dataclass import dataclass
from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.findings import LintFinding, span_of
from transom.lint.objects import ManifestObject, manifest_objects
from transom.lint.sources import SourcesRead
from transom.lint.tree import BrokenDocument, Steps
from transom.machinery.kinds import GVK
from transom.machinery.releases import Release as KubernetesRelease
from transom.machinery.releases.release import TABLES_SINCE
from transom.machinery.releases.served import find_deprecation, served_resources
from transom.windows.limits import LIMITS
from transom.windows.match import pod_in, record_holds, steps_text
from transom.windows.records import Network, NodeTarget, Release, Runtime, WindowsLimit
from transom.windows.target_nodes import TargetNodes, target_nodes_from_options

Outcome = Literal["breaks", "changes", "works"]
_BUILD_LABEL: Final = "node.kubernetes.io/windows-build"
_DRIVE: Final = re.compile(r"(?i)^[d-z]:[\\/]?$")
_DOCKER_PIPE: Final = re.compile(r"(?i)pipe[\\/]docker_engine|docker\.sock")
_CSI_PROXY: Final = re.compile(r"(?i)pipe[\\/]csi-proxy")
_POLICY: Final = ("policy", "PodSecurityPolicy")


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
        ),
        _record(
            5,
            "Volumes cannot be mounted as drives",
            "Docker mounts a volume at a drive letter such as D:; containerd does not (AKS 3471).",
            "Mount the volume at a directory, for example C:\\data, or use a symbolic link in the "
            "image.",
        ),
        _record(
            6,
            "kube-proxy uses version 2 of the HNS API only",
            "1.25 removed version 1: kube-proxy does not start on builds before 17763, and network "
            "plugins that create version 1 networks leave it without a network.",
            "Use network plugins that create version 2 networks, and delete old networks of the "
            "nodes.",
            severity="none",
        ),
        _record(
            7,
            "kubectl taint and label names of the control plane changed",
            "Nodes have the role label and taint control-plane; node-role.kubernetes.io/master is "
            "gone since 1.24.",
            "Use node-role.kubernetes.io/control-plane in selectors and tolerations.",
            severity="warning",
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


@dataclass(slots=True)
class UpgradeReport:
    before: NodeTarget
    after: NodeTarget
    items: list[UpgradeItem] = field(default_factory=list)
    nodes: list[tuple[Outcome, WindowsLimit]] = field(default_factory=list)
    objects: int = 0
    problems: list[str] = field(default_factory=list)

    def of(self, outcome: Outcome) -> list[UpgradeItem]:
        return [item for item in self.items if item.outcome == outcome]


def upgrade_nodes(
    release: Release,
    build: int | None,
    runtime: Runtime | None,
    network: Network | None = None,
    features: Iterable[str] = (),
) -> TargetNodes:
    """The nodes before or after an upgrade, in a cluster with nodes of both operating systems."""
    return target_nodes_from_options(release, build, runtime, network, tuple(features), True)


def rehearse_upgrade(
    reading: SourcesRead,
    before: TargetNodes,
    after: TargetNodes,
    config: LintConfig,
    live: Iterable[ManifestObject] = (),
) -> UpgradeReport:
    """Checks the objects against both kinds of nodes, and for what only an upgrade breaks."""
    live = list(live)
    old, new = before.nodes[0].target, after.nodes[0].target
    report = UpgradeReport(old, new, problems=list(reading.problems))
    first = lint_sources(reading, before, config, live).findings
    second = lint_sources(reading, after, config, live).findings
    first, second = _different(first, second), _different(second, first)
    known = {_key(finding): finding for finding in first}
    later = {_key(finding) for finding in second}
    for finding in second:
        if _key(finding) not in known:
            outcome: Outcome = "breaks" if finding.severity == "error" else "changes"
            report.items.append(_item(finding, outcome))
    report.items += [_item(one, "works") for key, one in known.items() if key not in later]
    objects = [*live, *(obj for source in reading.sources for obj in _objects(source))]
    report.objects = len(objects)
    for obj in objects:
        for check in UPGRADE_CHECKS:
            report.items += check(obj, old, new)
    report.nodes = list(_node_records(old, new))
    return report


def _objects(source: Any) -> Iterator[ManifestObject]:
    return (obj for obj in manifest_objects(source) if not isinstance(obj, BrokenDocument))


def _different(findings: list[LintFinding], others: list[LintFinding]) -> list[LintFinding]:
    """Without those whose record states of the same field what another record states on the other
    nodes: such a field has the same effect before and after.
    """
    same = {(*_key(one)[1:], one.limit.effect): one.id for one in others if one.limit.fields}
    return [
        one
        for one in findings
        if same.get((*_key(one)[1:], one.limit.effect), one.id) == one.id or not one.limit.fields
    ]


def _key(finding: LintFinding) -> tuple[str, str, str, str]:
    name = finding.obj.name if finding.obj is not None else ""
    return finding.id, finding.source.name, name, finding.path


def _item(finding: LintFinding, outcome: Outcome) -> UpgradeItem:
    line = finding.place[0]
    place = f"{finding.source.name}:{line}" if line else finding.source.name
    what = _name(finding.obj) if finding.obj is not None else ""
    remedy = finding.remedy or finding.limit.remedy
    return UpgradeItem(finding.limit, outcome, what, place, finding.path, finding.message, remedy)


def _name(obj: ManifestObject) -> str:
    return f"{obj.kind} {obj.namespace}/{obj.name}" if obj.namespace else f"{obj.kind} {obj.name}"


def _node_records(old: NodeTarget, new: NodeTarget) -> Iterator[tuple[Outcome, WindowsLimit]]:
    """Limits of nodes that no manifest shows."""
    if old.release < (1, 25) <= new.release:
        yield "changes", UPGRADE_RECORDS["WIN-UPG-006"]
    if old.runtime == "docker" and new.runtime == "containerd":
        yield "changes", UPGRADE_RECORDS["WIN-UPG-008"]
    for limit in LIMITS.values():
        if limit.severity != "none":
            continue
        before, after = record_holds(limit, old), record_holds(limit, new)
        if after and not before:
            yield "changes", limit
        elif before and not after:
            yield "works", limit


# ---- what only an upgrade breaks


def _found(
    number: int, obj: ManifestObject, steps: Steps, message: str, remedy: str = ""
) -> UpgradeItem:
    record = UPGRADE_RECORDS[f"WIN-UPG-{number:03d}"]
    outcome: Outcome = "breaks" if record.severity == "error" else "changes"
    span = span_of(obj, steps)
    line = obj.source.text.place(span.start)[0] if span is not None else 0
    place = f"{obj.source.name}:{line}" if line else obj.source.name
    path = steps_text(steps)
    return UpgradeItem(record, outcome, _name(obj), place, path, message, remedy or record.remedy)


def _removed_api(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    release = KubernetesRelease(*new.release)
    group, _, version = str(obj.value.get("apiVersion", "")).rpartition("/")
    if release < TABLES_SINCE or (group, obj.kind) == _POLICY or not version:
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
    """What the last release that served it says, or the version that the new one serves."""
    for minor in range(TABLES_SINCE.minor, release.minor):
        found = find_deprecation(KubernetesRelease(1, minor), gvk)
        if found is not None and found.replacement is not None:
            other = found.replacement
            return f"Use {other.api_version} {other.kind}."
    now = [
        GVK(group, version, kind).api_version
        for group, version, kind in sorted(served_resources(release))
        if kind == gvk.kind and group in (gvk.group, "apps", "networking.k8s.io")
    ]
    return f"Use {now[0]}." if now else ""


def _policies(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if (obj.group, obj.kind) == _POLICY and old.release < (1, 25) <= new.release:
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
            if new.release >= (1, 26) > old.release and _CSI_PROXY.search(path):
                yield _found(4, obj, at, f"{path} needs csi-proxy on the node")


def _drive_letters(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if new.runtime != "containerd" or old.runtime == "containerd":
        return
    for steps, spec in _pod_paths(obj):
        for i, container in enumerate(spec.get("containers") or ()):
            for j, mount in enumerate(container.get("volumeMounts") or ()):
                if _DRIVE.match(str(mount.get("mountPath", ""))):
                    at = (*steps, "containers", i, "volumeMounts", j, "mountPath")
                    yield _found(5, obj, at, f"{mount['mountPath']} is a drive, not a directory")


def _old_role(obj: ManifestObject, old: NodeTarget, new: NodeTarget) -> Iterator[UpgradeItem]:
    if not old.release < (1, 24) <= new.release:
        return
    for steps, spec in _pod_paths(obj):
        if "node-role.kubernetes.io/master" in (spec.get("nodeSelector") or {}):
            yield _found(7, obj, (*steps, "nodeSelector"), "no node has the role label master")


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
] = (_removed_api, _policies, _host_paths, _drive_letters, _old_role, _old_build)
