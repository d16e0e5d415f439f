"""`selectableFields` of a custom resource definition, and the paths that they share with rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.machinery.field import duplicate, invalid, required, too_many
from transom.machinery.validation.rules import Errors

_MOST: Final = 8
_TYPES: Final = ("string", "boolean", "integer")
_token = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+")


def find_field(text: str, schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The normalised path of a field and its schema; raises ValueError with the reason if there is
    none. Items of lists cannot be selected.
    """
    path = ""
    tokens = iter(_token.findall(text))
    for token in tokens:
        if token == "[":
            raise ValueError("array notation is not allowed")
        if token != ".":
            raise ValueError(f"expected [ or . but got: {token}")
        name = next(tokens, None)
        if name is None:
            raise ValueError("unexpected end of JSON path")
        properties = schema.get("properties")
        additional = schema.get("additionalProperties")
        if properties is not None:
            if name not in properties:
                raise ValueError("does not refer to a valid field")
            schema = properties[name]
            path += f".{name}"
        elif isinstance(additional, Mapping):
            schema = additional
            path += f"[{name}]"
        else:
            raise ValueError("does not refer to a valid field")
    return path, schema


def validate_selectable_fields(
    fields: Sequence[Mapping[str, Any]],
    schema: Mapping[str, Any] | None,
    path: str,
    *,
    allow_too_many: bool,
) -> Errors:
    if schema is None:
        text = "may only be set when `version.schema.openAPIV3Schema` is not included"
        return [invalid(path, "", text)]
    errors: Errors = []
    seen: set[str] = set()
    for i, field in enumerate(fields):
        where, text = f"{path}[{i}].jsonPath", field.get("jsonPath", "")
        if not text:
            errors.append(required(where))
            continue
        try:
            name, found = find_field(text, schema)
        except ValueError as problem:
            errors.append(invalid(where, text, f"is an invalid path: {problem}"))
            continue
        if re.match(r"\.metadata\b", name):
            errors.append(invalid(where, text, "must not point to fields in metadata"))
        if found.get("type") not in _TYPES:
            errors.append(
                invalid(
                    where,
                    text,
                    "must point to a field of type string, boolean or integer. Enum string fields "
                    "and strings with formats are allowed.",
                )
            )
        if name in seen:
            errors.append(duplicate(where, text))
        seen.add(name)
    if len(seen) > _MOST and not allow_too_many:
        errors.append(too_many(path, len(seen), _MOST))
    return errors
