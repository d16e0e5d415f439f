"""Defaults of pods and pod templates that releases after 1.20 added or changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def with_template_ports(
    release: Release, gvk: GVK, obj: Object, apply: Callable[[GVK, Object], None]
) -> None:
    """Applies the defaults of 1.20. Since 1.28 those for ports on the host's network are for pods
    only, not for templates.
    """
    ports: list[Object] = []
    if has_behaviour(release, "TemplatesWithoutHostPorts"):
        spec = (find_pod_template(gvk, obj) or {}).get("spec") or {}
        if spec.get("hostNetwork"):
            ports = [
                port
                for container in podutil.visit_containers(spec, ephemeral=False)
                for port in container.get("ports") or ()
                if not port.get("hostPort")
            ]
    apply(gvk, obj)
    for port in ports:
        port.pop("hostPort", None)


def apply_pod_defaults(release: Release, gvk: GVK, obj: Object) -> None:
    if (gvk.group, gvk.kind) == ("", "Pod"):
        spec = obj.get("spec") or {}
        _pod_spec(release, spec)
        if is_enabled(release, "PodLevelResources"):
            default_pod_resources(spec)
    elif template := find_pod_template(gvk, obj):
        _pod_spec(release, template.get("spec") or {})


def _pod_spec(release: Release, spec: Object) -> None:
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and has_behaviour(release, "PositiveGracePeriods"):
        spec["terminationGracePeriodSeconds"] = 1
    if is_enabled(release, "ImageVolume"):
        for volume in spec.get("volumes") or ():
            image = volume.get("image")
            if image is not None and not image.get("pullPolicy"):
                image["pullPolicy"] = default_pull_policy(image.get("reference", ""))
    if is_enabled(release, "GRPCContainerProbe"):
        for container in podutil.visit_containers(spec):
            for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
                action = (container.get(kind) or {}).get("grpc")
                if action is not None and action.get("service") is None:
                    action["service"] = ""
