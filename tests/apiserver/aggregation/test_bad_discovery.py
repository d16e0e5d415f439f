"""Aggregated API servers with discovery documents that are wrong, large or never end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.apiserver.aggregation.test_aggregation import (
    GROUP,
    AggregationHarness,
    anyio_backend,
    run,
)
from tests.client.conftest import ADMIN

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiUnreachable
from transom.client.discovery import preferred_resources
from transom.controllers.garbagecollector.monitors import discover_served
from transom.http.messages import Answer, HttpRequest, HttpResponse

__all__ = ["anyio_backend"]  # a fixture

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ODD: list[Any] = [
    {"name": 1, "kind": [], "verbs": "x", "namespaced": "y"},
    None,
    5,
    {},
    {"name": "things", "kind": "Thing", "verbs": [1, "list"], "singularName": 7},
]


def answering(w: AggregationHarness, document: Any) -> None:
    body = document if isinstance(document, bytes) else orjson.dumps(document)

    def answer(_request: HttpRequest) -> Answer:
        return HttpResponse(200, [(b"Content-Type", b"application/json")], body)

    w.remote.discovery = answer


DOCUMENTS: dict[str, tuple[Any, list[str]]] = {
    "odd rows": ({"resources": ODD}, ["things"]),
    "a list": ([], []),
    "no JSON": (b"<html>", []),
    "a number": ({"resources": 5}, []),
}


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS.values(), ids=DOCUMENTS)
async def test_a_wrong_document_disturbs_nothing_else(document: Any, expected: list[str]) -> None:
    async with run() as w:
        answering(w, document)
        await w.service()
        await w.register()
        await w.condition("Passed")
        items = (await w.api.ok("GET", "/apis", accept=AGGREGATED))["items"]
        (version,) = next(g for g in items if g["metadata"]["name"] == GROUP)["versions"]
        assert [row["resource"] for row in version["resources"]] == expected
        client = InProcessClient(w.api.server, ADMIN)
        served = await discover_served(client)
        assert served.kinds["v1", "ConfigMap"].plural == "configmaps"
        assert ((f"{GROUP}/v1", "Thing") in served.kinds) == bool(expected)
        found, _ = await preferred_resources(client)
        mine = [one.resource.plural for one in found if one.resource.group == GROUP]
        assert mine == expected


async def test_a_document_that_is_too_large_is_not_read_to_its_end() -> None:
    async with run() as w:
        answering(w, b'{"resources":[' + b"{}," * 400_000 + b"{}]}")
        await w.service()
        await w.register()
        condition = await w.condition("FailedDiscoveryCheck")
        assert "response body is larger than 1048576 bytes" in condition["message"]


async def test_a_client_in_the_process_reads_no_document_of_any_size() -> None:
    async with run() as w:
        answering(w, {"resources": []})
        await w.service()
        await w.register()
        await w.condition("Passed")
        answering(w, b" " * 6_000_000)
        client = InProcessClient(w.api.server, ADMIN)
        with pytest.raises(ApiUnreachable, match="larger than 4194304 bytes"):
            await client.get_json(f"/apis/{GROUP}/v1")
        served = await discover_served(client)
        assert GROUP in served.silent
