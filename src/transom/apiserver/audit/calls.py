"""The record of a call inside the process: components there are users like all others, and audited like them."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import orjson

from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.audit.event import AuditEvent
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.context import Context, User
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Answer, Request, Response
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError

_JSON = [(b"Content-Type", b"application/json")]


class CallRecord:
    """As a context: what happens in it is told when it ends. `event` is None when nobody wants to know."""

    __slots__ = ("_answer", "_clock", "_long", "ctx", "event")

    def __init__(self) -> None:
        self.event: AuditEvent | None = None
        self.ctx: Context | None = None
        self._answer: Answer | None = None
        self._long = False

    def begin(self, auditor: Auditor, clock: Clock, user: User, info: RequestInfo, request: Request) -> None:
        self._clock = clock
        self._long = info.verb == "watch"
        self.event = auditor.begin(request, user, info, clock.time())
        self._emit("RequestReceived")

    def decided(self, decision: Decision) -> None:
        if self.event is not None:
            self.event.decided(bool(decision.allowed), decision.reason)

    def answered(self, answer: Answer) -> None:
        if self.event is not None:
            self._answer = answer

    @property
    def wants_object(self) -> bool:
        """Whether to say what is `returned`, where no answer is made of it."""
        return self.event is not None and self.event.shows_answers

    def returned(self, obj: Any) -> None:
        self._answer = Response(200, _JSON, orjson.dumps(obj))

    def ended(self) -> None:
        """A watch is over."""
        self._emit("ResponseComplete")

    def _emit(self, stage: str) -> None:
        if self.event is not None:
            self.event.emit(stage, self._clock.time(), self.ctx)

    def __enter__(self) -> CallRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.event is None:
            return
        if isinstance(problem, ApiError):
            self._answer = Response(problem.code, _JSON, orjson.dumps(problem.status()))
        elif kind is not None:
            self.event.panicked = kind.__name__
        self.event.answered(self._answer or Response(200, _JSON))
        if self._long:
            self._emit("ResponseStarted")
        if not self._long or problem is not None:
            self._emit("Panic" if self.event.panicked else "ResponseComplete")


NOT_RECORDED = CallRecord()
