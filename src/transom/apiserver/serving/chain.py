"""The request chain: every API call, from HTTP and in-process clients, runs through this list."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.audit.event import AuditStage
from transom.apiserver.authentication.impersonation import impersonate, is_impersonation
from transom.apiserver.authorization.chain import Authorization
from transom.apiserver.core.answers import AnswerNeeded, retry_with_answers
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.dispatcher import Dispatcher
from transom.apiserver.core.integrity import Integrity, store_failure
from transom.apiserver.core.options import first_query_value, query_duration
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.flowcontrol.flows import HEAVY, RequestFlow, RequestFlows, list_seats
from transom.apiserver.flowcontrol.levels import RequestRejected
from transom.apiserver.flowcontrol.rules import is_long_running
from transom.apiserver.flowcontrol.turns import HeavyReadTurns
from transom.apiserver.serving.exchange import ApiExchange
from transom.http.messages import HttpRequest
from transom.kit.clock import Clock
from transom.machinery import errors
from transom.machinery.errors import ApiError
from transom.machinery.integers import parse_int
from transom.machinery.objects import is_recursion_error
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.store.api import Store, StoreError

log = logging.getLogger("transom.apiserver")
T = TypeVar("T")
Step = Callable[[ApiExchange[Any]], Awaitable[None] | None]


def request_steps(
    authenticate: Callable[[HttpRequest], UserInfo],
    authorize: Authorization,
    auditor: Auditor | None,
    flows: RequestFlows,
    turns: HeavyReadTurns,
    resources: ResourceRegistry,
    store: Store,
    dispatch: Dispatcher,
    clock: Clock,
) -> tuple[Step, ...]:
    audit = Audit(auditor, clock)
    return (
        Authenticate(authenticate, audit),
        *(() if auditor is None else (audit,)),
        Impersonate(authorize, resources.release),
        FlowControl(flows, turns, resources, store),
        Authorize(authorize, clock, resources.release),
        Execute(dispatch),
    )


class RequestChain:
    """Runs an exchange through the steps. Requests that need no waiting complete immediately,
    without a task.
    """

    def __init__(self, steps: Sequence[Step], integrity: Integrity) -> None:
        self._steps = tuple(steps)
        self._integrity = integrity

    def run(self, exchange: ApiExchange[T]) -> T | Coroutine[Any, Any, T]:
        steps = iter(self._steps)
        try:
            for step in steps:
                waiting = step(exchange)
                if waiting is not None:
                    exchange.suspend()
                    return self._run_on(exchange, step, waiting, steps)
        except AnswerNeeded as needed:
            exchange.suspend()
            retrying = retry_with_answers(partial(step, exchange), needed)
            return self._run_on(exchange, step, retrying, steps)
        except Exception as problem:
            if _may_be_corrupt(exchange, problem):
                exchange.suspend()
                return self._recover(exchange, problem)
            return self._fail(exchange, problem)
        if exchange.release_turn is not None:
            exchange.end_turn()
        return exchange.complete(exchange.output)

    async def _run_on(
        self, exchange: ApiExchange[T], step: Step, waiting: Awaitable[None], steps: Iterator[Step]
    ) -> T:
        try:
            await _settle(exchange, step, waiting)
            for step in steps:
                try:
                    pending = step(exchange)
                except AnswerNeeded as needed:
                    pending = retry_with_answers(partial(step, exchange), needed)
                if pending is not None:
                    exchange.suspend()
                    await _settle(exchange, step, pending)
        except Exception as problem:
            if _may_be_corrupt(exchange, problem):
                return await self._recover(exchange, problem)
            return self._fail(exchange, problem)
        except BaseException:
            exchange.end_turn()
            exchange.release_seats()
            raise
        return self._complete(exchange, exchange.output)

    async def _recover(self, exchange: ApiExchange[T], problem: Exception) -> T:
        """Quarantines stored objects that cannot be decoded, and retries the request without
        them.
        """
        try:
            res, info = exchange.res, exchange.info
            if not res.stored or not await self._integrity.scan_for_corruption(res, info.namespace):
                return self._fail(exchange, problem)
            waiting = self._steps[-1](exchange)
            if waiting is not None:
                await waiting
        except Exception as again:
            return self._fail(exchange, again)
        except BaseException:
            exchange.end_turn()
            exchange.release_seats()
            raise
        finally:
            del problem  # its traceback may refer to this frame
        return self._complete(exchange, exchange.output)

    def _complete(self, exchange: ApiExchange[T], output: T) -> T:
        exchange.end_turn()
        return exchange.complete(output)

    def _fail(self, exchange: ApiExchange[T], problem: Exception) -> T:
        try:
            exchange.end_turn()
            return exchange.complete(exchange.fail(problem))
        finally:
            del problem  # its traceback may refer to this frame


async def _settle(exchange: ApiExchange[T], step: Step, waiting: Awaitable[None]) -> None:
    """Awaits a step. One that needs an answer of another server runs again with it; nothing is
    stored before the last question is answered.
    """
    try:
        await waiting
    except AnswerNeeded as needed:
        await retry_with_answers(partial(step, exchange), needed)


def _may_be_corrupt(exchange: ApiExchange[T], problem: Exception) -> bool:
    """Whether a stored object that cannot be decoded may be the cause; other errors have their own
    types.
    """
    return exchange.routed and not isinstance(problem, ApiError | StoreError)


def as_api_error(problem: Exception) -> ApiError | None:
    """Kubernetes' error for an exception; None for a bug in the server."""
    if isinstance(problem, StoreError):
        log.error("store: %s", problem)
        return store_failure(problem)
    if is_recursion_error(problem):
        return errors.nested_too_deeply()
    return problem if isinstance(problem, ApiError) else None


# ---- the steps ----
#
# A step notes what it finds on the exchange, raises to reject the request, or returns an awaitable
# when it has to wait.

_WEIGHED = ("list", "watch")
_SINGLE = ("get", "create", "update", "patch", "delete")  # of one object
_UPDATES = ("update", "patch")


class ClientGone(Exception):
    """The client closed its connection while the request waited."""


class Audit:
    """Starts the audit event of the request."""

    def __init__(self, auditor: Auditor | None, clock: Clock) -> None:
        self._auditor = auditor
        self._clock = clock

    def __call__(self, exchange: ApiExchange[T]) -> None:
        if self._auditor is None:
            return
        now = self._clock.time()
        user = exchange.user
        event = self._auditor.begin(exchange.source(), user, exchange.request_info, now)
        exchange.event = event
        if event is None:
            return
        if exchange.request is not None and exchange.request.audit_annotations:
            event.annotations.update(exchange.request.audit_annotations)
        if user is not None:
            event.emit(AuditStage.REQUEST_RECEIVED, now)


class Authenticate:
    """Finds the user; an in-process call already has one."""

    def __init__(self, authenticate: Callable[[HttpRequest], UserInfo], audit: Audit) -> None:
        """`audit` records requests without valid credentials, which end here."""
        self._authenticate = authenticate
        self._audit = audit

    def __call__(self, exchange: ApiExchange[T]) -> None:
        if exchange.user is None and exchange.request is not None:
            try:
                exchange.user = self._authenticate(exchange.request)
            except ApiError:
                self._audit(exchange)
                raise


class Impersonate:
    """Switches to the impersonated user, if requested and allowed by RBAC."""

    def __init__(self, authorize: Authorization, release: Release) -> None:
        self._authorize = authorize
        self._release = release

    def __call__(self, exchange: ApiExchange[T]) -> None:
        request = exchange.request
        if request is not None and exchange.user is not None and is_impersonation(request):
            user = impersonate(request, exchange.user, self._authorize, self._release)
            if exchange.event is not None and user is not exchange.user:
                exchange.event.impersonated = user
            exchange.user = user


class FlowControl:
    """API Priority and Fairness: wait for seats, or be rejected. Heavy reads also take turns.

    In-process calls are exempt: the components of the cluster must not wait for each other.
    """

    def __init__(
        self, flows: RequestFlows, turns: HeavyReadTurns, resources: ResourceRegistry, store: Store
    ) -> None:
        self._flows = flows
        self._turns = turns
        self._resources = resources
        self._store = store

    def __call__(self, exchange: ApiExchange[T]) -> Awaitable[None] | None:
        user, request_info = exchange.user, exchange.request_info
        if user is None or exchange.in_process:
            return None
        if request_info.verb in _SINGLE and not request_info.subresource:
            flow = self._flows.find(user, request_info)
            if not flow.level.has_room(1):
                return self._queue(exchange, flow, 1, heavy=False)
            exchange.flow = flow
            return None
        count = self._count_objects(exchange) if request_info.verb in _WEIGHED else 0
        if is_long_running(request_info):
            return self._take_turn(exchange, user.name) if count > HEAVY else None
        flow = self._flows.find(user, request_info)
        seats = list_seats(count) if count else 1
        if not flow.level.has_room(seats):
            return self._queue(exchange, flow, seats, heavy=count > HEAVY)
        if count > HEAVY:
            exchange.acquire_seats(flow, seats)
            return self._take_turn(exchange, flow.level)
        exchange.flow = flow
        return None

    def _count_objects(self, exchange: ApiExchange[T]) -> int:
        """The number of objects that the list or watch will process."""
        request_info, query = exchange.request_info, exchange.query
        res = self._resources.find_served(
            request_info.group, request_info.version, request_info.resource
        )
        if res is None or not res.stored or request_info.subresource or request_info.name:
            return 0
        count = self._store.count(res.key_prefix(request_info.namespace))
        if query and count:
            if request_info.verb == "watch" and first_query_value(query, "resourceVersion") not in (
                "",
                "0",
            ):
                return 0  # resumes from a version, and sends only later events
            limit = first_query_value(query, "limit")
            if limit.isdecimal() and parse_int(limit):
                return min(count, parse_int(limit))
        return count

    async def _queue(
        self, exchange: ApiExchange[T], flow: RequestFlow, seats: int, *, heavy: bool
    ) -> None:
        """All seats are in use: wait in a queue; raises Rejected if it is full or the wait is too
        long.
        """
        try:
            await flow.level.wait(flow.hand, seats)
        except RequestRejected as rejected:
            flow.level.rejected[flow.schema.name, rejected.reason] += 1
            raise
        exchange.acquire_seats(flow, seats, assigned=True)
        if exchange.gone:
            raise ClientGone
        if heavy:
            await self._take_turn(exchange, flow.level)

    async def _take_turn(self, exchange: ApiExchange[T], group: Hashable) -> None:
        await self._turns.take(group)
        exchange.release_turn = self._turns.done
        if exchange.gone:
            raise ClientGone


class Authorize:
    def __init__(self, authorize: Authorization, clock: Clock, release: Release) -> None:
        self._authorize = authorize
        self._clock = clock
        self._explained = has_behaviour(release, "ExplainedCreateOnUpdate")

    def __call__(self, exchange: ApiExchange[T]) -> None:
        user, request_info, ctx = exchange.user, exchange.request_info, exchange.ctx
        assert user is not None
        ctx.user = user
        ctx.now = self._clock.time()
        verb = ctx.verb = request_info.verb
        if exchange.query and "timeout" in exchange.query:
            timeout = query_duration(first_query_value(exchange.query, "timeout"))
            ctx.timeout = ctx.timeout if timeout is None else timeout
        decision = self._authorize.decide(user, request_info)
        if exchange.event is not None:
            ctx.audit = exchange.event
            exchange.event.decided(bool(decision.allowed), decision.reason)
        exchange.info = decision.authorized(user, request_info)
        if verb in _UPDATES:
            ctx.authorize_create = partial(
                self._authorize.require_create, user, exchange.info, explained=self._explained
            )


class Execute:
    """Calls the verb and builds the output from its result."""

    def __init__(self, dispatch: Dispatcher) -> None:
        self._dispatch = dispatch

    def __call__(self, exchange: ApiExchange[T]) -> Awaitable[None] | None:
        return exchange.execute(self._dispatch)
