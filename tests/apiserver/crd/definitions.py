"""Definitions for the tests, and a server that knows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.apiserver.harness import Api, start
from tests.inline_workers import InlineWorkers

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "example.com"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"


def version(name: str = "v1", schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        **more,
        "schema": {
            "openAPIV3Schema": schema
            or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
    }


def spec_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def definition(
    *versions: dict[str, Any], plural: str = "widgets", kind: str = "Widget", **spec: Any
) -> dict[str, Any]:
    names = {"plural": plural, "kind": kind, **spec.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": list(versions) or [version()],
            **spec,
        },
    }


def widget(name: str, api_version: str = f"{GROUP}/v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name}, **fields}


async def until(check: Callable[[], Awaitable[Any]]) -> Any:
    """The first true answer; fails when the server comes to rest without one."""
    for turn in range(3000):
        found = await check()
        if found:
            return found
        await asyncio.sleep(0 if turn < 500 else 0.002)  # a worker thread may still compute
    raise AssertionError("it never came")


def condition(crd: dict[str, Any], kind: str) -> dict[str, Any] | None:
    return next(
        (c for c in crd.get("status", {}).get("conditions") or () if c["type"] == kind), None
    )


async def established(api: Api, name: str = f"widgets.{GROUP}") -> dict[str, Any]:
    async def check() -> Any:
        crd = await api.ok("GET", f"{CRDS}/{name}")
        found = condition(crd, "Established")
        return crd if found and found["status"] == "True" else None

    return await until(check)  # type: ignore[no-any-return]


async def define(api: Api, *versions: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = await api.ok("POST", CRDS, definition(*versions, **more))
    return await established(api, made["metadata"]["name"])


@asynccontextmanager
async def run(**options: Any) -> AsyncIterator[Api]:
    api = await start(**{"workers": InlineWorkers(), **options})
    try:
        yield api
    finally:
        await api.server.stop()
