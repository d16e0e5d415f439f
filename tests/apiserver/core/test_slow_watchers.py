"""Watchers that read slowly or not at all: no event is lost or repeated, and nothing is encoded
ahead of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apiserver.harness import Api, FakeStream, start

from transom.http.messages import StreamResponse
from transom.kit.clock import VirtualClock
from transom.machinery.errors import ApiError
from transom.store.memory import MemoryStore

CM = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class SlowStream(FakeStream):
    """A client that reads only when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.source: Any = None
        self.blocked = False

    def offer(self, data: bytes) -> bool:
        if self.blocked or self.source is not None:
            return False
        self.raw += data
        return True

    def follow(self, source: Any) -> None:
        assert self.source is None
        self.source = source

    def step(self, size: int = 1) -> None:
        """The socket takes one slice."""
        if self.source is not None:
            parts = self.source.read(size)
            if parts is None:
                self.source = None
            else:
                self.raw += b"".join(parts)

    def catch_up(self) -> None:
        while self.source is not None:
            self.step()


async def watch(api: Api, target: str, **more: Any) -> SlowStream:
    answer = await api.send("GET", target, **more)
    assert isinstance(answer, StreamResponse) and answer.resumable
    stream = SlowStream()
    answer.start(stream)  # type: ignore[arg-type]
    return stream


async def write(api: Api, verb: str, name: str, value: int) -> None:
    if verb == "create":
        await api.call(
            "POST",
            CM,
            {
                "metadata": {"name": name, "labels": {"v": str(value % 2)}},
                "data": {"v": str(value)},
            },
        )
    elif verb == "patch":
        patch = {"metadata": {"labels": {"v": str(value % 2)}}, "data": {"v": str(value)}}
        await api.call("PATCH", f"{CM}/{name}", patch, media=MERGE)
    else:
        await api.call("DELETE", f"{CM}/{name}")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "patch", "delete", "step", "step", "block", "unblock", "compact"]
        ),
        st.sampled_from("abcd"),
        st.integers(0, 9),
    ),
    max_size=60,
)


def relevant(event: dict[str, Any]) -> tuple[str, str, str]:
    meta = event["object"]["metadata"]
    return event["type"], meta["name"], meta["resourceVersion"]


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, query=st.sampled_from(["", "&labelSelector=v%3D1"]), first=st.integers(0, 4))
async def test_a_slow_watcher_sees_what_a_fast_one_sees(
    steps: list[tuple[str, str, int]], query: str, first: int
) -> None:
    """Every event exactly once and in order; or 410 when what it has not read is compacted, never a
    gap.
    """

    api = await start()
    for name in "abcd"[:first]:
        await write(api, "create", name, first)
    fast = await api.watch(f"{CM}?watch=1{query}")
    slow = await watch(api, f"{CM}?watch=1{query}")
    events: list[dict[str, Any]] = []
    for verb, name, value in steps:
        if verb == "step":
            slow.step(1 + value * 100)
        elif verb in ("block", "unblock"):
            slow.blocked = verb == "block"
        elif verb == "compact":
            api.server.storage.store.compact(api.server.storage.store.revision)
        else:
            await write(api, verb, name, value)
        events += slow.events()
    slow.blocked = False
    slow.catch_up()
    events += slow.events()
    wanted = [relevant(event) for event in fast.events()]
    if events and events[-1]["type"] == "ERROR":
        error = events.pop()["object"]
        assert (error["code"], error["reason"]) == (410, "Expired")
        assert not slow.alive
        assert "compact" in {verb for verb, _, _ in steps}
    else:
        assert slow.alive
        assert len(events) == len(wanted)
    assert [relevant(event) for event in events] == wanted[: len(events)]
    if slow.alive:  # it is live again
        await write(api, "create", "last", 1)
        assert [relevant(event)[:2] for event in slow.events()] == [("ADDED", "last")]


async def test_a_resumed_watch_has_no_gap() -> None:
    api = await start()
    slow = await watch(api, f"{CM}?watch=1&resourceVersion={api.server.storage.store.revision}")
    slow.blocked = True
    for number in range(20):
        await write(api, "create", f"c{number}", 0)
    for _ in range(5):
        slow.step()
    seen = slow.events()
    slow.on_close()  # the server gave up on it
    last = seen[-1]["object"]["metadata"]["resourceVersion"]
    again = await watch(api, f"{CM}?watch=1&resourceVersion={last}")
    again.catch_up()
    names = [event["object"]["metadata"]["name"] for event in (*seen, *again.events())]
    assert names == [f"c{number}" for number in range(20)]


@pytest.mark.parametrize(
    "accept", ["application/json", TABLE, "application/vnd.kubernetes.protobuf"]
)
async def test_nothing_is_encoded_ahead_of_a_watcher(
    accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred stalled watchers of five hundred objects: each slice is encoded once, and only when it is read."""
    from transom.apiserver.serving import responses

    encoded = 0

    def count(method: Any) -> Any:
        def counted(*args: Any, **more: Any) -> Any:
            nonlocal encoded
            encoded += 1
            return method(*args, **more)

        return counted

    for form in (
        responses.JsonWatchEncoder,
        responses.TransformedWatchEncoder,
        responses.ProtobufWatchEncoder,
    ):
        monkeypatch.setattr(form, "event", count(form.event))

    api = await start()
    for number in range(500):
        await write(api, "create", f"c{number:03}", number)
    streams = [await watch(api, f"{CM}?watch=1", accept=accept) for _ in range(200)]
    assert encoded == 0
    for stream in streams:
        stream.step(2000)
    assert 1 <= encoded <= 32
    for number in range(50):
        await write(api, "patch", f"c{number:03}", number + 1)
    assert encoded <= 32
    streams[0].catch_up()
    assert encoded <= 32 + 550


async def test_each_table_watcher_gets_the_columns_once() -> None:
    api = await start()
    await write(api, "create", "a", 0)
    fresh = await watch(api, f"{CM}?watch=1&labelSelector=v%3D1", accept=TABLE)
    second = await watch(api, f"{CM}?watch=1", accept=TABLE)
    third = await watch(api, f"{CM}?watch=1", accept=TABLE)
    for stream in (fresh, second, third):
        stream.catch_up()
    await write(api, "create", "b", 1)
    await write(api, "patch", "b", 3)
    for stream, count in ((fresh, 2), (second, 3), (third, 3)):
        stream.catch_up()
        columns = [event["object"]["columnDefinitions"] for event in stream.events()]
        assert [bool(found) for found in columns] == [True] + [False] * (count - 1)


async def test_no_bookmark_runs_ahead_of_the_events() -> None:
    api = await start()
    slow = await watch(
        api,
        f"{CM}?watch=1&allowWatchBookmarks=true&resourceVersion={api.server.storage.store.revision}",
    )
    slow.blocked = True
    await write(api, "create", "a", 0)
    api.clock.advance(61)
    slow.catch_up()
    assert [event["type"] for event in slow.events()] == ["ADDED"]
    slow.blocked = False
    api.clock.advance(61)
    assert [event["type"] for event in slow.events()] == ["BOOKMARK"]


async def test_the_marker_of_the_first_list_comes_after_all_of_it() -> None:
    api = await start(release="1.36")
    for name in "abc":
        await write(api, "create", name, 0)
    stream = await watch(
        api,
        f"{CM}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    )
    await write(api, "create", "later", 0)
    stream.catch_up()
    assert [event["type"] for event in stream.events()] == ["ADDED"] * 3 + ["BOOKMARK", "ADDED"]


async def test_an_in_process_watch_that_is_not_read_queues_a_bounded_number_of_events() -> None:
    from transom.apiserver.core.context import UserInfo
    from transom.apiserver.serving.inprocess import InProcessClient
    from transom.client.resources import CONFIG_MAPS

    clock = VirtualClock()
    api = await start(MemoryStore(clock, history_events=100_000), clock)
    client = InProcessClient(api.server, UserInfo("admin", ("system:masters",)))
    store = api.server.storage.store
    await write(api, "create", "a", 0)
    watching = await client.watch(CONFIG_MAPS, "default", resource_version=str(store.revision))
    value = store.get("configmaps/default/a").value
    for number in range(5000):
        await store.put(
            f"configmaps/default/c{number}",
            lambda _, number=number: value.replace(b'"a"', b'"c%d"' % number),
        )
    assert watching._size <= 2048
    names: list[str] = []
    while len(names) < 5000:
        names += [event.object["metadata"]["name"] for event in await watching.next()]
    assert names == [f"c{number}" for number in range(5000)]
    for number in range(5000):
        await store.put(f"configmaps/default/d{number}", lambda _: value)
    store.compact(store.revision)
    with pytest.raises(ApiError) as gone:
        while await watching.next():
            pass
    assert gone.value.code == 410
