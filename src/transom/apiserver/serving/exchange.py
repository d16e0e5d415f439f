"""One request in the chain: the call, and the state that the steps of the chain record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from transom.apiserver.audit.event import AuditEvent, AuditStage, RequestSource, ResponseBody
from transom.apiserver.core.call import ApiCall
from transom.apiserver.core.context import ANONYMOUS, RequestContext, UserInfo
from transom.apiserver.core.dispatcher import Dispatcher
from transom.apiserver.core.options import Query
from transom.apiserver.core.requestinfo import RequestInfo
from transom.apiserver.flowcontrol.flows import RequestFlow
from transom.apiserver.flowcontrol.rules import is_long_running
from transom.http.messages import HttpRequest
from transom.kit.clock import Clock

Output = TypeVar("Output")


class ApiExchange(ApiCall, ABC, Generic[Output]):
    """Implemented by transports: HTTP returns a response, the in-process client returns objects."""

    output: Output
    routed = False  # the request is authorized, and `res` is its resource
    flow: RequestFlow | None = None
    seats = 0  # held at the priority level
    release_turn: Callable[[], None] | None = None  # of a heavy read
    event: AuditEvent | None = None

    def __init__(
        self,
        clock: Clock,
        request_info: RequestInfo,
        query: Query,
        body: bytes,
        content_type: str,
        user_agent: str,
        request: HttpRequest | None = None,
        user: UserInfo | None = None,
    ) -> None:
        self.query = query
        self.body = body
        self.content_type = content_type
        self._clock = clock
        self.ctx = RequestContext(ANONYMOUS, 0.0, user_agent=user_agent, path=request_info.path)
        # Not authorized yet; `info` is the same after authorization.
        self.request_info = request_info
        self.request = request  # None: an in-process call
        self.user = user  # None until the request is authenticated
        self.in_process = user is not None  # a component of the cluster, already authenticated

    # ---- methods of transports ----

    @abstractmethod
    def execute(self, dispatch: Dispatcher) -> Awaitable[None] | None:
        """Finds the resource, calls the verb and sets `output` from its result."""

    @abstractmethod
    def fail(self, problem: Exception) -> Output:
        """The output for an error, or the error for the caller."""

    @abstractmethod
    def complete(self, output: Output) -> Output:
        """Completes the output for the client; the request has ended, except for streams."""

    @abstractmethod
    def source(self) -> RequestSource:
        """The source of the request for the audit event."""

    @property
    def gone(self) -> bool:
        """The client disconnected while the request was waiting."""
        return self.request is not None and self.request.gone

    # ---- seats at the priority level ----

    def acquire_seats(self, flow: RequestFlow, seats: int, *, assigned: bool = False) -> None:
        """Holds seats at the level of the flow; `assigned` ones were already granted by its
        queue.
        """
        self.flow = flow
        if flow.level.limit:
            self.seats = seats
            if not assigned:
                flow.level.take(seats)

    def suspend(self) -> None:
        """The output takes time. Only then can other requests run, so only then does it need a
        seat.
        """
        if self.flow is not None and not self.seats:
            self.acquire_seats(self.flow, 1)

    def release_seats(self) -> None:
        seats, self.seats = self.seats, 0
        if seats and self.flow is not None:
            self.flow.level.release(seats)

    def end_turn(self) -> None:
        release, self.release_turn = self.release_turn, None
        if release is not None:
            release()

    # ---- audit ----

    def audit_response(
        self, event: AuditEvent, code: int, body: ResponseBody | None, *, ongoing: bool = False
    ) -> None:
        """Records the response; `ongoing`: it is a stream, and `audit_end` follows."""
        event.responded(code, body)
        if self.user is None:
            self.audit_stage(AuditStage.RESPONSE_STARTED)
        elif event.panicked:
            self.audit_stage(AuditStage.PANIC)
        elif not is_long_running(self.request_info):
            self.audit_stage(AuditStage.RESPONSE_COMPLETE)
        else:
            self.audit_stage(AuditStage.RESPONSE_STARTED)
            if not ongoing:
                self.audit_stage(AuditStage.RESPONSE_COMPLETE)

    def audit_stage(self, stage: AuditStage) -> None:
        if self.event is not None:
            self.event.emit(stage, self._clock.time(), self.ctx)

    def audit_end(self) -> None:
        """A stream has ended."""
        self.audit_stage(AuditStage.RESPONSE_COMPLETE)
