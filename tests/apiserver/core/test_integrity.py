"""Stored objects that cannot be decoded: they are quarantined and reported, and the rest is served."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core.integrity import check_value
from transom.apiserver.serving.health import LOOP_CHECK
from transom.store.api import OutOfSpace, StoreError, StoreHealth

GOOD: dict[str, Any] = {"metadata": {"name": "good"}, "data": {"a": "b"}}
MAPS = "/api/v1/namespaces/default/configmaps"
BROKEN = [
    b"{",
    b"\xff\x00",
    b"[]",
    b'"text"',
    b"{}",
    b'{"metadata":[]}',
    b'{"metadata":{"name":"bad","namespace":"default"}}',
    b'{"metadata":{"name":"other","namespace":"default","resourceVersion":"%d"}}',
]


def whole(answer: Any) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def body(answer: Any) -> Any:
    return orjson.loads(whole(answer))


async def events(api: Api) -> list[dict[str, Any]]:
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.01)
            found = body(await api.send("GET", "/api/v1/namespaces/default/events"))["items"]
            if found:
                return list(found)


@pytest.mark.parametrize("value", BROKEN)
async def test_every_way_to_read_works_beside_an_object_that_does_not_decode(value: bytes) -> None:
    api = await start()
    await api.send("POST", MAPS, GOOD)
    for target, headers in (
        (f"{MAPS}?labelSelector=a!=b", {}),
        (f"{MAPS}?fieldSelector=metadata.namespace!=x", {}),
        ("/api/v1/configmaps", {}),
        (MAPS, {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
        (MAPS, {"accept": "application/vnd.kubernetes.protobuf"}),
        (MAPS, {"accept": "application/yaml"}),
    ):
        await api.server.options.store.put(
            "configmaps/default/bad", lambda at: value % at if b"%d" in value else value
        )
        await api.server.integrity.scan_for_corruption(
            api.server.resource("", "v1", "configmaps"), "default"
        )
        answer = await api.send("GET", target, **headers)
        assert answer.status == 200, (target, answer.body)
        assert b"good" in whole(answer) and b"bad" not in whole(answer)
        api.clock.advance(10)
    found = [one for one in await events(api) if one["reason"] == "CorruptRecord"]
    assert (
        found
        and found[0]["type"] == "Warning"
        and found[0]["source"]["component"] == "kube-apiserver"
    )
    assert found[0]["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "bad",
        "namespace": "default",
    }
    metrics = whole(await api.send("GET", "/metrics")).decode()
    assert "\ntransom_store_corrupt_records_total 6\n" in metrics
    assert "\ntransom_store_quarantined_records 6\n" in metrics


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", f"{MAPS}/bad", 404),
        ("DELETE", f"{MAPS}/bad", 404),
        ("POST", MAPS, 201),
        ("GET", f"{MAPS}?labelSelector=a!=b", 200),
        ("GET", f"{MAPS}?fieldSelector=metadata.name!=x", 200),
    ],
)
async def test_a_request_that_stumbles_over_a_corrupt_object_is_served_without_it(
    method: str, target: str, expected: int
) -> None:
    api = await start()
    await api.server.options.store.put("configmaps/default/bad", lambda _: b"[1]")
    sent = {**GOOD, "metadata": {"name": "bad"}} if method == "POST" else None
    if target.endswith("/bad") and method == "GET":
        await api.server.integrity.scan_for_corruption(
            api.server.resource("", "v1", "configmaps"), ""
        )
    answer = await api.send(method, target, sent)
    assert answer.status == expected, answer.body
    assert [one.key for one in api.server.options.store.quarantined()] == ["configmaps/default/bad"]


async def test_watchers_see_the_corrupt_object_go() -> None:
    api = await start()
    store = api.server.options.store
    answer = await api.send(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}}
    )
    version = body(answer)["metadata"]["resourceVersion"]
    stream = await api.watch(
        f"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}"
    )
    await store.put(
        "configmaps/default/m", lambda _: b'{"metadata":{"name":"m","namespace":"default"}}'
    )
    stream.events()
    await api.server.integrity.scan_for_corruption(api.server.resource("", "v1", "configmaps"), "")
    await asyncio.sleep(0)
    (gone,) = stream.events()
    assert gone["type"] == "DELETED" and gone["object"]["metadata"]["name"] == "m"


async def test_a_corrupt_object_of_the_control_plane_does_not_stop_the_start() -> None:
    from transom.store.memory import MemoryStore

    store = MemoryStore()
    await store.start()
    await store.put("clusterroles.rbac.authorization.k8s.io/admin", lambda _: b"nonsense")
    await store.put("services/default/kubernetes", lambda _: b"{}")
    api = await start(store=store)
    assert len(store.quarantined()) == 2
    assert (
        await api.send("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin")
    ).status == 200
    assert (await api.send("GET", "/api/v1/namespaces/default/services/kubernetes")).status == 200


@pytest.mark.parametrize(
    ("key", "revision", "value", "problem"),
    [
        (
            "pods/default/a",
            3,
            {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "3"}},
            "",
        ),
        ("nodes/a", 3, {"metadata": {"name": "a", "resourceVersion": "3"}}, ""),
        (
            "pods/default/a",
            4,
            {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "3"}},
            "revision 3",
        ),
        (
            "pods/other/a",
            3,
            {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "3"}},
            "another object",
        ),
    ],
)
def test_what_belongs_to_a_key(key: str, revision: int, value: Any, problem: str) -> None:
    found = check_value(key, revision, orjson.dumps(value))
    assert problem in found and bool(problem) == bool(found)


# ---- health ----


async def text(api: Api, path: str) -> tuple[int, str]:
    answer = await api.send("GET", path)
    return answer.status, answer.body.decode()


@pytest.mark.parametrize("root", ["healthz", "livez", "readyz"])
async def test_health_fails_with_the_store(root: str) -> None:
    api = await start()
    api.server.options.store.health = lambda: StoreHealth(
        "cannot write state.db: No space left on device"
    )  # type: ignore[method-assign]
    status, found = await text(api, f"/{root}")
    lines = found.splitlines()
    assert status == 500 and lines[:3] == [
        "[+]ping ok",
        "[+]log ok",
        "[-]etcd failed: reason withheld",
    ]
    assert lines[-1] == f"{root} check failed" and "No space" not in found
    assert await text(api, f"/{root}/etcd") == (
        500,
        "internal server error: cannot write state.db: No space left on device\n",
    )
    assert await text(api, f"/{root}/ping") == (200, "ok")
    assert await text(api, f"/{root}?exclude=etcd") == (200, "ok")
    _, found = await text(api, f"/{root}?exclude=etcd&exclude=a&exclude=b&verbose")
    assert 'warn: some health checks cannot be excluded: no matches for "a","b"\n' in found
    assert found.endswith(f"{root} check passed\n")


async def test_health_fails_while_the_loop_is_late() -> None:
    api = await start()
    assert await text(api, f"/livez/{LOOP_CHECK}") == (200, "ok")
    assert LOOP_CHECK not in (await text(api, "/livez?verbose"))[1]
    api.server.loop_monitor.lag = 7.0
    status, found = await text(api, "/livez")
    assert (
        status == 500 and f"[-]{LOOP_CHECK} failed: reason withheld\nlivez check failed\n" in found
    )
    assert (await text(api, f"/livez/{LOOP_CHECK}"))[
        1
    ] == "internal server error: the event loop is 7.0 s late\n"
    api.server.loop_monitor.lag = 0.0
    assert (await text(api, "/livez"))[0] == 200


@pytest.mark.parametrize(
    ("error", "message", "retry"),
    [
        (
            OutOfSpace("cannot write state.db: No space left on device"),
            (
                "etcdserver: mvcc: database space exceeded: cannot write state.db: No space left "
                "on device"
            ),
            True,
        ),
        (
            StoreError("cannot write state.db: disk I/O error"),
            "Internal error occurred: cannot write state.db: disk I/O error",
            False,
        ),
    ],
)
async def test_a_write_that_the_disk_does_not_take_is_an_error_that_may_be_tried_again(
    error: StoreError, message: str, retry: bool
) -> None:
    api = await start()

    def refuse(*_: object, **__: object) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    api.server.storage.store.put = refuse  # type: ignore[method-assign]
    answer = await api.send(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}}
    )
    found = body(answer)
    assert (answer.status, found["reason"], found["message"]) == (500, "InternalError", message)
    assert ((b"Retry-After", b"1") in answer.headers) is retry
    assert (await api.send("GET", "/api/v1/namespaces/default/configmaps")).status == 200
