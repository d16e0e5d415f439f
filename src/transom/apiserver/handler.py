"""The way of a request: who is it, is there room for him, what does it want, may he, then the verb. Errors become Status
answers here.

Reads answer synchronously; writes, and what has to wait for its turn, return an awaitable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Hashable
from typing import TYPE_CHECKING

from transom.apiserver import reads, respond, writes
from transom.apiserver.authentication import impersonation
from transom.apiserver.authorization.chain import refusal
from transom.apiserver.context import Context, User
from transom.apiserver.flowcontrol.flows import HEAVY, Flow, list_seats
from transom.apiserver.flowcontrol.levels import Rejected, too_many_requests
from transom.apiserver.flowcontrol.rules import long_running
from transom.apiserver.negotiate import Form, negotiate, wants_pretty
from transom.apiserver.options import boolean, duration, first
from transom.apiserver.passage import Passage
from transom.apiserver.requestinfo import RequestInfo, parse
from transom.apiserver.resources import Resource
from transom.apiserver.subresources import table
from transom.apiserver.subresources.call import Call
from transom.http.messages import Answer, Request, Response
from transom.machinery import errors, selectors
from transom.machinery.errors import ApiError
from transom.store.api import StoreError

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

log = logging.getLogger("transom.apiserver")
_PLAIN = Form()
_WEIGHED = ("list", "watch")
_NOBODY = Response(408, [])  # for clients that went away while they waited
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}


class Dispatcher:
    """The HTTP handler of the API server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def streams_body(self, path: str) -> bool:
        """What is only handed on need not be gathered here first."""
        return "/proxy" in path and parse("POST", path).subresource == "proxy"

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        passage = Passage(self._server, request)
        try:
            answer = self._route(request, passage)
        except Exception as problem:
            answer = self._failure(request, passage, problem)
        if isinstance(answer, Awaitable):
            passage.suspend()
            return self._finish(request, passage, answer)
        return passage.done(answer)

    async def _finish(self, request: Request, passage: Passage, pending: Awaitable[Answer]) -> Answer:
        try:
            answer = await pending
        except Exception as problem:
            answer = self._failure(request, passage, problem)
        except BaseException:
            passage.leave()
            raise
        return passage.done(answer)

    def _failure(self, request: Request, passage: Passage, problem: Exception) -> Answer:
        if isinstance(problem, impersonation.Malformed):
            return respond.plain_text(500, str(problem))
        if isinstance(problem, StoreError):
            log.error("store: %s", problem)
            problem = errors.internal(str(problem))
        if not isinstance(problem, ApiError):
            log.error("%s %s failed", request.method, request.path, exc_info=problem)
            if passage.event is not None:
                passage.event.panicked = type(problem).__name__
            problem = errors.internal(f"{type(problem).__name__}: {problem}")
        try:
            form = negotiate(request.header(b"accept"), transforms=False)
        except ApiError:
            form = _PLAIN
        warnings = passage.ctx.warnings if passage.ctx is not None else ()
        return respond.failure(problem, self._prettied(request, form), warnings)

    def _prettied(self, request: Request, form: Form) -> Form:
        agent = request.header(b"user-agent")
        if b"pretty=" in request.target or agent.startswith(("curl", "Wget", "Mozilla")):
            return form._replace(pretty=wants_pretty(request.query, agent))
        return form

    def _route(self, request: Request, passage: Passage) -> Answer | Awaitable[Answer]:
        """Who is it, is there room for him; the rest is for `_serve`."""
        server = self._server
        info = passage.info = _request_info(request)
        try:
            user = server.authenticate(request)
        except ApiError:
            passage.begin_audit(None)
            raise
        if server.audit is not None:
            passage.begin_audit(user)
        if impersonation.wanted(request):
            user = impersonation.impersonate(request, user, server.authorize)
            if passage.event is not None:
                passage.event.impersonated = user
        count = self._weight(request, info) if info.verb in _WEIGHED else 0
        if long_running(info):
            if count > HEAVY:
                return self._in_turn(request, passage, user, info, user.name)
            return self._serve(request, passage, user, info)
        flow = server.flows.find(user, info)
        seats = list_seats(count) if count else 1
        if not flow.level.has_room(seats):
            return self._queue(request, passage, user, info, flow, seats, count > HEAVY)
        if count > HEAVY:
            passage.sit(flow, seats)
            return self._in_turn(request, passage, user, info, flow.level)
        passage.flow = flow
        return self._serve(request, passage, user, info)

    def _weight(self, request: Request, info: RequestInfo) -> int:
        """How many objects the request will go through."""
        res = self._server.resources.find(info.group, info.version, info.resource)
        if res is None or not res.stored or info.subresource or info.selected_name:
            return 0
        count = self._server.storage.store.count(res.key_prefix(info.namespace))
        if b"?" in request.target and count:
            query = request.query
            if info.verb == "watch" and first(query, "resourceVersion") not in ("", "0"):
                return 0  # goes on from where it was, and sends what happens from then on
            limit = first(query, "limit")
            if limit.isdigit() and int(limit):
                return min(count, int(limit))
        return count

    async def _queue(
        self, request: Request, passage: Passage, user: User, info: RequestInfo, flow: Flow, seats: int, heavy: bool
    ) -> Answer:
        """All seats are taken: wait, or hear that it is too much."""
        try:
            await flow.level.wait(flow.hand, seats)
        except Rejected as refused:
            flow.level.rejected[flow.schema.name, refused.reason] += 1
            return too_many_requests()
        passage.sit(flow, seats, given=True)
        if request.gone:
            return _NOBODY
        if heavy:
            return await self._in_turn(request, passage, user, info, flow.level)
        answer = self._serve(request, passage, user, info)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _in_turn(
        self, request: Request, passage: Passage, user: User, info: RequestInfo, group: Hashable
    ) -> Answer:
        turns = self._server.turns
        await turns.take(group)
        try:
            if request.gone:
                return _NOBODY
            answer = self._serve(request, passage, user, info)
            return await answer if isinstance(answer, Awaitable) else answer
        finally:
            turns.done()

    def _serve(self, request: Request, passage: Passage, user: User, info: RequestInfo) -> Answer | Awaitable[Answer]:
        """What does it want, may he, then the verb."""
        server = self._server
        ctx = Context(user, server.clock.time(), user_agent=request.header(b"user-agent"), path=request.path)
        ctx.verb = info.verb
        passage.ctx = ctx
        if b"timeout=" in request.target:
            asked = duration(first(request.query, "timeout"))
            ctx.timeout = ctx.timeout if asked is None else asked
        decision = server.authorize.decide(user, info)
        if passage.event is not None:
            ctx.audit = passage.event
            passage.event.decided(bool(decision.allowed), decision.reason)
        if not decision.allowed:
            raise refusal(user, info, decision.reason)
        if server.aggregation.any:
            foreign = server.aggregation.answer(request, ctx)
            if foreign is not None:
                return foreign
        if not info.is_resource:
            return server.paths(request, ctx, info)
        res = server.resources.find(info.group, info.version, info.resource)
        if res is None:
            return server.paths.unknown_resource(request, ctx, info)
        return self._resource(request, ctx, res, info)

    def _resource(
        self, request: Request, ctx: Context, res: Resource, info: RequestInfo
    ) -> Answer | Awaitable[Answer]:
        server = self._server
        storage = server.storage
        method = request.method
        subresource = info.subresource
        if (method not in _METHODS or method == "HEAD") and (subresource != "proxy" or "proxy" not in res.subresources):
            raise errors.generic_method_not_allowed()
        if res.custom and not _scope_fits(res, info):
            return server.paths.unknown_resource(request, ctx, info)
        if res.kind.namespaced and not info.namespace and (info.name and info.verb not in ("list", "watch")):
            raise errors.generic_not_found()
        if not res.kind.namespaced and info.namespace and res.kind.key != "/Namespace":
            raise errors.generic_not_found()
        tables = res.custom or (not subresource and "list" in res.verbs)
        accept = request.header(b"accept")
        if subresource and (subresource in table.CONNECTED or (subresource == "log" and "text/" in accept)):
            accept = ""  # what comes is not this server's, or plain text unlike everything else
        form = self._prettied(request, negotiate(accept, custom=res.custom, tables=tables))
        if res.warning:
            ctx.warn(res.warning)
        if subresource or not res.stored:
            return self._subresource(Call(server, ctx, res, info, request, form))
        verb = info.verb
        if verb == "get":
            return reads.get(storage, ctx, res, info, request, form)
        if res.custom and verb in ("update", "patch") and not info.name:
            raise errors.internal("name must be provided")
        everywhere = res.kind.namespaced and not info.namespace  # only lists and watches span namespaces
        if verb not in res.verbs or (verb == "create" and (info.name or everywhere)) or (
            verb == "deletecollection" and everywhere
        ) or (verb in ("update", "patch", "delete") and not info.name):
            raise errors.generic_method_not_allowed()
        if verb == "list":
            return reads.list_(storage, ctx, res, info, request, form)
        if verb == "watch":
            return reads.watch(storage, server.hub, ctx, res, info, request, form)
        args = (storage, ctx, res, info, request, form)
        if verb == "create":
            return writes.create(*args)
        if verb == "update":
            return writes.update(*args)
        if verb == "patch":
            return writes.patch_(*args)
        if verb == "delete":
            return writes.delete(*args)
        if verb == "deletecollection":
            return writes.delete_collection(*args)
        raise errors.generic_method_not_allowed()

    def _subresource(self, call: Call) -> Answer | Awaitable[Answer]:
        info, res = call.info, call.res
        if not info.subresource:
            handler = table.UNSTORED.get(res.kind.key, {}).get(info.verb)
            if handler is None or (info.verb == "create" and info.name):
                raise errors.generic_method_not_allowed()
            return handler(call)
        if info.subresource not in res.subresources:
            raise errors.not_found(res.gr, info.name) if res.custom else errors.generic_not_found()
        handlers = table.find(res.kind.key, info.subresource) or {}
        handler = handlers.get(info.verb)
        if handler is None and res.custom:
            raise errors.method_not_supported(res.gr, info.verb)
        if handler is None:
            if info.verb == "get" and "get" in res.subresources[info.subresource].verbs:
                return reads.get(call.server.storage, call.ctx, res, info, call.request, call.form)
            raise errors.generic_method_not_allowed()
        return handler(call)


def _scope_fits(res: Resource, info: RequestInfo) -> bool:
    """Whether the path has a namespace exactly when the custom resource has; lists and watches may span them all."""
    if not res.kind.namespaced:
        return not info.namespace
    return bool(info.namespace) or info.verb in ("list", "watch")


def _request_info(request: Request) -> RequestInfo:
    if b"?" not in request.target:
        return parse(request.method, request.path)
    query = request.query
    named = ""
    if "fieldSelector" in query:
        try:
            named = selectors.parse_fields(first(query, "fieldSelector")).exact("metadata.name") or ""
        except selectors.SelectorError:
            named = ""  # the list options will say what is wrong with it
    info = parse(request.method, request.path, boolean(query, "watch"))
    return info._replace(selected_name=named) if named and info.verb in ("list", "watch", "deletecollection") else info
