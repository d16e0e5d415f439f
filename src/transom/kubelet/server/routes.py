"""Which path of a kubelet's API leads where.

Two layers, as in Kubernetes' kubelet. The first knows prefixes; what it does not know is not found, whoever asks. The
second is behind authentication and knows the places behind a prefix and their methods.
"""

from __future__ import annotations

import posixpath
from typing import Final, Literal, NamedTuple

Name = Literal[
    "healthz", "check", "pods", "runningpods", "summary", "metrics", "cadvisor", "resource", "probes", "configz",
    "logs", "containerLogs", "exec", "attach", "run", "portForward",
]  # fmt: skip

_GET: Final = ("GET",)
_BOTH: Final = ("GET", "POST")


class Route(NamedTuple):
    name: Name
    methods: tuple[str, ...] = ()  # empty: any
    json: bool = False  # gives JSON only


class Found(NamedTuple):
    route: Route
    rest: tuple[str, ...]  # what the path says beyond its prefix


class Missing(NamedTuple):
    status: int
    text: str


class Elsewhere(NamedTuple):
    location: str


_EXACT: Final[dict[str, Route]] = {
    "/healthz": Route("healthz"),
    "/healthz/ping": Route("check"),
    "/healthz/log": Route("check"),
    "/healthz/syncloop": Route("check"),
    "/metrics": Route("metrics"),
    "/metrics/cadvisor": Route("cadvisor"),
    "/metrics/resource": Route("resource"),
    "/metrics/probes": Route("probes"),
    "/configz": Route("configz"),
}
# The first word of a path, the numbers of further words it may have, and whether the prefix is only known with a slash.
_PREFIXES: Final[dict[str, tuple[Route, tuple[int, ...], bool]]] = {
    "pods": (Route("pods", _GET, json=True), (0,), False),
    "runningpods": (Route("runningpods", _GET, json=True), (0,), True),
    "stats": (Route("summary", _BOTH, json=True), (1,), True),
    "logs": (Route("logs", _GET), (), True),
    "containerLogs": (Route("containerLogs", _GET), (3,), False),
    "exec": (Route("exec", _BOTH), (3, 4), False),
    "attach": (Route("attach", _BOTH), (3, 4), False),
    "run": (Route("run", ("POST",)), (3, 4), False),
    "portForward": (Route("portForward", _BOTH), (2, 3), False),
}
_NO_ROUTE: Final = Missing(404, "404: Page Not Found")


def known(path: str) -> bool | Elsewhere:
    """Whether anybody at all answers there."""
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
        return Elsewhere(clean)
    if prefix is None:
        return False
    return Elsewhere(clean + "/") if prefix[2] and not slash else True


def find(method: str, path: str, accept: str) -> Found | Missing:
    """For a path that is `known`."""
    route = _EXACT.get(path)
    if route is not None:
        return Found(route, tuple(path[1:].split("/")[1:]))
    first, _, rest = path[1:].partition("/")
    route, sizes, _ = _PREFIXES[first]
    words = tuple(rest.strip("/").split("/")) if rest.strip("/") else ()
    if route.name == "logs":
        words = (rest,)
    elif len(words) not in sizes or (route.name == "summary" and words != ("summary",)):
        return _NO_ROUTE
    if method not in route.methods:
        return Missing(405, "405: Method Not Allowed")
    if route.json and not _takes_json(accept):
        return Missing(406, "406: Not Acceptable")
    return Found(route, words)


def _takes_json(accept: str) -> bool:
    if not accept:
        return True
    kinds = (part.partition(";")[0].strip() for part in accept.split(","))
    return any(kind in ("*/*", "application/json") for kind in kinds)
