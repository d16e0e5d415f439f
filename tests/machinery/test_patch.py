from __future__ import annotations

import pytest

from transom.machinery import patch, schema
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK
from transom.machinery.releases import DEFAULT
from transom.machinery.typed import DEDUCED

DEPLOYMENT = schema.lookup_schema_type(GVK("apps", "v1", "Deployment"))


@pytest.mark.parametrize(
    ("media", "raw", "code", "text"),
    [
        (patch.JSON, b"[{", 400, "unexpected end of JSON input"),
        (
            patch.JSON,
            b"{}",
            400,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            patch.JSON,
            b"[5]",
            400,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (
            patch.JSON,
            b"[null]",
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            patch.JSON,
            b"{}" + b" " * 1024 * 1024,
            400,
            (
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]interface {}"
            ),
        ),
        (patch.MERGE, b"{", 500, "Invalid JSON Patch"),
        (patch.MERGE, b"null", 500, "Invalid JSON Patch"),
        (patch.MERGE, b'"x"', 500, "Invalid JSON Patch"),
        (patch.STRATEGIC, b"{", 400, "unexpected EOF"),
        (patch.STRATEGIC, b"", 400, "EOF"),
        (
            patch.STRATEGIC,
            b"{a}",
            400,
            "invalid character 'a' looking for beginning of object key string",
        ),
        (
            patch.STRATEGIC,
            b"[]",
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ],
)
def test_invalid_patch_bodies(media: str, raw: bytes, code: int, text: str) -> None:
    with pytest.raises(ApiError) as e:
        patch.apply_patch(media, raw, {}, DEPLOYMENT, release=DEFAULT)
    assert (e.value.code, e.value.message) == (code, text)


def test_bodies_that_change_nothing() -> None:
    doc = {"spec": {"replicas": 1}}
    for media, raw in (
        (patch.JSON, b"null"),
        (patch.MERGE, b"{}"),
        (patch.STRATEGIC, b"null"),
        (patch.STRATEGIC, b"{} trailing"),
    ):
        assert patch.apply_patch(media, raw, doc, DEPLOYMENT, release=DEFAULT) == doc


def test_custom_kinds_have_no_strategic_merge() -> None:
    with pytest.raises(ApiError, match="strategic merge patch format is not supported"):
        patch.apply_patch(patch.STRATEGIC, b"{}", {}, DEDUCED, release=DEFAULT)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"spec":{"replicas":"x"}}', "unrecognized type: int32"),
        (b'{"spec":{"replicas":1.5}}', "cannot convert float64 to int32"),
        (b'{"spec":{"paused":1}}', "unrecognized type: bool"),
        (b'{"spec":[1]}', "cannot restore struct from: slice"),
        (b'{"metadata":{"name":5}}', "cannot convert int64 to string"),
        (b'{"metadata":{"labels":[]}}', "cannot restore map from slice"),
        (b'{"metadata":{"finalizers":"x"}}', "cannot restore slice from string"),
    ],
)
def test_an_object_of_wrong_types_gets_the_converters_error(raw: bytes, why: str) -> None:
    patched = patch.apply_patch(patch.STRATEGIC, raw, {}, DEPLOYMENT, release=DEFAULT)
    e = patch.undecodable(patch.STRATEGIC, raw, patched, "?", DEPLOYMENT)
    assert e.code == 422
    assert e.message.startswith(' "" is invalid: patch: Invalid value: "map[')
    assert e.message.endswith(why)
