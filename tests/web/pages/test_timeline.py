"""The timeline: what of events, pods and nodes becomes an entry, in which order, and how many."""

from __future__ import annotations

from typing import Any

import orjson
from tests.conftest import ContextFactory

from transom.http.messages import Answer, HttpRequest, HttpResponse
from transom.web.pages.timeline import MOST_ENTRIES, timeline_document


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def event(second: int, name: str = "web", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
        "reason": "Pulling",
        "message": "Pulling image",
        "type": "Normal",
        "firstTimestamp": at(second),
        "lastTimestamp": at(second),
        **more,
    }


def pod(name: str = "web", **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "creationTimestamp": at(0)}
    return {"metadata": meta, "spec": {"nodeName": "windows-1"}, "status": status}


def node(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "windows-1", "creationTimestamp": at(0)}, **more}


def lines(*arguments: Any) -> list[tuple[str, str, str]]:
    entries = timeline_document(*arguments)["entries"]
    return [(one["time"][-3:-1], one["severity"], one["text"]) for one in entries]


def test_entries_are_sorted_by_time() -> None:
    found = lines([event(9), event(3, type="Warning", reason="Failed")], [pod()], [])
    assert found == [
        ("00", "info", "created"),
        ("03", "warning", "Failed: Pulling image"),
        ("09", "info", "Pulling: Pulling image"),
    ]


def test_a_repeated_event_has_its_first_and_last_time() -> None:
    found = lines([event(1, lastTimestamp=at(8), count=4)], [], [])
    assert found == [
        ("01", "info", "Pulling: Pulling image"),
        ("08", "info", "Pulling: Pulling image (4 times)"),
    ]


def test_restarts_and_exit_codes() -> None:
    statuses = [
        {
            "name": "c",
            "restartCount": 1,
            "state": {"running": {"startedAt": at(7)}},
            "lastState": {
                "terminated": {
                    "startedAt": at(4),
                    "finishedAt": at(6),
                    "exitCode": 3,
                    "reason": "Error",
                }
            },
        }
    ]
    assert lines([], [pod(containerStatuses=statuses)], [])[1:] == [
        ("04", "info", "container c started"),
        ("06", "error", "container c ended: Error, exit code 3"),
        ("07", "warning", "container c started, restart 1"),
    ]


def test_conditions_of_nodes_are_bad_unless_ready() -> None:
    conditions = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": at(5), "reason": "Lost"},
        {"type": "DiskPressure", "status": "False", "lastTransitionTime": at(6)},
    ]
    taints = [{"key": "k", "effect": "NoExecute", "timeAdded": at(7)}]
    found = lines([], [], [node(status={"conditions": conditions}, spec={"taints": taints})])
    assert found[1:] == [
        ("05", "warning", "Ready is Unknown (Lost)"),
        ("06", "info", "DiskPressure is False"),
        ("07", "warning", "taint k:NoExecute"),
    ]


def test_one_pod_has_its_own_entries_and_those_of_its_node() -> None:
    other = {**node(), "metadata": {"name": "linux-1", "creationTimestamp": at(0)}}
    events = [event(1), event(2, "db")]
    found = timeline_document(events, [pod(), pod("db")], [node(), other], "default/web")
    assert {one["object"] for one in found["entries"]} == {"pod/default/web", "node/windows-1"}


def test_the_number_of_entries_and_their_length_are_bounded() -> None:
    many = [event(5, message="x" * 5000) for _ in range(MOST_ENTRIES + 7)]
    found = timeline_document(many, [], [])
    assert (len(found["entries"]), found["more"]) == (MOST_ENTRIES, 7)
    assert max(len(one["text"]) for one in found["entries"]) <= 400


async def test_who_may_not_list_all_namespaces_sees_one(browser: ContextFactory) -> None:
    def api(request: HttpRequest) -> Answer:
        kind = [(b"Content-Type", b"application/json")]
        if request.path == "/api/v1/namespaces/default/events":
            return HttpResponse(200, kind, orjson.dumps({"items": [event(1, "mine")]}))
        if request.path == "/api/v1/namespaces/default/pods":
            return HttpResponse(200, kind, orjson.dumps({"items": []}))
        denied = {"kind": "Status", "code": 403, "message": "may not"}
        return HttpResponse(403, kind, orjson.dumps(denied))

    async with browser(api) as console:
        found = orjson.loads((await console.get("/why/timeline/data")).text)
        assert [entry["object"] for entry in found["entries"]] == ["pod/default/mine"]
        assert (await console.get("/why")).status == 200
