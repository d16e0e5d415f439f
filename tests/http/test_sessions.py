from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.http.sessions import SessionDriver


class Wire:
    def __init__(self) -> None:
        self.on_close: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.writable = True
        self.sent = b""
        self.calls: list[str] = []
        self.deliver: Callable[[bytes], None] = lambda data: None

    def receive(self, on_data: Callable[[bytes], None]) -> None:
        self.deliver = on_data
        self.calls.append("receive")

    def write(self, data: bytes) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


class Session:
    """Answers what it receives in capitals; `queued` and `done` are set by the test."""

    def __init__(self) -> None:
        self.queued = 0
        self.done = False
        self.out = b""

    def start(self) -> list[Any]:
        self.out = b"hello "
        return ["started"]

    def receive_data(self, data: bytes) -> list[Any]:
        self.out += data.upper()
        return [data]

    def receive_eof(self) -> list[Any]:
        return ["gone"]

    def data_to_send(self) -> bytes:
        out, self.out = self.out, b""
        return out


def make() -> tuple[Wire, Session, SessionDriver, list[Any]]:
    wire, session, events = Wire(), Session(), []
    return wire, session, SessionDriver(session, wire, events.append), events


def test_bytes_and_events_find_their_way() -> None:
    wire, session, driver, events = make()
    driver.start()
    wire.deliver(b"abc")
    assert events == ["started", b"abc"] and wire.sent == b"hello ABC"
    session.out = b"!"
    session.done = True
    driver.send()
    assert wire.sent == b"hello ABC!" and wire.calls == ["receive", "close"]
    session.out = b"too late"
    driver.send()
    assert wire.on_close is not None
    wire.on_close()
    assert wire.sent == b"hello ABC!" and events[-1] == "gone"


def test_a_slow_reader_is_notified_once() -> None:
    wire, session, driver, _ = make()
    recorded: list[bool] = []
    driver.on_behind = recorded.append
    driver.start()
    wire.writable = False
    driver.send()
    driver.send()
    assert recorded == [True] and driver.behind
    wire.writable = True
    session.queued = 10_000_000
    assert wire.on_writable is not None
    wire.on_writable()
    assert recorded == [True]
    session.queued = 0
    wire.deliver(b"window")
    assert recorded == [True, False]


def test_reading_stops_until_all_holds_are_released() -> None:
    wire, _, driver, _ = make()
    driver.hold()
    driver.start()
    driver.hold()
    driver.release()
    assert wire.calls == ["pause", "receive", "pause"]
    driver.release()
    assert wire.calls[-1] == "resume"
