"""`fieldValidation` as releases since 1.25 implement it: levels, duplicates, unknown fields. 1.21 to
1.24 ignore it.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("release", "status"), [("1.24", 201), ("1.25", 422), ("1.36", 422)])
async def test_an_unknown_level_is_rejected(release: str, status: int) -> None:
    api = await start(release=release)
    found, answer = await api.call(
        "POST", f"{MAPS}?fieldValidation=strict", {"metadata": {"name": "a"}}
    )
    assert found == status
    if status == 422:
        assert answer["message"] == (
            'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "strict": '
            'supported values: "", "Ignore", "Strict", "Warn"'
        )
    await api.server.stop()


@pytest.mark.parametrize(
    ("patch", "media", "expected"),
    [
        (
            [{"op": "add", "path": "/data", "value": {}, "x": 1}],
            "application/json-patch+json",
            'strict decoding error: json patch unknown field "[0].x"',
        ),
        (
            [{"op": "add", "path": "/foo", "value": "x", "y": 1}],
            "application/json-patch+json",
            'strict decoding error: json patch unknown field "[0].y", unknown field "foo"',
        ),
        ({"dta": {}}, "application/merge-patch+json", 'strict decoding error: unknown field "dta"'),
        *(
            (
                {"z": 1, "metadata": {"y": 1, "b": 1}, "a": 1},
                media,
                'strict decoding error: unknown field "a", unknown field "metadata.b", '
                'unknown field "metadata.y", unknown field "z"',
            )
            for media in ("application/merge-patch+json", "application/strategic-merge-patch+json")
        ),
    ],
)
async def test_a_strict_patch_reports_its_own_fields(patch: Any, media: str, expected: str) -> None:
    api = await start(release="1.36")
    await api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    status, answer = await api.call("PATCH", f"{MAPS}/a?fieldValidation=Strict", patch, media=media)
    assert status == 422
    assert answer["message"].endswith(expected)
    await api.server.stop()


@pytest.mark.parametrize(
    ("release", "honoured"), [("1.21", False), ("1.24", False), ("1.25", True)]
)
async def test_releases_before_1_25_ignore_it(release: str, honoured: bool) -> None:
    api = await start(release=release)
    unknown = {"metadata": {"name": "a"}, "dta": {}}
    status, _ = await api.call("POST", f"{MAPS}?fieldValidation=Strict", unknown)
    assert status == (400 if honoured else 201)
    document = await api.ok("GET", "/openapi/v2")
    path = document["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["post"]
    names = [parameter.get("name") for parameter in path["parameters"]]
    assert ("fieldValidation" in names) is honoured
    await api.server.stop()


_TYPED = "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{} of type string"
_REFUSED = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("release", "level", "operation", "code", "message"),
    [
        ("1.36", "Warn", {"op": 5, "path": "/a"}, 400, _TYPED.format("number", "op")),
        ("1.36", "Warn", {"op": "add", "path": {}}, 400, _TYPED.format("object", "path")),
        (
            "1.36",
            "Warn",
            {"op": "move", "path": "/a", "from": []},
            400,
            _TYPED.format("array", "from"),
        ),
        ("1.36", "Warn", {"op": None, "path": "/a"}, 422, _REFUSED),
        ("1.36", "Ignore", {"op": 5, "path": "/a"}, 422, _REFUSED),
        ("1.36", "Warn", {"op": "replace", "path": "", "value": {"data": {}}}, 200, ""),
        ("1.22", "", {"op": "replace", "path": "", "value": {"data": {}}}, 422, _REFUSED),
        ("1.36", "Warn", {"op": "replace", "path": "", "value": 5}, 422, _REFUSED),
        ("1.36", "Warn", {"op": "test", "path": "", "value": {}}, 422, _REFUSED),
        ("1.36", "Warn", {"op": "add", "path": "", "value": {}}, 422, _REFUSED),
        (
            "1.36",
            "Warn",
            {"op": "replace", "path": "", "value": [1]},
            422,
            ' "" is invalid: patch: Invalid value: "[1]": couldn\'t get version/kind; json parse error: json: '
            "cannot unmarshal array into Go value of type struct ",
        ),
    ],
)
async def test_operations_of_a_json_patch(
    release: str, level: str, operation: Any, code: int, message: str
) -> None:
    api = await start(release=release)
    await api.ok("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}})
    if isinstance(operation.get("value"), dict):
        whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        operation["value"] |= whole
    query = f"?fieldValidation={level}" if level else ""
    status, answer = await api.call(
        "PATCH", f"{MAPS}/a{query}", [operation], media="application/json-patch+json"
    )
    assert status == code
    assert answer.get("message", "").startswith(message)
    if code == 200:
        assert "data" not in answer or not answer["data"]
    await api.server.stop()
