"""`/openapi/v2` and `/openapi/v3` over HTTP: built in a thread on the first request, cached as
bytes until kinds change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from transom.apiserver.core import discovery
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.openapi.custom import CustomSchema
from transom.apiserver.serving.served import ServedVersions
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse
from transom.kit.lazy import lazy_import
from transom.machinery import errors
from transom.machinery.kinds import Kind
from transom.machinery.releases.behaviour import has_behaviour, honours_field_validation

# Imported with the first request, because start-up does not need it.
if TYPE_CHECKING:
    from transom.apiserver.openapi import documents
else:
    documents = lazy_import("transom.apiserver.openapi.documents")

_IMMUTABLE = b"public, max-age=31536000, immutable"


class OpenApi:
    def __init__(
        self,
        resources: ResourceRegistry,
        served: ServedVersions,
        custom_schemas: Callable[[], list[CustomSchema]],
        release: str,
    ) -> None:
        self._resources = resources
        self._served = served
        self._custom_schemas = custom_schemas
        self._release = release
        # Answers have their own media types, earlier those that Go finds out from the content.
        self._names_media = has_behaviour(resources.release, "OpenApiMediaTypes")
        self._field_validation = honours_field_validation(resources.release)
        self._generation: object = None
        self._documents: dict[object, asyncio.Task[discovery.DiscoveryDocument]] = {}

    async def _document(
        self, key: object, build: Callable[[], bytes]
    ) -> discovery.DiscoveryDocument:
        """A document, built once for all concurrent requests."""
        generation = self._served.generation
        if generation != self._generation:
            self._generation = generation
            self._documents = {}
        task = self._documents.get(key)
        if task is None:
            task = asyncio.ensure_future(
                asyncio.to_thread(lambda: discovery.make_discovery_document(build()))
            )
            self._documents[key] = task
        try:
            return await asyncio.shield(task)
        except Exception:
            self._documents.pop(key, None)
            raise

    def _kinds(self) -> tuple[list[Kind], list[CustomSchema]]:
        """Built-in kinds, and the schemas of custom ones."""
        kinds = [k for k in self._resources.served_kinds() if not k.custom]
        return kinds, self._custom_schemas()

    def _version(self) -> str:
        release = self._resources.release
        if has_behaviour(release, "OpenApiNamesRelease"):
            return str(release)
        return discovery.version_info(self._release)["gitVersion"]

    def v2(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()
        offers = documents.V2_OFFERS if self._names_media else documents.V2_OFFERS[:2]
        offer = documents.accepted(request.header(b"accept"), offers)
        if offer is None:
            return HttpResponse(406, [])
        return self._v2(request, offer)

    async def _v2(self, request: HttpRequest, offer: str) -> Answer:
        kinds, customs = self._kinds()
        version, types = self._version(), self._resources.types
        advertised = self._field_validation
        if offer != documents.V2_OFFERS[0]:
            found = await self._document(
                "v2+protobuf",
                lambda: documents.v2_protobuf(
                    kinds, customs, version=version, field_validation=advertised, types=types
                ),
            )
            media = (
                documents.V2_PROTOBUF_TYPE.encode()
                if self._names_media
                else b"application/octet-stream"
            )
        else:
            found = await self._document(
                "v2",
                lambda: documents.v2_json(
                    kinds, customs, version=version, field_validation=advertised, types=types
                ),
            )
            media = b"application/json" if self._names_media else b"text/plain; charset=utf-8"
        return _answer(
            request, found, [(b"Content-Type", media), (b"Cache-Control", b"no-cache, private")]
        )

    async def v3(self, request: HttpRequest) -> Answer:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()
        kinds, customs = self._kinds()
        version, types = self._version(), self._resources.types
        parts = [p for p in request.path.split("/") if p][2:]
        json_type = (b"Content-Type", b"application/json")
        if not parts:
            found = await self._document(
                "v3", lambda: documents.v3_index(kinds, customs, version=version)
            )
            return _answer(request, found, [json_type, (b"Cache-Control", b"no-cache, private")])
        if parts[0] == "api" and len(parts) == 2:
            group, group_version = "", parts[1]
        elif parts[0] == "apis" and len(parts) == 3:
            group, group_version = parts[1], parts[2]
        else:
            return HttpResponse(
                404, [(b"Content-Type", b"text/plain; charset=utf-8")], b"404 page not found\n"
            )
        if not self._resources.has_version(group, group_version):
            return HttpResponse(
                404, [(b"Content-Type", b"text/plain; charset=utf-8")], b"404 page not found\n"
            )
        found = await self._document(
            (group, group_version),
            lambda: documents.v3_json(
                group,
                group_version,
                kinds,
                customs,
                version=version,
                field_validation=self._field_validation,
                types=types,
            ),
        )
        cache = _IMMUTABLE if "hash" in request.query else b"no-cache, private"
        return _answer(request, found, [json_type, (b"Cache-Control", cache)])


def _answer(request: HttpRequest, found: discovery.DiscoveryDocument, headers: Headers) -> Answer:
    headers = [*headers, (b"ETag", found.etag.encode()), (b"Vary", b"Accept")]
    if request.header(b"if-none-match") == found.etag:
        return HttpResponse(304, headers)
    return HttpResponse(200, headers, found.body)
