"""What is served is what was authorized: selectors, unusual paths and unusual methods do not bypass
it.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, FakeStream, start

from transom.http.messages import HttpResponse, PeerCertificate, StreamResponse

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ANN = PeerCertificate("ann", [])
SECRETS = "/api/v1/namespaces/default/secrets"
WATCH = "/api/v1/watch/namespaces/default/secrets"
MISMATCH = "fieldSelector metadata.name doesn't match requested name"


async def with_secrets(*rules: dict[str, Any], namespace: str = "") -> Api:
    api = await start()
    for name in ("a", "b"):
        await api.ok(
            "POST", SECRETS, {"metadata": {"name": name}, "stringData": {"k": f"secret-of-{name}"}}
        )
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": list(rules)})
    scope = (
        f"{RBAC}/namespaces/{namespace}/rolebindings"
        if namespace
        else f"{RBAC}/clusterrolebindings"
    )
    await api.ok(
        "POST",
        scope,
        {
            "metadata": {"name": "r"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "r",
            },
            "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    )
    return api


def rule(verbs: str, resources: str, *names: str) -> dict[str, Any]:
    out: dict[str, Any] = {
        "verbs": verbs.split(),
        "apiGroups": [""],
        "resources": resources.split(),
    }
    return out | ({"resourceNames": list(names)} if names else {})


async def result(api: Api, method: str, target: str, **more: Any) -> Any:
    """The status and message, or the names that a list or watch shows."""
    answer = await api.send(method, target, peer=ANN, **more)
    if isinstance(answer, StreamResponse):
        stream = FakeStream()
        answer.start(stream)  # type: ignore[arg-type]
        await api.ok(
            "PATCH",
            f"{SECRETS}/b",
            {"metadata": {"labels": {"x": str(api.server.storage.store.revision)}}},
            media="application/merge-patch+json",
        )
        return sorted({event["object"]["metadata"]["name"] for event in stream.events()})
    assert isinstance(answer, HttpResponse)
    body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return answer.status, body.decode()
    if answer.status == 200 and "items" in found:
        return sorted(item["metadata"]["name"] for item in found["items"])
    return answer.status, found.get("message", found.get("metadata", {}).get("name"))


async def test_a_watch_of_one_secret_shows_no_other() -> None:
    api = await with_secrets(rule("get list watch", "secrets", "a"))
    for query, expected in {
        "": ["a"],
        "?resourceVersion=0": ["a"],
        "?fieldSelector=": ["a"],
        "?fieldSelector=metadata.name%3Da": ["a"],
        "?fieldSelector=metadata.name%3Db": (400, MISMATCH),
        "?fieldSelector=type%3DOpaque": (400, MISMATCH),
        "?fieldSelector=metadata.name%21%3Dx": (400, MISMATCH),
        "?fieldSelector=metadata.namespace%3Ddefault": (400, MISMATCH),
        "?fieldSelector=metadata.name%3Db%2Cmetadata.name%3Da": ["a", "b", None],
        "?fieldSelector=metadata.name%3Da%2Cmetadata.name%3Db": ["a", "b", None],
        "?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db": ["a"],
        "?fieldSelector=type%3DOpaque%2Cmetadata.name%3Da": ["a"],
    }.items():
        got = await result(api, "GET", f"{WATCH}/a{query}")
        if isinstance(expected, list) and None in expected:
            assert got == [], query  # both names at once: nothing matches
        else:
            assert got == expected, query
    for target in (
        f"{SECRETS}?watch=1&fieldSelector=metadata.name%3Da",
        f"{SECRETS}?fieldSelector=metadata.name%3Da",
    ):
        assert await result(api, "GET", target) == ["a"]
    for target in (
        f"{SECRETS}?watch=1",
        SECRETS,
        WATCH,
        f"{WATCH}/b",
        f"{SECRETS}?fieldSelector=metadata.name%3Db",
        f"{WATCH}?fieldSelector=metadata.name%3Da",
        f"{SECRETS}/b?fieldSelector=metadata.name%3Da",
        f"{SECRETS}?fieldSelector=metadata.name%3Da&limit=x",
        f"{WATCH}/b?fieldSelector=metadata.name%3Da",
    ):
        status, message = await result(api, "GET", target)
        assert status == 403, target
        assert message.startswith("secrets"), target
    await api.server.stop()


async def test_history_shows_no_other_secret_either() -> None:
    """A watch that goes on from a past revision, and a list of a past state or of a later page."""

    api = await with_secrets(rule("get list watch", "secrets", "a"))
    revision = api.server.storage.store.revision
    for name in ("b", "a", "b"):
        await api.ok(
            "PATCH",
            f"{SECRETS}/{name}",
            {"metadata": {"labels": {"x": str(api.server.storage.store.revision)}}},
            media="application/merge-patch+json",
        )
    page = await api.ok("GET", f"{SECRETS}?limit=1")
    token = page["metadata"]["continue"]
    named = "fieldSelector=metadata.name%3Da"
    for target in (
        f"{WATCH}/a?resourceVersion={revision}",
        f"{WATCH}/a?{named}&resourceVersion={revision}",
        f"{SECRETS}?watch=1&{named}&resourceVersion={revision}",
        f"{SECRETS}?{named}&resourceVersion={revision}&resourceVersionMatch=Exact",
        f"{SECRETS}?{named}&limit=5&continue={token}",
    ):
        assert await result(api, "GET", target) == ["a"], target
    for target in (
        f"{WATCH}/a?fieldSelector=metadata.name%3Db&resourceVersion={revision}",
        f"{WATCH}/a?fieldSelector=metadata.namespace%3Ddefault&resourceVersion={revision}",
    ):
        assert await result(api, "GET", target) == (400, MISMATCH), target
    past = f"resourceVersion={revision}"
    for target in (
        f"{SECRETS}?limit=5&continue={token}",
        f"{SECRETS}?{past}&resourceVersionMatch=Exact",
        f"{SECRETS}?watch=1&{past}",
    ):
        assert (await result(api, "GET", target))[0] == 403, target
    await api.server.stop()


async def test_a_selector_gives_no_right_to_delete_a_collection() -> None:
    api = await with_secrets(rule("deletecollection delete", "secrets", "a"))
    status, message = await result(api, "DELETE", f"{SECRETS}?fieldSelector=metadata.name%3Da")
    assert (status, message) == (
        403,
        'secrets is forbidden: User "ann" cannot deletecollection resource "secrets" in API '
        'group "" in the namespace "default"',
    )
    assert len((await api.ok("GET", SECRETS))["items"]) == 2
    await api.server.stop()


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_rights_in_a_namespace_reach_no_other_namespace(method: str) -> None:
    """`/api/v1/namespaces/default/namespaces/other` is authorized in `default`, and leads
    nowhere.
    """

    api = await with_secrets(
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, namespace="default"
    )
    body = (
        None
        if method in ("GET", "DELETE")
        else {"metadata": {"name": "other", "labels": {"x": "y"}}}
    )
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    for path in (
        "namespaces/other",
        "namespaces",
        "namespaces/other/status",
        "nodes",
        "namespaces/default",
    ):
        got = await result(
            api, method, f"/api/v1/namespaces/default/{path}", body=body, media=media
        )
        assert got == (404, "the server could not find the requested resource"), path
    other = await api.ok("GET", "/api/v1/namespaces/other")
    assert "x" not in (other["metadata"].get("labels") or {})
    assert "deletionTimestamp" not in other["metadata"]
    await api.server.stop()


async def test_paths_without_a_route() -> None:
    api = await with_secrets({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
    nothing = (404, "the server could not find the requested resource")
    forbidden = (405, "the server does not allow this method on the requested resource")
    for method, target, expected in (
        ("GET", "/api/v1/watch/secrets/a", nothing),
        ("GET", "/api/v1/secrets/a", nothing),
        ("GET", f"{WATCH}/a/status", nothing),
        ("GET", "/api/v1/watch/bindings", nothing),
        ("GET", "/api/v1/proxy/namespaces/default/pods/a", nothing),
        ("POST", "/api/v1/bindings", nothing),
        ("GET", "/api/v1/namespaces/default/pods/a/status/b", nothing),
        ("DELETE", f"{WATCH}/a", forbidden),
        ("POST", WATCH, forbidden),
        ("HEAD", SECRETS, forbidden),
        ("OPTIONS", SECRETS, forbidden),
        ("POST", "/api/v1/secrets", forbidden),
        ("POST", f"{SECRETS}/a", forbidden),
        ("GET", "//api/v1/secrets", (404, None)),
        ("GET", "/apis//v1/secrets", (404, "404 page not found\n")),
        ("GET", "/apis//apps/v1", (404, "404 page not found\n")),
        ("GET", "/apis/apps//v1", (404, "404 page not found\n")),
        ("GET", "/api//v1/secrets", nothing),
        ("GET", "/api/v2/secrets", nothing),
        ("GET", "/api/v2", nothing),
        ("GET", "/api/v1/namespaces/default/./secrets", nothing),
        ("GET", "/api/v1/namespaces/default/../secrets", nothing),
        ("GET", "/api/v1/namespaces/default/Secrets", nothing),
        ("GET", "/api/v1/namespaces//secrets", ["a", "b"]),
        ("GET", "/api/v1/namespaces//secrets/a", (400, "Namespace parameter required.")),
        ("GET", "/api/v1/namespaces/default/pods//log", (500, "name must be provided")),
        ("GET", f"{SECRETS}/..", (400, "Name parameter invalid: \"..\": may not be '..'")),
        (
            "GET",
            f"{SECRETS}/a%25",
            (400, "Name parameter invalid: \"a%\": may not contain '%'"),
        ),
        ("GET", "/api/v1/namespaces/default%2Fsecrets%2Fa", (200, "a")),
        ("GET", f"{SECRETS}/a/", (200, "a")),
        ("GET", f"{SECRETS}/a?watch=true", (200, "a")),
        (
            "GET",
            "/api/v1/watch",
            (
                500,
                'Internal Server Error: "/api/v1/watch": failed to create RequestInfo: '
                "unable to "
                "determine kind and namespace from url, /api/v1/watch\n",
            ),
        ),
    ):
        assert await result(api, method, target) == expected, (method, target)
    # The method is that of the request line, whatever a header says.
    override = {
        b"x-http-method-override": b"DELETE",
        b"x-http-method": b"DELETE",
        b"x-method-override": b"DELETE",
    }
    assert (await result(api, "GET", f"{SECRETS}/a", headers=override)) == (200, "a")
    assert (await result(api, "POST", f"{SECRETS}/a", headers=override)) == forbidden
    assert len((await api.ok("GET", SECRETS))["items"]) == 2
    await api.server.stop()


async def test_other_paths_are_taken_as_they_are_written() -> None:
    """A rule for `/metrics/*` gives no access to `/metrics`, so `/metrics/` does not lead there."""

    api = await start()
    served = {
        "/metrics": 200,
        "/metrics/": 404,
        "//metrics": 404,
        "/metrics/.": 404,
        "/version": 200,
        "/version/": 200,
        "/version//": 404,
        "/api": 200,
        "/api/": 200,
        "/apis/": 200,
    }
    for path, status in served.items():
        assert (await api.send("GET", path)).status == status, path
    await api.server.stop()
