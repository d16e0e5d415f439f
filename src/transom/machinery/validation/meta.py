"""Rules of `metadata` that every kind shares, and of label selectors and conditions.

It does not depend on kinds: the caller passes whether the object is namespaced and the rule for its
name.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.kit.caching import text_cache
from transom.kit.goquote import go_quote
from transom.machinery.field import (
    FieldError,
    GoText,
    SelectorValueError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.names import (
    IMMUTABLE,
    NEGATIVE,
    NameRule,
    byte_len,
    is_condition_reason,
    is_label_value,
    is_qualified_name,
    name_is_dns1035_label,
    name_is_dns_label,
)

ANNOTATIONS_LIMIT = 256 * 1024
FIELD_MANAGER_LIMIT = 128
STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))


def nonnegative(value: int, path: str) -> list[FieldError]:
    return [invalid(path, value, NEGATIVE)] if value < 0 else []


def immutable(new: Any, old: Any, path: str, shown: Any = None) -> list[FieldError]:
    """`shown` is the printed form of the new value, if that is not the value itself."""
    return [] if new == old else [invalid(path, new if shown is None else shown, IMMUTABLE)]


def validate_label_name(name: str, path: str) -> list[FieldError]:
    return [invalid(path, name, text) for text in is_qualified_name(name)]


@text_cache(16384)
def _good_key(key: str) -> bool:
    """Label keys and values repeat; valid ones are checked once."""
    return not is_qualified_name(key)


@text_cache(16384)
def _good_label_value(value: str) -> bool:
    return not is_label_value(value)


def validate_labels(labels: Mapping[str, str] | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in labels.items() if labels else ():
        if not _good_key(key):
            errors += [invalid(path, key, text) for text in is_qualified_name(key)]
        if not _good_label_value(value):
            errors += [invalid(path, value, text) for text in is_label_value(value)]
    return errors


def validate_annotations(annotations: Mapping[str, str] | None, path: str) -> list[FieldError]:
    if not annotations:
        return []
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        if not _good_key(key) and not _good_key(key.lower()):
            errors += [invalid(path, key, text) for text in is_qualified_name(key.lower())]
        size += byte_len(key) + byte_len(value)
    if size > ANNOTATIONS_LIMIT:
        errors.append(too_long(path, "", ANNOTATIONS_LIMIT))
    return errors


def _owner(ref: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    api_version, kind = ref.get("apiVersion", ""), ref.get("kind", "")
    # An apiVersion of three or more parts parses to nothing.
    version = api_version.rpartition("/")[2] if api_version.count("/") < 2 else ""
    if not version:
        errors.append(invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
    if not kind:
        errors.append(invalid(f"{path}.kind", kind, "kind must not be empty"))
    for name in ("name", "uid"):
        if not ref.get(name):
            errors.append(invalid(f"{path}.{name}", "", f"{name} must not be empty"))
    if api_version.removeprefix("/") == "v1" and kind == "Event":
        errors.append(
            invalid(
                path,
                go_dump("v1.OwnerReference", ref),
                "/v1, Kind=Event is disallowed from being an owner",
            )
        )
    return errors


def validate_owner_references(
    refs: Sequence[Mapping[str, Any]] | None, path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    shown: GoText | None = None  # all references, formatted once for any number of errors
    for ref in refs or ():
        errors += _owner(ref, path)
        if ref.get("controller"):
            if controller:
                shown = shown or go_dump("[]v1.OwnerReference", refs)
                errors.append(
                    invalid(
                        path,
                        shown,
                        'Only one reference can have Controller set to true. Found "true" in '
                        "references for "
                        f"{controller} and {ref.get('name', '')}",
                    )
                )
            else:
                controller = ref.get("name", "")
    return errors


def validate_finalizer_name(name: str, path: str) -> list[FieldError]:
    return [invalid(path, name, text) for text in is_qualified_name(name)]


def validate_finalizers(finalizers: Sequence[str] | None, path: str) -> list[FieldError]:
    if not finalizers:
        return []
    errors = [error for name in finalizers for error in validate_finalizer_name(name, path)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        errors.append(
            invalid(
                path,
                go_dump("[]string", finalizers),
                "finalizer orphan and foregroundDeletion cannot be both set",
            )
        )
    return errors


def validate_field_manager(manager: str, path: str) -> list[FieldError]:
    if manager.isprintable() and len(manager) <= FIELD_MANAGER_LIMIT and manager.isascii():
        return []
    errors = (
        [too_long(path, manager, FIELD_MANAGER_LIMIT)]
        if byte_len(manager) > FIELD_MANAGER_LIMIT
        else []
    )
    position = 0
    for char in manager:
        if not char.isprintable():
            errors.append(
                invalid(
                    path, manager, f"invalid character U+{ord(char):04X} (at position {position})"
                )
            )
        position += byte_len(char)
    return errors


def validate_managed_fields(
    entries: Sequence[Mapping[str, Any]] | None, path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    for entry in entries or ():
        operation, fields_type = entry.get("operation", ""), entry.get("fieldsType", "")
        if operation not in ("Apply", "Update"):
            errors.append(invalid(f"{path}.operation", operation, "must be `Apply` or `Update`"))
        if fields_type and fields_type != "FieldsV1":
            errors.append(invalid(f"{path}.fieldsType", fields_type, "must be `FieldsV1`"))
    return errors


def go_time(value: str) -> str:
    """A timestamp as Go prints it: `2020-01-02 03:04:05 +0000 UTC`."""
    moment = datetime.datetime.fromisoformat(value).astimezone(datetime.UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _built_in_finalizers(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    return [
        invalid(
            f"{path}.finalizers[{i}]",
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        )
        for i, name in enumerate(meta.get("finalizers") or ())
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def validate_object_meta(
    meta: Mapping[str, Any], namespaced: bool, name_rule: NameRule, path: str = "metadata"
) -> list[FieldError]:
    """Metadata of a built-in kind at creation: the common rules, and finalizers must be
    qualified.
    """
    return validate_any_object_meta(meta, namespaced, name_rule, path) + _built_in_finalizers(
        meta, path
    )


def validate_object_meta_update(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str = "metadata"
) -> list[FieldError]:
    """Metadata of a built-in kind at an update."""
    return validate_any_object_meta_update(new, old, path) + _built_in_finalizers(new, path)


def validate_object_name(
    meta: Mapping[str, Any], name_rule: NameRule, path: str = "metadata"
) -> list[FieldError]:
    errors: list[FieldError] = []
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix:
        for text in name_rule(prefix, True):
            errors.append(invalid(f"{path}.generateName", prefix, text))
    if not name:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    else:
        for text in name_rule(name, False):
            errors.append(invalid(f"{path}.name", name, text))
    return errors


def validate_any_object_meta(
    meta: Mapping[str, Any], namespaced: bool, name_rule: NameRule, path: str = "metadata"
) -> list[FieldError]:
    """The rules that hold for every object, custom ones included."""
    errors = validate_object_name(meta, name_rule, path)
    namespace = meta.get("namespace", "")
    if not namespaced:
        if namespace:
            errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    elif not namespace:
        errors.append(required(f"{path}.namespace"))
    else:
        for text in name_is_dns_label(namespace, False):
            errors.append(invalid(f"{path}.namespace", namespace, text))
    if "clusterName" in meta:
        cluster = meta["clusterName"]
        errors += [
            invalid(f"{path}.clusterName", cluster, text)
            for text in name_is_dns1035_label(cluster, False)
        ]
    entries = meta.get("managedFields")
    if entries:
        errors += _field_managers(entries, path)
    if meta.get("generation", 0) < 0:
        errors.append(invalid(f"{path}.generation", meta["generation"], NEGATIVE))
    errors += _shared(meta, path)
    if "finalizers" in meta:
        errors += validate_finalizers(meta["finalizers"], f"{path}.finalizers")
    if entries:
        errors += validate_managed_fields(entries, f"{path}.managedFields")
    return errors


def _field_managers(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for entry in entries:
        errors += validate_field_manager(entry.get("manager", ""), f"{path}.fieldManager")
    return errors


def _shared(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if "labels" in meta:
        errors += validate_labels(meta["labels"], f"{path}.labels")
    if "annotations" in meta:
        errors += validate_annotations(meta["annotations"], f"{path}.annotations")
    if "ownerReferences" in meta:
        errors += validate_owner_references(meta["ownerReferences"], f"{path}.ownerReferences")
    return errors


# Immutable fields of metadata, in the order of the checks, and the printed form of a missing one.
_FIXED = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
    ("clusterName", ""),
)
_TIMES = ("creationTimestamp", "deletionTimestamp")


def validate_any_object_meta_update(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str = "metadata"
) -> list[FieldError]:
    """The rules of an update that hold for every object, custom ones included."""
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            errors.append(
                forbidden(
                    f"{path}.finalizers",
                    "no new finalizers can be added if the object is being deleted, found "
                    "new finalizers "
                    "[]string{" + ", ".join(go_quote(name) for name in extra) + "}",
                )
            )
    if not new.get("resourceVersion"):
        errors.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        errors.append(
            invalid(f"{path}.generation", new.get("generation", 0), "must not be decremented")
        )
    errors += _field_managers(new.get("managedFields") or (), path)
    for name, empty in _FIXED:
        value, before = new.get(name, empty), old.get(name, empty)
        if value != before:
            shown = GoText(go_time(value), go_quote(value)) if name in _TIMES and value else value
            errors.append(invalid(f"{path}.{name}", shown, IMMUTABLE))
    return (
        errors
        + _shared(new, path)
        + validate_managed_fields(new.get("managedFields"), f"{path}.managedFields")
    )


def validate_template_metadata(meta: Mapping[str, Any], path: str) -> list[FieldError]:
    """The metadata in the template of a claim: only labels and annotations are used."""
    errors = validate_annotations(meta.get("annotations"), f"{path}.annotations")
    errors += validate_labels(meta.get("labels"), f"{path}.labels")
    given = [name for name in meta if name not in ("annotations", "labels") and meta[name]]
    # In the order of Go's struct, and with its names.
    for name in sorted(given, key=_META_FIELDS.index):
        shown = "uID" if name == "uid" else name
        errors.append(forbidden(f"{path}.{shown}", "cannot be set for an ephemeral volume"))
    return errors


_META_FIELDS: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "clusterName",
    "managedFields",
)


def validate_label_selector(selector: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    if not selector:
        return []
    errors = validate_labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for i, requirement in enumerate(selector.get("matchExpressions") or ()):
        errors += validate_label_selector_requirement(requirement, f"{path}.matchExpressions[{i}]")
    return errors


def validate_label_selector_requirement(
    requirement: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = requirement.get("operator", ""), requirement.get("values")
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(
                required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.append(
                forbidden(
                    f"{path}.values",
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
            )
    else:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    errors += validate_label_name(requirement.get("key", ""), f"{path}.key")
    for i, value in enumerate(values or ()):
        errors += (
            SelectorValueError("Invalid", f"{path}.values[{i}]", value, text)
            for text in is_label_value(value)
        )
    return errors


def validate_conditions(
    conditions: Sequence[Mapping[str, Any]] | None, path: str
) -> list[FieldError]:
    """Conditions of the shared type `metav1.Condition`."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for i, condition in enumerate(conditions or ()):
        kind = condition.get("type", "")
        if kind in seen:
            errors.append(FieldError("Duplicate", f"{path}[{i}].type", kind, ""))
        seen.add(kind)
        errors += _condition(condition, f"{path}[{i}]")
    return errors


def _condition(condition: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = validate_label_name(condition.get("type", ""), f"{path}.type")
    if condition.get("status") not in ("True", "False", "Unknown"):
        errors.append(
            not_supported(
                f"{path}.status", condition.get("status", ""), ("False", "True", "Unknown")
            )
        )
    generation = condition.get("observedGeneration", 0)
    if generation < 0:
        errors.append(
            invalid(
                f"{path}.observedGeneration", generation, "must be greater than or equal to zero"
            )
        )
    if not condition.get("lastTransitionTime"):
        errors.append(required(f"{path}.lastTransitionTime", "must be set"))
    reason = condition.get("reason", "")
    if not reason:
        errors.append(required(f"{path}.reason", "must be set"))
    else:
        errors += [invalid(f"{path}.reason", reason, text) for text in is_condition_reason(reason)]
        if byte_len(reason) > 1024:
            errors.append(too_long(f"{path}.reason", reason, 1024))
    if byte_len(condition.get("message", "")) > 32 * 1024:
        errors.append(too_long(f"{path}.message", "", 32 * 1024))
    return errors
