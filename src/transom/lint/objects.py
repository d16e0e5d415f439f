"""The objects in documents: their kind, their position, and their pod templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transom.kit.lazy_dataclass import dataclass
from transom.lint.sources import ManifestSource
from transom.lint.tree import BrokenDocument, Steps, YamlDocument, parse_documents

_EACH: Final = "*"
_TEMPLATE: Final = ("spec", "template")
_BUILT_IN: Final = frozenset(("", "apps", "extensions", "batch"))

# The paths of pod templates: built-in kinds, then custom resources that embed complete templates.
TEMPLATES: Final[Mapping[tuple[str, str], Steps]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("extensions", "ReplicaSet"): _TEMPLATE,
    ("extensions", "Deployment"): _TEMPLATE,
    ("extensions", "DaemonSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("argoproj.io", "Rollout"): _TEMPLATE,
    ("apps.openshift.io", "DeploymentConfig"): _TEMPLATE,
    ("apps.kruise.io", "CloneSet"): _TEMPLATE,
    ("apps.kruise.io", "StatefulSet"): _TEMPLATE,
    ("apps.kruise.io", "DaemonSet"): _TEMPLATE,
    ("serving.knative.dev", "Service"): _TEMPLATE,
    ("serving.knative.dev", "Configuration"): _TEMPLATE,
    ("keda.sh", "ScaledJob"): ("spec", "jobTargetRef", "template"),
    ("jobset.x-k8s.io", "JobSet"): (
        "spec",
        "replicatedJobs",
        _EACH,
        "template",
        "spec",
        "template",
    ),
    ("batch.volcano.sh", "Job"): ("spec", "tasks", _EACH, "template"),
    ("kubeflow.org", "TFJob"): ("spec", "tfReplicaSpecs", _EACH, "template"),
    ("kubeflow.org", "PyTorchJob"): ("spec", "pytorchReplicaSpecs", _EACH, "template"),
    ("kubeflow.org", "MPIJob"): ("spec", "mpiReplicaSpecs", _EACH, "template"),
}
# CustomResourceDefinitions are long and contain no pods: they make up most of the text of many
# repositories.
_DEFINITION: Final = re.compile(r"^kind: CustomResourceDefinition[ \t]*\r?$", re.MULTILINE)
_ORIGIN: Final = re.compile(r"^# Source: (\S+)", re.MULTILINE)


@dataclass(slots=True, eq=False)
class ManifestObject:
    """An object from a file or a cluster. `steps` is its path from the root of its document."""

    source: ManifestSource
    document: YamlDocument | None
    steps: Steps
    value: Mapping[str, Any]
    group: str
    kind: str
    origin: str = ""  # the chart template that it was rendered from

    @property
    def name(self) -> str:
        return _text(self._metadata().get("name")) or _text(self._metadata().get("generateName"))

    @property
    def namespace(self) -> str:
        return _text(self._metadata().get("namespace"))

    @property
    def labels(self) -> Mapping[str, Any]:
        return _mapping(self._metadata().get("labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        return _mapping(self._metadata().get("annotations"))

    @property
    def spec(self) -> Mapping[str, Any]:
        return _mapping(self.value.get("spec"))

    @property
    def title(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}".rstrip()

    @property
    def built_in(self) -> bool:
        return self.group in _BUILT_IN

    def _metadata(self) -> Mapping[str, Any]:
        return _mapping(self.value.get("metadata"))


def manifest_objects(source: ManifestSource) -> Iterator[ManifestObject | BrokenDocument]:
    for document in parse_documents(source.text, _DEFINITION.search):
        if isinstance(document, BrokenDocument):
            if source.name.endswith(".json"):
                yield from _plain_json(source, document)
                return
            yield document
            continue
        if not isinstance(document.value, dict) or "kind" not in document.value:
            continue
        match = _ORIGIN.search(document.head())
        yield from _objects(source, document, (), document.value, match[1] if match else "")


def _plain_json(
    source: ManifestSource, problem: BrokenDocument
) -> Iterator[ManifestObject | BrokenDocument]:
    """JSON that is not valid YAML has escapes that libyaml does not support; then values are
    available, but no positions.
    """
    try:
        value = json.loads(source.text.text)
    except (ValueError, RecursionError):
        yield problem
        return
    if isinstance(value, dict):
        yield from _objects(source, None, (), value, "")


def _objects(
    source: ManifestSource, document: YamlDocument | None, steps: Steps, value: Any, origin: str
) -> Iterator[ManifestObject]:
    if not isinstance(value, dict):
        return
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return
    items = value.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for i, item in enumerate(items):
            if isinstance(item, dict) and "kind" not in item and kind != "List":
                item = {"apiVersion": version, "kind": kind.removesuffix("List"), **item}
            yield from _objects(source, document, (*steps, "items", i), item, origin)
        return
    group = version.rpartition("/")[0]
    yield ManifestObject(source, document, steps, value, group, kind, origin)


def objects_of_cluster(
    source: ManifestSource, group: str, kind: str, value: Mapping[str, Any]
) -> ManifestObject:
    """An object without source text."""
    return ManifestObject(source, None, (), value, group, kind)


def pod_templates(obj: ManifestObject) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """The pod templates of an object, with their paths."""
    at = TEMPLATES.get((obj.group, obj.kind))
    if at is not None:
        for steps, template in _each(obj.value, at, ()):
            if isinstance(template, dict) and isinstance(template.get("spec"), dict):
                yield steps, template


def _each(value: Any, at: Steps, steps: Steps) -> Iterator[tuple[Steps, Any]]:
    if not at:
        yield steps, value
        return
    step, rest = at[0], at[1:]
    if step == _EACH:
        entries = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for key, inner in entries:
            yield from _each(inner, rest, (*steps, key))
    elif isinstance(value, dict) and step in value:
        yield from _each(value[step], rest, (*steps, step))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
