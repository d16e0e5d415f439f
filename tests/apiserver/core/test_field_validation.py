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
