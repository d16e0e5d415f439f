"""The client: a target from a kubeconfig, and keep-alive connections with little CPU overhead."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httptools

from transom.kit.http_message import encode_request
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.kit.tls_pairs import load_certificate_pair
from transom.machinery import goyaml

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_import("yaml")


class BenchError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class BenchTarget:
    host: str
    port: int
    context: ssl.SSLContext | None
    prefix: str
    headers: tuple[tuple[str, str], ...]  # of every request

    def encode(
        self, method: str, path: str, body: Any = None, media_type: str = "application/json"
    ) -> bytes:
        """An encoded request that can be sent many times."""
        target = self.prefix + path
        if body is None:
            return encode_request(method, target, self.headers)
        headers = (*self.headers, ("Content-Type", media_type))
        return encode_request(method, target, headers, json.dumps(body).encode())


def bench_target_from(path: Path, context_name: str | None = None) -> BenchTarget:
    """The server and user of a context (by default the current one): client certificate or bearer
    token.
    """
    try:
        content = goyaml.load_yaml(path.read_bytes())
        context = _entry(content, "contexts", context_name or content["current-context"])["context"]
        cluster = _entry(content, "clusters", context["cluster"])["cluster"]
        user = _entry(content, "users", context["user"])["user"]
    except (OSError, goyaml.YamlError, KeyError, TypeError) as error:
        raise BenchError(f"{path} has no usable context: {error}") from error
    url = urlsplit(cluster["server"])
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    headers = [
        ("Host", f"{host}:{port}"),
        ("User-Agent", "transom-bench"),
        ("Accept", "application/json"),
    ]
    if user.get("token"):
        headers.append(("Authorization", f"Bearer {user['token']}"))
    tls = _tls(path.parent, cluster, user) if url.scheme == "https" else None
    return BenchTarget(host, port, tls, url.path.rstrip("/"), tuple(headers))


def _entry(content: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    for entry in content.get(key) or []:
        if entry.get("name") == name:
            return dict(entry)
    raise KeyError(f"{name} in {key}")


def _tls(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    def material(holder: dict[str, Any], key: str) -> bytes | None:
        if holder.get(key + "-data"):
            return base64.b64decode(holder[key + "-data"])
        return (folder / holder[key]).read_bytes() if holder.get(key) else None

    authority = material(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = material(user, "client-certificate"), material(user, "client-key")
    if certificate and key:
        load_certificate_pair(context, certificate, key)
    return context


class BenchConnection(asyncio.Protocol):
    """Handles one request at a time; with `on_line`, the body is an open stream of lines."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._parser: Any = None
        self._body: list[bytes] = []
        self._rest = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._on_line: Callable[[bytes], None] | None = None

    @classmethod
    async def open(cls, target: BenchTarget) -> BenchConnection:
        loop = asyncio.get_running_loop()
        name = target.host if target.context else None
        try:
            _, connection = await loop.create_connection(
                cls, target.host, target.port, ssl=target.context, server_hostname=name
            )
        except OSError as error:
            raise BenchError(f"cannot connect to {target.host}:{target.port}: {error}") from error
        return connection

    def request(self, data: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Status code and body; raises on a timeout."""
        self._answer = asyncio.get_running_loop().create_future()
        self._body = []
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is None or self._transport.is_closing():
            self._answer.set_exception(BenchError("the server closed the connection"))
        else:
            self._transport.write(data)
        return self._answer

    async def watch(self, data: bytes, on_line: Callable[[bytes], None]) -> None:
        """Returns when the stream has started."""
        self._on_line = on_line
        status, body = await self.request(data)
        if status != 200:
            raise BenchError(f"a watch was answered with {status}: {body[:200]!r}")

    def close(self) -> None:
        self._on_line = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BenchError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if (
            self._on_line is not None
            and self._answer is not None
            and self._parser.get_status_code() == 200
        ):
            self._answer.set_result((200, b""))

    def on_body(self, data: bytes) -> None:
        if self._on_line is None:
            self._body.append(data)
            return
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._on_line(line)

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), b"".join(self._body)))
