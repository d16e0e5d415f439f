"""Bad input gets a Status with the right code, and the server continues to work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.harness import start

CM = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEEP = b'{"metadata":{"name":"a"},"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"

CASES: list[tuple[str, str, str, Any, str, int]] = [
    ("empty body", "POST", CM, b"", "application/json", 400),
    ("malformed", "POST", CM, b'{"a":', "application/json", 400),
    ("an array", "POST", CM, b"[1]", "application/json", 400),
    ("a number", "POST", CM, b"7", "application/json", 400),
    (
        "not UTF-8 in a key",
        "POST",
        CM,
        b'{"metadata":{"name":"\xff\xfe"}}',
        "application/json",
        422,
    ),
    ("deep nesting", "POST", CM, DEEP, "application/json", 400),
    ("wrong type", "POST", CM, {"metadata": {"name": 5}}, "application/json", 400),
    ("no name", "POST", CM, {"metadata": {}}, "application/json", 422),
    ("bad media type", "POST", CM, {"metadata": {"name": "a"}}, "text/html", 415),
    ("metadata is a list", "POST", CM, {"metadata": []}, "application/json", 400),
    (
        "yaml bomb",
        "POST",
        CM,
        b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\nmetadata: {name: ok}",
        "application/yaml",
        201,
    ),
    ("yaml tag", "POST", CM, b"!!python/object/apply:os.system ['true']", "application/yaml", 400),
    ("other kind", "POST", CM, {"kind": "Pod", "apiVersion": "v1"}, "application/json", 400),
    ("patch type", "PATCH", CM + "/a", {}, "application/x", 415),
    ("patch of nothing", "PATCH", CM + "/none", {}, MERGE, 404),
    ("apply without manager", "PATCH", CM + "/none", {}, APPLY, 422),
    ("unknown resource", "GET", "/api/v1/nopes", None, "", 404),
    ("unknown group", "GET", "/apis/nope/v1/x", None, "", 404),
    ("method", "POST", "/api/v1/configmaps", {}, "application/json", 405),
    ("bad limit", "GET", CM + "?limit=x", None, "", 400),
    ("bad continue", "GET", CM + "?continue=%00", None, "", 400),
    ("bad selector", "GET", CM + "?labelSelector=a%3D%3D%3Db", None, "", 400),
    ("bad version", "GET", CM + "?resourceVersion=x", None, "", 500),
    ("future version", "GET", CM + "?resourceVersion=99999999", None, "", 504),
    ("bad delete options", "DELETE", CM + "/none", b"{", "application/json", 500),
    ("name with a slash", "GET", CM + "/a%2Fb", None, "", 404),
    ("null body", "POST", CM, b"null", "application/json", 422),
]


@pytest.mark.parametrize(
    ("method", "target", "body", "media", "expected"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
async def test_answer_and_go_on(
    method: str, target: str, body: Any, media: str, expected: int
) -> None:
    api = await start()
    await api.ok("POST", CM, {"metadata": {"name": "a"}})
    before = api.server.storage.store.revision
    status, answer = await api.call(method, target, body, media=media or "application/json")
    assert status == expected, answer
    if status >= 400:
        assert "Traceback" not in str(answer)
        assert api.server.storage.store.revision == before, "a refused request changed something"
    assert (await api.call("GET", CM + "/a"))[0] == 200
