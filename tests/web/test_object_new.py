"""A new object from YAML: created or tried in a dry run, with the errors of the API server."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.conftest import ContextFactory
from tests.web.test_objects import ATTACK, ScriptedApi

from transom.web.api_access import ApiAnswer
from transom.web.pages.object_new import response_warnings

WIDGET = "apiVersion: x.io/v1\nkind: Widget\nmetadata: {name: a, namespace: shop}\n"
PATH = "/apis/x.io/v1/namespaces/shop/widgets"


def _body(**values: Any) -> bytes:
    return orjson.dumps(values)


async def test_the_editor_starts_with_the_kind_and_namespace(browser: ContextFactory) -> None:
    async with browser(ScriptedApi()) as console:
        page = await console.get("/objects/new?kind=x.io/v1/widgets&namespace=shop")
        assert (
            "apiVersion: x.io/v1\nkind: Widget\nmetadata:\n  name: \n  namespace: shop" in page.text
        )
        assert "namespace:" not in (await console.get("/objects/new?kind=core/v1/nodes")).text
        assert (await console.get("/objects/new")).status == 200
        assert (await console.get("/objects/new?kind=x.io/v1/gadgets")).status == 404
        evil = await console.get(f"/objects/new?kind=core/v1/pods&namespace={ATTACK}")
        assert ATTACK not in evil.text and "&lt;script&gt;" in evil.text


@pytest.mark.parametrize("dry", [True, False])
async def test_an_object_is_created(browser: ContextFactory, dry: bool) -> None:
    api = ScriptedApi()
    stored = {"kind": "Widget", "metadata": {"name": "a", "namespace": "shop", "uid": "1"}}
    api.set(PATH, stored, 201, "POST")
    async with browser(api) as console:
        answer = await console.post("/objects/new", _body(yaml=WIDGET, dryRun=dry))
        found = orjson.loads(answer.text)
        assert answer.status == 200 and found["dryRun"] is dry and "uid" in found["yaml"]
        assert found["page"] == "/objects/x.io/v1/widgets/shop/a"
        sent = api.requests[-1]
        assert orjson.loads(sent.body)["kind"] == "Widget"
        assert sent.query.get("dryRun") == (["All"] if dry else None)
        assert sent.query["fieldManager"] == ["transom-console"]


async def test_the_namespace_of_the_page_is_the_default(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set(PATH, {"metadata": {"name": "a", "namespace": "shop"}}, 201, "POST")
    text = "apiVersion: x.io/v1\nkind: Widget\nmetadata: {generateName: a-}\n"
    async with browser(api) as console:
        assert (
            await console.post("/objects/new", _body(yaml=text, namespace="shop"))
        ).status == 200
        assert api.requests[-1].path == PATH


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("a: [b", 400, "yaml"),
        ("metadata: {}", 400, "apiVersion and kind are required"),
        (WIDGET.replace("Widget", "Gadget"), 404, "no kind 'Gadget'"),
        (WIDGET.replace("shop", "../../x"), 400, "metadata.namespace"),
        (WIDGET, 409, f"already exists {ATTACK}"),
    ],
)
async def test_errors_are_shown(
    browser: ContextFactory, text: str, status: int, message: str
) -> None:
    api = ScriptedApi()
    problem = {"kind": "Status", "code": 409, "message": f"already exists {ATTACK}"}
    api.set(PATH, problem, 409, "POST")
    async with browser(api) as console:
        answer = await console.post("/objects/new", _body(yaml=text), accept="application/json")
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert message in orjson.loads(answer.text)["message"]


async def test_a_new_object_needs_the_csrf_token(browser: ContextFactory) -> None:
    api = ScriptedApi()
    async with browser(api) as console:
        answer = await console.post("/objects/new", _body(yaml=WIDGET), x_csrf_token="wrong")
        assert answer.status == 403 and api.requests == []


def test_warnings_of_the_server_are_text() -> None:
    headers = [(b"Warning", b'299 - "use \\"apps/v1\\""'), (b"warning", b"199 - x"), (b"A", b"b")]
    assert response_warnings(ApiAnswer(201, headers, b"")) == ['use "apps/v1"']
