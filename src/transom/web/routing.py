"""What a page of the console is made of: a `Page` with its routes, and the request that a handler
gets.

A route's pattern has `{name}` for one part of the path and `{name...}` for the rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Final

import orjson

from transom.http.messages import Answer, HttpRequest
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess
from transom.web.child_jobs import JobRunner
from transom.web.cluster_feed import ClusterFeed
from transom.web.forwards import PortForwards
from transom.web.identity import ConsoleIdentity
from transom.web.kind_index import KindIndex
from transom.web.login import Logins, Session
from transom.web.scenario_doctor import ScenarioDoctor
from transom.web.scenario_runs import ScenarioRuns
from transom.web.tasks import StreamLimit

_PLACE: Final = re.compile(r"\{(\w+)(\.\.\.)?\}")


@dataclass(frozen=True, slots=True)
class ConsoleServices:
    """What the pages use. `jobs` runs doctor and the scheduler's explanations."""

    api: ApiAccess
    jobs: JobRunner
    clock: Clock
    logins: Logins
    streams: StreamLimit
    feed: ClusterFeed  # the live state of the cluster
    kinds: KindIndex  # what the API server serves
    forwards: PortForwards
    scenarios: ScenarioRuns
    scenario_doctor: ScenarioDoctor
    cluster: str  # the name of the context, for people
    identity: ConsoleIdentity
    namespace: str  # the default one of the context
    navigation: tuple[tuple[str, str], ...]  # title and path of each page


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of a logged-in browser that passed all checks."""

    http: HttpRequest
    session: Session
    services: ConsoleServices
    params: dict[str, str]  # of the route's pattern

    def query(self, name: str, default: str = "") -> str:
        """The last value of a query parameter."""
        values = self.http.query.get(name)
        return values[-1] if values else default

    def json(self) -> dict[str, object]:
        """The JSON object in the body; ApiError 400 if it is none."""
        try:
            found = orjson.loads(self.http.body)
        except orjson.JSONDecodeError as problem:
            raise ApiError(400, "BadRequest", f"the body is not JSON: {problem}") from None
        if not isinstance(found, dict):
            raise ApiError(400, "BadRequest", "the body is not a JSON object")
        return found


PageHandler = Callable[[PageRequest], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    pattern: str
    handler: PageHandler


@dataclass(frozen=True, slots=True)
class Page:
    """An entry of the navigation and the routes of its module."""

    name: str  # of the module, and of static/NAME.js
    title: str
    path: str
    routes: tuple[Route, ...]


@dataclass(slots=True)
class Router:
    """Finds the route of a request."""

    _table: list[tuple[str, re.Pattern[str], Route]] = field(default_factory=list)

    def add(self, routes: Iterable[Route]) -> None:
        for route in routes:
            self._table.append((route.method, _compile(route.pattern), route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route and the parameters of its pattern; None if there is none. HEAD is GET."""
        wanted = "GET" if method == "HEAD" else method
        for known, pattern, route in self._table:
            if known == wanted and (match := pattern.fullmatch(path)):
                return route, match.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        return sorted({known for known, pattern, _ in self._table if pattern.fullmatch(path)})


def _compile(pattern: str) -> re.Pattern[str]:
    parts, at = [], 0
    for place in _PLACE.finditer(pattern):
        parts.append(re.escape(pattern[at : place.start()]))
        parts.append(f"(?P<{place[1]}>{'.*' if place[2] else '[^/]+'})")
        at = place.end()
    parts.append(re.escape(pattern[at:]))
    return re.compile("".join(parts), re.DOTALL)
