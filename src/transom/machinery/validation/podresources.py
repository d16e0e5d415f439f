"""`spec.resources` of a pod, and changes of resources through the resize subresource."""

from __future__ import annotations

from typing import Any

from transom.machinery import podutil
from transom.machinery.field import forbidden, invalid
from transom.machinery.podresources import HUGE_PAGES, aggregate_containers
from transom.machinery.quantity import parse_quantity
from transom.machinery.validation.containers import PodContext, check_resource_claims
from transom.machinery.validation.podoptions import PodOptions
from transom.machinery.validation.resources import (
    check_pod_resource_name,
    check_resource_requirements,
)
from transom.machinery.validation.rules import Errors

_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"


def check_pod_resources(spec: dict[str, Any], context: PodContext, path: str, errs: Errors) -> None:
    """`path` is that of the pod spec."""
    where, resources = f"{path}.resources", spec["resources"]
    if context.os == "windows":
        errs.append(forbidden(where, "may not be set for a windows pod"))
        return
    if "claims" in resources:
        text = "claims may not be set for Resources at pod-level"
        errs.append(forbidden(f"{where}.claims", text))
    check_resource_requirements(resources, where, errs, context.options, check_pod_resource_name)
    check_resource_claims(resources.get("claims") or (), context, f"{where}.claims", errs)
    _check_consistency(spec, where, errs)


def _check_consistency(spec: dict[str, Any], path: str, errs: Errors) -> None:
    """A pod needs at least what its containers need together, and each of them at most its
    limits.
    """
    requests: dict[str, str] = spec["resources"].get("requests") or {}
    limits: dict[str, str] = spec["resources"].get("limits") or {}
    for name, amount in aggregate_containers(spec, "requests").items():
        if name in requests and amount > parse_quantity(requests[name]):
            text = f"must be greater than or equal to aggregate container requests of {amount}"
            errs.append(invalid(f"{path}.requests[{name}]", requests[name], text))
    for name, amount in aggregate_containers(spec, "limits").items():
        if not name.startswith(HUGE_PAGES) or name not in limits:
            continue
        if amount > parse_quantity(limits[name]):
            text = f"must be greater than or equal to aggregate container limits of {amount}"
            errs.append(invalid(f"{path}.limits[{name}]", limits[name], text))
    for i, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and parse_quantity(limit) > parse_quantity(limits[name]):
                text = f"must be less than or equal to pod limits of {limits[name]}"
                errs.append(invalid(f"{path}.containers[{i}][{name}].limits", limit, text))


Container = dict[str, Any]
Resources = dict[str, Any]


def check_resize(
    new: dict[str, Any], old: dict[str, Any], errs: Errors, options: PodOptions
) -> None:
    """What a resize may change: cpu and memory of containers, and of the pod."""
    spec, before = new["spec"], old["spec"]
    qos = (old.get("status") or {}).get("qosClass") or podutil.qos_class(old, options.pod_level)
    if qos != podutil.qos_class(new, options.pod_level):
        text = "Pod QOS Class may not change as a result of resizing"
        errs.append(invalid("spec", (new.get("status") or {}).get("qosClass", ""), text))
    if not _node_can_resize(old):
        errs.append(forbidden("spec", "Pod running on node without support for resize"))
    resized = dict(spec)
    if _has_resources(spec) or _has_resources(before):
        if not options.names_pod_level_gate:
            errs.clear()
            errs.append(forbidden("", "pods with pod-level resources cannot be resized"))
            return
        if not options.pod_level_resize:
            text = (
                "resize of pods with pod-level resources is forbidden when "
                "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
            )
            errs.append(forbidden("", text))
            return
        _check_pod_level(resized, before, errs)
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        text = "pods with node allocatable resource claims cannot be resized"
        errs.append(forbidden("spec", text))
    if not _check_order(spec, before, errs):
        return
    for kind in ("initContainers", "containers"):
        _check_removed(spec.get(kind) or [], before.get(kind) or [], kind, errs, options)
    resized["containers"] = _check_containers(spec["containers"], before["containers"], errs)
    if spec.get("initContainers"):
        resized["initContainers"] = _check_init_containers(
            spec["initContainers"], before["initContainers"], errs, options
        )
    if not errs and _comparable(resized) != _comparable(before):
        errs.append(forbidden("spec", _ONLY_CPU_AND_MEMORY))


def _comparable(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name != "serviceAccount"}


def _node_can_resize(pod: dict[str, Any]) -> bool:
    """A kubelet that resizes reports the resources of running containers."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if (status.get("state") or {}).get("running") is not None:
            return status.get("resources") is not None
    return True


def _has_resources(spec: dict[str, Any]) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _removed(new: Resources, old: Resources, kind: str) -> bool:
    kept = new.get(kind) or {}
    return any(name not in kept for name in old.get(kind) or ())


def _check_pod_level(resized: dict[str, Any], before: dict[str, Any], errs: Errors) -> None:
    new, old = resized.get("resources"), before.get("resources")
    if old is not None and new is None:
        errs.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
        return
    if old is not None and new is not None:
        for kind in ("requests", "limits"):
            if _removed(new, old, kind):
                text = f"pod-level resource {kind} cannot be removed"
                errs.append(forbidden(f"spec.resources.{kind}", text))
    kept = _with_old_amounts(new or {}, old or {}, keep_claims=True)
    if kept or old is not None:
        resized["resources"] = kept
    else:
        resized.pop("resources", None)
    if _plain(kept) != _plain(old or {}):
        errs.append(forbidden("spec", f"{_ONLY_CPU_AND_MEMORY} at pod-level"))


def _plain(resources: Resources) -> Resources:
    return {name: value for name, value in resources.items() if value}


def _with_old_amounts(new: Resources, old: Resources, *, keep_claims: bool = False) -> Resources:
    """The new resources with the old cpu and memory."""
    out: Resources = {}
    for kind in ("limits", "requests"):
        amounts = {
            name: text
            for name, text in (new.get(kind) or {}).items()
            if name not in ("cpu", "memory")
        }
        before = old.get(kind) or {}
        amounts.update({name: before[name] for name in ("cpu", "memory") if name in before})
        if amounts:
            out[kind] = amounts
    if keep_claims and new.get("claims"):
        out["claims"] = new["claims"]
    return out


def _check_order(spec: dict[str, Any], before: dict[str, Any], errs: Errors) -> bool:
    first = len(errs)
    for kind in ("containers", "initContainers"):
        new, old = spec.get(kind) or (), before.get(kind) or ()
        if len(new) != len(old):
            text = f"{kind} may not be added or removed on resize"
            errs.append(forbidden(f"spec.{kind}", text))
            continue
        for i, container in enumerate(old):
            if new[i].get("name") != container.get("name"):
                text = f"{kind} may not be renamed or reordered on resize"
                errs.append(forbidden(f"spec.{kind}[{i}].name", text))
    return len(errs) == first


def _check_removed(
    new: list[Container], old: list[Container], kind: str, errs: Errors, options: PodOptions
) -> None:
    for i, container in enumerate(old):
        sidecar = container.get("restartPolicy") == "Always"
        if kind == "initContainers" and not sidecar and not options.init_resize:
            continue
        now, then = new[i].get("resources") or {}, container.get("resources") or {}
        for field in ("requests", "limits"):
            if _removed(now, then, field):
                text = f"resource {field} cannot be removed"
                errs.append(forbidden(f"spec.{kind}[{i}].resources.{field}", text))
        if not options.memory_may_shrink:
            _check_memory_limit(new[i], container, f"spec.{kind}[{i}].resources", errs)


def _check_memory_limit(new: Container, old: Container, path: str, errs: Errors) -> None:
    """Without a restart, the limit of a running container cannot become smaller."""
    policies = {
        policy.get("resourceName"): policy.get("restartPolicy")
        for policy in new.get("resizePolicy") or ()
    }
    if policies.get("memory", "NotRequired") != "NotRequired":
        return
    now = ((new.get("resources") or {}).get("limits") or {}).get("memory")
    then = ((old.get("resources") or {}).get("limits") or {}).get("memory")
    if now is None:
        return
    verb = ""
    if then is None:
        verb = "added"
    elif parse_quantity(now) < parse_quantity(then):
        verb = "decreased"
    if verb:
        text = f"memory limits cannot be {verb} unless resizePolicy is RestartContainer"
        errs.append(forbidden(f"{path}.limits[memory]", text))


def _masked(new: Container, old: Container) -> Container:
    """A container with the cpu and memory of the old one."""
    kept = _with_old_amounts(new.get("resources") or {}, old.get("resources") or {})
    return {**new, "resources": kept}


def _same(new: Container, old: Container) -> bool:
    return {**new, "resources": _plain(new.get("resources") or {})} == {
        **old,
        "resources": _plain(old.get("resources") or {}),
    }


def _check_containers(new: list[Container], old: list[Container], errs: Errors) -> list[Container]:
    out = []
    for now, then in zip(new, old, strict=True):
        masked = _masked(now, then)
        if _same(masked, then):
            masked = then
        else:
            errs.append(forbidden("spec", _ONLY_CPU_AND_MEMORY))
        out.append(masked)
    return out


def _check_init_containers(
    new: list[Container], old: list[Container], errs: Errors, options: PodOptions
) -> list[Container]:
    out = []
    for i, (now, then) in enumerate(zip(new, old, strict=True)):
        sidecar, changed = now.get("restartPolicy") == "Always", not _same(now, then)
        if sidecar or options.init_resize:
            masked = _masked(now, then)
            path = f"spec.initContainers[{i}]"
            if _same(masked, then):
                masked = then
            else:
                kind = "init or sidecar" if options.init_resize else "sidecar"
                text = f"only cpu and memory resources for {kind} containers are mutable"
                errs.append(forbidden(path if options.init_resize else "spec", text))
            if changed and not sidecar:
                _check_restarting(now, path, errs)
            out.append(masked)
            continue
        if changed:
            text = "resources for non-sidecar init containers are immutable"
            errs.append(forbidden("spec", text))
        out.append(then if not changed else now)
    return out


def _check_restarting(container: Container, path: str, errs: Errors) -> None:
    for policy in container.get("resizePolicy") or ():
        if policy.get("restartPolicy") == "RestartContainer":
            text = (
                "non-sidecar init containers with a resize policy of RestartContainer cannot be "
                "resized"
            )
            errs.append(forbidden(path, text))
