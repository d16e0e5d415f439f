"""Texts of validation errors that differ from those of 1.20, by the release that changed them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from transom.machinery.field import NO_VALUE, FieldError, GoText, RuleValue
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.release import TABLES_SINCE, Release


class TextChange(NamedTuple):
    """A detail (and type) of 1.20, and what it has become."""

    since: Release
    detail: re.Pattern[str]
    new: str  # as in re.sub; the whole detail is replaced
    type: str = ""  # of the old error, "" for any
    new_type: str = ""
    field: str = ""  # the end of the field's path, "" for any
    new_field: str = ""  # replaces that end


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
    pattern = re.compile(rf"(?:{detail})\Z", re.S)
    return TextChange(Release(*since), pattern, new, type, new_type, field, new_field)


CHANGES: Final = (
    _change((1, 32), r"must have at most (\d+) bytes", r"may not be more than \1 bytes"),
    # Of label keys and values.
    _change(
        (1, 35),
        r"name part must be no more than (\d+) characters",
        r"name part must be no more than \1 bytes",
    ),
    *(
        _change(
            (1, 35),
            r"must be no more than 63 characters",
            "must be no more than 63 bytes",
            field=field,
        )
        for field in ("abels", "elector", ".value", ".values", "]")
    ),
    _change((1, 23), r"element \[0\] must match clusterIP", "first value must match `clusterIP`"),
    _change(
        (1, 23),
        r"must be empty when clusterIP is empty",
        "must be empty when `clusterIP` is not specified",
    ),
    _change((1, 35), r"a qualified name (must .*)", r"a valid label key \1", field="labels"),
    _change(
        (1, 23),
        r"may not be in the loopback range \(127\.0\.0\.0/8\)",
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    ),
    _change((1, 26), r"must to greater or equal than 0", "must be greater than or equal to 0"),
    _change((1, 35), r"(?:name|uid) must not be empty", "must not be empty", field="name"),
    _change((1, 35), r"(?:name|uid) must not be empty", "must not be empty", field="uid"),
    _change(
        (1, 23),
        r"must be 'File' or 'FallbackToLogsOnError'",
        'supported values: "File", "FallbackToLogsOnError"',
        type="Invalid",
        new_type="NotSupported",
    ),
    _change(
        (1, 35),
        r"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
        "`fileKeyRef`",
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
    _change((1, 35), r"schemas are required", "", type="Required"),
    _change(
        (1, 34),
        r"type must be 'Exempt' if and only if name is 'exempt'",
        "must be 'Exempt' if and only if `name` is 'exempt'",
    ),
    _change((1, 34), r"(?:kind|name) is required", "", type="Required"),
    _change((1, 34), r"(?:usages|signerName) must be provided", "", type="Required"),
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


def in_release(release: Release, errors: Iterable[FieldError]) -> list[FieldError]:
    """The errors as the release words them."""
    if release < TABLES_SINCE:
        return list(errors)
    as_json = has_behaviour(release, "JsonValuesInErrors")
    return [_in_release(release, error, as_json) for error in errors]


_LABEL: Final = "a lowercase RFC 1123 label must consist of "
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TYPE: Final = re.compile(r"must be of type ")
_LENGTH: Final = re.compile(r"should be at most (\d+) chars long\Z")
_ITEMS: Final = re.compile(r"should have at most (\d+) items\Z")


def custom_in_release(release: Release, errors: Iterable[FieldError]) -> list[FieldError]:
    """Errors of custom objects as the release words them."""
    if not has_behaviour(release, "TypedCustomErrors"):
        return in_release(release, errors)
    return in_release(release, [_typed(error) for error in errors])


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
    if as_json and (isinstance(error.value, GoText) or error.value is None):
        json = "null" if error.value is None else error.value.json
        error = error._replace(value=GoText(json))
    if (
        has_behaviour(release, "DotsInLabels")
        and error.detail.startswith(_LABEL)
        and isinstance(error.value, str)
        and _SUBDOMAIN.fullmatch(error.value)
    ):
        return error._replace(detail="must not contain dots")
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
            field = field.removesuffix(change.field) + change.new_field
        return error._replace(
            type=change.new_type or error.type, field=field, detail=match.expand(change.new)
        )
    return error
