"""Deletes: grace periods, finalizers, propagation policies, and the response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.harness import Api, start

MERGE = "application/merge-patch+json"
DEFAULT = "/api/v1/namespaces/default"
PODS, SERVICES = DEFAULT + "/pods", DEFAULT + "/services"
JOBS, CRONJOBS = (
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/batch/v1beta1/namespaces/default/cronjobs",
)
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


@asynccontextmanager
async def run() -> AsyncIterator[Api]:
    api = await start()
    yield api
    await api.server.stop()


async def _pod(api: Api, name: str = "p", node: str = "n1", **meta: Any) -> None:
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "automountServiceAccountToken": False,
        "nodeName": node,
    }
    await api.call("POST", DEFAULT + "/serviceaccounts", {"metadata": {"name": "default"}})
    await api.ok("POST", PODS, {"metadata": {"name": name, **meta}, "spec": spec})


async def test_a_second_delete_shortens_the_wait_counted_from_the_first() -> None:
    async with run() as api:
        await _pod(api)
        first = await api.ok("DELETE", PODS + "/p")
        api.clock.advance(3)
        for seconds in (None, 30, 40):
            again = await api.ok("DELETE", PODS + "/p", seconds and {"gracePeriodSeconds": seconds})
            assert again == first
        shorter = (await api.ok("DELETE", PODS + "/p", {"gracePeriodSeconds": 10}))["metadata"]
        assert shorter["deletionGracePeriodSeconds"] == 10
        assert first["metadata"]["deletionTimestamp"][:-3] == shorter["deletionTimestamp"][:-3]
        assert (
            int(first["metadata"]["deletionTimestamp"][-3:-1])
            - int(shorter["deletionTimestamp"][-3:-1])
            == 20
        )


async def test_a_pending_delete_does_not_touch_finalizers_and_a_negative_period_is_none() -> None:
    async with run() as api:
        await _pod(api)
        await api.ok("DELETE", PODS + "/p")
        again = await api.ok("DELETE", PODS + "/p", {"propagationPolicy": "Foreground"})
        assert "finalizers" not in again["metadata"]
        gone = await api.ok("DELETE", PODS + "/p", {"gracePeriodSeconds": -1})
        assert gone["metadata"]["deletionGracePeriodSeconds"] == -1
        assert (await api.call("GET", PODS + "/p"))[0] == 404


@pytest.mark.parametrize(("release", "period"), [("1.21", -1), ("1.22", 1), ("1.36", 1)])
async def test_a_negative_period_is_a_second_since_1_22(release: str, period: int) -> None:
    api = await start(release=release)
    await _pod(api)
    marked = await api.ok("DELETE", PODS + "/p", {"gracePeriodSeconds": -1})
    assert marked["metadata"]["deletionGracePeriodSeconds"] == period
    assert (await api.call("GET", PODS + "/p"))[0] == (200 if period > 0 else 404)
    await api.server.stop()


async def test_watchers_see_the_mark_of_a_pod_that_goes_at_once() -> None:
    async with run() as api:
        await _pod(api, node="")
        stream = await api.watch(PODS + "?watch=1")
        stream.events()
        answer = await api.ok("DELETE", PODS + "/p")
        marked, deleted = stream.events()
        assert (marked["type"], deleted["type"]) == ("MODIFIED", "DELETED")
        assert (
            deleted["object"]["metadata"]["deletionTimestamp"]
            == marked["object"]["metadata"]["deletionTimestamp"]
        )
        versions = [
            int(o["metadata"]["resourceVersion"])
            for o in (answer, marked["object"], deleted["object"])
        ]
        assert versions[0] == versions[1] == versions[2] - 1


@pytest.mark.parametrize(
    ("path", "made", "policy", "finalizers"),
    [
        (JOBS, {"spec": {"template": TEMPLATE}}, None, ["orphan"]),
        (JOBS, {"spec": {"template": TEMPLATE}}, "Background", None),
        (JOBS, {"spec": {"template": TEMPLATE}}, "Foreground", ["foregroundDeletion"]),
        (
            CRONJOBS,
            {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": TEMPLATE}}}},
            None,
            ["orphan"],
        ),
        (
            CRONJOBS,
            {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": TEMPLATE}}}},
            "Background",
            None,
        ),
    ],
)
async def test_policies(
    path: str, made: Any, policy: str | None, finalizers: list[str] | None
) -> None:
    async with run() as api:
        await api.ok("POST", path, {"metadata": {"name": "x"}, **made})
        answer = await api.ok("DELETE", path + "/x", policy and {"propagationPolicy": policy})
        assert answer["metadata"].get("finalizers") == finalizers
        assert (answer["kind"] == "Status") is (finalizers is None)


async def test_the_default_policy_holds_for_a_second_delete_too() -> None:
    async with run() as api:
        await api.ok(
            "POST",
            JOBS,
            {
                "metadata": {"name": "x", "finalizers": ["example.com/a"]},
                "spec": {"template": TEMPLATE},
            },
        )
        first = await api.ok("DELETE", JOBS + "/x?propagationPolicy=Background")
        assert first["metadata"]["finalizers"] == ["example.com/a"]
        again = await api.ok("DELETE", JOBS + "/x")
        assert again["metadata"]["finalizers"] == ["example.com/a", "orphan"]


async def test_a_service_goes_with_its_endpoints_and_a_status() -> None:
    async with run() as api:
        spec = {"ports": [{"port": 80}]}
        await api.ok("POST", SERVICES, {"metadata": {"name": "s"}, "spec": spec})
        await api.ok(
            "POST",
            SERVICES,
            {"metadata": {"name": "held", "finalizers": ["example.com/a"]}, "spec": spec},
        )
        await api.ok("POST", DEFAULT + "/endpoints", {"metadata": {"name": "s"}})
        assert (await api.ok("DELETE", SERVICES + "/s"))["status"] == "Success"
        assert (await api.call("GET", DEFAULT + "/endpoints/s"))[0] == 404
        assert (await api.ok("DELETE", SERVICES + "/held"))["status"] == "Success"
        assert (await api.ok("GET", SERVICES + "/held"))["metadata"]["deletionTimestamp"]


async def test_a_collection_is_answered_as_it_was_found() -> None:
    async with run() as api:
        maps = DEFAULT + "/configmaps"
        for name in ("a", "b"):
            await api.ok(
                "POST", maps, {"metadata": {"name": name, "finalizers": ["example.com/a"]}}
            )
        found = await api.ok("DELETE", maps + "?limit=1")
        assert ["deletionTimestamp" in o["metadata"] for o in found["items"]] == [False]
        assert found["metadata"]["remainingItemCount"] == 1
        left = await api.ok("GET", maps)
        assert ["deletionTimestamp" in o["metadata"] for o in left["items"]] == [True, False]


async def test_options_come_from_the_body_or_else_from_the_query() -> None:
    async with run() as api:
        maps = DEFAULT + "/configmaps"
        made = await api.ok("POST", maps, {"metadata": {"name": "a"}})
        assert (await api.call("DELETE", maps + "/a?uid=other"))[0] == 409
        assert (await api.call("DELETE", maps + "/a?resourceVersion=1"))[0] == 409
        await api.ok("DELETE", f"{maps}/a?uid={made['metadata']['uid']}&dryRun=All")
        # a body, though empty: the query does not count
        await api.ok("DELETE", maps + "/a?dryRun=All", {})
        assert (await api.call("GET", maps + "/a"))[0] == 404


async def test_namespaces_compare_in_their_own_words() -> None:
    async with run() as api:
        made = await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        _, problem = await api.call(
            "DELETE", "/api/v1/namespaces/x", {"preconditions": {"uid": "u"}}
        )
        assert problem["message"] == (
            'Operation cannot be fulfilled on namespaces "x": Precondition failed: UID in '
            "precondition: u, "
            f"UID in object meta: {made['metadata']['uid']}"
        )


async def test_a_grace_period_beyond_64_bits_of_nanoseconds_wraps_as_in_go() -> None:
    async with run() as api:
        await _pod(api)
        pod = await api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds={2**63 - 1}")
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 2**63 - 1
        assert pod["metadata"]["deletionTimestamp"].startswith("20")


@pytest.mark.parametrize(
    ("release", "code", "message"),
    [
        ("1.22", 500, "v1.DeleteOptions.GracePeriodSeconds: readUint64: unexpected character"),
        (
            "1.36",
            400,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds "
            "of type int64",
        ),
    ],
)
async def test_options_of_a_wrong_type(release: str, code: int, message: str) -> None:
    api = await start(release=release)
    maps = "/api/v1/namespaces/default/configmaps"
    await api.ok("POST", maps, {"metadata": {"name": "a"}})
    status, answer = await api.call("DELETE", maps + "/a", {"gracePeriodSeconds": "x"})
    assert status == code
    assert answer["message"].startswith(message)
    await api.server.stop()
