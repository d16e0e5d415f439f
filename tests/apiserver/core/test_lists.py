"""Lists: pages, tokens, and what a resourceVersion of 0 or a name does to them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

CM = "/api/v1/namespaces/default/configmaps"


async def _three() -> Api:
    api = await start()
    for name in "abc":
        await api.ok("POST", CM, {"metadata": {"name": name}})
    return api


def _names(listing: Any) -> list[str]:
    return [o["metadata"]["name"] for o in listing["items"]]


async def test_a_limit_counts_unless_any_version_will_do() -> None:
    api = await _three()
    page = await api.ok("GET", CM + "?limit=1")
    assert (_names(page), page["metadata"]["remainingItemCount"]) == (["a"], 2)
    whole = await api.ok("GET", CM + "?limit=1&resourceVersion=0")
    assert (sorted(_names(whole)), list(whole["metadata"])) == (
        ["a", "b", "c"],
        ["resourceVersion"],
    )
    token = page["metadata"]["continue"]
    assert _names(await api.ok("GET", f"{CM}?limit=1&resourceVersion=0&continue={token}")) == ["b"]
    assert _names(
        await api.ok("GET", f"{CM}?fieldSelector=metadata.name%3Da&continue={token}")
    ) == ["a"]


def _token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("a", "illegal base64 data at input byte 0"),
        ("ab=", "illegal base64 data at input byte 2"),
        ("abc", "invalid character 'i' looking for beginning of value"),
        (_token('{"v":'), "unexpected end of JSON input"),
        (_token("[]"), "json: cannot unmarshal array into Go value of type etcd3.continueToken"),
        (_token("{}"), 'server does not recognize this encoded version ""'),
        (
            _token('{"v":"v9","rv":1,"start":"a"}'),
            'server does not recognize this encoded version "v9"',
        ),
        (
            _token('{"v":"meta.k8s.io/v1","start":"a"}'),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            _token('{"v":"meta.k8s.io/v1","rv":1}'),
            "encoded start key empty (version meta.k8s.io/v1)",
        ),
        (_token('{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}'), "../x"),
    ],
)
async def test_a_bad_continue_token_gets_the_reason(token: str, why: str) -> None:
    api = await start()
    status, problem = await api.call("GET", f"{CM}?continue={token}")
    assert (status, problem["message"]) == (
        400,
        f"invalid continue token: continue key is not valid: {why}",
    )


@pytest.mark.parametrize(
    "query", ["?resourceVersion=900", "?resourceVersion=900&resourceVersionMatch=NotOlderThan", ""]
)
async def test_a_version_of_the_future_has_the_text_that_clients_parse(query: str) -> None:
    api = await _three()
    status, problem = await api.call("GET", CM + (query or "/a?resourceVersion=900"))
    current = api.server.storage.store.revision
    assert (status, problem["reason"]) == (504, "Timeout")
    assert problem["message"] == f"Timeout: Too large resource version: 900, current: {current}"
    assert problem["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("release", "query", "expected"),
    [
        ("1.34", "labelSelector=a/b/c%3D1", 'Invalid value: "a/b/c": a qualified name must'),
        ("1.35", "labelSelector=a/b/c%3D1", 'Invalid value: "a/b/c": a valid label key must'),
        ("1.36", "fieldSelector=%3D", ""),
        ("1.36", "fieldSelector=!%3D,metadata.name%3Da", ""),
        ("1.36", "fieldSelector=%3Da", '"" is not a known field selector'),
        ("1.36", "watch=1&continue=x", "resourceVersionMatch is forbidden when continue is"),
        ("1.36", "watch=1&continue=x&resourceVersion=0", "forbidden when continue is provided"),
    ],
)
async def test_options_of_later_releases(release: str, query: str, expected: str) -> None:
    api = await start(release=release)
    status, answer = await api.call("GET", f"{CM}?{query}")
    assert (status != 200) is bool(expected)
    assert expected in answer.get("message", "")
    await api.server.stop()


async def test_a_full_page_of_a_selection_continues_while_there_are_other_objects() -> None:
    api = await start()
    for name in "abcd":
        labels = {"chosen": "yes"} if name in "ab" else {}
        await api.ok("POST", CM, {"metadata": {"name": name, "labels": labels}})
    selected = CM + "?labelSelector=chosen%3Dyes"
    page = await api.ok("GET", f"{selected}&limit=2")
    token = page["metadata"]["continue"]
    assert (_names(page), "remainingItemCount" in page["metadata"]) == (["a", "b"], False)
    last = await api.ok("GET", f"{selected}&limit=2&continue={token}")
    assert (_names(last), last["metadata"].get("continue")) == ([], None)
    assert "continue" not in (await api.ok("GET", f"{selected}&limit=3"))["metadata"]
    for name in "cd":
        await api.ok("DELETE", f"{CM}/{name}")
    assert "continue" not in (await api.ok("GET", f"{selected}&limit=2"))["metadata"]
