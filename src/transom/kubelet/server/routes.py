"""The routes of a kubelet's API.

Two layers, as in Kubernetes' kubelet. The first matches prefixes and returns 404 for unknown ones
to any client. The second is behind authentication and matches the paths below a prefix and their
methods.
"""

from __future__ import annotations

import posixpath
from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple

Name = Literal[
    "healthz",
    "check",
    "pods",
    "runningpods",
    "summary",
    "metrics",
    "cadvisor",
    "resource",
    "probes",
    "configz",
    "logs",
    "containerLogs",
    "exec",
    "attach",
    "run",
    "portForward",
    "checkpoint",
]

_GET: Final = ("GET",)
_BOTH: Final = ("GET", "POST")


class KubeletRoute(NamedTuple):
    name: Name
    methods: tuple[str, ...] = ()  # empty: any
    json: bool = False  # produces JSON only


class RouteMatch(NamedTuple):
    route: KubeletRoute
    rest: tuple[str, ...]  # the path segments after the prefix


class RouteMissing(NamedTuple):
    status: int
    text: str


class RouteRedirect(NamedTuple):
    location: str


_EXACT: Final[dict[str, KubeletRoute]] = {
    "/healthz": KubeletRoute("healthz"),
    "/healthz/ping": KubeletRoute("check"),
    "/healthz/log": KubeletRoute("check"),
    "/healthz/syncloop": KubeletRoute("check"),
    "/metrics": KubeletRoute("metrics"),
    "/metrics/cadvisor": KubeletRoute("cadvisor"),
    "/metrics/resource": KubeletRoute("resource"),
    "/metrics/probes": KubeletRoute("probes"),
    "/configz": KubeletRoute("configz"),
}
# The first segment of a path, the allowed numbers of further segments, and whether the prefix
# requires a slash.
_PREFIXES: Final[dict[str, tuple[KubeletRoute, tuple[int, ...], bool]]] = {
    "pods": (KubeletRoute("pods", _GET, json=True), (0,), False),
    "runningpods": (KubeletRoute("runningpods", _GET, json=True), (0,), True),
    "stats": (KubeletRoute("summary", _BOTH, json=True), (1,), True),
    "logs": (KubeletRoute("logs", _GET), (), True),
    "containerLogs": (KubeletRoute("containerLogs", _GET), (3,), False),
    "exec": (KubeletRoute("exec", _BOTH), (3, 4), False),
    "attach": (KubeletRoute("attach", _BOTH), (3, 4), False),
    "run": (KubeletRoute("run", ("POST",)), (3, 4), False),
    "portForward": (KubeletRoute("portForward", _BOTH), (2, 3), False),
    "checkpoint": (KubeletRoute("checkpoint", ("POST",), json=True), (3,), True),
}
_NO_ROUTE: Final = RouteMissing(404, "404: Page Not Found")


def is_known_path(path: str) -> bool | RouteRedirect:
    """Whether any route matches the path."""
    clean = posixpath.normpath(path) if path else "/"
    if clean.startswith("//"):
        clean = clean[1:]
    if path.endswith("/") and clean != "/":
        clean += "/"
    if path in _EXACT:
        return True
    first, slash, _ = clean[1:].partition("/")
    prefix = _PREFIXES.get(first)
    if clean != path:
        return RouteRedirect(clean)
    if prefix is None:
        return False
    return RouteRedirect(clean + "/") if prefix[2] and not slash else True


def find_route(method: str, path: str, accept: str) -> RouteMatch | RouteMissing:
    """For a path for which `is_known_path` is true."""
    route = _EXACT.get(path)
    if route is not None:
        return RouteMatch(route, tuple(path[1:].split("/")[1:]))
    first, _, rest = path[1:].partition("/")
    route, sizes, _ = _PREFIXES[first]
    words = tuple(rest.strip("/").split("/")) if rest.strip("/") else ()
    if route.name == "logs":
        words = (rest,)
    elif len(words) not in sizes or (route.name == "summary" and words != ("summary",)):
        return _NO_ROUTE
    if method not in route.methods:
        return RouteMissing(405, "405: Method Not Allowed")
    if route.json and not _takes_json(accept):
        return RouteMissing(406, "406: Not Acceptable")
    return RouteMatch(route, words)


def _takes_json(accept: str) -> bool:
    if not accept:
        return True
    kinds = (part.partition(";")[0].strip() for part in accept.split(","))
    return any(kind in ("*/*", "application/json") for kind in kinds)
