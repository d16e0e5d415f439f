"""Texts of validation errors that a release changed."""

from __future__ import annotations

import pytest

from transom.machinery.field import FieldError
from transom.machinery.releases import parse_release
from transom.machinery.releases.texts import in_release
from transom.machinery.validation import apiextensions, custom, customobject


@pytest.mark.parametrize(
    ("error", "release", "text"),
    [
        (FieldError("TooLong", "a", "", "must have at most 1 bytes"), "1.31", "Too long: must have at most 1 bytes"),
        (FieldError("TooLong", "a", "", "must have at most 1 bytes"), "1.33", "Too long: may not be more than 1 bytes"),
        (FieldError("TooLong", "a", "", "must have at most 1 bytes"), "1.34", "Too long: may not be more than 1 byte"),
        (FieldError("TooLong", "a", "", "must have at most 11 bytes"), "1.34", "Too long: may not be more than 11 bytes"),
        (FieldError("TooLong", "a", "", "may not be more than 1 bytes"), "1.36", "Too long: may not be more than 1 byte"),
        (FieldError("TooMany", "a", 2, "must have at most 1 items"), "1.33", "Too many: 2: must have at most 1 items"),
        (FieldError("TooMany", "a", 2, "must have at most 1 items"), "1.34", "Too many: 2: must have at most 1 item"),
        (FieldError("Required", "e.kind", "", "must not be empty"), "1.33", "Required value: must not be empty"),
        (FieldError("Required", "e.kind", "", "must not be empty"), "1.34", "Required value"),
    ],
)  # fmt: skip
def test_texts(error: FieldError, release: str, text: str) -> None:
    (found,) = in_release(parse_release(release), [error])
    assert found.body() == text


def crd(*versions: tuple[str, bool], stored: list[str]) -> dict[str, object]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": "a"},
        "spec": {
            "group": "a.example",
            "versions": [
                {"name": name, "served": True, "storage": storage, "schema": schema}
                for name, storage in versions
            ],
        },
        "status": {"storedVersions": stored},
    }


@pytest.mark.parametrize(
    ("obj", "release", "texts"),
    [
        (crd(("v2", True), stored=["v1", "v2"]), "1.32", ['"v1": must appear in spec.versions']),
        (crd(("v2", True), stored=["v1", "v2"]), "1.33", [
            '"v1": missing from spec.versions; v1 was previously a storage version, and must remain in '
            "spec.versions until a storage migration ensures no data remains persisted in v1 and removes "
            "v1 from status.storedVersions"
        ]),
        (crd(("v1", True), ("v1", True), stored=["v1"]), "1.36", ['["v1"]: must have the storage version v1']),
        (crd(("v1", True), ("v2", False), stored=["v1"]), "1.36", []),
    ],
)  # fmt: skip
def test_stored_versions(obj: dict[str, object], release: str, texts: list[str]) -> None:
    number = parse_release(release)
    found = in_release(
        number, apiextensions.validate_custom_resource_definition_update(number, obj, obj)
    )
    shown = [str(e) for e in found if e.field.startswith("status.storedVersions")]
    assert [text.partition("Invalid value: ")[2] for text in shown] == texts


def test_duplicate_list_keys() -> None:
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    }
    found = customobject.validate_lists(schema, [{"k": "a"}, {"k": "a"}], "l")
    (old,), (new,) = (in_release(parse_release(r), found) for r in ("1.32", "1.36"))
    assert str(old) == 'l[1]: Duplicate value: map[string]interface {}{"k":"a"}'
    assert str(new) == 'l[1]: Duplicate value: {"k":"a"}'


@pytest.mark.parametrize(
    ("schema", "value", "rules", "texts"),
    [
        ({"type": "number", "multipleOf": 0.5}, 1, custom.SchemaOptions(positive_factors=True),
         ["factor MultipleOf declared for x must be positive: 0"]),
        ({"type": "number", "multipleOf": 0.5}, 1.5, custom.SchemaOptions(positive_factors=True), []),
        ({"type": "integer"}, 1e30, custom.OF_1_20, ['x in body must be of type integer: "number"']),
        ({"type": "integer"}, 9.0, custom.OF_1_20, []),
        ({"type": "integer", "format": "int64"}, 1e30, custom.SchemaOptions(numeric_formats=True),
         ['x in body must be of type int64: "float64"', "Checked value must be of type integer with format int64 in x"]),
    ],
)  # fmt: skip
def test_numbers(
    schema: dict[str, object], value: float, rules: custom.SchemaOptions, texts: list[str]
) -> None:
    found = custom.validate_value(
        {"type": "object", "properties": {"x": schema}}, {"x": value}, rules=rules
    )
    assert [error.detail for error in found] == texts
