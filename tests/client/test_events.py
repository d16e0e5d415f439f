"""Events: what is recorded, counted, combined and dropped, on virtual time."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from transom.client.api import STRATEGIC_PATCH, ApiUnreachable
from transom.client.events import NORMAL, WARNING, EventRecorder, object_reference
from transom.client.resources import EVENTS, NEW_EVENTS
from transom.client.series import SeriesRecorder
from transom.kit.clock import VirtualClock
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "namespace": "x",
        "uid": "u1",
        "resourceVersion": "5",
        "labels": {"a": "b"},
    },
}


class Server:
    """Keeps events as the API server would; `trouble` is raised by the next calls."""

    def __init__(self) -> None:
        self.events: dict[str, Object] = {}
        self.calls: list[tuple[str, Any]] = []
        self.trouble: list[Exception] = []

    async def create(self, resource: Any, namespace: str, event: Object) -> Object:
        assert resource in (EVENTS, NEW_EVENTS)
        self.calls.append(("create", event))
        if self.trouble:
            raise self.trouble.pop(0)
        self.events[event["metadata"]["name"]] = event
        return event

    async def patch(
        self, _resource: Any, _namespace: str, name: str, body: Object, patch_type: str
    ) -> Object:
        assert patch_type == STRATEGIC_PATCH
        self.calls.append(("patch", body))
        if name not in self.events:
            raise errors.not_found(EVENTS.group_resource, name)
        self.events[name] = {**self.events[name], **body}
        return self.events[name]


def recorded(scenario: Callable[[EventRecorder, VirtualClock, Server], Any]) -> Server:
    async def main() -> Server:
        clock, server = VirtualClock(), Server()
        recorder = EventRecorder(server, "tester", clock, random.Random(1), release=DEFAULT)  # type: ignore[arg-type]
        task = asyncio.create_task(recorder.run())
        await scenario(recorder, clock, server)
        await clock.run_for(1)
        task.cancel()
        await asyncio.wait((task,))
        return server

    return asyncio.run(main())


def test_the_shape_of_an_event() -> None:
    async def scenario(recorder: EventRecorder, _clock: VirtualClock, _server: Server) -> None:
        recorder.event(
            POD,
            NORMAL,
            "Created",
            "made it",
            annotations={"n": "1"},
            field_path="spec.containers{c}",
        )

    (event,) = recorded(scenario).events.values()
    name = event["metadata"].pop("name")
    assert re.fullmatch(r"p\.[0-9a-f]{16}", name)
    assert event == {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"namespace": "x", "annotations": {"n": "1"}},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "x",
            "name": "p",
            "uid": "u1",
            "resourceVersion": "5",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "Created",
        "message": "made it",
        "source": {"component": "tester"},
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2020-01-02T03:04:05Z",
        "lastTimestamp": "2020-01-02T03:04:05Z",
    }


def test_events_of_cluster_scoped_objects_are_in_default() -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "uid": "u2"}}

    async def scenario(recorder: EventRecorder, _clock: VirtualClock, _server: Server) -> None:
        recorder.event(object_reference(node), WARNING, "Gone", "it went")

    (event,) = recorded(scenario).events.values()
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {"kind": "Node", "apiVersion": "v1", "name": "n", "uid": "u2"}


def test_repeated_events_are_counted() -> None:
    async def scenario(recorder: EventRecorder, clock: VirtualClock, _server: Server) -> None:
        for _ in range(3):
            recorder.event(POD, WARNING, "BackOff", "waiting")
            await clock.run_for(10)

    server = recorded(scenario)
    (event,) = server.events.values()
    assert (event["count"], event["firstTimestamp"], event["lastTimestamp"]) == (
        3,
        "2020-01-02T03:04:05Z",
        "2020-01-02T03:04:25Z",
    )
    assert [what for what, _ in server.calls] == ["create", "patch", "patch"]
    assert server.calls[1][1] == {
        "count": 2,
        "lastTimestamp": "2020-01-02T03:04:15Z",
        "message": "waiting",
    }


def test_an_event_that_expired_is_made_again() -> None:
    async def scenario(recorder: EventRecorder, clock: VirtualClock, server: Server) -> None:
        recorder.event(POD, WARNING, "BackOff", "waiting")
        await clock.run_for(10)
        server.events.clear()
        recorder.event(POD, WARNING, "BackOff", "waiting")

    server = recorded(scenario)
    assert [what for what, _ in server.calls] == ["create", "patch", "create"]
    assert server.calls[-1][1]["count"] == 2


def test_ten_texts_of_one_reason_are_combined() -> None:
    async def scenario(recorder: EventRecorder, _clock: VirtualClock, _server: Server) -> None:
        for number in range(12):
            recorder.event(POD, WARNING, "Failed", f"try {number}")

    server = recorded(scenario)
    messages = [event["message"] for event in server.events.values()]
    assert messages == [*(f"try {n}" for n in range(9)), "(combined from similar events): try 11"]
    assert [*server.events.values()][-1]["count"] == 3


async def test_combined_events_name_no_reporter() -> None:
    server, clock = Server(), VirtualClock()
    recorder = EventRecorder(
        server,  # type: ignore[arg-type]
        "replicaset-controller",
        clock,
        random.Random(1),
        release=Release(1, 36),
    )
    task = asyncio.create_task(recorder.run())
    for number in range(10):
        recorder.event(POD, WARNING, "Failed", f"try {number}")
    await clock.run_for(1)
    task.cancel()
    reporters = [event.get("reportingComponent") for event in server.events.values()]
    assert reporters == [*["replicaset-controller"] * 9, None]


def test_one_object_gets_25_events_and_then_few() -> None:
    async def scenario(recorder: EventRecorder, clock: VirtualClock, _server: Server) -> None:
        for number in range(40):
            recorder.event(POD, NORMAL, f"Reason{number}", "text")
        recorder.event(
            {**POD, "metadata": {**POD["metadata"], "uid": "u9"}}, NORMAL, "Other", "text"
        )  # type: ignore[dict-item]
        await clock.run_for(301)
        recorder.event(POD, NORMAL, "Late", "text")

    reasons = [event["reason"] for event in recorded(scenario).events.values()]
    assert (
        len(reasons) == 27
        and {"Reason24", "Other", "Late"} <= set(reasons)
        and "Reason25" not in reasons
    )


def test_an_absent_server_is_waited_for_and_a_refusal_is_not() -> None:
    async def scenario(recorder: EventRecorder, clock: VirtualClock, server: Server) -> None:
        server.trouble = [ApiUnreachable("away"), ApiUnreachable("away")]
        recorder.event(POD, NORMAL, "One", "text")
        await clock.run_for(25)
        server.trouble = [errors.forbidden(EVENTS.group_resource, "p", "no")]
        recorder.event(POD, NORMAL, "Two", "text")

    server = recorded(scenario)
    assert [call[1]["reason"] for call in server.calls] == ["One", "One", "One", "Two"]
    assert [event["reason"] for event in server.events.values()] == ["One"]


async def test_the_scheduler_records_series() -> None:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "uid": "u2"}}

    clock, server = VirtualClock(), Server()
    recorder = SeriesRecorder(server, "sched", "sched-host", clock, random.Random(1))  # type: ignore[arg-type]
    task = asyncio.create_task(recorder.run())
    for number in range(3):
        recorder.event(POD, WARNING, "FailedScheduling", "Scheduling", f"no {number}", related=node)
        await clock.run_for(10)
    before = [what for what, _ in server.calls]
    await clock.run_for(1000)  # the series ends
    recorder.event(POD, WARNING, "FailedScheduling", "Scheduling", "again", related=node)
    await clock.run_for(1)
    task.cancel()
    await asyncio.wait((task,))
    assert before == ["create", "patch"]
    first, second = server.events.values()
    first["metadata"].pop("name")
    assert first == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"namespace": "x"},
        "eventTime": "2020-01-02T03:04:05.000000Z",
        "reportingController": "sched",
        "reportingInstance": "sched-host",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "note": "no 0",
        "type": "Warning",
        "regarding": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "x",
            "name": "p",
            "uid": "u1",
            "resourceVersion": "5",
        },
        "related": {"kind": "Node", "apiVersion": "v1", "name": "n", "uid": "u2"},
        "series": {"count": 2, "lastObservedTime": "2020-01-02T03:04:25.000000Z"},
    }
    assert second["note"] == "again" and "series" not in second


def test_one_event_that_breaks_does_not_stop_the_others() -> None:
    async def scenario(recorder: EventRecorder, clock: VirtualClock, server: Server) -> None:
        server.trouble = [AssertionError("a mistake of the server's")]
        recorder.event(POD, NORMAL, "First", "broken")
        await clock.run_for(1)
        recorder.event(POD, NORMAL, "Second", "fine")

    assert [event["reason"] for event in recorded(scenario).events.values()] == ["Second"]


@pytest.mark.parametrize(
    ("minor", "reporter"),
    [(27, (None, None)), (28, ("kubelet", "n1"))],
)
async def test_events_name_their_reporter_since_1_28(
    minor: int, reporter: tuple[str | None, str | None]
) -> None:
    made: list[dict[str, Any]] = []
    recorder = EventRecorder(
        Server(),  # type: ignore[arg-type]
        "kubelet",
        VirtualClock(),
        random.Random(1),
        release=Release(1, minor),
        host="n1",
        on_event=made.append,
    )
    recorder.event(POD, NORMAL, "Started", "a container")
    (event,) = made
    assert (event.get("reportingComponent"), event.get("reportingInstance")) == reporter
    assert event["source"] == {"component": "kubelet", "host": "n1"}
