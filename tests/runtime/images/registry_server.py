"""A small registry on the loopback address, which can be as unpleasant as real ones."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
from tests.runtime.images.tars import Built

from transom.runtime.images.model import digest_of

USER = ("ann", "secret")


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class RegistryServer:
    auth: str = ""  # bearer, bearer-post, basic
    public: bool = True  # anonymous tokens
    ranges: bool = True
    head_digest: bool = True
    redirect_to: str = ""  # of blobs
    # after how many bytes of a body
    cut: Callable[[str, int], int | None] = lambda path, size: None
    override: Callable[[Request], tuple[int, dict[str, str], bytes] | None] = lambda request: None
    # "team/app:1" or "team/app@sha256:..."
    manifests: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    context: ssl.SSLContext | None = None
    port: int = 0
    at_once: int = 0
    most_at_once: int = 0
    _server: Any = None
    _tasks: set[Any] = field(default_factory=set)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, *images: Built, index: bytes = b"") -> None:
        repository, _, _ = name.partition(":")
        for built in images:
            self.blobs.update(built.blobs)
            self.manifests[f"{repository}@{built.digest}"] = built.manifest
        top = index or images[0].manifest
        self.manifests[name] = self.manifests[f"{repository}@{digest_of(top)}"] = top

    async def __aenter__(self) -> RegistryServer:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.context
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                await asyncio.sleep(0)
                status, headers, body = self._answer(request)
                self.at_once -= 1
                lines = [
                    f"HTTP/1.1 {status} X",
                    *(f"{name}: {value}" for name, value in headers.items()),
                ]
                if "Content-Length" not in headers:
                    lines.append(f"Content-Length: {len(body)}")
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
                if request.method != "HEAD":
                    cut = self.cut(request.path, len(body)) if body else None
                    writer.write(body if cut is None else body[:cut])
                    await writer.drain()
                    if cut is not None:
                        break
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        given = self.override(request)
        if given is not None:
            return given
        path = urlsplit(request.path).path
        if path == "/token":
            return self._token(request)
        refused = self._refused(request)
        if refused is not None:
            return refused
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)", path)
        if match is None:
            return 404, {}, b""
        repository, kind, what = match.groups()
        if kind == "manifests":
            data = self.manifests.get(f"{repository}{'@' if ':' in what else ':'}{what}")
            if data is None:
                return (
                    404,
                    {},
                    b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}',
                )
            headers = {
                "Content-Type": orjson.loads(data).get("mediaType", "text/html"),
                "Content-Length": str(len(data)),
            }
            if self.head_digest:
                headers["Docker-Content-Digest"] = digest_of(data)
            return 200, headers, data
        if self.redirect_to:
            return 307, {"Location": f"{self.redirect_to}{path}"}, b""
        return self._blob(request, what)

    def _blob(self, request: Request, what: str) -> tuple[int, dict[str, str], bytes]:
        data = self.blobs.get(what)
        if data is None:
            return 404, {}, b'{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}'
        wanted = request.headers.get("range", "")
        if not wanted or not self.ranges:
            return 200, {}, data
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        if start >= len(data):
            return 416, {}, b""
        return 206, {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}, data[start:]

    # ---- authorization ----

    def _refused(self, request: Request) -> tuple[int, dict[str, str], bytes] | None:
        given = request.headers.get("authorization", "")
        if not self.auth:
            return None
        if self.auth == "basic":
            if given == "Basic " + base64.b64encode(":".join(USER).encode()).decode():
                return None
            return 401, {"WWW-Authenticate": 'Basic realm="here"'}, b""
        repository = request.path.split("/")[2:-2]
        if given == f"Bearer good-{'/'.join(repository)}":
            return None
        error = ',error="insufficient_scope"' if given else ""
        scope = f"repository:{'/'.join(repository)}:pull"
        challenge = (
            f'Bearer realm="http://{self.host}/token",service="reg, of '
            f'tests",scope="{scope}"{error}'
        )
        return 401, {"WWW-Authenticate": challenge}, b""

    def _token(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        fields = parse_qs(urlsplit(request.path).query or request.body.decode())
        if request.method == "POST":
            if self.auth != "bearer-post":
                return 405, {}, b""
            known = (fields["username"][0], fields["password"][0]) == USER
        else:
            known = (
                request.headers.get("authorization")
                == "Basic " + base64.b64encode(":".join(USER).encode()).decode()
            )
            if "authorization" in request.headers and not known:
                return 401, {}, b""
        if request.method == "POST" and not known:
            return 401, {}, b""
        assert fields["service"] == ["reg, of tests"]
        good = known or self.public
        repository = fields["scope"][0].split(":")[1]
        name = "access_token" if request.method == "POST" else "token"
        return 200, {}, orjson.dumps({name: f"good-{repository}" if good else "useless"})


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        first = await reader.readexactly(1)
        # a client begins with TLS: real servers do not wait for the end of that either
        if first == b"\x16":
            return None
        raw = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = raw.decode("latin-1").split("\r\n")
    method, path, _ = start.split(" ")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)
