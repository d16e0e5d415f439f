"""Field errors of validation: a type, the path of the field, the bad value and a detail, printed as
Kubernetes does.

Paths are plain strings that the validators build as they descend (`spec.containers[0].name`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from transom.kit.goquote import go_quote
from transom.kit.named_tuple import NamedTuple

# type -> (text, machine reason)
_TYPES = {
    "NotFound": ("Not found", "FieldValueNotFound"),
    "Required": ("Required value", "FieldValueRequired"),
    "Duplicate": ("Duplicate value", "FieldValueDuplicate"),
    "Invalid": ("Invalid value", "FieldValueInvalid"),
    "NotSupported": ("Unsupported value", "FieldValueNotSupported"),
    "Forbidden": ("Forbidden", "FieldValueForbidden"),
    "TooLong": ("Too long", "FieldValueTooLong"),
    "TooMany": ("Too many", "FieldValueTooMany"),
    "InternalError": ("Internal error", "InternalError"),
    "TypeInvalid": ("Invalid value", "FieldValueTypeInvalid"),
}
_WITHOUT_VALUE = {"Required", "Forbidden", "TooLong", "InternalError"}


class GoText(str):
    """A bad value that already has Go's printed form (`core.Toleration{...}`), so it is not quoted
    again. `json` is the form that later releases print. `source` is its Go type and value, if its
    form depends on the fields that the type has in a release.
    """

    json: str
    source: tuple[str, Any] | None

    def __new__(cls, text: str, json: str = "", source: tuple[str, Any] | None = None) -> GoText:
        made = super().__new__(cls, text)
        made.json = json or text
        made.source = source
        return made


class RuleValue(str):
    """The bad value of a CEL rule: its type, and the value that later releases print; None for an
    object or a list, which they leave out.
    """

    actual: GoText | None

    def __new__(cls, kind: str, actual: GoText | None) -> RuleValue:
        made = super().__new__(cls, kind)
        made.actual = actual
        return made


NO_VALUE = object()  # the value of an error that shows none


class FieldError(NamedTuple):
    type: str
    field: str
    value: Any
    detail: str

    @property
    def reason(self) -> str:
        return _TYPES[self.type][1]

    def body(self) -> str:
        """The message without the field, as in `details.causes`."""
        text = _TYPES[self.type][0]
        if self.type not in _WITHOUT_VALUE and self.value is not NO_VALUE:
            text += f": {go_value(self.value)}"
        if self.detail:
            text += f": {self.detail}"
        return text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


class RatchetedError(FieldError):
    """An error of a value that did not change: the client gets a warning, not an error."""

    __slots__ = ()


class SelectorValueError(FieldError):
    """A value of a label selector that no label can have. Releases before 1.26 do not check it, and
    later ones allow it in objects that had one before.
    """

    __slots__ = ()


class NoNameError(FieldError):
    """What is wrong with an empty name, beside that it is required. Releases since 1.35 do not
    report it.
    """

    __slots__ = ()


def go_value(value: Any) -> str:
    """A value as printed in field errors: strings quoted, numbers bare, anything else as JSON of
    the dict.
    """
    if isinstance(value, GoText):
        return str(value)
    if value is None:
        return '"null"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return go_quote(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def go_bytes(data: bytes) -> str:
    """The elements of a byte slice as Go prints them: `0x2d, 0xa`. Each byte takes six characters
    in several copies of the response, so long slices are truncated.
    """
    shown = data[:_MOST_BYTES]
    text = ("0x" + shown.hex(" ").replace(" ", ", 0x")).replace("0x0", "0x") if shown else ""
    return text if len(shown) == len(data) else f"{text}, ... ({len(data) - len(shown)} more)"


_MOST_BYTES = 128 * 1024


OMITTED = FieldError("InternalError", "", None, "an error that was left out")
"""Replaces each error beyond MAX_ERRORS."""

MAX_ERRORS = 50_000
_LONG_DETAIL = 1000  # characters of a detail that count as one more error


class _Counting(threading.local):
    left: int | None = None  # remaining errors that the running validation keeps


_counting = _Counting()


class bounded_errors:
    """Limits a validation to MAX_ERRORS errors: three bytes of a body can cause two errors, and
    each takes hundreds of bytes. All others are OMITTED.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _counting.left
        _counting.left = MAX_ERRORS

    def __exit__(self, *_: object) -> None:
        _counting.left = self._before


def _error(type: str, field: str, value: Any, detail: str) -> FieldError:
    left = _counting.left
    if left is not None:
        if left <= 0:
            return OMITTED
        _counting.left = left - 1 - len(detail) // _LONG_DETAIL
    return FieldError(type, field, value, detail)


def errors_are_omitted() -> bool:
    """Whether the running validation drops further errors: their messages need not be built."""
    return _counting.left is not None and _counting.left <= 0


def required(field: str, detail: str = "") -> FieldError:
    return _error("Required", field, "", detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return _error("Invalid", field, value, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return _error("Duplicate", field, value, "")


def not_found(field: str, value: Any) -> FieldError:
    return _error("NotFound", field, value, "")


def forbidden(field: str, detail: str) -> FieldError:
    return _error("Forbidden", field, "", detail)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    if errors_are_omitted():
        return OMITTED
    detail = "supported values: " + ", ".join(go_quote(s) for s in supported) if supported else ""
    return _error("NotSupported", field, value, detail)


def too_long(field: str, value: Any, limit: int) -> FieldError:
    return _error("TooLong", field, value, f"must have at most {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    return _error("TooMany", field, actual, f"must have at most {limit} items")


def internal_error(field: str, detail: str) -> FieldError:
    return _error("InternalError", field, None, detail)


def aggregate_text(errors: Iterable[object]) -> str:
    """Several errors in one message: `[a, b]` without duplicates, a single one without brackets."""
    texts = list(dict.fromkeys(str(e) for e in errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
