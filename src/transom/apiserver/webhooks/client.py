"""POST to a webhook by its `clientConfig`, and the texts of everything that can go wrong with it.

One client serves admission and the conversion of custom resources. Connections are kept and used again. What a review
means is not known here: bytes go out, bytes come back.
"""

from __future__ import annotations

import asyncio
import base64
import math
import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import orjson

from transom.apiserver.service_resolver import Resolve, Unresolved
from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.http.outgoing import CallError, Connect, Head, Outgoing, Target
from transom.http.pool import Pool
from transom.machinery import codec
from transom.machinery.field import go_quote
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object

USER_AGENT = "kube-apiserver-admission"
MAX_ANSWER = 64 * 1024 * 1024
_MAX_TEXT = 2048
_MAX_RETRIES = 10
_HTTPS = 443
_KUBERNETES = ("default", "kubernetes")

# What the client library makes of a failure whose body does not explain it.
_GENERIC = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(Exception):
    """The webhook gave no usable answer; the text is the reason Kubernetes gives."""


class Place(NamedTuple):
    """A client configuration, read."""

    url: str  # as texts print it, without the query
    path: str
    host: str  # for the Host header
    service: tuple[str, str, int] | None
    address: tuple[str, int]
    server_name: str
    ca_bundle: bytes


def place_of(config: Mapping[str, Any]) -> Place:
    ca_bundle = base64.b64decode(config.get("caBundle") or "")
    service = config.get("service")
    if service is not None:
        port = service.get("port") or _HTTPS
        name = f"{service['name']}.{service['namespace']}.svc"
        path = _clean(service.get("path") or "")
        host = join_host_port(name, port)
        return Place(f"https://{host}{quote(path)}", quote(path), host, (service["namespace"], service["name"], port),
                     (name, port), name, ca_bundle)
    url = config.get("url") or ""
    if not url:
        raise CallFailed("webhook configuration must have either service or URL")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = quote(_clean(unquote(parts.path)))
    name = parts.hostname or ""
    return Place(f"{parts.scheme}://{host}{path}", path, host, None, (name, parts.port or _HTTPS), name, ca_bundle)


def _clean(path: str) -> str:
    return "/" + posixpath.normpath("/" + path).lstrip("/")


class WebhookClient:
    def __init__(
        self, resolve: Resolve, own_token: str = "", own_ca: bytes = b"", connect: Connect | None = None
    ) -> None:
        """`connect` is the way to services of the cluster; `own_token` and `own_ca` are for a webhook that the API server
        serves itself, by the service `kubernetes`."""
        self._resolve = resolve
        self._own_token = own_token
        self._own_ca = own_ca
        self._pool = Pool(connect)

    async def __call__(self, config: Mapping[str, Any], body: Object, within: float) -> Object:
        """One review: the decoded answer, or CallFailed. `within` is how many seconds it may take."""
        raw = await self.post(config, body, within)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            answer = None
        if isinstance(answer, dict):
            return answer
        raise CallFailed(_not_decodable(raw))

    async def post(self, config: Mapping[str, Any], body: Object, within: float) -> bytes:
        """The body of a successful answer. One that says when to come again is asked for again."""
        deadline = asyncio.get_running_loop().time() + within
        place = place_of(config)
        query = f"?timeout={math.ceil(within)}s"
        url = f"{place.url}{query}"
        request = self._request(place, query, orjson.dumps(body))
        retries = 0
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    connection, head = await self._pool.begin(self._target(place), request)
            except TimeoutError:
                raise CallFailed(f'Post "{url}": {goerrors.DEADLINE}') from None
            except (CallError, Unresolved) as problem:
                raise CallFailed(f'Post "{url}": {problem}') from problem
            answer = await _rest(connection, deadline)
            self._pool.give_back(connection)
            retries += 1
            wait = head.header(b"retry-after")
            if not ((head.status == 429 or head.status >= 500) and wait.isdigit() and retries <= _MAX_RETRIES):
                return _successful(head, answer)
            await asyncio.sleep(min(int(wait), max(deadline - asyncio.get_running_loop().time(), 0)))

    def _request(self, place: Place, query: str, body: bytes) -> bytes:
        authorization = ""
        if place.service is not None and place.service[:2] == _KUBERNETES and place.service[2] == _HTTPS:
            authorization = f"Authorization: Bearer {self._own_token}\r\n" if self._own_token else ""
        return (
            f"POST {place.path}{query} HTTP/1.1\r\nHost: {place.host}\r\nUser-Agent: {USER_AGENT}\r\n"
            f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\n{authorization}"
            "Content-Type: application/json\r\n\r\n"
        ).encode() + body

    def _target(self, place: Place) -> Target:
        host, port = place.address
        bundle = place.ca_bundle
        if place.service is not None:
            host, port = self._resolve(*place.service)
            if place.service[:2] == _KUBERNETES and self._own_ca:
                bundle = self._own_ca + b"\n" + bundle
        return Target(host, port, place.server_name, bundle)

    def close(self) -> None:
        self._pool.close()


async def _rest(connection: Outgoing, deadline: float) -> bytes:
    try:
        async with asyncio.timeout_at(deadline):
            return await connection.read_all(MAX_ANSWER)
    except TimeoutError:
        why = goerrors.DEADLINE
    except CallError as problem:
        why = str(problem)
    except asyncio.CancelledError:
        connection.abort()
        raise
    connection.abort()
    raise CallFailed(f"unexpected error when reading response body. Please retry. Original error: {why}")


def _successful(head: Head, body: bytes) -> bytes:
    kind = head.header(b"content-type")
    if not 200 <= head.status <= 206:
        raise CallFailed(_failure(head.status, kind, body))
    if not body:
        raise CallFailed(
            f"0-length response with status code: {head.status} and content type: {kind or 'application/json'}"
        )
    return body


def _failure(status: int, kind: str, body: bytes) -> str:
    """A Status in the body speaks for itself; else there is a text for the code."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind", "Status") == "Status" and found.get("status") == "Failure":
        return str(found.get("message", ""))
    textual = not kind or kind.lower().startswith("text/")
    text = body[:_MAX_TEXT].decode(errors="replace").strip() if textual else "unknown"
    if status in (403, 415):
        return text
    if status == 406:
        without = "the server was unable to respond with a content type that the client supports"
        return without if text in ("", "unknown") else text
    if status in _GENERIC:
        return _GENERIC[status]
    if status >= 500:
        return f"an error on the server ({go_quote(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _not_decodable(raw: bytes) -> str:
    try:
        codec.decode(raw, media_of(raw), GVK("", "v1", "Status"))
    except codec.DecodeError as problem:
        return problem.base
    return "couldn't get version/kind; json parse error: not an object"


def media_of(raw: bytes) -> str:
    """How the decoder takes an answer, whatever its content type says: what does not open a brace is YAML."""
    return codec.JSON if raw.lstrip()[:1] == b"{" else codec.YAML
