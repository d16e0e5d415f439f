"""Pods: creation, the few changes an update may make, status and ephemeral containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.kit.goquote import go_quote
from transom.machinery.field import (
    duplicate,
    forbidden,
    internal_error,
    invalid,
    required,
)
from transom.machinery.validation.common import MAX_INT32, all_invalid
from transom.machinery.validation.containers import check_image_whitespace
from transom.machinery.validation.godiff import go_diff
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_object_meta, validate_object_meta_update
from transom.machinery.validation.names import (
    is_qualified_name,
    is_valid_ip,
    name_is_dns_subdomain,
    parse_ip,
    range_error,
)
from transom.machinery.validation.pod_annotations import (
    MIRROR,
    check_annotation_updates,
    check_pod_annotations,
    check_seccomp_agrees,
)
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
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def validate_pod(pod: Object) -> Errors:
    errs: Errors = []
    _check_metadata_and_spec(pod, errs)
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        errs.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    check_seccomp_agrees(_annotations(pod), spec, "spec", errs)
    return errs


def _annotations(pod: Object) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _check_metadata_and_spec(pod: Object, errs: Errors) -> None:
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    errs += validate_object_meta(meta, True, name_is_dns_subdomain, "metadata")
    annotations = meta.get("annotations")
    if annotations:
        check_pod_annotations(annotations, spec, "metadata.annotations", errs)
    check_pod_spec(spec, meta.get("name", ""), "spec", errs)
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


def validate_pod_update(new: Object, old: Object) -> Errors:
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    _check_metadata_and_spec(new, errs)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    check_annotation_updates(
        _annotations(new), _annotations(old), spec, "metadata.annotations", errs
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
        spec.get("tolerations") or [], before.get("tolerations") or [], "spec.tolerations", errs
    )
    check_only_deleted_gates(
        spec.get("schedulingGates") or [],
        before.get("schedulingGates") or [],
        "spec.schedulingGates",
        errs,
    )
    if spec == before:
        return errs
    munged = _munge(spec, before)
    if before.get("schedulingGates"):
        munged = _munge_gated(munged, before, errs)
    if munged != _without_alias(before):
        errs.append(
            forbidden(
                "spec", f"{_MAY_CHANGE}\n{go_diff('core.PodSpec', munged, _without_alias(before))}"
            )
        )
    return errs


def _without_alias(spec: dict[str, Any]) -> dict[str, Any]:
    """`serviceAccount` is an alias of `serviceAccountName`."""
    return {name: value for name, value in spec.items() if name != "serviceAccount"}


def _munge(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The new spec with all mutable fields reset to their old values."""
    munged = _without_alias(spec)
    for kind in ("containers", "initContainers"):
        if kind in munged:
            pairs = zip(munged[kind], before.get(kind) or (), strict=True)
            munged[kind] = [_with(now, "image", then) for now, then in pairs]
    for name in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        munged = _with(munged, name, before)
    return munged


def _with(obj: dict[str, Any], name: str, source: dict[str, Any]) -> dict[str, Any]:
    copy = {key: value for key, value in obj.items() if key != name}
    if name in source:
        copy[name] = source[name]
    return copy


def _munge_gated(munged: dict[str, Any], before: dict[str, Any], errs: Errors) -> dict[str, Any]:
    """A pod with scheduling gates may still narrow its node selection."""
    selector, old_selector = munged.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in old_selector.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errs.append(invalid("spec.nodeSelector", go_dump("map[string]string", selector), text))
    munged = _with(munged, "nodeSelector", before)
    old_affinity = before.get("affinity") or {}
    if _REQUIRED_AFFINITY not in (old_affinity.get("nodeAffinity") or ()):
        affinity = _with(munged.get("affinity") or {}, "nodeAffinity", old_affinity)
        munged = _with(
            munged, "affinity", {"affinity": affinity} if affinity or "affinity" in before else {}
        )
    return munged


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


def validate_pod_status_update(new: Object, old: Object) -> Errors:
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    status, old_status = new.get("status") or {}, old.get("status") or {}
    check_annotation_updates(
        _annotations(new), _annotations(old), spec, "metadata.annotations", errs
    )
    for i, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            all_invalid(is_qualified_name(kind), kind, f"metadata.conditions[{i}].Type", errs)
    if spec.get("nodeName", "") != before.get("nodeName", ""):
        errs.append(forbidden("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != old_status.get("nominatedNodeName", ""):
        all_invalid(
            name_is_dns_subdomain(nominated, False), nominated, "status.nominatedNodeName", errs
        )
    policy = before.get("restartPolicy", "")
    for kind in ("containerStatuses", "initContainerStatuses"):
        restartable = _sidecars(before) if kind == "initContainerStatuses" else frozenset[str]()
        _check_transitions(
            status.get(kind) or (), old_status.get(kind) or (), policy, restartable, kind, errs
        )
    addresses = _pod_ip_errors(status.get("podIPs") or [])
    if addresses and not _pod_ip_errors(old_status.get("podIPs") or []):
        errs += addresses
    return errs


def _sidecars(spec: dict[str, Any]) -> frozenset[str]:
    return frozenset(
        c.get("name", "")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    )


Statuses = Sequence[dict[str, Any]]


def _check_transitions(
    new: Statuses, old: Statuses, policy: str, restartable: frozenset[str], kind: str, errs: Errors
) -> None:
    """A container that has terminated for good must not run again."""
    if policy == "Always":
        return
    for i, before in enumerate(old):
        ended = (before.get("state") or {}).get("terminated")
        if ended is None or (ended.get("exitCode", 0) != 0 and policy == "OnFailure"):
            continue
        name = before.get("name", "")
        if name in restartable:
            continue
        for now in new:
            if now.get("name", "") == name and (now.get("state") or {}).get("terminated") is None:
                text = "may not be transitioned to non-terminated state"
                errs.append(forbidden(f"status.{kind}[{i}].state", text))


def _pod_ip_errors(addresses: list[dict[str, Any]]) -> Errors:
    errs: Errors = []
    path = "status.podIPs"
    texts = [address.get("ip", "") for address in addresses]
    for i, text in enumerate(texts):
        all_invalid(is_valid_ip(text), text, f"{path}[{i}]", errs)
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
                go_dump("[]core.PodIP", addresses),
                "may specify no more than one IP for each IP family",
            )
        )
    for i in sorted(repetitions(texts)):
        errs.append(duplicate(f"{path}[{i}]", go_dump("core.PodIP", addresses[i])))
    return errs


def validate_ephemeral_containers_update(new: Object, old: Object) -> Errors:
    """An update of the sub-resource: containers may be added, never changed or removed."""
    path = "spec.ephemeralContainers"
    if MIRROR in _annotations(old):
        return [forbidden("", "static pods do not support ephemeral containers")]
    errs = validate_object_meta_update(
        new.get("metadata") or {}, old.get("metadata") or {}, "metadata"
    )
    _check_metadata_and_spec(new, errs)
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
            errs.append(
                forbidden(path, f"{text}\n{go_diff('core.EphemeralContainer', before, now[name])}")
            )
    return errs


VALIDATORS = {
    "/Pod": ValidationRules(
        validate_pod,
        validate_pod_update,
        validate_pod_status_update,
        {"ephemeralcontainers": validate_ephemeral_containers_update},
    ),
}
