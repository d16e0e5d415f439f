"""The request chain: its order, and that both transports run through it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import start

from transom.apiserver.core.call import DocumentResult
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import Authorized, parse_request_info
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.serving import http
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import builtin_resource
from transom.machinery import errors
from transom.machinery.errors import ApiError

CONFIG_MAPS = builtin_resource("/ConfigMap")
PODS = builtin_resource("/Pod")


@asynccontextmanager
async def run() -> AsyncIterator[Any]:
    api = await start()
    try:
        yield api
    finally:
        await api.server.stop()


async def test_the_order_of_the_steps() -> None:
    async with run() as api:
        names = [type(step).__name__ for step in api.server.chain._steps]
        assert names == ["Authenticate", "Impersonate", "FlowControl", "Authorize", "Execute"]


async def test_every_served_subresource_has_a_handler_for_each_of_its_verbs() -> None:
    async with run() as api:
        execute = api.server.chain._steps[-1]
        table = execute._dispatch._subresources  # type: ignore[attr-defined]
        for kind in api.server.resources.kinds():
            for version in kind.versions:
                for sub in kind.subresources_of(version):
                    found = table.get((kind.key, sub.name)) or table.get(("*", sub.name)) or {}
                    missing = set(sub.verbs) - set(found) - {"get"}
                    assert not missing, (kind.key, sub.name, missing)


async def test_both_transports_reject_what_the_user_may_not_do() -> None:
    async with run() as api:
        client = InProcessClient(api.server, UserInfo("jane", ("system:authenticated",)))
        with pytest.raises(ApiError) as forbidden:
            await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        status, answer = await api.call(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"metadata": {"name": "a"}},
            headers={b"impersonate-user": b"jane"},
        )
        assert (status, answer["message"]) == (403, str(forbidden.value))


async def test_a_client_that_may_not_write_any_more_can_read() -> None:
    def refuse() -> None:
        raise errors.service_unavailable("leaderelection lost")

    async with run() as api:
        admin = UserInfo("admin", ("system:masters",))
        made = await InProcessClient(api.server, admin).create(
            CONFIG_MAPS, "default", {"metadata": {"name": "a"}}
        )
        client = InProcessClient(api.server, admin, check_write=refuse)
        assert await client.get(CONFIG_MAPS, "default", "a") is made
        (await client.watch(CONFIG_MAPS, "default")).close()
        writes = (
            client.create(CONFIG_MAPS, "default", {"metadata": {"name": "b"}}),
            client.update(CONFIG_MAPS, {**made, "data": {"a": "b"}}),
            client.patch(CONFIG_MAPS, "default", "a", {"data": {"a": "b"}}),
            client.delete(CONFIG_MAPS, "default", "a"),
            client.delete_collection(CONFIG_MAPS, "default"),
        )
        for write in writes:
            with pytest.raises(ApiError, match="leaderelection lost"):
                await write
        names = [
            one["metadata"]["name"] for one in (await client.list(CONFIG_MAPS, "default")).items
        ]
        assert "a" in names and "b" not in names


async def test_the_in_process_client_gets_objects_and_not_bytes() -> None:
    async with run() as api:
        client = InProcessClient(api.server, UserInfo("admin", ("system:masters",)))
        made = await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        assert await client.get(CONFIG_MAPS, "default", "a") is made
        status, answer = await api.call("GET", "/api/v1/namespaces/default/configmaps/a")
        assert (status, answer) == (200, {**made, "metadata": dict(made["metadata"])})


async def test_a_defect_of_a_verb_reaches_each_transport_in_its_own_form() -> None:
    async with run() as api:
        client = InProcessClient(api.server, UserInfo("admin", ("system:masters",)))

        def broken(call: Any) -> DocumentResult:
            raise ZeroDivisionError("a defect")

        table = api.server.chain._steps[-1]._dispatch._stored  # type: ignore[attr-defined]
        table["get"] = table["get"]._replace(handler=broken)
        with pytest.raises(ZeroDivisionError):
            await client.get(CONFIG_MAPS, "default", "a")
        status, answer = await api.call("GET", "/api/v1/namespaces/default/configmaps/a")
        assert (status, answer["reason"]) == (500, "InternalError")


def test_the_short_way_through_route_checks_lets_nothing_else_pass() -> None:
    resources = ResourceRegistry()
    parts = ("", "a", "b")
    checked = 0
    for plural in ("pods", "nodes", "namespaces", "bindings", "componentstatuses"):
        res = resources.require("", "v1", plural)
        for prefix, name, sub in itertools.product(
            ("", "namespaces/x/", "namespaces//", "watch/", "watch/namespaces/x/"), parts, parts
        ):
            path = f"/api/v1/{prefix}{plural}/{name}/{sub}"
            for end in (path, path.rstrip("/"), f"{path}/more"):
                info = Authorized(parse_request_info("GET", end))
                if info.resource != plural or not http._is_ordinary(res, info):
                    continue
                checked += 1
                http._check_path(res, info)
                http._check_method(res, info, "GET")
                http._check_parameters(info)
    assert checked >= 5
