"""A set of objects that belong together, as rules see it: which pods are for Windows, and what goes with which pods.

A set is what one folder, one stream or one cluster holds. Objects of different folders are not brought together: two
examples in a repository may well use the same label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transom.lint.objects import Object, templates
from transom.lint.tree import Steps
from transom.windows.landscape import Group, Landscape
from transom.windows.podchecks import host_process
from transom.windows.records import Target
from transom.windows.targeting import Verdict, containers, verdict

RuntimeClasses = Callable[[str], Mapping[str, Any] | None]


@dataclass(slots=True, eq=False)
class Workload:
    """A pod, or a template of pods in an object."""

    obj: Object
    steps: Steps  # of the template in the object
    template: Mapping[str, Any]
    verdict: Verdict
    groups: list[Group]  # the Windows nodes it may go to

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.template["spec"]
        return spec

    @property
    def windows(self) -> bool:
        return self.verdict.windows

    @property
    def runs_nowhere_else(self) -> bool:
        """Whether it is for Windows beyond doubt: by the nodes it selects, or in so many words."""
        named = any(sign.os == "windows" and sign.steps == ("spec", "os", "name") for sign in self.verdict.signs)
        return self.windows and (self.verdict.pinned or named)

    @property
    def labels(self) -> Mapping[str, Any]:
        metadata = self.template.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        return labels if isinstance(labels, dict) else {}

    @property
    def partial(self) -> bool:
        """Whether it is a patch for another object: its containers have no images, or it has none."""
        return not any(container.get("image") for _, container in self.containers())

    @property
    def host_process(self) -> bool:
        return host_process(self.spec)

    @property
    def targets(self) -> list[Target]:
        return [group.target for group in self.groups]

    def containers(self) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """All its containers, with their places in the object."""
        for steps, container in containers(self.spec):
            yield self.steps + steps, container

    def at(self, *steps: str | int) -> Steps:
        """A place in the pod's spec, from the object."""
        return (*self.steps, "spec", *steps)

    def replicas(self) -> int:
        """How many pods it asks for, as far as the object says."""
        if self.obj.kind == "Pod":
            return 1
        count = self.obj.spec.get("replicas")
        return count if isinstance(count, int) and not isinstance(count, bool) else 1


class Scene:
    def __init__(
        self, name: str, objects: Iterable[Object], landscape: Landscape, runtime_classes: RuntimeClasses
    ) -> None:
        self.name = name
        self.objects = list(objects)
        self.landscape = landscape
        self.runtime_classes = runtime_classes
        self.workloads = [
            Workload(obj, steps, template, verdict(template, runtime_classes), landscape.groups(template["spec"]))
            for obj in self.objects for steps, template in templates(obj)
        ]

    @cached_property
    def windows(self) -> list[Workload]:
        return [workload for workload in self.workloads if workload.windows]

    @cached_property
    def mixed(self) -> bool:
        """Whether pods of the set share a cluster with nodes of the other system, as far as anybody said."""
        if self.landscape.mixed is not None:
            return self.landscape.mixed
        return bool(self.windows)

    def of(self, kind: str, group: str | None = None) -> list[Object]:
        return [obj for obj in self._by_kind.get(kind, ()) if (obj.built_in if group is None else obj.group == group)]

    @cached_property
    def _by_kind(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for obj in self.objects:
            found.setdefault(obj.kind, []).append(obj)
        return found

    def selected(self, service: Object) -> list[Workload]:
        """The workloads whose pods a Service sends to."""
        selector = service.spec.get("selector")
        if not isinstance(selector, dict) or not selector:
            return []
        return [w for w in self.workloads if _same_namespace(w.obj, service) and _matches(selector, w.labels)]

    def chosen(self, policy: Object) -> list[Workload]:
        """The workloads that a NetworkPolicy is about."""
        wanted = policy.spec.get("podSelector")
        labels = wanted.get("matchLabels") if isinstance(wanted, dict) else None
        if isinstance(wanted, dict) and wanted.get("matchExpressions"):
            return []
        return [
            w for w in self.workloads
            if _same_namespace(w.obj, policy) and _matches(labels if isinstance(labels, dict) else {}, w.labels)
        ]

    def concerns_windows(self, obj: Object) -> list[Workload] | None:
        """The pods for Windows that an object without a template has to do with; None if it cannot have to do with any."""
        finder = _RELATED.get(obj.kind)
        if finder is None or not (obj.built_in or obj.group.endswith(".k8s.io")):
            return None
        return [workload for workload in finder(self, obj) if workload.windows]


def _same_namespace(one: Object, other: Object) -> bool:
    # What has no namespace goes where the other goes, as far as anybody can tell.
    return not one.namespace or not other.namespace or one.namespace == other.namespace


def _matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def _claims(scene: Scene, claim: Object) -> list[Workload]:
    return [
        w for w in scene.workloads
        if _same_namespace(w.obj, claim) and any(
            isinstance(volume, dict) and isinstance(volume.get("persistentVolumeClaim"), dict)
            and volume["persistentVolumeClaim"].get("claimName") == claim.name
            for volume in _listed(w.spec.get("volumes"))
        )
    ]


def _bound(scene: Scene, volume: Object) -> list[Workload]:
    """Those that use the claim that a PersistentVolume is kept for, or of which a claim names the volume."""
    reference = volume.spec.get("claimRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    claims = [
        claim for claim in scene.of("PersistentVolumeClaim")
        if claim.spec.get("volumeName") == volume.name or (name is not None and claim.name == name)
    ]
    return [workload for claim in claims for workload in _claims(scene, claim)]


def _provisioned(scene: Scene, storage: Object) -> list[Workload]:
    claims = [c for c in scene.of("PersistentVolumeClaim") if c.spec.get("storageClassName") == storage.name]
    found = [workload for claim in claims for workload in _claims(scene, claim)]
    for workload in scene.workloads:
        for claim in _listed(workload.obj.spec.get("volumeClaimTemplates")):
            spec = claim.get("spec") if isinstance(claim, dict) else None
            if isinstance(spec, dict) and spec.get("storageClassName") == storage.name:
                found.append(workload)
    return found


def _named(scene: Scene, obj: Object) -> list[Workload]:
    return [w for w in scene.workloads if w.spec.get("runtimeClassName") == obj.name]


def _inside(scene: Scene, namespace: Object) -> list[Workload]:
    return [w for w in scene.workloads if w.obj.namespace == namespace.name]


def _scaled(scene: Scene, scaler: Object) -> list[Workload]:
    reference = scaler.spec.get("scaleTargetRef")
    if not isinstance(reference, dict):
        return []
    return [
        w for w in scene.workloads
        if _same_namespace(w.obj, scaler) and (w.obj.kind, w.obj.name) == (reference.get("kind"), reference.get("name"))
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_RELATED: Mapping[str, Callable[[Scene, Object], list[Workload]]] = {
    "Service": Scene.selected,
    "NetworkPolicy": Scene.chosen,
    "PersistentVolumeClaim": _claims,
    "PersistentVolume": _bound,
    "StorageClass": _provisioned,
    "RuntimeClass": _named,
    "Namespace": _inside,
    "HorizontalPodAutoscaler": _scaled,
}
