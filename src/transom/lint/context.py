"""A set of related objects: which pods are Windows pods, and which objects apply to which pods.

A set is the content of one folder, stream or cluster. Objects of different folders are not related
to each other: two examples in a repository may use the same label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.lint.objects import ManifestObject, pod_templates
from transom.lint.tree import Steps
from transom.windows.podchecks import host_process
from transom.windows.records import NodeTarget
from transom.windows.target_nodes import NodeGroup, TargetNodes
from transom.windows.targeting import TargetOs, find_target_os, pod_containers

RuntimeClasses = Callable[[str], Mapping[str, Any] | None]


@dataclass(slots=True, eq=False)
class LintWorkload:
    """A pod, or a pod template in an object."""

    obj: ManifestObject
    steps: Steps  # path of the template in the object
    template: Mapping[str, Any]
    verdict: TargetOs
    groups: list[NodeGroup]  # the Windows nodes it may be scheduled to

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.template["spec"]
        return spec

    @property
    def windows(self) -> bool:
        return self.verdict.windows

    @property
    def windows_only(self) -> bool:
        """Whether it is definitely a Windows pod: by its node selection, or explicitly."""
        named = any(
            sign.os == "windows" and sign.steps == ("spec", "os", "name")
            for sign in self.verdict.signs
        )
        return self.windows and (self.verdict.pinned or named)

    @property
    def labels(self) -> Mapping[str, Any]:
        metadata = self.template.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        return labels if isinstance(labels, dict) else {}

    @property
    def partial(self) -> bool:
        """Whether it is a patch for another object: it has no containers, or they have no
        images.
        """
        return not any(container.get("image") for _, container in self.containers())

    @property
    def host_process(self) -> bool:
        return host_process(self.spec)

    @property
    def targets(self) -> list[NodeTarget]:
        return [group.target for group in self.groups]

    def containers(self) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """All its containers, with their paths in the object."""
        for steps, container in pod_containers(self.spec):
            yield self.steps + steps, container

    def at(self, *steps: str | int) -> Steps:
        """The path of a field of the pod's spec, from the root of the object."""
        return (*self.steps, "spec", *steps)

    def replicas(self) -> int:
        """The number of pods that the object specifies."""
        if self.obj.kind == "Pod":
            return 1
        count = self.obj.spec.get("replicas")
        return count if isinstance(count, int) and not isinstance(count, bool) else 1


class LintContext:
    def __init__(
        self,
        name: str,
        objects: Iterable[ManifestObject],
        target_nodes: TargetNodes,
        runtime_classes: RuntimeClasses,
    ) -> None:
        self.name = name
        self.objects = list(objects)
        self.target_nodes = target_nodes
        self.runtime_classes = runtime_classes
        self.workloads = [
            LintWorkload(
                obj,
                steps,
                template,
                find_target_os(template, runtime_classes),
                target_nodes.groups(template["spec"]),
            )
            for obj in self.objects
            for steps, template in pod_templates(obj)
        ]

    @cached_property
    def windows(self) -> list[LintWorkload]:
        return [workload for workload in self.workloads if workload.windows]

    @cached_property
    def mixed(self) -> bool:
        """Whether the cluster of the set is known to have nodes of both operating systems."""
        if self.target_nodes.mixed is not None:
            return self.target_nodes.mixed
        return bool(self.windows)

    def of(self, kind: str, group: str | None = None) -> list[ManifestObject]:
        return [
            obj
            for obj in self._by_kind.get(kind, ())
            if (obj.built_in if group is None else obj.group == group)
        ]

    @cached_property
    def _by_kind(self) -> dict[str, list[ManifestObject]]:
        found: dict[str, list[ManifestObject]] = {}
        for obj in self.objects:
            found.setdefault(obj.kind, []).append(obj)
        return found

    def selected(self, service: ManifestObject) -> list[LintWorkload]:
        """The workloads that a Service selects."""
        selector = service.spec.get("selector")
        if not isinstance(selector, dict) or not selector:
            return []
        return [
            w
            for w in self.workloads
            if _same_namespace(w.obj, service) and _matches(selector, w.labels)
        ]

    def chosen(self, policy: ManifestObject) -> list[LintWorkload]:
        """The workloads that a NetworkPolicy selects."""
        wanted = policy.spec.get("podSelector")
        labels = wanted.get("matchLabels") if isinstance(wanted, dict) else None
        if isinstance(wanted, dict) and wanted.get("matchExpressions"):
            return []
        return [
            w
            for w in self.workloads
            if _same_namespace(w.obj, policy)
            and _matches(labels if isinstance(labels, dict) else {}, w.labels)
        ]

    def concerns_windows(self, obj: ManifestObject) -> list[LintWorkload] | None:
        """The Windows pods that an object without a template applies to; None if it cannot apply to
        any.
        """
        finder = _RELATED.get(obj.kind)
        if finder is None or not (obj.built_in or obj.group.endswith(".k8s.io")):
            return None
        return [workload for workload in finder(self, obj) if workload.windows]


def _same_namespace(one: ManifestObject, other: ManifestObject) -> bool:
    # An object without a namespace is assumed to be in the same namespace as the other.
    return not one.namespace or not other.namespace or one.namespace == other.namespace


def _matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def _claims(context: LintContext, claim: ManifestObject) -> list[LintWorkload]:
    return [
        w
        for w in context.workloads
        if _same_namespace(w.obj, claim)
        and any(
            isinstance(volume, dict)
            and isinstance(volume.get("persistentVolumeClaim"), dict)
            and volume["persistentVolumeClaim"].get("claimName") == claim.name
            for volume in _listed(w.spec.get("volumes"))
        )
    ]


def _bound(context: LintContext, volume: ManifestObject) -> list[LintWorkload]:
    """The pods that use the claim a PersistentVolume is reserved for, or a claim that names the
    volume.
    """
    reference = volume.spec.get("claimRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    claims = [
        claim
        for claim in context.of("PersistentVolumeClaim")
        if claim.spec.get("volumeName") == volume.name or (name is not None and claim.name == name)
    ]
    return [workload for claim in claims for workload in _claims(context, claim)]


def _provisioned(context: LintContext, storage: ManifestObject) -> list[LintWorkload]:
    claims = [
        c
        for c in context.of("PersistentVolumeClaim")
        if c.spec.get("storageClassName") == storage.name
    ]
    found = [workload for claim in claims for workload in _claims(context, claim)]
    for workload in context.workloads:
        for claim in _listed(workload.obj.spec.get("volumeClaimTemplates")):
            spec = claim.get("spec") if isinstance(claim, dict) else None
            if isinstance(spec, dict) and spec.get("storageClassName") == storage.name:
                found.append(workload)
    return found


def _named(context: LintContext, obj: ManifestObject) -> list[LintWorkload]:
    return [w for w in context.workloads if w.spec.get("runtimeClassName") == obj.name]


def _inside(context: LintContext, namespace: ManifestObject) -> list[LintWorkload]:
    return [w for w in context.workloads if w.obj.namespace == namespace.name]


def _scaled(context: LintContext, scaler: ManifestObject) -> list[LintWorkload]:
    reference = scaler.spec.get("scaleTargetRef")
    if not isinstance(reference, dict):
        return []
    return [
        w
        for w in context.workloads
        if _same_namespace(w.obj, scaler)
        and (w.obj.kind, w.obj.name) == (reference.get("kind"), reference.get("name"))
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_RELATED: Mapping[str, Callable[[LintContext, ManifestObject], list[LintWorkload]]] = {
    "Service": LintContext.selected,
    "NetworkPolicy": LintContext.chosen,
    "PersistentVolumeClaim": _claims,
    "PersistentVolume": _bound,
    "StorageClass": _provisioned,
    "RuntimeClass": _named,
    "Namespace": _inside,
    "HorizontalPodAutoscaler": _scaled,
}
