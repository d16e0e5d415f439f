"""Watches: history, selection, bookmarks, time-outs; LIST, GET and watch are consistent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apiserver.harness import Api, start

from transom.store.sqlite import SqliteStore

MERGE = "application/merge-patch+json"
CM = "/api/v1/namespaces/default/configmaps"


async def _make(api: Api, name: str, **labels: str) -> Any:
    return await api.ok("POST", CM, {"metadata": {"name": name, "labels": labels}})


async def test_selection_turns_updates_into_added_and_deleted() -> None:
    api = await start()
    first = await _make(api, "a", w="1")
    await api.ok("PATCH", CM + "/a", {"metadata": {"labels": {"w": None}}}, media=MERGE)
    await api.ok("PATCH", CM + "/a", {"data": {"x": "1"}}, media=MERGE)
    await api.ok("PATCH", CM + "/a", {"metadata": {"labels": {"w": "1"}}}, media=MERGE)
    await api.ok("DELETE", CM + "/a")
    version = int(first["metadata"]["resourceVersion"]) - 1
    stream = await api.watch(f"{CM}?watch=1&labelSelector=w%3D1&resourceVersion={version}")
    events = stream.events()
    assert [e["type"] for e in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(set(versions))


async def test_live_events_reach_only_their_namespace() -> None:
    api = await start()
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    here, everywhere = (
        await api.watch(CM + "?watch=1"),
        await api.watch("/api/v1/configmaps?watch=1"),
    )
    here.events(), everywhere.events()
    await _make(api, "a")
    await api.ok("POST", "/api/v1/namespaces/other/configmaps", {"metadata": {"name": "b"}})
    assert [e["object"]["metadata"]["name"] for e in here.events()] == ["a"]
    assert [e["object"]["metadata"]["name"] for e in everywhere.events()] == ["a", "b"]


async def test_a_node_hears_of_its_pods_and_a_name_of_its_object() -> None:
    pods = "/api/v1/namespaces/default/pods"

    api = await start()
    streams = {
        name: await api.watch(f"/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D{name}")
        for name in ("n1", "n2")
    }
    one = await api.watch(f"{pods}?watch=1&fieldSelector=metadata.name%3Da")
    await api.ok(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )
    spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    for name in ("a", "ab"):
        await api.ok("POST", pods, {"metadata": {"name": name}, "spec": spec})
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        await api.ok("POST", f"{pods}/{name}/binding", binding)
    await api.ok("DELETE", pods + "/a?gracePeriodSeconds=0")
    recorded = {
        name: [(e["type"], e["object"]["metadata"]["name"]) for e in s.events()]
        for name, s in streams.items()
    }
    assert recorded == {
        "n1": [("ADDED", "a"), ("ADDED", "ab"), ("MODIFIED", "a"), ("DELETED", "a")],
        "n2": [],
    }
    assert [e["type"] for e in one.events()] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_time_out_ends_the_stream_after_a_bookmark() -> None:
    api = await start()
    stream = await api.watch(
        CM + "?watch=1&allowWatchBookmarks=true&timeoutSeconds=10&labelSelector=none"
    )
    api.clock.advance(9)
    (bookmark,) = stream.events()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(
        api.server.storage.store.revision
    )
    assert stream.alive
    api.clock.advance(2)
    assert not stream.alive


async def test_initial_events_end_with_a_marked_bookmark() -> None:
    api = await start(release="1.36")
    await _make(api, "a")
    stream = await api.watch(
        CM
        + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    )
    added, bookmark = stream.events()
    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


_INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def test_initial_events_are_ignored_before_1_27() -> None:
    api = await start(release="1.26")
    await _make(api, "a")
    version = api.server.storage.store.revision
    stream = await api.watch(f"{CM}?watch=1&sendInitialEvents=true&resourceVersion={version}")
    assert stream.events() == [] and stream.alive
    await api.ok("GET", f"{CM}?sendInitialEvents=true")
    status, problem = await api.call("GET", f"{CM}?watch=1&{_INITIAL}&resourceVersion=1")
    assert (status, problem["details"]["causes"][0]["message"]) == (
        422,
        "Forbidden: resourceVersionMatch is forbidden for watch",
    )


@pytest.mark.parametrize(
    ("release", "gates", "on"),
    [
        ("1.31", {}, False),
        ("1.31", {"WatchList": True}, True),
        ("1.32", {}, True),
        ("1.33", {}, False),
        ("1.34", {}, True),
        ("1.36", {"WatchList": False}, False),
    ],
)
async def test_initial_events_need_the_feature(
    release: str, gates: dict[str, bool], on: bool
) -> None:
    api = await start(release=release, feature_gates=gates)
    await _make(api, "a")
    if on:
        stream = await api.watch(f"{CM}?watch=1&{_INITIAL}")
        assert [event["type"] for event in stream.events()] == ["ADDED"]
        return
    status, problem = await api.call("GET", f"{CM}?watch=1&{_INITIAL}")
    assert (status, problem["details"]["causes"]) == (
        422,
        [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: sendInitialEvents is forbidden for watch unless the "
                "WatchList feature gate is enabled",
                "field": "sendInitialEvents",
            }
        ],
    )


async def test_a_compacted_start_is_expired() -> None:
    api = await start()
    for name in "abc":
        await _make(api, name)
    api.server.storage.store.compact(api.server.storage.store.revision)
    stream = await api.watch(CM + "?watch=1&resourceVersion=2")
    (event,) = stream.events()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
        "ERROR",
        410,
        "Expired",
    )
    assert not stream.alive


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "patch", "delete"]), st.sampled_from("abcd"), st.integers(0, 3)
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
async def test_list_get_watch_and_restart_agree(
    tmp_path_factory: Any, steps: list[tuple[str, str, int]]
) -> None:
    """Whatever was written: LIST, each GET, the replay of a watch and a restarted server show the
    same objects.
    """
    file: Path = tmp_path_factory.mktemp("store") / "store.db"

    api = await start(SqliteStore(file))
    live = await api.watch(CM + "?watch=1")
    for verb, name, value in steps:
        if verb == "create":
            await api.call("POST", CM, {"metadata": {"name": name}, "data": {"v": str(value)}})
        elif verb == "patch":
            await api.call("PATCH", f"{CM}/{name}", {"data": {"v": str(value)}}, media=MERGE)
        else:
            await api.call("DELETE", f"{CM}/{name}")
    listed = {i["metadata"]["name"]: i for i in (await api.ok("GET", CM))["items"]}
    replayed: dict[str, Any] = {}
    for events in (
        live.events(),
        (await api.watch(CM + "?watch=1&resourceVersion=1")).events(),
    ):
        replayed = {}
        for event in events:
            obj = {k: v for k, v in event["object"].items() if k not in ("kind", "apiVersion")}
            if event["type"] == "DELETED":
                del replayed[obj["metadata"]["name"]]
            else:
                replayed[obj["metadata"]["name"]] = obj
        assert replayed == listed
    for name, obj in listed.items():
        alone = await api.ok("GET", f"{CM}/{name}")
        assert {k: v for k, v in alone.items() if k not in ("kind", "apiVersion")} == obj
    await api.server.stop()
    again = await start(SqliteStore(file))
    assert {i["metadata"]["name"]: i for i in (await again.ok("GET", CM))["items"]} == listed
    await again.server.stop()


async def test_a_named_object_is_read_even_if_a_watch_is_asked_for() -> None:
    api = await start()
    await _make(api, "a")
    assert (await api.ok("GET", CM + "/a?watch=1"))["metadata"]["name"] == "a"
