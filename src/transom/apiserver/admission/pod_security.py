"""PodSecurity: enforces the Pod Security Standards that the labels of a namespace select.

`enforce` rejects pods, `warn` warns about pods and about workloads that would create them, `audit`
annotates the audit event, and a change of the labels warns about existing pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from transom.apiserver.admission.plugin import ValidatingPlugin
from transom.apiserver.core.attributes import Attributes
from transom.apiserver.core.objectstore import ObjectStore
from transom.apiserver.core.resources import Resource
from transom.machinery import errors
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError, invalid
from transom.machinery.objects import Object
from transom.machinery.pod_security import (
    LATEST,
    LEVELS,
    PRIVILEGED,
    Version,
    Violation,
    evaluate_pod,
    violations_text,
)
from transom.machinery.releases import Release

_PREFIX: Final = "pod-security.kubernetes.io/"
_MODES: Final = ("enforce", "audit", "warn")
_VERSION: Final = re.compile(r"v1\.(0|[1-9]\d*)\Z")
_MOST_PODS: Final = 3000  # that a change of labels checks
# Kind -> the path of the pod template.
_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "/PodTemplate": ("template",),
    "/ReplicationController": ("spec", "template"),
    "apps/DaemonSet": ("spec", "template"),
    "apps/Deployment": ("spec", "template"),
    "apps/ReplicaSet": ("spec", "template"),
    "apps/StatefulSet": ("spec", "template"),
    "batch/CronJob": ("spec", "jobTemplate", "spec", "template"),
    "batch/Job": ("spec", "template"),
}


class PolicyLevel(NamedTuple):
    level: str = PRIVILEGED
    version: Version = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.version == LATEST else f'v1.{self.version[1]}'}"


_DEFAULT_POLICY: Final[Mapping[str, PolicyLevel]] = {mode: PolicyLevel() for mode in _MODES}
_DEFAULT_ENFORCED: Final = str(_DEFAULT_POLICY["enforce"])
_ENFORCE_POLICY: Final = f"{_PREFIX}enforce-policy"


def read_policy(labels: Mapping[str, str]) -> tuple[Mapping[str, PolicyLevel], list[FieldError]]:
    """The level of each mode. An invalid `enforce` is restricted, other invalid modes are
    privileged.
    """
    if not any(key.startswith(_PREFIX) for key in labels):
        return _DEFAULT_POLICY, []
    out, problems = {}, []
    for mode in _MODES:
        key = f"{_PREFIX}{mode}"
        level = labels.get(key, PRIVILEGED)
        if level not in LEVELS:
            problems.append(
                invalid(f"metadata.labels[{key}]", level, f"must be one of {', '.join(LEVELS)}")
            )
            level = LEVELS[-1] if mode == "enforce" else PRIVILEGED
        text = labels.get(f"{key}-version", "latest")
        found = _VERSION.match(text)
        if text != "latest" and found is None:
            path = f"metadata.labels[{key}-version]"
            problems.append(invalid(path, text, 'must be "latest" or "v1.x"'))
        out[mode] = PolicyLevel(level, (1, int(found[1])) if found else LATEST)
    return out, problems


class PodSecurity(ValidatingPlugin):
    name = "PodSecurity"
    thread_safe = False

    def __init__(
        self, objects: ObjectStore, namespaces: Resource, pods: Resource, release: Release
    ) -> None:
        """`release`: of the server, which knows the standards up to its own version."""
        self._objects = objects
        self._release = release
        self._namespaces = namespaces
        self._pods = pods

    def handles(self, resource: Resource, operation: str, subresource: str) -> bool:
        key = resource.kind.key
        if key == "/Pod":
            return (operation, subresource) in (
                ("CREATE", ""),
                ("UPDATE", "ephemeralcontainers"),
            )
        if subresource or operation not in ("CREATE", "UPDATE"):
            return False
        return key == "/Namespace" or key in _TEMPLATES

    def validate(self, attributes: Attributes) -> None:
        key = attributes.resource.kind.key
        if key == "/Namespace":
            self._validate_namespace(attributes)
            return
        namespace = self._objects.find(self._namespaces, "", attributes.namespace)
        policy, _ = read_policy(_labels(namespace or {}))
        if key == "/Pod":
            self._check_pod(attributes, policy)
        else:
            template: Any = attributes.obj
            for name in _TEMPLATES[key]:
                template = (template or {}).get(name)
            if template:
                self._audit(attributes, policy, template)
                self._warn(attributes, policy, template)

    def _validate_namespace(self, attributes: Attributes) -> None:
        obj = attributes.obj
        policy, problems = read_policy(_labels(obj))
        if problems:
            old_problems = read_policy(_labels(attributes.old or {}))[1]
            if attributes.old is None or problems != old_problems:
                raise errors.invalid(
                    GroupResource("", "Namespace"), obj["metadata"].get("name", ""), problems
                )
            return
        if attributes.old is None:
            return
        before, _ = read_policy(_labels(attributes.old))
        enforce = policy["enforce"]
        if enforce == before["enforce"] or enforce.level == PRIVILEGED:
            return
        self._warn_about_pods(attributes, enforce)

    def _warn_about_pods(self, attributes: Attributes, enforce: PolicyLevel) -> None:
        name = attributes.obj["metadata"]["name"]
        found: dict[str, list[str]] = {}
        for pod in self._objects.objects(self._pods, name, _MOST_PODS):
            violations = self._violations(enforce, pod)
            if violations:
                text = ", ".join(v.reason for v in violations)
                found.setdefault(text, []).append(pod["metadata"]["name"])
        if not found:
            return
        attributes.ctx.warn(
            f'existing pods in namespace "{name}" violate the new PodSecurity enforce level '
            f'"{enforce}"'
        )
        for text, names in sorted(found.items(), key=lambda item: min(item[1])):
            others = len(names) - 1
            more = f" (and {others} other pod{'s' if others > 1 else ''})" if others else ""
            attributes.ctx.warn(f"{min(names)}{more}: {text}")

    def _check_pod(self, attributes: Attributes, policy: Mapping[str, PolicyLevel]) -> None:
        if policy is _DEFAULT_POLICY:
            attributes.ctx.annotations[_ENFORCE_POLICY] = _DEFAULT_ENFORCED
            return
        pod, enforce = attributes.obj, policy["enforce"]
        attributes.ctx.annotations[_ENFORCE_POLICY] = str(enforce)
        self._audit(attributes, policy, pod)
        found = self._violations(enforce, pod)
        if found:
            raise attributes.forbidden(
                f'violates PodSecurity "{enforce}": {violations_text(found)}'
            )
        self._warn(attributes, policy, pod)

    def _audit(
        self, attributes: Attributes, policy: Mapping[str, PolicyLevel], pod: Object
    ) -> None:
        audit = policy["audit"]
        found = self._violations(audit, pod)
        if found:
            attributes.ctx.annotations[f"{_PREFIX}audit-violations"] = (
                f'would violate PodSecurity "{audit}": {violations_text(found)}'
            )

    def _warn(self, attributes: Attributes, policy: Mapping[str, PolicyLevel], pod: Object) -> None:
        warn = policy["warn"]
        found = self._violations(warn, pod)
        if found:
            attributes.ctx.warn(f'would violate PodSecurity "{warn}": {violations_text(found)}')

    def _violations(self, policy: PolicyLevel, pod: Object) -> list[Violation]:
        version = min(policy.version, self._release)
        meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        return evaluate_pod(policy.level, version, meta, spec)


def _labels(obj: Object) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}
