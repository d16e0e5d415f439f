"""Everything that is not a resource: discovery, OpenAPI, health, version, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson

from transom.apiserver import discovery, respond
from transom.apiserver.authentication import tokens
from transom.apiserver.context import Context
from transom.apiserver.negotiate import JSON, Form, clauses, negotiate
from transom.apiserver.requestinfo import RequestInfo
from transom.http.messages import Answer, Headers, Request, Response
from transom.machinery import errors, resource_metrics

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

# Everything behind these names is there before the server answers at all; monitoring asks for the names.
_HOOKS = (
    "start-kube-apiserver-admission-initializer", "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer", "priority-and-fairness-filter", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced", "bootstrap-controller", "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer",
    "start-cluster-authentication-info-controller", "aggregator-reload-proxy-client-cert",
    "start-kube-aggregator-informers", "apiservice-registration-controller", "apiservice-status-available-controller",
    "kube-apiserver-autoregistration",
)
_BEFORE, _AFTER = ("ping", "log", "etcd"), ("autoregister-completion", "poststarthook/apiservice-openapi-controller")
_CHECKS = (*_BEFORE, *(f"poststarthook/{name}" for name in _HOOKS), *_AFTER)
_READY_CHECKS = (*_BEFORE, "informer-sync", *_CHECKS[len(_BEFORE):], "shutdown")
_AGGREGATED = "APIGroupDiscoveryList"


def _indented(found: Any) -> bytes:
    """As the paths and the version are written, for people."""
    return orjson.dumps(found, option=orjson.OPT_INDENT_2)


def _unknown_path() -> bytes:
    """What an unknown path is answered with: the paths of the server that is asked last, the one of custom resources."""
    hooks = ("crd-informer-synced", "generic-apiserver-start-informers", "priority-and-fairness-config-consumer",
             "priority-and-fairness-filter", "start-apiextensions-controllers", "start-apiextensions-informers")
    checks = ["etcd", "log", "ping", *(f"poststarthook/{name}" for name in hooks)]
    group = "/apis/apiextensions.k8s.io"
    paths = ["/apis", "/apis/", group, f"{group}/v1", f"{group}/v1beta1", "/metrics", "/openapi/v2", "/version"]
    for root in ("/healthz", "/livez", "/readyz"):
        more = ["informer-sync", "shutdown"] if root == "/readyz" else []
        paths += [root, *(f"{root}/{check}" for check in [*checks, *more])]
    return _indented({"paths": sorted(paths)})


_UNKNOWN_PATH = _unknown_path()
_PUBLIC_HOUR = (b"Cache-Control", b"public, max-age=3600")


class Paths:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._cache = discovery.DocumentCache()
        self._exact: dict[str, Callable[[Request], Answer | Awaitable[Answer]]] = {
            "/": self._root,
            "/version": self._version,
            "/version/": self._version,
            "/metrics": self._metrics,
            "/api": lambda r: self._groups(r, core=True),
            "/apis": lambda r: self._groups(r, core=False),
            "/openid/v1/jwks": self._jwks,
            "/.well-known/openid-configuration": self._openid,
        }

    def __call__(self, request: Request, ctx: Context, info: RequestInfo) -> Answer | Awaitable[Answer]:
        path = request.path
        handler = self._exact.get(path) or self._exact.get(path.rstrip("/"))
        if handler is None:
            for prefix, found in self._prefixes:
                if path == prefix or path.startswith(prefix + "/"):
                    handler = found
                    break
        if handler is None:
            if path.startswith(("/api/", "/apis/")):
                return self._api(request)
            return respond.raw_json(_UNKNOWN_PATH, 404)
        return handler(request)

    @property
    def _prefixes(self) -> tuple[tuple[str, Callable[[Request], Answer | Awaitable[Answer]]], ...]:
        return (("/healthz", self._health), ("/livez", self._health), ("/readyz", self._health),
                ("/openapi/v2", self._server.openapi.v2), ("/openapi/v3", self._server.openapi.v3),
                *self._server.options.more_paths.items())

    def unknown_resource(self, request: Request, ctx: Context, info: RequestInfo) -> Answer:
        """A resource path that leads to no stored kind: resource metrics, unknown resource, or unknown group."""
        metrics = self._server.resource_metrics
        if metrics is not None and (info.group, info.version) == (resource_metrics.GROUP, resource_metrics.VERSION):
            return metrics.answer(request, ctx, info)
        if self._server.resources.has_builtin(info.group, info.version):
            negotiate(request.header(b"accept"))
            raise errors.generic_not_found()
        return respond.plain_text(404, "404 page not found\n")

    # ---- discovery -----------------------------------------------------------------------------------------------

    def _served(self) -> list[discovery.ServedVersion]:
        return discovery.served(self._server.resources.kinds(), self._server.aggregated())

    def _document(
        self, key: object, build: Callable[[], Any], request: Request, media: bytes = b"application/json"
    ) -> Response:
        found = self._cache.get(self._server.discovery_generation(), key, build)
        if found is None:
            return respond.plain_text(404, "404 page not found\n")
        form = negotiate(request.header(b"accept"), transforms=False) if media == b"application/json" else Form(JSON)
        headers: Headers = [(b"Content-Type", media), (b"Cache-Control", b"no-cache, private")]
        if media != b"application/json":
            headers += [(b"ETag", found.etag.encode()), (b"Vary", b"Accept")]
            if request.header(b"if-none-match") == found.etag:
                return Response(304, headers)
        if form.media != JSON:
            return respond.document(orjson.loads(found.body), form)
        return Response(200, headers, found.body)

    def _groups(self, request: Request, *, core: bool) -> Answer:
        self._get_only(request)
        version = _aggregated_version(request.header(b"accept"))
        if version:
            media = f"application/json;g=apidiscovery.k8s.io;v={version};as={_AGGREGATED}".encode()
            return self._document(("aggregated", core, version),
                                  lambda: discovery.aggregated_list(self._served(), core=core, version=version), request, media)
        if core:
            return self._document("api", lambda: discovery.api_versions(self._server.address), request)
        return self._document("apis", lambda: discovery.group_list(self._served()), request)

    def _api(self, request: Request) -> Answer:
        parts = [p for p in request.path.split("/") if p]
        if parts[0] == "api" and len(parts) == 2:
            name, version = "", parts[1]
        elif parts[0] == "apis" and len(parts) in (2, 3):
            name, version = parts[1], parts[2] if len(parts) == 3 else ""
        else:
            return respond.plain_text(404, "404 page not found\n")
        known = self._cache.get(self._server.discovery_generation(), (name, version), lambda: self._build(name, version))
        if known is not None:
            self._get_only(request)
        return self._document((name, version), lambda: self._build(name, version), request)

    def _build(self, name: str, version: str) -> Any:
        if version:
            return discovery.resource_list(self._served(), name, version)
        return discovery.group(self._served(), name)

    def _get_only(self, request: Request) -> None:
        if request.method != "GET":
            raise errors.generic_method_not_allowed()

    # ---- the rest ------------------------------------------------------------------------------------------------

    def _root(self, request: Request, status: int = 200) -> Answer:
        found = self._cache.get(self._server.discovery_generation(), "root",
                                lambda: _indented(discovery.root_paths(self._served(), _CHECKS)))
        assert found is not None
        return respond.raw_json(found.body, status)

    def _version(self, request: Request) -> Answer:
        form = negotiate(request.header(b"accept"), transforms=False)
        if form.media != JSON:
            raise errors.not_acceptable()
        return respond.raw_json(_indented(discovery.version_info(self._server.release)))

    def _metrics(self, _request: Request) -> Answer:
        text = self._server.metrics.render(self._server.object_counts(), self._server.flows.render)
        return Response(200, [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")], text.encode())

    def _jwks(self, request: Request) -> Answer:
        self._get_only(request)
        keys = self._server.security.keys.verifying
        return Response(200, [(b"Content-Type", b"application/jwk-set+json"), _PUBLIC_HOUR], tokens.jwks(keys))

    def _openid(self, request: Request) -> Answer:
        self._get_only(request)
        server = self._server
        document = tokens.discovery(server.security.issuer.issuer, server.address, server.security.keys.verifying)
        return Response(200, [(b"Content-Type", b"application/json"), _PUBLIC_HOUR], document)

    def _health(self, request: Request) -> Answer:
        root, _, check = request.path.lstrip("/").partition("/")
        names = _READY_CHECKS if root == "readyz" else _CHECKS
        if check:
            return respond.plain_text(200, "ok") if check in names else respond.plain_text(404, "404 page not found\n")
        ready = self._server.ready or root != "readyz"
        excluded = set(request.query.get("exclude", ()))
        if "verbose" not in request.query and ready:
            return respond.plain_text(200, "ok")
        lines = []
        for name in names:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif name == "shutdown" and not ready:
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        lines.append(f"{root} check {'passed' if ready else 'failed'}")
        return respond.plain_text(200 if ready else 500, "\n".join(lines) + "\n")


def _aggregated_version(accept: str) -> str:
    """The version of aggregated discovery that a client prefers to the plain form, or ""."""
    if _AGGREGATED not in accept:
        return ""
    for clause in clauses(accept):
        if clause.media not in (JSON, "*/*"):
            continue
        if clause.params.get("as") == _AGGREGATED and clause.params.get("g") == "apidiscovery.k8s.io":
            version = clause.params.get("v", "")
            if version in ("v2", "v2beta1"):
                return version
            continue
        return ""
    return ""
