"""`/openapi/v2` and `/openapi/v3` over HTTP: built in a thread when somebody asks, kept as bytes until kinds change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING

from transom.apiserver import discovery
from transom.apiserver.openapi.custom import CustomSchema
from transom.http.messages import Answer, Headers, Request, Response
from transom.machinery import errors
from transom.machinery.kinds import Kind

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer


def _documents() -> ModuleType:
    """Comes when the first client asks: a cluster's start has no use for it."""
    from transom.apiserver.openapi import documents

    return documents


_IMMUTABLE = b"public, max-age=31536000, immutable"


class OpenApi:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._generation: object = None
        self._documents: dict[object, asyncio.Task[discovery.Document]] = {}

    async def _document(self, key: object, build: Callable[[], bytes]) -> discovery.Document:
        """A document, built once for all who ask at the same time."""
        generation = self._server.discovery_generation()
        if generation != self._generation:
            self._generation = generation
            self._documents = {}
        task = self._documents.get(key)
        if task is None:
            task = asyncio.ensure_future(asyncio.to_thread(lambda: discovery.document(build())))
            self._documents[key] = task
        try:
            return await asyncio.shield(task)
        except Exception:
            self._documents.pop(key, None)
            raise

    def _kinds(self) -> tuple[list[Kind], list[CustomSchema]]:
        """Built-in kinds, and the schemas of the custom ones."""
        kinds = [k for k in self._server.resources.kinds() if not k.custom]
        return kinds, self._server.custom_schemas()

    def _version(self) -> str:
        return discovery.version_info(self._server.release)["gitVersion"]

    def v2(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()
        offer = _documents().accepted(request.header(b"accept"), _documents().V2_OFFERS)
        if offer is None:
            return Response(406, [])
        return self._v2(request, offer)

    async def _v2(self, request: Request, offer: str) -> Answer:
        kinds, customs = self._kinds()
        version = self._version()
        if offer == _documents().V2_PROTOBUF:
            found = await self._document("v2+protobuf", lambda: _documents().v2_protobuf(kinds, customs, version=version))
            media = b"application/octet-stream"
        else:
            found = await self._document("v2", lambda: _documents().v2_json(kinds, customs, version=version))
            media = b"text/plain; charset=utf-8"
        return _answer(request, found, [(b"Content-Type", media), (b"Cache-Control", b"no-cache, private")])

    async def v3(self, request: Request) -> Answer:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()
        kinds, customs = self._kinds()
        version = self._version()
        parts = [p for p in request.path.split("/") if p][2:]
        json_type = (b"Content-Type", b"application/json")
        if not parts:
            found = await self._document("v3", lambda: _documents().v3_index(kinds, customs, version=version))
            return _answer(request, found, [json_type, (b"Cache-Control", b"no-cache, private")])
        if parts[0] == "api" and len(parts) == 2:
            group, group_version = "", parts[1]
        elif parts[0] == "apis" and len(parts) == 3:
            group, group_version = parts[1], parts[2]
        else:
            return Response(404, [(b"Content-Type", b"text/plain; charset=utf-8")], b"404 page not found\n")
        if not self._server.resources.has_version(group, group_version):
            return Response(404, [(b"Content-Type", b"text/plain; charset=utf-8")], b"404 page not found\n")
        found = await self._document(
            (group, group_version), lambda: _documents().v3_json(group, group_version, kinds, customs, version=version)
        )
        cache = _IMMUTABLE if "hash" in request.query else b"no-cache, private"
        return _answer(request, found, [json_type, (b"Cache-Control", cache)])


def _answer(request: Request, found: discovery.Document, headers: Headers) -> Answer:
    headers = [*headers, (b"ETag", found.etag.encode()), (b"Vary", b"Accept")]
    if request.header(b"if-none-match") == found.etag:
        return Response(304, headers)
    return Response(200, headers, found.body)
