"""Pods: creation, the few changes an update may make, status and ephemeral containers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery.field import (
    duplicate,
    forbidden,
    internal_error,
    invalid,
    required,
)
from transom.machinery.podutil import all_containers_could_restart, container_should_restart
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.validation.addresses import legacy_ip
from transom.machinery.validation.common import MAX_INT32, all_invalid
from transom.machinery.validation.containers import check_image_whitespace
from transom.machinery.validation.godiff import describe_difference
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import (
    IMMUTABLE,
    is_qualified_name,
    name_is_dns_subdomain,
    parse_ip,
    range_error,
)
from transom.machinery.validation.pod_annotations import (
    MIRROR,
    check_annotation_updates,
    check_apparmor_agrees,
    check_pod_annotations,
    check_seccomp_agrees,
)
from transom.machinery.validation.pod_status import claim_status_errors, container_status_errors
from transom.machinery.validation.podoptions import (
    BASE_OPTIONS,
    PodOptions,
    pod_options,
    update_options,
)
from transom.machinery.validation.podresources import check_resize
from transom.machinery.validation.podspec import check_pod_spec
from transom.machinery.validation.repetitions import repetitions
from transom.machinery.validation.rules import Errors, Object, ValidationRules
from transom.machinery.validation.scheduling import (
    check_only_added_tolerations,
    check_only_deleted_gates,
)

_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)"
)
_GRACE_MAY_CHANGE = (
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_UPDATABLE = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    _GRACE_MAY_CHANGE,
)
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def validate_pod(pod: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    errs: Errors = []
    _check_metadata_and_spec(pod, errs, options)
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        errs.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if options.gates_block_node and spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        errs.append(forbidden("spec.nodeName", text))
    check_seccomp_agrees(_annotations(pod), spec, "spec", errs)
    if options.apparmor_fields:
        check_apparmor_agrees(_annotations(pod), spec, "spec", errs)
    return errs


def _annotations(pod: Object) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _check_metadata_and_spec(pod: Object, errs: Errors, options: PodOptions) -> None:
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    errs += validate_object_meta(meta, True, name_is_dns_subdomain, "metadata")
    annotations = meta.get("annotations")
    if annotations:
        check_pod_annotations(annotations, spec, "metadata.annotations", errs, options)
    check_pod_spec(spec, meta.get("name", ""), "spec", errs, options)
    if not spec.get("serviceAccountName"):
        _check_no_tokens(spec.get("volumes") or [], errs)
    check_image_whitespace(spec.get("containers") or [], "spec.containers", errs)
    check_image_whitespace(spec.get("initContainers") or [], "spec.initContainers", errs)


def _check_no_tokens(volumes: list[dict[str, Any]], errs: Errors) -> None:
    for i, volume in enumerate(volumes):
        for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if "serviceAccountToken" in source:
                errs.append(
                    forbidden(
                        f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken",
                        "must not be specified when serviceAccountName is not set",
                    )
                )


def _for_update(options: PodOptions, old: Object) -> PodOptions:
    changed = update_options(options, old.get("spec") or {})
    if changed.checks_deletion_cost:
        before: Errors = []
        check_pod_annotations(_annotations(old), old.get("spec") or {}, "", before, changed)
        if any(error.detail == "must be a 32bit integer" for error in before):
            changed = changed._replace(checks_deletion_cost=False)
    return changed


def validate_pod_update(new: Object, old: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    options = _for_update(options, old)
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    _check_metadata_and_spec(new, errs, options)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    check_annotation_updates(
        _annotations(new), _annotations(old), spec, "metadata.annotations", errs, options
    )
    for kind in ("containers", "initContainers"):
        if not _check_container_updates(
            spec.get(kind) or [], before.get(kind) or [], f"spec.{kind}", errs
        ):
            return errs
    if not _check_deadline(
        spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"), errs
    ):
        return errs
    check_only_added_tolerations(
        spec.get("tolerations") or [],
        before.get("tolerations") or [],
        "spec.tolerations",
        errs,
        options,
    )
    check_only_deleted_gates(
        spec.get("schedulingGates") or [],
        before.get("schedulingGates") or [],
        "spec.schedulingGates",
        errs,
    )
    if spec == before:
        return errs
    munged = _munge(spec, before, options)
    if before.get("schedulingGates"):
        munged = _munge_gated(munged, before, errs, options)
    stored = _without_alias(before)
    if munged != stored:
        first, second = (stored, munged) if options.old_first else (munged, stored)
        difference = describe_difference(options.release, "core.PodSpec", first, second)
        errs.append(forbidden("spec", f"{_may_change(options)}\n{difference}"))
    return errs


def _may_change(options: PodOptions) -> str:
    if options.lists_fields:
        return f"pod updates may not change fields other than {','.join(_UPDATABLE)}"
    if options.unset_grace:
        return _MAY_CHANGE.replace("` or `", "`, `") + f" or {_GRACE_MAY_CHANGE}"
    return _MAY_CHANGE


def _without_alias(spec: dict[str, Any]) -> dict[str, Any]:
    """`serviceAccount` is an alias of `serviceAccountName`."""
    return {name: value for name, value in spec.items() if name != "serviceAccount"}


def _munge(spec: dict[str, Any], before: dict[str, Any], options: PodOptions) -> dict[str, Any]:
    """The new spec with all mutable fields reset to their old values."""
    munged = _without_alias(spec)
    for kind in ("containers", "initContainers"):
        if kind in munged:
            pairs = zip(munged[kind], before.get(kind) or (), strict=True)
            munged[kind] = [_with(now, "image", then) for now, then in pairs]
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        munged = _with(munged, name, before)
    grace = "terminationGracePeriodSeconds"
    if options.unset_grace and before.get(grace, 0) < 0 and munged.get(grace) == 1:
        munged = _with(munged, grace, before)
    return munged


def _with(obj: dict[str, Any], name: str, source: dict[str, Any]) -> dict[str, Any]:
    copy = {key: value for key, value in obj.items() if key != name}
    if name in source:
        copy[name] = source[name]
    return copy


def _munge_gated(
    munged: dict[str, Any], before: dict[str, Any], errs: Errors, options: PodOptions
) -> dict[str, Any]:
    """A pod with scheduling gates may still narrow its node selection."""
    selector, old_selector = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in old_selector.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errs.append(invalid("spec.nodeSelector", go_dump("map[string]string", selector), text))
    munged = _with(munged, "nodeSelector", before)
    old_affinity = before.get("affinity") or {}
    required_before = _REQUIRED_AFFINITY in (old_affinity.get("nodeAffinity") or ())
    if required_before and not options.free_node_affinity:
        return munged
    if required_before:
        affinity = (munged.get("affinity") or {}).get("nodeAffinity") or {}
        _check_narrowed(affinity, old_affinity["nodeAffinity"], errs)
    affinity = _with(munged.get("affinity") or {}, "nodeAffinity", old_affinity)
    return _with(
        munged, "affinity", {"affinity": affinity} if affinity or "affinity" in before else {}
    )


def _check_narrowed(new: dict[str, Any], old: dict[str, Any], errs: Errors) -> None:
    """Required terms may only get more requirements."""
    path = f"spec.affinity.nodeAffinity.{_REQUIRED_AFFINITY}.nodeSelectorTerms"
    terms = (new.get(_REQUIRED_AFFINITY) or {}).get("nodeSelectorTerms") or []
    old_terms = (old.get(_REQUIRED_AFFINITY) or {}).get("nodeSelectorTerms") or []
    if old_terms and len(terms) != len(old_terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errs.append(invalid(path, go_dump("[]core.NodeSelectorTerm", terms), text))
        return
    for i, (term, before) in enumerate(zip(terms, old_terms, strict=False)):
        if not _only_adds(term, before):
            shown = go_dump("core.NodeSelectorTerm", term)
            text = "only additions are allowed (no mutations or deletions)"
            errs.append(invalid(f"{path}[{i}]", shown, text))


def _only_adds(term: dict[str, Any], before: dict[str, Any]) -> bool:
    parts = ("matchExpressions", "matchFields")
    if not any(before.get(part) for part in parts):
        return not any(term.get(part) for part in parts)
    return all(
        (term.get(part) or [])[: len(before.get(part) or [])] == (before.get(part) or [])
        for part in parts
    )


def _check_container_updates(
    new: list[dict[str, Any]], old: list[dict[str, Any]], path: str, errs: Errors
) -> bool:
    """Returns False if the lists cannot be compared any further."""
    if len(new) != len(old):
        errs.append(forbidden(path, "pod updates may not add or remove containers"))
        return False
    for i, container in enumerate(new):
        if not container.get("image"):
            errs.append(required(f"{path}[{i}].image"))
    check_image_whitespace(new, path, errs)
    return True


def _check_deadline(new: int | None, old: int | None, errs: Errors) -> bool:
    """The deadline may be set and shortened. Returns False if the change is invalid and no other
    error applies.
    """
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            errs.append(invalid(path, None, "must not update from a positive integer to nil value"))
        return True
    if not 0 <= new <= MAX_INT32:
        errs.append(invalid(path, new, range_error(0, MAX_INT32)))
        return False
    if old is not None and old < new:
        errs.append(invalid(path, new, "must be less than or equal to previous value"))
        return False
    return True


def validate_pod_status_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    status, old_status = new.get("status") or {}, old.get("status") or {}
    options = _for_update(options, old)
    check_annotation_updates(
        _annotations(new), _annotations(old), spec, "metadata.annotations", errs, options
    )
    _check_conditions(status.get("conditions") or (), errs, options)
    if spec.get("nodeName", "") != before.get("nodeName", ""):
        errs.append(forbidden("status.nodeName", "may not be changed directly"))
    _check_nomination(status, old_status, before, errs, options)
    if options.checks_generation and status.get("observedGeneration", 0) < 0:
        path, number = "status.observedGeneration", status["observedGeneration"]
        errs.append(invalid(path, number, _NOT_NEGATIVE))
    if options.checks_qos and status.get("qosClass", "") != old_status.get("qosClass", ""):
        errs.append(invalid("status.qosClass", status.get("qosClass", ""), IMMUTABLE))
    for kind in ("containerStatuses", "initContainerStatuses"):
        check_state_transitions(
            status.get(kind) or (), old_status.get(kind) or (), before, kind, errs, options
        )
    if options.checks_debug_states:
        kind = "ephemeralContainerStatuses"
        _check_ended(status.get(kind) or (), old_status.get(kind) or (), kind, errs)
    if options.newer:
        errs += claim_status_errors(status, spec)
    for field, go_type in (("podIPs", "core.PodIP"), ("hostIPs", "core.HostIP")):
        if field == "hostIPs" and not options.checks_host_ips:
            continue
        errs += _changed_ip_errors(status, old_status, field, go_type, options)
    return errs + container_status_errors(status, spec) if options.newer else errs


_NOT_NEGATIVE = "must be a non-negative integer"


def _check_conditions(conditions: Sequence[Object], errs: Errors, options: PodOptions) -> None:
    path = "status.conditions" if options.newer else "metadata.conditions"
    for i, condition in enumerate(conditions):
        kind, generation = condition.get("type", ""), condition.get("observedGeneration", 0)
        if options.checks_generation and generation < 0:
            where = f"{path}[{i}].observedGeneration"
            errs.append(invalid(where, generation, _NOT_NEGATIVE))
        if kind not in _SYSTEM_CONDITIONS:
            all_invalid(is_qualified_name(kind), kind, f"{path}[{i}].Type", errs)


def _check_nomination(
    status: Object, old_status: Object, before: Object, errs: Errors, options: PodOptions
) -> None:
    nominated = status.get("nominatedNodeName", "")
    if not nominated or nominated == old_status.get("nominatedNodeName", ""):
        return
    all_invalid(
        name_is_dns_subdomain(nominated, False), nominated, "status.nominatedNodeName", errs
    )
    if options.clears_nomination and before.get("nodeName"):
        text = "may not be set on pods that are already bound to a node"
        errs.append(forbidden("status.nominatedNodeName", text))


def _sidecars(spec: dict[str, Any]) -> frozenset[str]:
    return frozenset(
        c.get("name", "")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    )


Statuses = Sequence[dict[str, Any]]


_STAYS_ENDED = "may not be transitioned to non-terminated state"


def check_state_transitions(
    new: Statuses, old: Statuses, spec: Object, kind: str, errs: Errors, options: PodOptions
) -> None:
    """A container that has terminated for good must not run again."""
    containers = "containers" if kind == "containerStatuses" else "initContainers"
    by_name = {c.get("name", ""): c for c in spec.get(containers) or ()}
    policy = spec.get("restartPolicy", "")
    if options.restart_rules:
        if options.restart_all and all_containers_could_restart(spec):
            return
    elif policy == "Always":
        return
    restartable = _sidecars(spec) if kind == "initContainerStatuses" else frozenset[str]()
    for i, before in enumerate(old):
        ended, name = (before.get("state") or {}).get("terminated"), before.get("name", "")
        if ended is None:
            continue
        code = ended.get("exitCode", 0)
        if options.restart_rules:
            if name in by_name and container_should_restart(
                by_name[name], policy, code, restart_all=options.restart_all
            ):
                continue
        elif (code != 0 and policy == "OnFailure") or name in restartable:
            continue
        for now in new:
            if now.get("name", "") == name and (now.get("state") or {}).get("terminated") is None:
                errs.append(forbidden(f"status.{kind}[{i}].state", _STAYS_ENDED))


def _check_ended(new: Statuses, old: Statuses, kind: str, errs: Errors) -> None:
    """Ephemeral containers never run again."""
    for i, before in enumerate(old):
        if (before.get("state") or {}).get("terminated") is None:
            continue
        for now in new:
            same = now.get("name", "") == before.get("name", "")
            if same and (now.get("state") or {}).get("terminated") is None:
                errs.append(forbidden(f"status.{kind}[{i}].state", _STAYS_ENDED))


def _changed_ip_errors(
    status: Object, old_status: Object, field: str, go_type: str, options: PodOptions
) -> Errors:
    """Older releases accept any change of a status whose addresses were already invalid, newer ones
    each stored address.
    """
    if has_behaviour(options.release, "LegacyAddressErrors"):
        known = {address.get("ip", "") for address in old_status.get(field) or ()}
        return _ip_errors(status, field, go_type, known, strict=options.strict_addresses)
    errs = _ip_errors(status, field, go_type)
    return [] if errs and _ip_errors(old_status, field, go_type) else errs


def _ip_errors(
    status: Object,
    field: str,
    go_type: str,
    known: Collection[str] = (),
    *,
    strict: bool = False,
) -> Errors:
    errs: Errors = []
    path = f"status.{field}"
    addresses = status.get(field) or []
    texts = [address.get("ip", "") for address in addresses]
    if field == "hostIPs" and texts and texts[0] != status.get("hostIP", ""):
        errs.append(invalid(f"{path}[0].ip", texts[0], "must be equal to `hostIP`"))
    for i, text in enumerate(texts):
        errs += legacy_ip(text, f"{path}[{i}]", strict=strict, old=known)
    if len(texts) < 2:
        return errs
    parsed = [parse_ip(text) for text in texts]
    for text, address in zip(texts, parsed, strict=True):
        if address is None:
            errs.append(
                internal_error(
                    path, f"failed to check for dual stack with error:ip {text} is invalid"
                )
            )
            break
    families = {address.version for address in parsed if address is not None}
    if None in parsed or len(families) < 2 or len(texts) > 2:
        errs.append(
            invalid(
                path,
                go_dump(f"[]{go_type}", addresses),
                "may specify no more than one IP for each IP family",
            )
        )
    for i in sorted(repetitions(texts)):
        errs.append(duplicate(f"{path}[{i}]", go_dump(go_type, addresses[i])))
    return errs


def validate_ephemeral_containers_update(
    new: Object, old: Object, options: PodOptions = BASE_OPTIONS
) -> Errors:
    """An update of the sub-resource: containers may be added, never changed or removed."""
    path = "spec.ephemeralContainers"
    if MIRROR in _annotations(old):
        return [forbidden("[]", "static pods do not support ephemeral containers")]
    options = _for_update(options, old)
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    _check_metadata_and_spec(new, errs, options)
    now = {c.get("name", ""): c for c in (new.get("spec") or {}).get("ephemeralContainers") or ()}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = before.get("name", "")
        if name not in now:
            errs.append(
                forbidden(
                    path, f"existing ephemeral containers {go_quote(name)} may not be removed\n"
                )
            )
        elif now[name] != before:
            text = f"existing ephemeral containers {go_quote(name)} may not be changed"
            difference = describe_difference(
                options.release, "core.EphemeralContainer", before, now[name]
            )
            errs.append(forbidden(path, f"{text}\n{difference}"))
    return errs


def validate_pod_resize(new: Object, old: Object, options: PodOptions = BASE_OPTIONS) -> Errors:
    options = _for_update(options, old)
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    _check_metadata_and_spec(new, errs, options)
    if MIRROR in _annotations(old):
        return [forbidden("[]", "static pods cannot be resized")]
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return [forbidden("[]", "windows pods cannot be resized")]
    check_resize(new, old, errs, options)
    return errs


def pod_rules(features: FeatureSet) -> ValidationRules:
    options = pod_options(features)
    if options.newer:
        options = options._replace(in_pod=True)
    return ValidationRules(
        partial(validate_pod, options=options),
        partial(validate_pod_update, options=options),
        partial(validate_pod_status_update, options=options),
        {
            "ephemeralcontainers": partial(validate_ephemeral_containers_update, options=options),
            "resize": partial(validate_pod_resize, options=options),
        },
    )


VALIDATORS = {"/Pod": pod_rules}
