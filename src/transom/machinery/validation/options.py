"""Options of a request (query parameters, the body of a DELETE) as dicts in their JSON shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.meta import validate_field_manager
from transom.machinery.validation.names import NEGATIVE
from transom.machinery.validation.rules import Errors

Options = Mapping[str, Any]
APPLY_PATCH = "application/apply-patch+yaml"
_POLICIES = ("Foreground", "Background", "Orphan")
_MATCHES = ("Exact", "NotOlderThan")


def validate_dry_run(values: Sequence[str] | None, path: str = "dryRun") -> Errors:
    if all(value == "All" for value in values or ()):
        return []
    return [not_supported(path, go_dump("[]string", values), ("All",))]


_FIELD_VALIDATION = ("", "Ignore", "Strict", "Warn")


def validate_create_options(options: Options) -> Errors:
    errors = validate_field_manager(options.get("fieldManager", ""), "fieldManager")
    return errors + validate_dry_run(options.get("dryRun"))


def validate_field_validation(options: Options) -> Errors:
    """For releases that have `fieldValidation`."""
    level = options.get("fieldValidation", "")
    if level in _FIELD_VALIDATION:
        return []
    return [not_supported("fieldValidation", level, _FIELD_VALIDATION)]


def validate_patch_options(options: Options, patch_type: str) -> Errors:
    manager = options.get("fieldManager", "")
    errors: Errors = []
    if patch_type != APPLY_PATCH:
        if options.get("force") is not None:
            errors.append(forbidden("force", "may not be specified for non-apply patch"))
    elif not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    return (
        errors
        + validate_field_manager(manager, "fieldManager")
        + validate_dry_run(options.get("dryRun"))
    )


def validate_delete_options(options: Options) -> Errors:
    policy = options.get("propagationPolicy")
    errors: Errors = []
    if policy is not None:
        if options.get("orphanDependents") is not None:
            errors.append(
                invalid(
                    "propagationPolicy",
                    policy,
                    "orphanDependents and deletionPropagation cannot be both set",
                )
            )
        if policy not in _POLICIES:
            errors.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return errors + validate_dry_run(options.get("dryRun"))


def validate_list_options(options: Options) -> Errors:
    match, version, path = (
        options.get("resourceVersionMatch"),
        options.get("resourceVersion"),
        "resourceVersionMatch",
    )
    if not match:
        return []
    errors: Errors = []
    if options.get("watch"):
        errors.append(forbidden(path, f"{path} is forbidden for watch"))
    if not version:
        errors.append(forbidden(path, f"{path} is forbidden unless resourceVersion is provided"))
    if options.get("continue"):
        errors.append(forbidden(path, f"{path} is forbidden when continue is provided"))
    if match not in _MATCHES:
        errors.append(not_supported(path, match, (*_MATCHES, "")))
    if match == "Exact" and version == "0":
        errors.append(forbidden(path, f'{path} "exact" is forbidden for resourceVersion "0"'))
    return errors


def validate_newer_list_options(options: Options, watch_list: bool) -> Errors:
    """Since 1.27: a watch has rules of its own. `watch_list`: whether the feature WatchList is on."""
    path, match = "resourceVersionMatch", options.get("resourceVersionMatch") or ""
    initial = options.get("sendInitialEvents")
    if not options.get("watch"):
        errors = validate_list_options(options)
        if initial is not None:
            errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return errors
    errors = []
    if watch_list and initial is None and not match:
        # Since the same release, such a watch from the current state asks for initial events.
        if options.get("continue") and options.get("resourceVersion") in (None, "", "0"):
            errors.append(forbidden(path, f"{path} is forbidden when continue is provided"))
        return errors
    if initial is not None and match != "NotOlderThan":
        errors.append(forbidden(path, f"sendInitialEvents requires setting {path} to NotOlderThan"))
    if initial is not None and not watch_list:
        text = (
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        )
        errors.append(forbidden("sendInitialEvents", text))
    if match:
        if initial is None:
            text = f"{path} is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden(path, text))
        if match != "NotOlderThan":
            errors.append(not_supported(path, match, ("NotOlderThan",)))
        if options.get("continue"):
            errors.append(forbidden(path, f"{path} is forbidden when continue is provided"))
    return errors


def validate_pod_log_options(options: Options) -> Errors:
    tail, limit, seconds = (
        options.get("tailLines"),
        options.get("limitBytes"),
        options.get("sinceSeconds"),
    )
    errors: Errors = []
    if tail is not None and tail < 0:
        errors.append(invalid("tailLines", tail, NEGATIVE))
    if limit is not None and limit < 1:
        errors.append(invalid("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and options.get("sinceTime") is not None:
        errors.append(
            forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        )
    elif seconds is not None and seconds < 1:
        errors.append(invalid("sinceSeconds", seconds, "must be greater than 0"))
    return errors
