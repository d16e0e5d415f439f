"""The HTTP adapter of the request chain: requests to calls, results and errors to responses."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from transom.apiserver.aggregation.aggregator import Aggregator
from transom.apiserver.audit.auditor import AUDIT_ID_HEADER
from transom.apiserver.audit.event import AuditEvent, RequestSource, ResponseBody
from transom.apiserver.authentication.impersonation import (
    MalformedImpersonation,
    impersonate,
    is_impersonation,
)
from transom.apiserver.authorization.chain import Authorization, AuthorizerError
from transom.apiserver.core.answers import AnswerNeeded
from transom.apiserver.core.bodies import JSON
from transom.apiserver.core.call import ConnectResult, ObjectResult, Result
from transom.apiserver.core.context import ANONYMOUS, UserInfo
from transom.apiserver.core.dispatcher import Dispatcher
from transom.apiserver.core.options import first_query_value
from transom.apiserver.core.requestinfo import (
    Authorized,
    RequestInfo,
    UnknownRequest,
    parse_request_info,
)
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.flowcontrol.levels import RequestRejected, too_many_requests_response
from transom.apiserver.kubelets.kubelets import Kubelets
from transom.apiserver.serving import responses
from transom.apiserver.serving.chain import ClientGone, RequestChain, as_api_error
from transom.apiserver.serving.encoder import ResponseEncoder
from transom.apiserver.serving.exchange import ApiExchange
from transom.apiserver.serving.metrics import ApiServerMetrics
from transom.apiserver.serving.negotiate import (
    PLAIN,
    OutputForm,
    available_forms,
    negotiate,
    shows_tables,
    wants_pretty,
)
from transom.apiserver.serving.paths import NonResourcePaths
from transom.http.messages import (
    Answer,
    HttpRequest,
    HttpResponse,
    StreamResponse,
    UpgradeResponse,
    body_bytes,
    body_size,
    text_response,
)
from transom.kit.clock import Clock
from transom.kit.escaping import escape_markup
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.errors import ApiError

if TYPE_CHECKING:
    from transom.apiserver.serving import websocket_watch as websocket_watches
else:
    websocket_watches = lazy_import("transom.apiserver.serving.websocket_watch")

log = logging.getLogger("transom.apiserver")

_ANSWERS = (HttpResponse, StreamResponse, UpgradeResponse)
_NO_QUERY: dict[str, list[str]] = {}
_CLIENT_GONE = HttpResponse(408, [])
_UNKNOWN_INFO = RequestInfo(False, "", "")
# Subresources with a response from elsewhere: this server ignores the Accept header.
_CONNECTED = frozenset(("attach", "exec", "portforward", "proxy"))


class HttpDependencies(NamedTuple):
    """The dependencies of HTTP exchanges."""

    resources: ResourceRegistry
    encoder: ResponseEncoder
    paths: NonResourcePaths
    internal_paths: (
        NonResourcePaths  # for components of the cluster: all kinds, served to clients or not
    )
    aggregation: Aggregator
    kubelets: Kubelets
    metrics: ApiServerMetrics
    clock: Clock


class HttpHandler:
    """The handler of `http.HttpServer`."""

    def __init__(
        self,
        chain: RequestChain,
        dependencies: HttpDependencies,
        authenticate: Callable[[HttpRequest], UserInfo],
        authorize: Authorization,
    ) -> None:
        self._chain = chain
        self._dependencies = dependencies
        self._authenticate = authenticate
        self._authorize = authorize

    def __call__(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        query = request.query if b"?" in request.target else _NO_QUERY
        try:
            request_info = parse_request_info(request.method, request.path, query)
        except UnknownRequest as problem:
            exchange = HttpExchange(self._dependencies, request, _UNKNOWN_INFO, query)
            return exchange.complete(exchange.fail(problem))
        return self._chain.run(HttpExchange(self._dependencies, request, request_info, query))

    def call_as(self, user: UserInfo, request: HttpRequest) -> Answer | Awaitable[Answer]:
        """A request of an in-process component, whose identity is known."""
        query = request.query
        request_info = parse_request_info(request.method, request.path, query)
        return self._chain.run(HttpExchange(self._dependencies, request, request_info, query, user))

    def is_aggregated(self, group: str, version: str) -> bool:
        """Whether another server serves a group version."""
        return self._dependencies.aggregation.claims(group, version)

    def streams_body(self, path: str) -> bool:
        """Whether a large body is streamed instead of collected first."""
        try:
            return "/proxy" in path and parse_request_info("POST", path).subresource == "proxy"
        except UnknownRequest:
            return False

    def body_owner(self, request: HttpRequest) -> str | None:
        """The user whose budget a large body is charged to; None if the request will be
        rejected.
        """
        query = request.query if b"?" in request.target else None
        try:
            user = self._authenticate(request)
            if is_impersonation(request):
                release = self._dependencies.resources.release
                user = impersonate(request, user, self._authorize, release)
            info = parse_request_info(request.method, request.path, query)
            return user.name if self._authorize.decide(user, info).allowed else None
        except (ApiError, MalformedImpersonation):
            return None
        except AnswerNeeded:  # the chain waits for it; bodies until then share one budget
            return ANONYMOUS.name


class HttpExchange(ApiExchange[Answer]):
    __slots__ = ("_form", "_parts", "_request", "_started")

    def __init__(
        self,
        dependencies: HttpDependencies,
        request: HttpRequest,
        request_info: RequestInfo,
        query: dict[str, list[str]],
        user: UserInfo | None = None,
    ) -> None:
        """`user`: a component of the cluster, already authenticated."""
        self._started = time.perf_counter()
        super().__init__(
            dependencies.clock,
            request_info,
            query,
            request.body,
            "" if request.method == "GET" else request.header(b"content-type"),
            request.header(b"user-agent"),
            request,
            user,
        )
        self._dependencies = dependencies
        self._request = request
        self._form = PLAIN

    # ---- from the request to the answer ----

    def execute(self, dispatch: Dispatcher) -> Awaitable[None] | None:
        answer = self._route(dispatch)
        if answer is None:
            result = dispatch(self)
            if not isinstance(result, tuple):
                return self._answer_later(result)
            answer = self._answer(result)
        if isinstance(answer, _ANSWERS):
            self.output = answer
            return None
        return self._wait_for(answer)

    async def _answer_later(self, pending: Awaitable[Result]) -> None:
        answer = self._answer(await pending)
        self.output = answer if isinstance(answer, _ANSWERS) else await answer

    async def _wait_for(self, answer: Awaitable[Answer]) -> None:
        self.output = await answer

    def _answer(self, result: Result) -> Answer | Awaitable[Answer]:
        if type(result) is ObjectResult:
            if self._form == PLAIN and not self.query and not self.ctx.warnings:
                return self._dependencies.encoder.encode_plain(self.ctx, result)
            return self._dependencies.encoder.encode_object(self, self._form, result)
        if isinstance(result, ConnectResult):
            return self._dependencies.kubelets.connect(self._request, result.target)
        return self._dependencies.encoder.encode(self, self._form, result)

    def _route(self, dispatch: Dispatcher) -> Answer | Awaitable[Answer] | None:
        """Finds the resource and negotiates the response format. Handles all other paths."""
        dependencies, request, info = self._dependencies, self._request, self.info
        if dependencies.aggregation.any:
            foreign = dependencies.aggregation.answer(request, self.ctx.user)
            if foreign is not None:
                return foreign
        # Empty segments before the resource are not a valid resource path.
        if not info.is_resource or not info.path.startswith("/apis/" if info.group else "/api/"):
            return self._paths(request)
        resources = dependencies.resources
        find = resources.find if self.in_process else resources.find_served
        res = find(info.group, info.version, info.resource)
        if res is None or not _check_route(res, info, request.method):
            return self._paths.unknown_resource(request, self.ctx, info)
        self.res = res
        self.routed = True
        subresource = info.subresource
        accept = request.header(b"accept")
        if subresource and (
            subresource in _CONNECTED or (subresource == "log" and "text/" in accept)
        ):
            accept = ""
        negotiates = accept != "" and accept != JSON
        # A deprecated custom resource warns of itself whatever the request.
        if negotiates or (res.warning and not res.custom):
            dispatch.find_handler(self)
        if negotiates:
            tables = shows_tables(res, subresource)
            available = available_forms(res.release, info.verb)
            self._form = negotiate(accept, custom=res.custom, tables=tables, available=available)
        self._form = self._with_pretty(self._form)
        if res.warning:
            self.ctx.warn(res.warning)
        return None

    @property
    def _paths(self) -> NonResourcePaths:
        return self._dependencies.internal_paths if self.in_process else self._dependencies.paths

    def _with_pretty(self, form: OutputForm) -> OutputForm:
        agent = self.ctx.user_agent
        if (self.query and first_query_value(self.query, "pretty")) or agent.startswith(
            ("curl", "Wget", "Mozilla")
        ):
            return form._replace(pretty=wants_pretty(self.query, agent))
        return form

    # ---- errors ----

    def fail(self, problem: Exception) -> Answer:
        if isinstance(problem, ClientGone):
            return _CLIENT_GONE
        if isinstance(problem, RequestRejected):
            return too_many_requests_response()
        if isinstance(problem, MalformedImpersonation):
            return text_response(500, str(problem))
        if isinstance(problem, AuthorizerError):
            uri = escape_markup(go_quote(self._request.target.decode("latin-1")))
            return text_response(500, f"Internal Server Error: {uri}: {problem.message}\n")
        if isinstance(problem, UnknownRequest):
            return self._unknown_request(problem)
        error = as_api_error(problem)
        if error is None:
            request = self._request
            log.error("%s %s failed", request.method, request.path, exc_info=problem)
            if self.event is not None:
                self.event.panicked = type(problem).__name__
            error = errors.internal(f"{type(problem).__name__}: {problem}")
        try:
            form = negotiate(self._request.header(b"accept"), transforms=False)
        except ApiError:
            form = PLAIN
        return responses.error_response(error, self._with_pretty(form), self.ctx.warnings)

    def _unknown_request(self, problem: UnknownRequest) -> HttpResponse:
        uri = self._request.target.decode("latin-1")
        text = (
            f"Internal Server Error: {go_quote(uri)}: failed to create RequestInfo: "
            f"{problem}, {uri}\n"
        )
        text = escape_markup(text)
        return text_response(500, text)

    # ---- the end ----

    def complete(self, output: Answer) -> Answer:
        answer = output
        if not self.in_process:
            request_info = None if self.request_info is _UNKNOWN_INFO else self.request_info
            seconds = time.perf_counter() - self._started
            self._dependencies.metrics.record(request_info, answer, seconds)
        if (
            type(answer) is HttpResponse
            and type(answer.body) is bytes
            and self.event is None
            and not self._request.warnings
        ):  # the usual answer; a copy, because those of the server's own caches are shared
            headers = answer.headers
            if self.flow is not None:
                self.flow.schema.dispatched += 1
                headers = headers + self.flow.headers
            if self.seats:
                self.release_seats()
            return HttpResponse(answer.status, headers, answer.body, None, self._owner)
        return self._complete_other(answer)

    def _complete_other(self, answer: Answer) -> Answer:
        if isinstance(answer, StreamResponse) and answer.resumable and self._asks_websocket():
            requested_headers = {
                k.decode("latin-1"): v.decode("latin-1") for k, v in self._request.headers.items()
            }
            answer = websocket_watches.websocket_watch(
                self._request.method, requested_headers, answer
            )
        flow, event = self.flow, self.event
        headers = answer.headers
        if self._request.warnings:
            headers = responses.warning_headers(self._request.warnings) + headers
        if flow is not None:
            flow.schema.dispatched += 1
            headers = headers + flow.headers
        if event is not None:
            self._audit(event, answer)
            audit_id = event.audit_id.encode("latin-1", "replace")
            headers = [*headers, (AUDIT_ID_HEADER, audit_id)]
        if type(answer) is HttpResponse and type(answer.body) is bytes:
            # A copy: responses from the server's own caches are shared.
            answer = HttpResponse(answer.status, headers, answer.body, owner=self._owner)
        elif isinstance(answer, HttpResponse):
            body = answer.body
            large = not isinstance(body, bytes) and not (isinstance(body, list) and len(body) < 2)
            if headers is answer.headers and not large:
                return answer
            answer = HttpResponse(answer.status, headers, body, owner=self._owner)
            if large and self.seats:
                # A large body stays in memory until the client has read it.
                answer.on_end = self.release_seats
                return answer
        else:
            answer.headers = headers
            answer.owner = self._owner
        if self.seats:
            self.release_seats()
        return answer

    def _asks_websocket(self) -> bool:
        return self._request.header(b"upgrade").lower() == "websocket"

    @property
    def _owner(self) -> str:
        """The user whose budget the response is charged to."""
        return self.user.name if self.user is not None else ""

    # ---- audit ----

    def _audit(self, event: AuditEvent, answer: Answer) -> None:
        if isinstance(answer, HttpResponse):
            self.audit_response(event, answer.status, _audited_body(answer))
        else:
            answer.on_end = _both(answer.on_end, self.audit_end)
            self.audit_response(event, answer.status, None, ongoing=True)

    def source(self) -> RequestSource:
        request = self._request
        return RequestSource(
            request.target.decode("latin-1"),
            request.body,
            self.ctx.user_agent,
            source_ips(request),
            request.header(b"audit-id"),
        )


def _audited_body(response: HttpResponse) -> ResponseBody:
    body = response.body
    media = next((v for name, v in response.headers if name.lower() == b"content-type"), b"")
    return ResponseBody(media, body_size(body), lambda: body_bytes(body), isinstance(body, list))


def _both(one: Callable[[], None] | None, other: Callable[[], None]) -> Callable[[], None]:
    if one is None:
        return other

    def run_both() -> None:
        one()
        other()

    return run_both


def source_ips(request: HttpRequest) -> list[str]:
    """The addresses forwarded by proxies, then the address of the peer."""
    forwarded = request.header(b"x-forwarded-for").split(",")
    found = [ip for part in forwarded if (ip := _ip_address(part.strip()))]
    real = _ip_address(request.header(b"x-real-ip"))
    if real and real not in found:
        found.append(real)
    peer = _ip_address(request.remote)
    if peer and (not found or found[-1] != peer):
        found.append(peer)
    return found


def _ip_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text)) if text else ""
    except ValueError:
        return ""


_ROUTED_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))


def _check_route(res: Resource, info: Authorized, method: str) -> bool:
    """False if no resource has such a path; raises 404, 405 or 400 with Kubernetes' texts.

    Attributes are not enough: `/api/v1/namespaces/a/namespaces/b` is authorized in namespace `a`,
    but no route serves it.
    """
    if res.custom:
        if method not in _ROUTED_METHODS:
            raise errors.generic_method_not_allowed()
        return _scope_fits(res, info)
    if _is_ordinary(res, info) and method in _ROUTED_METHODS:
        return True
    _check_path(res, info)
    _check_method(res, info, method)
    _check_parameters(info)
    return True


def _is_ordinary(res: Resource, info: Authorized) -> bool:
    """An ordinary path of an object or a collection, without subresource: nothing to check."""
    if info.special or info.depth > 2 or (info.depth == 2 and not (info.name and res.has_objects)):
        return False
    namespaced = info.namespaced
    return namespaced == res.kind.namespaced and (not namespaced or info.namespace != "")


def _scope_fits(res: Resource, info: Authorized) -> bool:
    """Whether the path has a namespace if and only if the custom resource is namespaced.

    Lists and watches may span namespaces.
    """
    if not res.kind.namespaced:
        return not info.namespace
    return bool(info.namespace) or info.verb in ("list", "watch")


def _is_proxy(res: Resource, info: Authorized) -> bool:
    return info.subresource == "proxy" and "proxy" in res.subresources


def _check_path(res: Resource, info: Authorized) -> None:
    depth = info.depth
    if info.namespaced != res.kind.namespaced and (
        info.namespaced or depth > 1 or "list" not in res.verbs
    ):
        raise errors.generic_not_found()
    if depth == 2 and not res.has_objects:
        raise errors.generic_not_found()
    if depth > 3 and not _is_proxy(res, info):
        raise errors.generic_not_found()
    if info.special and (info.verb != "watch" or info.subresource or "watch" not in res.verbs):
        raise errors.generic_not_found()


def _check_method(res: Resource, info: Authorized, method: str) -> None:
    if method not in _ROUTED_METHODS:
        if not _is_proxy(res, info):
            raise errors.generic_method_not_allowed()
    elif info.special and method != "GET":
        raise errors.generic_method_not_allowed()


def _check_parameters(info: Authorized) -> None:
    """The number of empty segments in the path."""
    depth, verb = info.depth, info.verb
    if (depth > 1 and not info.name) or (
        info.subresource and verb in ("list", "watch", "deletecollection")
    ):
        raise ApiError(500, "", "name must be provided")
    if (
        info.namespaced
        and not info.namespace
        and (depth > 1 or verb in ("create", "deletecollection"))
    ):
        raise errors.bad_request("Namespace parameter required.")
