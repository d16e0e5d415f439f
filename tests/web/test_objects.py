"""The Objects page against a scripted API server: tables, paging, escaping, edits and refusals."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson
import pytest
from tests.conftest import ContextFactory

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.web.pages.objects import row_changes

JSON = [(b"Content-Type", b"application/json")]
ATTACK = "<script>alert(1)</script>"
VERBS = ["create", "delete", "get", "list", "patch", "watch"]


class ScriptedApi:
    """A server with pods and widgets; a test sets what it answers to one path."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        core = [
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": VERBS},
            {"name": "pods/log", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
            {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": VERBS},
        ]
        widgets = [{"name": "widgets", "kind": "Widget", "namespaced": True, "verbs": VERBS}]
        version = {"groupVersion": "x.io/v1", "version": "v1"}
        group = {"name": "x.io", "versions": [version], "preferredVersion": version}
        self.set("/api", {"versions": ["v1"]})
        self.set("/apis", {"groups": [group]})
        self.set("/api/v1", {"resources": core})
        self.set("/apis/x.io/v1", {"resources": widgets})
        namespaces = [{"metadata": {"name": "shop"}}, {"metadata": {"name": "default"}}]
        self.set("/api/v1/namespaces", {"items": namespaces})

    def set(self, path: str, body: Any, status: int = 200, method: str = "GET") -> None:
        self.answers[method, path] = (status, body)

    def __call__(self, request: HttpRequest) -> Answer:
        self.requests.append(request)
        missing = {"kind": "Status", "code": 404, "message": f"no {request.path}"}
        status, body = self.answers.get((request.method, request.path), (404, missing))
        return HttpResponse(status, JSON, orjson.dumps(body))


def _table(*names: str, token: str = "", **cells: str) -> dict[str, Any]:
    columns = [
        {"name": "Name", "priority": 0},
        {"name": "Status", "priority": 0},
        {"name": "IP", "priority": 1},
    ]
    rows = [
        {
            "cells": [name, cells.get("status", "Running"), "10.0.0.1"],
            "object": {"metadata": {"name": name, "namespace": "shop"}},
        }
        for name in names
    ]
    meta = {"resourceVersion": "5", "continue": token, "remainingItemCount": 42}
    return {"kind": "Table", "metadata": meta, "columnDefinitions": columns, "rows": rows}


async def test_a_kind_that_was_just_defined_has_a_page(browser: ContextFactory) -> None:
    api = ScriptedApi()
    gadgets = "/objects/x.io/v1/gadgets"
    api.set("/apis/x.io/v1/gadgets", _table("g1"))
    async with browser(api) as page:
        assert (await page.get(gadgets)).status == 404
        row = {"name": "gadgets", "kind": "Gadget", "namespaced": True, "verbs": VERBS}
        api.set("/apis/x.io/v1", {"resources": [row]})
        before = len(api.requests)
        assert (await page.get(gadgets)).status == 404
        assert len(api.requests) == before, "unknown kinds cost one discovery a second"
        page.clock.advance(1)
        answer = await page.get(gadgets)
        assert (answer.status, "g1" in answer.text) == (200, True)


async def test_table_of_a_kind(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set("/api/v1/namespaces/shop/pods", _table("a", "b", token="next/page"))
    async with browser(api) as page:
        answer = await page.get("/objects/core/v1/pods?namespace=shop&labels=app%3Dweb")
        assert answer.status == 200
        assert '<a href="/objects/core/v1/pods/shop/a">a</a>' in answer.text
        assert '<a href="/objects/x.io/v1/widgets?namespace=shop"' in answer.text
        assert "10.0.0.1" not in answer.text  # a column of lower priority
        assert "namespace=shop&amp;labels=app%3Dweb&amp;continue=next%2Fpage" in answer.text
        assert "42 more" in answer.text
        sent = next(r for r in api.requests if r.path == "/api/v1/namespaces/shop/pods")
        assert sent.query == {"labelSelector": ["app=web"], "limit": ["100"]}
        assert sent.header(b"accept").startswith("application/json;as=Table;v=v1;g=meta.k8s.io")
        wide = await page.get("/objects/core/v1/pods?namespace=shop&wide=1")
        assert "10.0.0.1" in wide.text


async def test_cells_and_names_are_escaped(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set("/api/v1/pods", _table(ATTACK, '"onmouseover="x', status=ATTACK))
    async with browser(api) as page:
        text = (await page.get("/objects/core/v1/pods")).text
        assert ATTACK not in text
        assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 4
        assert f'href="/objects/core/v1/pods/shop/{quote(ATTACK, safe="")}"' in text
        assert '"onmouseover=' not in text


@pytest.mark.parametrize("target", ["/objects/core/v1/gadgets", "/objects/y.io/v1/widgets"])
async def test_kinds_that_the_server_does_not_have(browser: ContextFactory, target: str) -> None:
    async with browser(ScriptedApi()) as page:
        answer = await page.get(target)
        assert answer.status == 404
        assert "the server has no resource" in answer.text


async def test_who_may_not_list_all_namespaces_sees_one(browser: ContextFactory) -> None:
    api = ScriptedApi()
    denied = {"kind": "Status", "code": 403, "message": f"may not {ATTACK}"}
    for path in ("/api/v1/pods", "/api/v1/nodes", "/apis/x.io/v1/namespaces/shop/widgets"):
        api.set(path, denied, 403)
    async with browser(api) as page:
        answer = await page.get("/objects/core/v1/pods")
        assert answer.status == 303
        assert answer.headers["location"] == "/objects/core/v1/pods?namespace=default"
        for path in ("core/v1/nodes", "x.io/v1/widgets?namespace=shop"):
            answer = await page.get(f"/objects/{path}")
            assert answer.status == 403
            assert "<h2>Not allowed</h2>" in answer.text
            assert "may not &lt;script&gt;" in answer.text and ATTACK not in answer.text
            assert 'id="kind-list"' in answer.text, "other kinds can be chosen"
        api.set("/api/v1/namespaces", denied, 403)
        api.set("/api/v1/pods", _table("a"))
        shown = await page.get("/objects/core/v1/pods")
        assert '<option value="default">default</option>' in shown.text  # of the kubeconfig


async def test_an_expired_page_starts_again(browser: ContextFactory) -> None:
    class Expiring(ScriptedApi):
        def __call__(self, request: HttpRequest) -> Answer:
            if "continue" in request.query:
                status = {"kind": "Status", "code": 410, "message": "expired"}
                return HttpResponse(410, JSON, orjson.dumps(status))
            return super().__call__(request)

    api = Expiring()
    api.set("/api/v1/pods", _table("first"))
    async with browser(api) as page:
        answer = await page.get("/objects/core/v1/pods?continue=old")
        assert answer.status == 200
        assert ">first</a>" in answer.text


WIDGET: dict[str, Any] = {
    "apiVersion": "x.io/v1",
    "kind": "Widget",
    "metadata": {
        "name": "w",
        "namespace": "shop",
        "uid": "u1",
        "resourceVersion": "7",
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
        "annotations": {"note": ATTACK},
    },
    "spec": {"size": 1, "colour": "red"},
    "status": {"ready": True},
}
_EDITED = """\
apiVersion: x.io/v1
kind: Widget
metadata:
  name: w
  namespace: shop
  annotations:
    note: <script>alert(1)</script>
spec:
  size: 2
  colour: red
"""
_PATH = "/apis/x.io/v1/namespaces/shop/widgets/w"
_PAGE = "/objects/x.io/v1/widgets/shop/w"


async def test_page_of_an_object(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set(_PATH, WIDGET)
    async with browser(api) as page:
        answer = await page.get(_PAGE)
        assert answer.status == 200
        assert ATTACK not in answer.text
        assert "note: &lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
        assert "managedFields" not in answer.text
        assert 'id="tab-logs"' not in answer.text  # only pods have logs
        assert (await page.get(f"{_PAGE}/log")).status == 404
        assert (await page.get(f"{_PAGE}/terminal")).status == 400


async def test_edit_applies_the_changed_fields(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set(_PATH, WIDGET)
    changed = {**WIDGET, "spec": {"size": 2, "colour": "red", "extra": True}}
    api.set(_PATH, changed, method="PATCH")
    async with browser(api) as page:
        body = orjson.dumps({"yaml": _EDITED, "dryRun": True, "force": True})
        answer = await page.post(f"{_PAGE}/apply", body)
        found = orjson.loads(answer.text)
        assert "-  size: 1" in found["diff"]
        assert "+  size: 2" in found["diff"]
        assert found["kept"] == [".spec.extra"]
        sent = api.requests[-1]
        assert sent.query == {
            "fieldManager": ["transom-console"],
            "dryRun": ["All"],
            "force": ["true"],
        }
        assert sent.header(b"content-type") == "application/apply-patch+yaml"
        assert orjson.loads(sent.body)["spec"] == {"size": 2}


async def test_conflicts_are_shown(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set(_PATH, WIDGET)
    cause = {
        "reason": "FieldManagerConflict",
        "field": ".spec.size",
        "message": 'conflict with "kubectl"',
    }
    conflict = {
        "kind": "Status",
        "code": 409,
        "reason": "Conflict",
        "message": "Apply failed with 1 conflict",
        "details": {"causes": [cause]},
    }
    api.set(_PATH, conflict, 409, "PATCH")
    async with browser(api) as page:
        answer = await page.post(f"{_PAGE}/apply", orjson.dumps({"yaml": _EDITED}))
        assert orjson.loads(answer.text)["conflicts"] == [
            {"field": ".spec.size", "message": 'conflict with "kubectl"'}
        ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an object"),
        ("a: [", "yaml"),
        (_EDITED.replace("name: w", "name: other"), "metadata.name cannot change"),
        (_EDITED.replace("kind: Widget", "kind: Pod"), "kind must stay Widget"),
        ("a: &a [x]\nb: " + "[*a," * 200 + "]" * 200, ""),
        ("x" * (1024 * 1024 + 1), "larger than 1 MiB"),
    ],
)
async def test_texts_that_cannot_be_applied(
    browser: ContextFactory, text: str, message: str
) -> None:
    api = ScriptedApi()
    api.set(_PATH, WIDGET)
    async with browser(api) as page:
        answer = await page.post(
            f"{_PAGE}/apply", orjson.dumps({"yaml": text}), accept="application/json"
        )
        assert answer.status == 400
        assert message in answer.text
        assert not [r for r in api.requests if r.method == "PATCH"]


async def test_delete_the_object_that_was_shown(browser: ContextFactory) -> None:
    api = ScriptedApi()
    api.set(_PATH, {"kind": "Status", "status": "Success"}, method="DELETE")
    async with browser(api) as page:
        body = orjson.dumps({"uid": "u1", "propagation": "Foreground"})
        assert (await page.post(f"{_PAGE}/delete", body)).status == 200
        sent = orjson.loads(api.requests[-1].body)
        assert sent["preconditions"] == {"uid": "u1"}
        assert sent["propagationPolicy"] == "Foreground"
        conflict = {"kind": "Status", "code": 409, "message": "the UID does not match"}
        api.set(_PATH, conflict, 409, "DELETE")
        answer = await page.post(f"{_PAGE}/delete", body, accept="application/json")
        assert answer.status == 409


def test_rows_of_a_watch() -> None:
    event = {"type": "ADDED", "object": _table("a")}
    assert row_changes(orjson.dumps(event)) == [
        {
            "type": "ADDED",
            "namespace": "shop",
            "name": "a",
            "cells": ["a", "Running", "10.0.0.1"],
        }
    ]
    assert row_changes(orjson.dumps({"type": "BOOKMARK", "object": {}})) == []
