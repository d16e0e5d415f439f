"""Forwards requests to the endpoints of the service that a route names, and their responses back.

Like other ingress controllers, it connects to pods, not to the service's address, and tries another
endpoint if one does not accept the connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from transom.http import relay
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse, text_response
from transom.http.outgoing import CallError, CallTarget
from transom.http.pool import ConnectionPool
from transom.ingress.routes import (
    IngressRoute,
    RouteBackend,
    RouteTable,
    host_name,
    without_dot_segments,
)
from transom.kit.http_message import encode_request
from transom.machinery.objects import Object

_DROPPED = relay.HOP_BY_HOP | {b"content-length", b"expect", b"host"}
_OWN = (b"x-forwarded-", b"x-real-ip")  # what the controller sets; some servers read _ as -
_MOST_ATTEMPTS = 3
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_DEFAULT_REDIRECT = 302


class BackendAddress(NamedTuple):
    host: str
    port: int


FindEndpoints = Callable[[RouteBackend], Sequence[BackendAddress]]


class IngressProxy:
    """`table` returns the current routes."""

    def __init__(
        self,
        table: Callable[[], RouteTable],
        endpoints: FindEndpoints,
        pool: ConnectionPool,
        rng: random.Random,
    ) -> None:
        self._table = table
        self._endpoints = endpoints
        self._pool = pool
        self._rng = rng
        self._next: dict[RouteBackend, int] = {}  # for round robin

    async def answer(self, request: HttpRequest, scheme: str) -> Answer:
        table = self._table()
        host = host_name(request.header(b"host"))
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in _pairs(request)
        }
        path = without_dot_segments(request.path)
        if path is None:
            return text_response(400, "the path leaves the root\n")
        route = table.find(host, path, request.method, headers, request.query, scheme)
        if route is None and not table.default:
            return text_response(404, "default backend - 404\n")
        if route is not None and route.unsupported:
            return text_response(500, f"{route.unsupported} is not supported\n")
        filters = route.filters if route is not None else ()
        redirect = _filter(filters, "requestRedirect")
        if redirect is not None:
            return _redirect(request, path, redirect, route, scheme)
        backend = self._choose(route.backends if route is not None else table.default)
        if backend is None:
            return text_response(500, "the route has no backend\n")
        if backend.invalid:
            return text_response(500, f"the backend {backend.service} of the route is invalid\n")
        addresses = self._rotated(backend)
        if not addresses:
            where = f"{backend.namespace}/{backend.service}"
            return text_response(503, f"service {where} has no ready endpoints for this port\n")
        return await self._forward(request, path, route, addresses, scheme)

    def _choose(self, backends: Sequence[RouteBackend]) -> RouteBackend | None:
        weights = [backend.weight for backend in backends]
        if not any(weights):
            return None
        return backends[0] if len(backends) == 1 else self._rng.choices(backends, weights)[0]

    def _rotated(self, backend: RouteBackend) -> list[BackendAddress]:
        found = list(self._endpoints(backend))
        if not found:
            return []
        start = self._next.get(backend, 0) % len(found)
        self._next[backend] = start + 1
        return (found[start:] + found[:start])[:_MOST_ATTEMPTS]

    async def _forward(
        self,
        request: HttpRequest,
        path: str,
        route: IngressRoute | None,
        addresses: Sequence[BackendAddress],
        scheme: str,
    ) -> Answer:
        upgrade = relay.wants_upgrade(request) and bool(request.header(b"upgrade"))
        head_only = request.method == "HEAD"
        raw = _outgoing(request, path, route, scheme, upgrade)
        problem = ""
        for address in addresses:
            target = CallTarget(address.host, address.port, "", tls=False)
            try:
                if request.method in _REPEATABLE and not upgrade:
                    connection, head = await self._pool.begin(target, raw, bodiless=head_only)
                else:
                    connection, head = await self._pool.open(target), None
            except CallError as error:
                problem = str(error)
                continue
            try:
                if head is None:
                    head = await connection.send(raw)
                if upgrade and head.status == 101:
                    return relay.relay_upgraded(connection, head)
                headers = _changed(relay.relayed_headers(head), route, "responseHeaderModifier")
                return await relay.relay_response(
                    connection, head, headers, self._pool, bodiless=head_only
                )
            except CallError as error:
                connection.abort()
                return text_response(502, f"the endpoint {address.host} failed: {error}\n")
        return text_response(502, f"no endpoint accepts connections: {problem}\n")


def _pairs(request: HttpRequest) -> Iterable[tuple[bytes, bytes]]:
    return request.headers.items()


def _filter(filters: Iterable[Object], name: str) -> Object | None:
    return next((row[name] for row in filters if row.get(name) is not None), None)


def _outgoing(
    request: HttpRequest, path: str, route: IngressRoute | None, scheme: str, upgrade: bool
) -> bytes:
    """`path` is the one that was routed. If it is the path of the request, that is sent as the
    client spelled it.
    """
    host = request.header(b"host")
    target, mark, query = request.target.partition(b"?")
    if not target.startswith(b"/") or path != request.path:
        target = relay.escape_path(path).encode()
    rewrite = _filter(route.filters, "urlRewrite") if route is not None else None
    if rewrite is not None and route is not None:
        host = rewrite.get("hostname") or host
        target = relay.escape_path(_rewritten(path, route, rewrite.get("path"))).encode()
    before = request.header(b"x-forwarded-for")
    headers: Headers = [
        (name, value)
        for name, value in request.headers.items()
        if name not in _DROPPED and not name.replace(b"_", b"-").startswith(_OWN)
    ]
    headers = _changed(headers, route, "requestHeaderModifier")
    added = {
        "X-Forwarded-For": f"{before}, {request.remote}" if before else request.remote,
        "X-Forwarded-Host": request.header(b"host"),
        "X-Forwarded-Proto": scheme,
        "X-Real-IP": request.remote,
    }
    if upgrade:
        added |= {"Connection": "Upgrade", "Upgrade": request.header(b"upgrade")}
    lines = [(b"Host", host.encode("latin-1")), *headers]
    lines += [(name.encode(), value.encode("latin-1")) for name, value in added.items()]
    return encode_request(request.method, target + mark + query, lines, request.body)


def _changed(headers: Headers, route: IngressRoute | None, name: str) -> Headers:
    """Headers after a modifier of the route: set, add, remove."""
    modifier = _filter(route.filters, name) if route is not None else None
    if modifier is None:
        return headers
    replaced = {row["name"].lower() for row in modifier.get("set") or ()}
    replaced |= {text.lower() for text in modifier.get("remove") or ()}
    kept = [(k, v) for k, v in headers if k.decode("latin-1").lower() not in replaced]
    added = [*(modifier.get("set") or ()), *(modifier.get("add") or ())]
    return kept + [(row["name"].encode(), row["value"].encode()) for row in added]


def _rewritten(path: str, route: IngressRoute, rewrite: Object | None) -> str:
    if rewrite is None:
        return path
    if rewrite.get("type") == "ReplaceFullPath":
        return str(rewrite.get("replaceFullPath") or "/")
    rest = path[len(route.path.rstrip("/")) :]
    new = str(rewrite.get("replacePrefixMatch") or "").rstrip("/")
    return (new + rest) or "/"


def _redirect(
    request: HttpRequest, path: str, redirect: Object, route: IngressRoute | None, scheme: str
) -> HttpResponse:
    new_scheme = redirect.get("scheme") or scheme
    host = redirect.get("hostname") or host_name(request.header(b"host"))
    port = redirect.get("port")
    if port is None and not redirect.get("scheme"):
        own = request.header(b"host").removeprefix(host_name(request.header(b"host")))
        host += own if not redirect.get("hostname") else ""
    elif port is not None and port != {"http": 80, "https": 443}.get(new_scheme):
        host += f":{port}"
    if route is not None:
        path = _rewritten(path, route, redirect.get("path"))
    query = request.target.partition(b"?")[2].decode("latin-1")
    location = f"{new_scheme}://{host}{relay.escape_path(path)}{'?' + query if query else ''}"
    status = redirect.get("statusCode") or _DEFAULT_REDIRECT
    return HttpResponse(status, [(b"Location", location.encode("latin-1"))], b"")
