"""Defaults of pods and pod templates that releases after 1.20 added or changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery import podutil
from transom.machinery.defaults.images import default_pull_policy
from transom.machinery.kinds import GVK
from transom.machinery.podresources import default_pod_resources
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import is_enabled

Object = dict[str, Any]
_WORKLOADS = frozenset(
    (
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "Job"),
    )
)
_PROBES: Final = frozenset(("livenessProbe", "readinessProbe", "startupProbe"))
_OTHER_CONTAINERS: Final = frozenset(("initContainers", "ephemeralContainers"))
WITH_POD_SPEC = _WORKLOADS | {("", "Pod"), ("", "PodTemplate"), ("batch", "CronJob")}


def find_pod_template(gvk: GVK, obj: Object) -> Object | None:
    """The pod template of a workload."""
    key = (gvk.group, gvk.kind)
    if key in _WORKLOADS:
        return (obj.get("spec") or {}).get("template")
    if key == ("batch", "CronJob"):
        job = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
        template: Object | None = job.get("template")
        return template
    return obj.get("template") if key == ("", "PodTemplate") else None


def has_pod_template(gvk: GVK) -> bool:
    """Whether objects of this kind hold a pod template."""
    key = (gvk.group, gvk.kind)
    return key in WITH_POD_SPEC and key != ("", "Pod")


def without_template_ports(gvk: GVK, apply: Callable[[Object], None], obj: Object) -> None:
    """Applies the defaults of 1.20 without those for ports on the host's network, which since 1.28
    are for pods only, not for templates.
    """
    ports: list[Object] = []
    spec = (find_pod_template(gvk, obj) or {}).get("spec") or {}
    if spec.get("hostNetwork"):
        ports = [
            port
            for container in podutil.visit_containers(spec, ephemeral=False)
            for port in container.get("ports") or ()
            if not port.get("hostPort")
        ]
    apply(obj)
    for port in ports:
        port.pop("hostPort", None)


class _NewerDefaults(NamedTuple):
    """Which defaults of pods a release has in addition to those of 1.20."""

    grace_periods: bool
    image_volumes: bool
    grpc_probes: bool
    resources: bool


def pod_default_rule(release: Release, gvk: GVK) -> Callable[[Object], None]:
    """The rule for a kind that is or holds a pod."""
    newer = _NewerDefaults(
        has_behaviour(release, "PositiveGracePeriods"),
        is_enabled(release, "ImageVolume"),
        is_enabled(release, "GRPCContainerProbe"),
        is_enabled(release, "PodLevelResources"),
    )
    return partial(_template, newer, gvk) if has_pod_template(gvk) else partial(_pod, newer)


def _pod(newer: _NewerDefaults, obj: Object) -> None:
    spec = obj.get("spec") or {}
    _pod_spec(newer, spec)
    if "resources" in spec and newer.resources:
        default_pod_resources(spec)


def _template(newer: _NewerDefaults, gvk: GVK, obj: Object) -> None:
    if template := find_pod_template(gvk, obj):
        _pod_spec(newer, template.get("spec") or {})


def _pod_spec(newer: _NewerDefaults, spec: Object) -> None:
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0 and newer.grace_periods:
        spec["terminationGracePeriodSeconds"] = 1
    for volume in spec.get("volumes") or ():
        if "image" in volume and newer.image_volumes:
            image = volume["image"]
            if image is not None and not image.get("pullPolicy"):
                image["pullPolicy"] = default_pull_policy(image.get("reference", ""))
    containers = spec.get("containers") or ()
    if not _OTHER_CONTAINERS.isdisjoint(spec):
        containers = podutil.visit_containers(spec)
    for container in containers:
        if not _PROBES.isdisjoint(container) and newer.grpc_probes:
            _grpc_probes(container)


def _grpc_probes(container: Object) -> None:
    for kind in _PROBES:
        action = (container.get(kind) or {}).get("grpc")
        if action is not None and action.get("service") is None:
            action["service"] = ""
