"""All non-resource paths: discovery, OpenAPI, health, version, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import orjson

from transom.apiserver.authentication import tokens
from transom.apiserver.core import discovery
from transom.apiserver.core.bodies import JSON, MEDIA_TYPES
from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.core.resources import ResourceRegistry
from transom.apiserver.security import Security
from transom.apiserver.serving import responses
from transom.apiserver.serving.health import HealthEndpoints
from transom.apiserver.serving.metrics import ApiServerMetrics
from transom.apiserver.serving.negotiate import OutputForm, accept_clauses, negotiate
from transom.apiserver.serving.openapi import OpenApi
from transom.apiserver.serving.resource_metrics import ResourceMetrics
from transom.apiserver.serving.served import ServedVersions
from transom.apiserver.serving.zpages import DebugPages
from transom.http.messages import Answer, Headers, HttpRequest, HttpResponse, text_response
from transom.kit.prometheus import CONTENT_TYPE
from transom.machinery import errors, resource_metrics
from transom.machinery.releases import has_tables
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.documents import aggregated_discovery_versions, has_openapi_v3

_AGGREGATED = "APIGroupDiscoveryList"


def _metrics_text(text: str) -> HttpResponse:
    content_type = (b"Content-Type", CONTENT_TYPE.encode())
    return HttpResponse(200, [content_type], text.encode())


def _indented(found: Any) -> bytes:
    """Indented, as Kubernetes formats the paths and the version."""
    return orjson.dumps(found, option=orjson.OPT_INDENT_2)


def _unknown_path() -> bytes:
    """The response for an unknown path: the paths of the last server in Kubernetes' delegation
    chain, that of custom resources.
    """
    hooks = (
        "crd-informer-synced",
        "generic-apiserver-start-informers",
        "priority-and-fairness-config-consumer",
        "priority-and-fairness-filter",
        "start-apiextensions-controllers",
        "start-apiextensions-informers",
    )
    checks = ["etcd", "log", "ping", *(f"poststarthook/{name}" for name in hooks)]
    group = "/apis/apiextensions.k8s.io"
    paths = [
        "/apis",
        "/apis/",
        group,
        f"{group}/v1",
        f"{group}/v1beta1",
        "/metrics",
        "/openapi/v2",
        "/version",
    ]
    for root in ("/healthz", "/livez", "/readyz"):
        more = ["informer-sync", "shutdown"] if root == "/readyz" else []
        paths += [root, *(f"{root}/{check}" for check in [*checks, *more])]
    return _indented({"paths": sorted(paths)})


_UNKNOWN_PATH = _unknown_path()
_PUBLIC_HOUR = (b"Cache-Control", b"public, max-age=3600")


PathHandler = Callable[[HttpRequest], Answer | Awaitable[Answer]]


class NonResourcePaths:
    """All paths except those of resources."""

    def __init__(
        self,
        resources: ResourceRegistry,
        served: ServedVersions,
        resource_metrics: ResourceMetrics | None,
        health: HealthEndpoints,
        openapi: OpenApi,
        security: Security,
        metrics: ApiServerMetrics,
        metrics_page: Callable[[], Callable[[], str]],
        more_paths: Mapping[str, PathHandler],
        address: str,
        release: str,
        debug_pages: DebugPages,
    ) -> None:
        self._resources = resources
        self._served = served
        self._resource_metrics = resource_metrics
        self._security = security
        self._metrics_counts = metrics
        self._metrics_page = metrics_page
        self._more_paths = more_paths
        self._address = address
        self._release = release
        self._cache = discovery.DocumentCache()
        # OpenAPI v3 and aggregated discovery, which older releases do not have.
        self._newer_documents = has_openapi_v3(resources.release)
        self._refuses_unknown = has_tables(resources.release)
        self._plain_unknown = has_behaviour(resources.release, "PlainUnknownPaths")
        self._aggregated = aggregated_discovery_versions(resources.release)
        self._timestamps = not has_behaviour(resources.release, "JsonValuesInErrors")
        self._debug_pages = tuple(debug_pages.handlers)
        self._check_names = health.names
        self._exact: dict[str, PathHandler] = {
            **debug_pages.handlers,
            "/": self._root,
            "/version": self._version,
            "/version/": self._version,
            "/metrics": self._metrics,
            "/openid/v1/jwks": self._jwks,
            "/.well-known/openid-configuration": self._openid,
        }
        # Authorization uses the literal path: only these may end with a slash.
        for root, core in (("/api", True), ("/apis", False)):
            self._exact[root] = self._exact[f"{root}/"] = partial(self._groups, core=core)
        self._prefixes: list[tuple[str, PathHandler]] = [
            *((root, health.answer) for root in ("/healthz", "/livez", "/readyz")),
            ("/openapi/v2", openapi.v2),
            *((("/openapi/v3", openapi.v3),) if self._newer_documents else ()),
        ]

    def __call__(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        path = request.path
        handler = self._exact.get(path) or self._below(path)
        if handler is not None:
            return handler(request)
        if path.startswith(("/api/", "/apis/")):
            return self._api(request)
        if self._plain_unknown:
            return text_response(404, "404 page not found\n")
        return responses.json_response(_UNKNOWN_PATH, 404)

    def _below(self, path: str) -> PathHandler | None:
        for prefix, handler in (*self._prefixes, *self._more_paths.items()):
            if path == prefix or path.startswith(prefix + "/"):
                return handler
        return None

    def unknown_resource(
        self, request: HttpRequest, ctx: RequestContext, info: Authorized
    ) -> Answer:
        """A resource path without a stored kind: resource metrics, unknown resource, or unknown
        group.
        """
        metrics = self._resource_metrics
        if metrics is not None and (info.group, info.version) == (
            resource_metrics.GROUP,
            resource_metrics.VERSION,
        ):
            return metrics.answer(request, ctx, info)
        # Everything below /api/ belongs to the server of the core group.
        if info.path.startswith("/api/") or self._resources.answers_for(info.group, info.version):
            negotiate(request.header(b"accept"))
            raise errors.generic_not_found()
        return text_response(404, "404 page not found\n")

    # ---- discovery ----

    def _document(
        self,
        key: object,
        build: Callable[[], Any],
        request: HttpRequest,
        media: bytes = b"application/json",
    ) -> HttpResponse:
        found = self._cache.get(self._served.generation, key, build)
        if found is None:
            return text_response(404, "404 page not found\n")
        form = (
            negotiate(request.header(b"accept"), transforms=False)
            if media == b"application/json"
            else OutputForm(JSON)
        )
        headers: Headers = [(b"Content-Type", media), (b"Cache-Control", b"no-cache, private")]
        if media != b"application/json":
            headers += [(b"ETag", found.etag.encode()), (b"Vary", b"Accept")]
            if request.header(b"if-none-match") == found.etag:
                return HttpResponse(304, headers)
        if form.media != JSON:
            return responses.document_response(orjson.loads(found.body), form)
        return HttpResponse(200, headers, found.body)

    def _groups(self, request: HttpRequest, *, core: bool) -> Answer:
        self._get_only(request)
        version = _aggregated_version(
            request.header(b"accept"), self._aggregated, refuses=self._refuses_unknown
        )
        if version:
            media = f"application/json;g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}".encode()
            return self._document(
                ("aggregated", core, version),
                lambda: discovery.aggregated_list(
                    self._served.versions(),
                    core=core,
                    version=version,
                    timestamps=self._timestamps,
                ),
                request,
                media,
            )
        if core:
            return self._document("api", lambda: discovery.api_versions(self._address), request)
        return self._document(
            "apis", lambda: discovery.api_group_list(self._served.versions()), request
        )

    def _api(self, request: HttpRequest) -> Answer:
        parts = request.path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            name, version = "", parts[1]
        elif parts[0] == "apis" and len(parts) in (2, 3):
            name, version = parts[1], parts[2] if len(parts) == 3 else ""
        else:
            return text_response(404, "404 page not found\n")
        known = self._cache.get(
            self._served.generation, (name, version), lambda: self._build(name, version)
        )
        if known is not None:
            self._get_only(request)
        elif parts[0] == "api" or (version and self._resources.answers_for(name, version)):
            raise errors.generic_not_found()
        return self._document((name, version), lambda: self._build(name, version), request)

    def _build(self, name: str, version: str) -> Any:
        if version:
            return discovery.api_resource_list(
                self._served.versions(), name, version, self._resources.release
            )
        return discovery.api_group(self._served.versions(), name)

    def _get_only(self, request: HttpRequest) -> None:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()

    # ---- other paths ----

    def _root(self, request: HttpRequest, status: int = 200) -> Answer:
        found = self._cache.get(
            self._served.generation,
            "root",
            lambda: _indented(
                discovery.root_paths(
                    self._served.versions(),
                    self._check_names,
                    openapi_v3=self._newer_documents,
                    more=self._debug_pages,
                )
            ),
        )
        assert found is not None
        return responses.json_response(found.body, status)

    def _version(self, request: HttpRequest) -> Answer:
        form = negotiate(request.header(b"accept"), transforms=False)
        if form.media != JSON:
            raise errors.not_acceptable()
        return responses.json_response(_indented(discovery.version_info(self._release)))

    def _metrics(self, _request: HttpRequest) -> Answer | Awaitable[Answer]:
        render = self._metrics_page()
        if self._metrics_counts.is_large:
            return self._metrics_in_thread(render)
        return _metrics_text(render())

    @staticmethod
    async def _metrics_in_thread(render: Callable[[], str]) -> Answer:
        return _metrics_text(await asyncio.to_thread(render))

    def _jwks(self, request: HttpRequest) -> Answer:
        self._get_only(request)
        keys = self._security.keys.verifying
        return HttpResponse(
            200, [(b"Content-Type", b"application/jwk-set+json"), _PUBLIC_HOUR], tokens.jwks(keys)
        )

    def _openid(self, request: HttpRequest) -> Answer:
        self._get_only(request)
        security = self._security
        document = tokens.discovery(security.issuer.issuer, self._address, security.keys.verifying)
        return HttpResponse(200, [(b"Content-Type", b"application/json"), _PUBLIC_HOUR], document)


def _aggregated_version(accept: str, known: Collection[str], *, refuses: bool) -> str:
    """The version of aggregated discovery that a client prefers over the classic form, or "". A
    client that only accepts unknown versions gets an error if the release `refuses` them.
    """
    if _AGGREGATED not in accept or not known:
        return ""
    for clause in accept_clauses(accept):
        if clause.media not in (JSON, "*/*"):
            continue
        if (
            clause.params.get("as") == _AGGREGATED
            and clause.params.get("g") == "apidiscovery.k8s.io"
        ):
            version = clause.params.get("v", "")
            if version in known:
                return version
            continue
        return ""
    if refuses:
        raise errors.no_such_form(MEDIA_TYPES)
    return ""
