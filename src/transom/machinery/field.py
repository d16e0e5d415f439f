"""Field errors of validation: a type, the path of the field, the bad value and a detail, printed as Kubernetes does.

Paths are plain strings that the validators build as they descend (`spec.containers[0].name`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
    """A bad value that already has Go's printed form (`core.Toleration{...}`), so it is not quoted again."""

    __slots__ = ()


class FieldError(NamedTuple):
    type: str
    field: str
    value: Any
    detail: str

    @property
    def reason(self) -> str:
        return _TYPES[self.type][1]

    def body(self) -> str:
        """The message without the field, as it stands in `details.causes`."""
        text = _TYPES[self.type][0]
        if self.type not in _WITHOUT_VALUE:
            text += f": {go_value(self.value)}"
        if self.detail:
            text += f": {self.detail}"
        return text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"


def go_value(value: Any) -> str:
    """A value as field errors print it: strings quoted, numbers bare, anything else as JSON of the dict."""
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
    import orjson

    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
            "\v": "\\v"}


def go_quote(text: str) -> str:
    """Go's %q."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for ch in text:
        if ch in _ESCAPES:
            out.append(_ESCAPES[ch])
        elif ch.isprintable():
            out.append(ch)
        elif ord(ch) < 0x80:
            out.append(f"\\x{ord(ch):02x}")
        elif ord(ch) < 0x10000:
            out.append(f"\\u{ord(ch):04x}")
        else:
            out.append(f"\\U{ord(ch):08x}")
    return '"' + "".join(out) + '"'


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("Required", field, "", detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("Invalid", field, value, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("Duplicate", field, value, "")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError("NotFound", field, value, "")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("Forbidden", field, "", detail)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    detail = "supported values: " + ", ".join(go_quote(s) for s in supported) if supported else ""
    return FieldError("NotSupported", field, value, detail)


def too_long(field: str, value: Any, limit: int) -> FieldError:
    return FieldError("TooLong", field, value, f"must have at most {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    return FieldError("TooMany", field, actual, f"must have at most {limit} items")


def internal_error(field: str, detail: str) -> FieldError:
    return FieldError("InternalError", field, None, detail)


def aggregate_text(errors: Iterable[object]) -> str:
    """Several errors in one text: `[a, b]` without repetition, a single one bare."""
    texts = list(dict.fromkeys(str(e) for e in errors))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
