"""What accompanies one request from its arrival to the end of its answer: its time, its seats, its audit event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.apiserver.audit.auditor import HEADER
from transom.apiserver.flowcontrol.rules import long_running
from transom.http.messages import Answer, Request, Response

if TYPE_CHECKING:
    from transom.apiserver.audit.event import AuditEvent
    from transom.apiserver.context import Context, User
    from transom.apiserver.flowcontrol.flows import Flow
    from transom.apiserver.requestinfo import RequestInfo
    from transom.apiserver.server import ApiServer


class Passage:
    __slots__ = ("_seats", "_server", "_start", "_unknown", "ctx", "event", "flow", "info", "request")

    def __init__(self, server: ApiServer, request: Request) -> None:
        self._server = server
        self._start = time.perf_counter()
        self._seats = 0  # held at the priority level
        self._unknown = False  # nobody could be authenticated
        self.request = request
        self.info: RequestInfo | None = None
        self.ctx: Context | None = None
        self.flow: Flow | None = None
        self.event: AuditEvent | None = None

    # ---- seats ---------------------------------------------------------------------------------------------------

    def sit(self, flow: Flow, seats: int, *, given: bool = False) -> None:
        """The request belongs to the flow and holds so many seats, which were `given` by its queue or are free."""
        self.flow = flow
        if flow.level.limit:
            self._seats = seats
            if not given:
                flow.level.take(seats)

    def suspend(self) -> None:
        """The answer takes its time. Only then others can come in between, so only then it needs a seat."""
        if self.flow is not None and not self._seats:
            self.sit(self.flow, 1)

    def leave(self) -> None:
        seats, self._seats = self._seats, 0
        if seats and self.flow is not None:
            self.flow.level.release(seats)

    # ---- audit ---------------------------------------------------------------------------------------------------

    def begin_audit(self, user: User | None) -> None:
        """`user` is None when nobody could be authenticated: then the record is the answer alone."""
        server = self._server
        if server.audit is None or self.info is None:
            return
        now = server.clock.time()
        self._unknown = user is None
        self.event = server.audit.begin(self.request, user, self.info, now)
        if self.event is not None and user is not None:
            self.event.emit("RequestReceived", now)

    def _audit(self, event: AuditEvent, answer: Answer) -> None:
        event.answered(answer)
        assert self.info is not None
        if self._unknown:
            self._emit("ResponseStarted")
        elif event.panicked:
            self._emit("Panic")
        elif not long_running(self.info):
            self._emit("ResponseComplete")
        else:
            self._emit("ResponseStarted")
            if isinstance(answer, Response):
                self._emit("ResponseComplete")
            else:
                answer.on_end = both(answer.on_end, self._stream_ended)

    def _emit(self, stage: str) -> None:
        assert self.event is not None
        self.event.emit(stage, self._server.clock.time(), self.ctx)

    def _stream_ended(self) -> None:
        self._emit("ResponseComplete")

    # ---- the end -------------------------------------------------------------------------------------------------

    def done(self, answer: Answer) -> Answer:
        """The answer as it goes out."""
        self._server.metrics.record(self.info, answer, time.perf_counter() - self._start)
        flow, event = self.flow, self.event
        headers = answer.headers
        if flow is not None:
            flow.schema.dispatched += 1
            headers = headers + flow.headers
        if event is not None:
            self._audit(event, answer)
            headers = [*headers, (HEADER, event.audit_id.encode("latin-1", "replace"))]
        if headers is answer.headers:
            return answer
        if isinstance(answer, Response):
            # Made anew: answers of the server's own caches are shared.
            answer = Response(answer.status, headers, answer.body)
            if self._seats and isinstance(answer.body, list) and len(answer.body) > 1:
                answer.on_end = self.leave  # a large body occupies memory until the client has read it
                return answer
        else:
            answer.headers = headers
        if self._seats:
            self.leave()
        return answer


def both(one: Callable[[], None] | None, other: Callable[[], None]) -> Callable[[], None]:
    if one is None:
        return other

    def run() -> None:
        one()
        other()

    return run
