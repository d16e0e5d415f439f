"""Routes: which service answers a request, by host, path, and what HTTPRoutes add to that.

Pure data, built from objects; knows neither HTTP connections nor clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.regexp import Regexp
from transom.machinery.objects import Object

EXACT, PREFIX, REGULAR_EXPRESSION = "Exact", "Prefix", "RegularExpression"
_PATH_TYPES = {"Exact": EXACT, "RegularExpression": REGULAR_EXPRESSION}  # all others are prefixes


@dataclass(frozen=True, slots=True)
class RouteBackend:
    namespace: str
    service: str
    port: str | int  # name or number of a port of the service
    weight: int = 1
    invalid: bool = False  # a reference of an HTTPRoute to something that cannot serve requests


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """A header or a query parameter with a value."""

    name: str
    value: str
    pattern: Regexp | None = None  # if the value is an expression; it matches the whole value

    def matches(self, value: str | None) -> bool:
        if value is None:
            return False
        return value == self.value if self.pattern is None else self.pattern.match_string(value)


@dataclass(frozen=True, slots=True)
class IngressRoute:
    host: str  # "" for any host, "*.example.com" for all names with one more label
    path: str
    path_type: str
    backends: tuple[RouteBackend, ...]
    source: str  # the object, for messages
    created: str = ""
    method: str = ""
    headers: tuple[ValueMatch, ...] = ()
    parameters: tuple[ValueMatch, ...] = ()
    filters: tuple[Object, ...] = ()  # of an HTTPRoute
    pattern: Regexp | None = None  # of a path that is an expression; it matches the whole path
    any_depth: bool = False  # a wildcard host matches names with more than one more label, too
    scheme: str = ""  # "" for both
    unsupported: str = ""  # what the rule of an HTTPRoute asks for and is not done here

    def matches_path(self, path: str) -> bool:
        if self.path_type == EXACT:
            return path == self.path
        if self.pattern is not None:
            return self.pattern.match_string(path)
        prefix = self.path.rstrip("/")
        return path == prefix or path.startswith(prefix + "/")

    @property
    def order(self) -> tuple[Any, ...]:
        """The most specific route first; of equal ones, that of the oldest object."""
        return (
            self.path_type != EXACT,
            -len(self.path.rstrip("/")),
            not self.method,
            -len(self.headers),
            -len(self.parameters),
            self.created,
            self.source,
        )


@dataclass(slots=True)
class RouteTable:
    """All routes, by host."""

    default: tuple[RouteBackend, ...] = ()  # for requests that no route matches
    by_host: dict[str, list[IngressRoute]] = field(default_factory=dict)

    def find(
        self,
        host: str,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Sequence[str]] | None = None,
        scheme: str = "http",
    ) -> IngressRoute | None:
        """The first route of the most specific host that has one for the request."""
        for depth, name in enumerate(host_candidates(host)):
            deep = depth > 1 and bool(name)
            for route in self.by_host.get(name, ()):
                if (
                    (route.any_depth or not deep)
                    and route.scheme in ("", scheme)
                    and route.matches_path(path)
                    and (not route.method or route.method == method)
                    and all(m.matches((headers or {}).get(m.name)) for m in route.headers)
                    and all(
                        m.matches(next(iter((query or {}).get(m.name, ())), None))
                        for m in route.parameters
                    )
                ):
                    return route
        return None


def host_candidates(host: str) -> list[str]:
    """The keys under which routes for a host can be: the name, wildcards that replace one label and
    more, and any host.
    """
    name = host.lower().rstrip(".")
    labels = name.split(".")
    wildcards = [f"*.{'.'.join(labels[n:])}" for n in range(1, len(labels))]
    return [name, *wildcards, ""]


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


def without_dot_segments(path: str) -> str | None:
    """The path that a server behind the proxy may resolve a path to; None if it leaves the root.

    A route for /public must not give access to /public/../admin. Windows servers read a backslash
    as a slash, so a path with dot segments is read like that here.
    """
    if "/." not in path and "\\." not in path:
        return path
    segments = path.replace("\\", "/").split("/")[1:]
    if "." not in segments and ".." not in segments:
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if not kept:
                return None
            kept.pop()
        elif segment not in (".", ""):  # many servers merge slashes
            kept.append(segment)
    end = "/" if segments[-1] in (".", "..") and kept else ""
    return "/" + "/".join(kept) + end


def make_route_table(
    ingresses: Iterable[Object], others: Iterable[IngressRoute] = ()
) -> RouteTable:
    table = RouteTable()
    oldest = oldest_first(ingresses)
    routes = [route for obj in oldest for route in ingress_routes(obj)]
    for obj in oldest:
        spec = obj.get("spec") or {}
        backend = _backend(obj, spec.get("defaultBackend") or spec.get("backend") or {})
        if backend is not None and not table.default:
            table.default = (backend,)
    for route in (*routes, *others):
        table.by_host.setdefault(route.host.lower(), []).append(route)
    for found in table.by_host.values():
        found.sort(key=lambda route: route.order)
    return table


def ingress_routes(ingress: Object) -> list[IngressRoute]:
    """The routes of an Ingress."""
    routes = []
    for rule in (ingress.get("spec") or {}).get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            backend = _backend(ingress, path.get("backend") or {})
            if backend is not None:
                routes.append(
                    IngressRoute(
                        rule.get("host", ""),
                        path.get("path") or "/",
                        _PATH_TYPES.get(path.get("pathType", ""), PREFIX),
                        (backend,),
                        f"ingress {_source(ingress)}",
                        _created(ingress),
                    )
                )
    return routes


def _backend(ingress: Object, backend: Object) -> RouteBackend | None:
    """A backend in the form of v1 or v1beta1; None for one that is not a service."""
    namespace = ingress["metadata"].get("namespace", "")
    service = backend.get("service")
    if service:
        port = service.get("port") or {}
        return RouteBackend(namespace, service["name"], port.get("number") or port.get("name", ""))
    if backend.get("serviceName"):
        return RouteBackend(namespace, backend["serviceName"], backend.get("servicePort", ""))
    return None


def ingress_class(ingress: Object) -> str | None:
    """The class of an Ingress: the annotation, else the field; None for no class."""
    annotations = ingress["metadata"].get("annotations") or {}
    name = annotations.get("kubernetes.io/ingress.class")
    return name or (ingress.get("spec") or {}).get("ingressClassName") or None


def oldest_first(objects: Iterable[Object]) -> list[Object]:
    """The order in which objects claim a host: a newer one cannot take it over."""
    return sorted(objects, key=lambda obj: (_created(obj), _source(obj)))


def _created(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")


def _source(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
