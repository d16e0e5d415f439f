"""Pods: initial status, fields behind gates that are disabled, graceful deletion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies.base import StorageRules, Strategy
from transom.kit.clock import rfc3339
from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.releases import has_tables
from transom.machinery.releases.behaviour import has_behaviour

# The releases that added these fields of pods; earlier API servers do not know them.
# The fields of specs and of containers that depend on feature gates, or hold one that does.
_GATED_FIELDS = frozenset(("ephemeralContainers", "hostUsers", "os"))
_GATED_IN_CONTAINERS = frozenset(
    ("lifecycle", "livenessProbe", "readinessProbe", "securityContext", "startupProbe")
)
_GATED = "Scheduling is blocked due to non-empty scheduling gates"
_METADATA_OF_SUBRESOURCES = (
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "labels",
    "annotations",
    "ownerReferences",
    "selfLink",
)


def drop_disabled_pod_fields(
    storage: StorageRules, template: Object | None, old: Object | None
) -> None:
    """Fields that the API server drops unless the stored object already has them."""
    spec = (template or {}).get("spec")
    if not spec:
        return
    old_spec = (old or {}).get("spec") or {}
    if has_tables(storage.release):
        _drop_gated_fields(storage, spec, old_spec)
        return
    if "ephemeralContainers" in spec and not old_spec.get("ephemeralContainers"):
        del spec["ephemeralContainers"]
    spec.pop("os", None)
    _drop_host_process(spec)
    if not _uses_inline_csi(old_spec):
        for volume in spec.get("volumes") or ():
            volume.pop("ephemeral", None)
    _drop_proc_mount(spec, old_spec)


def _drop_gated_fields(storage: StorageRules, spec: Object, old: Object) -> None:
    """Fields whose gate is not part of their type. Few pods have any of them."""
    if (
        _GATED_FIELDS.isdisjoint(spec)
        and not spec.get("securityContext")
        and all(_GATED_IN_CONTAINERS.isdisjoint(c) for c in podutil.visit_containers(spec))
    ):
        return
    if not storage.feature("EphemeralContainers") and not old.get("ephemeralContainers"):
        spec.pop("ephemeralContainers", None)
    if not storage.feature("IdentifyPodOS") and "os" not in old:
        spec.pop("os", None)
    if not storage.feature("WindowsHostProcessContainers"):
        _drop_host_process(spec)
    users = storage.feature("UserNamespacesSupport") or storage.feature(
        "UserNamespacesStatelessPodsSupport"
    )
    if not users and "hostUsers" not in old:
        spec.pop("hostUsers", None)
    if not storage.feature("ProcMountType"):
        _drop_proc_mount(spec, old)
    if not storage.feature("ContainerStopSignals") and not any(_hooks(old, "stopSignal")):
        for hooks in _hooks(spec, "stopSignal"):
            del hooks["stopSignal"]
        for container in podutil.visit_containers(spec):
            if container.get("lifecycle") == {}:
                del container["lifecycle"]
    if not storage.feature("ProbeTerminationGracePeriod") and not any(_graceful_probes(old)):
        for probe in _graceful_probes(spec):
            del probe["terminationGracePeriodSeconds"]


def _hooks(spec: Object, name: str) -> Iterator[Object]:
    for container in podutil.visit_containers(spec):
        hooks = container.get("lifecycle") or {}
        if name in hooks:
            yield hooks


def _graceful_probes(spec: Object) -> Iterator[Object]:
    for container in podutil.visit_containers(spec):
        for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
            probe = container.get(kind) or {}
            if "terminationGracePeriodSeconds" in probe:
                yield probe


def _drop_host_process(spec: Object) -> None:
    for holder in (spec, *podutil.visit_containers(spec)):
        options = (holder.get("securityContext") or {}).get("windowsOptions")
        if options:
            options.pop("hostProcess", None)


def _drop_proc_mount(spec: Object, old: Object) -> None:
    for container in podutil.visit_containers(spec):
        context = container.get("securityContext")
        if context and "procMount" in context and not _uses_proc_mount(old):
            context["procMount"] = "Default"  # not dropped: 1.12 always stored it


def _uses_proc_mount(spec: Object) -> bool:
    return any(
        (c.get("securityContext") or {}).get("procMount") not in (None, "Default")
        for c in podutil.visit_containers(spec)
    )


def _uses_inline_csi(spec: Object) -> bool:
    return any(volume.get("csi") is not None for volume in spec.get("volumes") or ())


def _create(storage: StorageRules, ctx: RequestContext, obj: Object) -> None:
    pod_level = "resources" in obj["spec"] and storage.feature("PodLevelResources")
    obj["status"] = {"phase": "Pending", "qosClass": podutil.qos_class(obj, pod_level)}
    drop_disabled_pod_fields(storage, obj, None)
    if not has_behaviour(storage.release, "NoSeccompAnnotations"):
        podutil.sync_seccomp(obj)
    if has_behaviour(storage.release, "PodGeneration"):
        obj["metadata"]["generation"] = 1
    if obj["spec"].get("schedulingGates") and has_behaviour(storage.release, "GatedCondition"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": rfc3339(ctx.now),
                "reason": "SchedulingGated",
                "message": _GATED,
            }
        ]
    spec = obj["spec"]
    if spec.get("affinity") and storage.feature("MatchLabelKeysInPodAffinity"):
        _merge_affinity_keys(obj)
    if (
        (constraints := spec.get("topologySpreadConstraints"))
        and storage.feature("MatchLabelKeysInPodTopologySpread")
        and storage.feature("MatchLabelKeysInPodTopologySpreadSelectorMerge")
    ):
        for constraint in constraints:
            _merge_label_keys(constraint, obj["metadata"].get("labels") or {})
    if has_behaviour(storage.release, "AppArmorFields"):
        for warning in podutil.sync_apparmor(obj):
            ctx.warn(warning)


def _merge_affinity_keys(pod: Object) -> None:
    affinity, labels = pod["spec"].get("affinity"), pod["metadata"].get("labels") or {}
    if not affinity:
        return
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_label_keys(weighted.get("podAffinityTerm") or {}, labels)
        for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_label_keys(term, labels)


def _merge_label_keys(holder: Object, labels: Mapping[str, str]) -> None:
    """Adds an expression for each label key whose label the pod has."""
    selector = holder.get("labelSelector")
    if selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in holder.get(field) or ()
        if key in labels
    ]
    if added:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def _update(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    drop_disabled_pod_fields(storage, new, old)
    _update_generation(storage, new, old)


def _update_generation(storage: StorageRules, new: Object, old: Object) -> None:
    if has_behaviour(storage.release, "PodGeneration") and new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _status(storage: StorageRules, _ctx: RequestContext, new: Object, old: Object) -> None:
    new["metadata"].pop("deletionTimestamp", None)
    if "ownerReferences" in old["metadata"]:
        new["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
    else:
        new["metadata"].pop("ownerReferences", None)
    status, before = new.setdefault("status", {}), old.get("status") or {}
    if has_behaviour(storage.release, "ImmutableQos") and "qosClass" in before:
        status.setdefault("qosClass", before["qosClass"])
    if has_behaviour(storage.release, "PodGeneration"):
        _keep_generations(status, before)


def _keep_generations(status: Object, before: Object) -> None:
    """Writers that do not know observed generations leave them out."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        number = condition.get("observedGeneration", 0)
        known.setdefault(condition.get("type", ""), []).append(number)
    for condition in status.get("conditions") or ():
        numbers = known.get(condition.get("type", ""))
        number = numbers.pop(0) if numbers else 0
        if number and not condition.get("observedGeneration"):
            condition["observedGeneration"] = number


def keep_object_metadata(new: Object, old: Object) -> None:
    """A subresource that changes a part of the spec does not change the metadata that users set."""
    for name in _METADATA_OF_SUBRESOURCES:
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]
        else:
            new["metadata"].pop(name, None)


def prepare_ephemeral(storage: StorageRules, _ctx: object, new: Object, old: Object) -> None:
    """The subresource changes that list only."""
    added = (new.get("spec") or {}).get("ephemeralContainers")
    new["spec"] = {k: v for k, v in old["spec"].items() if k != "ephemeralContainers"}
    if added:
        new["spec"]["ephemeralContainers"] = added
    new["status"] = old.get("status") or {}
    if has_tables(storage.release):
        keep_object_metadata(new, old)
        drop_disabled_pod_fields(storage, new, old)
        _update_generation(storage, new, old)


def prepare_resize(storage: StorageRules, _ctx: object, new: Object, old: Object) -> None:
    """The subresource changes resources and resize policies only. Changes of the list of
    containers stay, for validation to reject.
    """
    spec, before = new["spec"], old["spec"]
    kinds = ("containers", "initContainers")
    if all(len(spec.get(kind) or ()) == len(before.get(kind) or ()) for kind in kinds):
        kept = dict(before)
        if storage.feature("InPlacePodLevelResourcesVerticalScaling"):
            kept.pop("resources", None)
            if "resources" in spec:
                kept["resources"] = spec["resources"]
        for kind in kinds:
            if spec.get(kind):
                kept[kind] = _resized(spec[kind], before[kind])
        new["spec"] = kept
        new["status"] = old.get("status") or {}
        keep_object_metadata(new, old)
    drop_disabled_pod_fields(storage, new, old)
    _update_generation(storage, new, old)


def _resized(new: list[Object], old: list[Object]) -> list[Object]:
    if any(now.get("name") != then.get("name") for now, then in zip(new, old, strict=True)):
        return new
    fields = ("resources", "resizePolicy")
    return [
        {**then, **{name: now[name] for name in fields if name in now}}
        for now, then in zip(new, old, strict=True)
    ]


def _grace_period(pod: Object, requested: int | None) -> int:
    """Pods without a node and terminated pods are deleted without a grace period."""
    period = requested
    spec = pod.get("spec") or {}
    if period is None:
        period = spec.get("terminationGracePeriodSeconds", 0)
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in (
        "Failed",
        "Succeeded",
    ):
        return 0
    return period


STRATEGY = Strategy(
    return_deleted=True,
    pure=True,
    on_create=_create,
    on_update=_update,
    on_status=_status,
    grace_period=_grace_period,
)
