"""Requests without a route: 404 and 405 come before the response format is negotiated, and before
warnings about deprecated APIs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}


async def send(api: Api, method: str, path: str, accept: str = TABLE) -> tuple[int, Any, bool]:
    answer = await api.send(method, path, accept=accept)
    assert isinstance(answer.body, bytes)
    warned = any(name.lower() == b"warning" for name, _ in answer.headers)
    return answer.status, orjson.loads(answer.body or b"null"), warned


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/namespaces/default/bindings/x", 404),
        ("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews/x", 404),
        ("HEAD", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x", 404),
        ("GET", "/api/v1/namespaces/default/bindings", 405),
        ("GET", "/api/v1/namespaces/default/pods/x/eviction", 405),
        ("GET", "/api/v1/namespaces/default/endpoints/x/unknown", 404),
        ("PUT", "/api/v1/namespaces/default/endpoints", 405),
        ("PUT", "/api/v1/componentstatuses/x", 405),
    ],
)
@pytest.mark.parametrize("accept", [TABLE, "application/json"])
async def test_routes_are_found_before_formats(
    method: str, path: str, code: int, accept: str
) -> None:
    api = await start(release="1.36")
    status, _, warned = await send(api, method, path, accept)
    assert (status, warned) == (code, False)


async def test_status_and_scale_are_shown_as_tables_since_1_24() -> None:
    api = await start(release="1.36")
    await api.ok("POST", DEPLOYMENTS, DEPLOYMENT)
    code, table, _ = await send(api, "GET", f"{DEPLOYMENTS}/web/status")
    assert (code, table["rows"][0]["cells"][:2]) == (200, ["web", "0/3"])
    code, table, _ = await send(api, "GET", f"{DEPLOYMENTS}/web/scale")
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert (code, table["rows"][0]["cells"][:3]) == (200, ["web", 3, 0])
    assert table["metadata"]["resourceVersion"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert (await send(api, "GET", f"{DEPLOYMENTS}/none/scale"))[0] == 404
    assert (await send(api, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1./status"))[
        0
    ] == 406


async def test_status_and_scale_have_no_tables_before() -> None:
    api = await start(release="1.23")
    await api.ok("POST", DEPLOYMENTS, DEPLOYMENT)
    for subresource in ("status", "scale"):
        assert (await send(api, "GET", f"{DEPLOYMENTS}/web/{subresource}"))[0] == 406
