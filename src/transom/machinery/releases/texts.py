"""Texts of validation errors that differ from those of 1.20, by the release that changed them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from transom.kit.lazy import lazy_pattern
from transom.machinery.field import NO_VALUE, FieldError, GoText, RuleValue
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.release import TABLES_SINCE, Release
from transom.machinery.validation.godump import dump_in_release
from transom.machinery.validation.names import LabelLength, is_dns1123_subdomain


class TextChange(NamedTuple):
    """A detail (and type) of 1.20, and what it has become."""

    since: Release
    detail: re.Pattern[str]
    new: str  # as in re.sub; the whole detail is replaced
    type: str = ""  # of the old error, "" for any
    new_type: str = ""
    field: str = ""  # the end of the field's path, "" for any
    new_field: str = ""  # replaces that end; "-" removes it


def _change(
    since: tuple[int, int],
    detail: str,
    new: str,
    *,
    type: str = "",
    new_type: str = "",
    field: str = "",
    new_field: str = "",
) -> TextChange:
    pattern = lazy_pattern(rf"(?:{detail})\Z", re.S)
    return TextChange(Release(*since), pattern, new, type, new_type, field, new_field)


CHANGES: Final = (
    _change(
        (1, 34),
        r"(?:must have at most|may not be more than) 1 bytes",
        "may not be more than 1 byte",
    ),
    _change((1, 34), r"must have at most 1 items", "must have at most 1 item"),
    # Of resources embedded in custom resources.
    *(
        _change((1, 34), r"must not be empty", "", type="Required", field=field)
        for field in (".apiVersion", ".kind")
    ),
    # Of conditions.
    *(
        _change((1, 34), r"must be set", "", type="Required", field=field)
        for field in (".lastTransitionTime", ".reason")
    ),
    _change((1, 34), r"must not be empty", "", type="Required", field="].type"),
    _change((1, 32), r"must have at most (\d+) bytes", r"may not be more than \1 bytes"),
    # Label keys and values; names of other kinds keep the older text.
    _change(
        (1, 35),
        r"(name|prefix) part must be no more than (\d+) characters",
        r"\1 part must be no more than \2 bytes",
    ),
    _change((1, 23), r"element \[0\] must match clusterIP", "first value must match `clusterIP`"),
    _change(
        (1, 23),
        r"must be empty when clusterIP is empty",
        "must be empty when `clusterIP` is not specified",
    ),
    _change((1, 35), r"a qualified name (must .*)", r"a valid label key \1"),
    _change(
        (1, 23),
        r"may not be in the loopback range \(127\.0\.0\.0/8\)",
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    ),
    _change((1, 26), r"cannot be set for an ephemeral volume", "cannot be set"),
    _change((1, 34), r"cannot be empty", "", type="Required", field="os.name"),
    _change(
        (1, 36),
        r"must be 'NotRequired' when `restartPolicy` is 'Never'",
        "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
    ),
    _change(
        (1, 31),
        r"must be 'Exist' only operator when scope is any of .*",
        "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
        "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
        "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
    ),
    *(
        _change(
            (1, 34),
            r"(Approved and Denied conditions are mutually exclusive)",
            r"\1",
            field=f"[{i}].type",
            new_field="-",
        )
        for i in range(8)
    ),
    _change((1, 26), r"must to greater or equal than 0", "must be greater than or equal to 0"),
    *(
        _change(
            (1, 34),
            rf"{name} must not be empty",
            "must not be empty",
            field=f"ownerReferences.{name}",
        )
        for name in ("kind", "name", "uid")
    ),
    _change((1, 26), r"host must be provided(; .*)", r"host must be specified\1"),
    _change(
        (1, 25),
        r"must contain at least one letter or number \(a-z, 0-9\)",
        "must contain at least one letter (a-z)",
    ),
    *(
        _change(
            (1, 24),
            r"",
            "",
            type="Required",
            field=f".nodePublishSecretRef .{name}",
            new_field=f".nodePublishSecretRef.{name}",
        )
        for name in ("name", "namespace")
    ),
    _change(
        (1, 23),
        r"must be 'File' or 'FallbackToLogsOnError'",
        'supported values: "File", "FallbackToLogsOnError"',
        type="Invalid",
        new_type="NotSupported",
    ),
    _change(
        (1, 22),
        r'supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"',
        'supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
    ),
    _change(
        (1, 26),
        r"ExternalTrafficPolicy can only be set on NodePort and LoadBalancer service",
        "may only be set for externally-accessible services",
    ),
    _change(
        (1, 34),
        r"(?:message|fieldPath) must (not contain line breaks|be a valid path|be non-empty.*)",
        r"must \1",
    ),
    _change((1, 34), r"service (?:name|namespace) is required", "", type="Required"),
    _change(
        (1, 22),
        r"cannot set to true, set x-preserve-unknown-fields (to true .*)",
        r"cannot set to true, set x-kubernetes-preserve-unknown-fields \1",
    ),
    _change((1, 35), r"schemas are required", "", type="Required"),
    _change(
        (1, 34),
        r"type must be 'Exempt' if and only if name is 'exempt'",
        "must be 'Exempt' if and only if `name` is 'exempt'",
    ),
    _change((1, 34), r"(?:kind|name) is required", "", type="Required"),
    _change((1, 26), r"(?:usages|signerName) must be provided", "", type="Required"),
    _change(
        (1, 34),
        r"updates to statefulset spec for fields other than .* are forbidden",
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
        "'minReadySeconds' are forbidden",
    ),
    _change(
        (1, 27),
        r"updates to statefulset spec for fields other than 'replicas', 'template', and .*",
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are "
        "forbidden",
    ),
    _change(
        (1, 32),
        r"may not be changed in an update\.",
        r"may not be changed in an update.",
        field="Value",
        new_field="value",
    ),
)


# Errors of resource names, which some releases show without quotes.
_RESOURCE_NAME: Final = lazy_pattern(
    r"must be a standard resource |doesn't follow extended resource name standard|"
    r"(?:name|prefix) part must |a qualified name must "
)
_NULL: Final = GoText("null")
_SECRET_PATHS_SINCE: Final = Release(1, 24)
_LABEL_ERROR: Final = "a lowercase RFC 1123 label must consist of "


def in_release(release: Release, errors: Iterable[FieldError]) -> list[FieldError]:
    """The errors as the release words them."""
    if release < TABLES_SINCE:
        return list(errors)
    as_json = has_behaviour(release, "JsonValuesInErrors")
    shown: dict[int, GoText] = {}
    found = list(errors)  # keeps the values alive, so that their ids are unique
    return [_in_release(release, _with_value(release, e, as_json, shown), as_json) for e in found]


def _with_value(
    release: Release, error: FieldError, as_json: bool, shown: dict[int, GoText]
) -> FieldError:
    """The error with its value as the release prints it. Many errors can have one long value, such
    as the list of all owner references: it is printed once.
    """
    value = error.value
    if value is None:
        return error._replace(value=_NULL) if as_json else error
    if not isinstance(value, GoText) or (value.source is None and not as_json):
        return error
    text = shown.get(id(value))
    if text is None:
        text = value if value.source is None else dump_in_release(release, *value.source)
        text = shown[id(value)] = GoText(text.json) if as_json else text
    return error._replace(value=text)


_TYPE: Final = lazy_pattern(r"(?<!value )must be of type ")
_LENGTH: Final = lazy_pattern(r"should be at most (\d+) chars long\Z")
_ITEMS: Final = lazy_pattern(r"should have at most (\d+) (?:items|properties)\Z")


def typed_custom_errors(release: Release, errors: Iterable[FieldError]) -> list[FieldError]:
    """Errors of a schema with the types that the release gives them."""
    if not has_behaviour(release, "TypedCustomErrors"):
        return list(errors)
    return [_typed(error) for error in errors]


def _typed(error: FieldError) -> FieldError:
    if error.type != "Invalid":
        return error
    if _TYPE.search(error.detail):
        return error._replace(type="TypeInvalid")
    if found := _LENGTH.search(error.detail):
        return error._replace(type="TooLong", detail=f"may not be more than {found[1]} bytes")
    if found := _ITEMS.search(error.detail):
        return error._replace(type="TooMany", detail=f"must have at most {found[1]} items")
    return error


def _in_release(release: Release, error: FieldError, as_json: bool) -> FieldError:
    if isinstance(error.value, RuleValue) and has_behaviour(release, "RuleValuesInErrors"):
        shown = error.value.actual
        return error._replace(value=NO_VALUE if shown is None else shown)
    if (
        not as_json
        and has_behaviour(release, "TypedResourceNames")
        and isinstance(error.value, str)
        and error.field.endswith(f"[{error.value}]")
        and _RESOURCE_NAME.match(error.detail)
    ):
        return error._replace(value=GoText(error.value))
    if (
        has_behaviour(release, "DotsInLabels")
        and error.detail.startswith(_LABEL_ERROR)
        and isinstance(error.value, str)
        and "." in error.value
        and not is_dns1123_subdomain(error.value)
    ):
        return error._replace(detail="must not contain dots")
    if release >= _SECRET_PATHS_SINCE and error.field.startswith("data[%s]"):
        error = error._replace(field="data" + error.field.removeprefix("data[%s]"))
    if isinstance(error.detail, LabelLength) and has_behaviour(release, "LabelLengthsInBytes"):
        return error._replace(detail="must be no more than 63 bytes")
    for change in CHANGES:
        if release < change.since or not error.field.endswith(change.field):
            continue
        if change.type and change.type != error.type:
            continue
        match = change.detail.match(error.detail)
        if match is None:
            continue
        field = error.field
        if change.new_field:
            field = field.removesuffix(change.field) + change.new_field.removeprefix("-")
        return error._replace(
            type=change.new_type or error.type, field=field, detail=match.expand(change.new)
        )
    return error
