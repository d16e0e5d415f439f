"""POSTs to a webhook by its `clientConfig`, with Kubernetes' error messages.

One client serves admission and the conversion of custom resources. Connections are reused. The
content of reviews is opaque here.
"""

from __future__ import annotations

import asyncio
import base64
import math
import posixpath
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import orjson

from transom.apiserver.core.offload import LARGE_YAML
from transom.apiserver.core.service_resolver import Resolve, UnresolvedService
from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.http.outgoing import CallError, CallTarget, Connect, OutgoingConnection, ResponseHead
from transom.http.pool import ConnectionPool
from transom.kit.http_message import encode_request
from transom.kit.named_tuple import NamedTuple
from transom.kit.workers import WorkerThread, WorkRejected, WorkRunner, WorkTimeout
from transom.machinery import codec, gojson
from transom.machinery.kinds import GVK
from transom.machinery.objects import Object
from transom.machinery.server_responses import generic_server_response

USER_AGENT = "kube-apiserver-admission"
MAX_ANSWER = 64 * 1024 * 1024
_MAX_TEXT = 2048
_LONGEST_WAIT = 9  # digits of Retry-After
_MAX_RETRIES = 10
_HTTPS = 443
_KUBERNETES = ("default", "kubernetes")


class CallFailed(Exception):
    """The webhook gave no usable response; the text is Kubernetes' reason."""


class WebhookEndpoint(NamedTuple):
    """A parsed client configuration."""

    url: str  # as in error messages, without the query
    path: str
    host: str  # for the Host header
    service: tuple[str, str, int] | None
    address: tuple[str, int]
    server_name: str
    ca_bundle: bytes


def endpoint_of(config: Mapping[str, Any]) -> WebhookEndpoint:
    ca_bundle = base64.b64decode(config.get("caBundle") or "")
    service = config.get("service")
    if service is not None:
        port = service.get("port") or _HTTPS
        name = f"{service['name']}.{service['namespace']}.svc"
        path = _clean(service.get("path") or "")
        host = join_host_port(name, port)
        return WebhookEndpoint(
            f"https://{host}{quote(path)}",
            quote(path),
            host,
            (service["namespace"], service["name"], port),
            (name, port),
            name,
            ca_bundle,
        )
    url = config.get("url") or ""
    if not url:
        raise CallFailed("webhook configuration must have either service or URL")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    path = quote(_clean(unquote(parts.path)))
    name = parts.hostname or ""
    return WebhookEndpoint(
        f"{parts.scheme}://{host}{path}",
        path,
        host,
        None,
        (name, parts.port or _HTTPS),
        name,
        ca_bundle,
    )


def _clean(path: str) -> str:
    return "/" + posixpath.normpath("/" + path).lstrip("/")


T = TypeVar("T")
_MAX_FAILURES = 1000
_GROUP = "webhooks"  # the group for fair scheduling in the worker thread


class WebhookClient:
    def __init__(
        self,
        resolve: Resolve,
        own_token: str = "",
        own_ca: bytes = b"",
        connect: Connect | None = None,
        workers: WorkRunner | None = None,
    ) -> None:
        """`connect` opens connections to services of the cluster; `own_token` and `own_ca` are for
        webhooks that the API server serves itself, through the service `kubernetes`.
        """
        self._resolve = resolve
        self._own_token = own_token
        self._own_ca = own_ca
        self._pool = ConnectionPool(connect)
        self.workers: WorkRunner = workers or WorkerThread()
        # URL -> when its last call failed, by the loop's clock, and why; a success removes it
        self.failures: dict[str, tuple[float, str]] = {}

    async def __call__(
        self,
        config: Mapping[str, Any],
        body: Object,
        within: float,
        work: Callable[[Object], T],
        /,
    ) -> T:
        """One review: returns what `work` makes of the decoded response, or raises CallFailed.
        `within` is the timeout in seconds.
        """
        raw = await self.post(config, body, within)
        return await self.read(raw, lambda: work(_decoded(raw)))

    async def read(self, raw: bytes, work: Callable[[], T]) -> T:
        """The result of a function that decodes a response. Decoding a large one is slow, so a
        worker thread does it.
        """
        if len(raw) <= LARGE_YAML:
            return work()
        try:
            return await self.workers.run(work, group=_GROUP)
        except (WorkTimeout, WorkRejected) as problem:
            raise CallFailed(f"the response takes too long to decode: {problem}") from None

    async def post(self, config: Mapping[str, Any], body: Object, within: float) -> bytes:
        """The body of a successful response. Retries a response with Retry-After."""
        place = endpoint_of(config)
        try:
            answer = await self._post(place, body, within)
        except CallFailed as problem:
            if len(self.failures) < _MAX_FAILURES or place.url in self.failures:
                text = str(problem).partition('": ')[2] or str(problem)
                self.failures[place.url] = (asyncio.get_running_loop().time(), text)
            raise
        self.failures.pop(place.url, None)
        return answer

    async def _post(self, place: WebhookEndpoint, body: Object, within: float) -> bytes:
        deadline = asyncio.get_running_loop().time() + within
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
            except (CallError, UnresolvedService) as problem:
                raise CallFailed(f'Post "{url}": {problem}') from problem
            answer = await _rest(connection, deadline)
            self._pool.give_back(connection)
            retries += 1
            wait = head.header(b"retry-after")
            if not (
                (head.status == 429 or head.status >= 500)
                and wait.isdigit()
                and retries <= _MAX_RETRIES
            ):
                return await self.read(answer, partial(_successful, head, answer))
            left = max(deadline - asyncio.get_running_loop().time(), 0)
            # A number of this length is longer than any deadline, and int() accepts no long ones.
            await asyncio.sleep(min(int(wait[:_LONGEST_WAIT]), left))

    def _request(self, place: WebhookEndpoint, query: str, body: bytes) -> bytes:
        headers = [
            ("Host", place.host),
            ("User-Agent", USER_AGENT),
            ("Accept", "application/json, */*"),
            ("Content-Type", "application/json"),
        ]
        if place.service == (*_KUBERNETES, _HTTPS) and self._own_token:
            headers.append(("Authorization", f"Bearer {self._own_token}"))
        return encode_request("POST", place.path + query, headers, body)

    def _target(self, place: WebhookEndpoint) -> CallTarget:
        host, port = place.address
        bundle = place.ca_bundle
        if place.service is not None:
            host, port = self._resolve(*place.service)
            if place.service[:2] == _KUBERNETES and self._own_ca:
                bundle = self._own_ca + b"\n" + bundle
        return CallTarget(host, port, place.server_name, bundle)

    def close(self) -> None:
        self._pool.close()


async def _rest(connection: OutgoingConnection, deadline: float) -> bytes:
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
    raise CallFailed(
        f"unexpected error when reading response body. Please retry. Original error: {why}"
    )


def _successful(head: ResponseHead, body: bytes) -> bytes:
    kind = head.header(b"content-type")
    if not 200 <= head.status <= 206:
        raise CallFailed(_failure(head.status, kind, body))
    if not body:
        raise CallFailed(
            f"0-length response with status code: {head.status} and content type: "
            f"{kind or 'application/json'}"
        )
    return body


def _failure(status: int, kind: str, body: bytes) -> str:
    """A Status in the body has its own message; otherwise the code determines it."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if (
        isinstance(found, dict)
        and found.get("kind", "Status") == "Status"
        and found.get("status") == "Failure"
    ):
        return str(found.get("message", ""))
    textual = not kind or kind.lower().startswith("text/")
    text = body[:_MAX_TEXT].decode(errors="replace").strip() if textual else "unknown"
    if status in (403, 415):
        return text
    if status == 406:
        without = "the server was unable to respond with a content type that the client supports"
        return without if text in ("", "unknown") else text
    return generic_server_response(status, text).message


def _decoded(raw: bytes) -> Object:
    try:
        answer = gojson.loads(raw)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    raise CallFailed(_not_decodable(raw))


def _not_decodable(raw: bytes) -> str:
    try:
        codec.decode_object(raw, media_of(raw), GVK("", "v1", "Status"))
    except codec.DecodeError as problem:
        return problem.base
    return "couldn't get version/kind; json parse error: not an object"


def media_of(raw: bytes) -> str:
    """How a response is decoded, regardless of its content type: anything that does not start with
    a brace is YAML.
    """
    return codec.JSON if raw.lstrip()[:1] == b"{" else codec.YAML
