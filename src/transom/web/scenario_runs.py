"""Runs scenarios for the console, one at a time, with the functions of `transom scenario`.

The labels of their namespace name the active one, so that every client of the cluster sees the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from transom.client.api import ApiUnreachable
from transom.http.messages import parse_query
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.machinery.releases import Release
from transom.web.api_access import ApiAccess
from transom.web.tasks import StreamLimit

if TYPE_CHECKING:
    from transom.scenarios import catalogue, cluster_calls, model, nodes
    from transom.scenarios.model import Scenario, ScenarioNode
else:
    catalogue = lazy_import("transom.scenarios.catalogue")
    cluster_calls = lazy_import("transom.scenarios.cluster_calls")
    model = lazy_import("transom.scenarios.model")
    nodes = lazy_import("transom.scenarios.nodes")


class ScenarioPhase(Enum):
    OFF = "off"
    STARTING = "starting"
    ON = "on"
    ENDING = "ending"


class ScenarioState(NamedTuple):
    """Which scenario is on; `problem` is why the last change failed."""

    phase: ScenarioPhase
    name: str = ""
    node: str = ""
    problem: str = ""


class ScenarioRuns:
    def __init__(self, api: ApiAccess, streams: StreamLimit, clock: Clock) -> None:
        self._api = api
        self._streams = streams
        self._clock = clock
        self._changing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._now = ScenarioState(ScenarioPhase.OFF)  # while the task runs
        self._node: ScenarioNode | None = None
        self._problem = ""

    async def read_state(self) -> ScenarioState:
        """The run of this console, else the one that the cluster's labels name."""
        if self._task is not None and not self._task.done():
            return self._now
        path = cluster_calls.object_path(model.scenario_namespace())
        answer = await self._api.request("GET", path)
        if answer.status == 404:
            return ScenarioState(ScenarioPhase.OFF, problem=self._problem)
        meta = answer.json()["metadata"]
        labels = meta.get("labels") or {}
        ending = "deletionTimestamp" in meta
        return ScenarioState(
            ScenarioPhase.ENDING if ending else ScenarioPhase.ON,
            str(labels.get(model.NAME_LABEL) or ""),
            str(labels.get(model.NODE_LABEL) or ""),
            self._problem,
        )

    async def start_scenario(self, name: str, node: str) -> None:
        """Starts it and returns; ApiError if there is none of this name, or one is on."""
        scenario = _find_scenario(name)
        async with self._changing:
            now = await self.read_state()
            if now.phase is not ScenarioPhase.OFF:
                what = f"the scenario {now.name} is on" if now.name else "the namespace exists"
                raise ApiError(409, "Conflict", f"{what}: end it first")
            await self._check_release(scenario)
            self._node = await self._find_node(node)
            self._now = ScenarioState(ScenarioPhase.STARTING, name, self._node.name)
            self._work(model.run_scenario, scenario, self._node)

    async def _check_release(self, scenario: Scenario) -> None:
        version = (await self._api.request("GET", "/version")).json()
        release = Release(int(version["major"]), int(version["minor"].rstrip("+")))
        if not model.happens_in(scenario, release):
            releases = model.scenario_releases(scenario)
            text = f"the scenario {scenario.name} happens in Kubernetes {releases}"
            raise ApiError(409, "Conflict", text)

    async def end_scenario(self, name: str) -> None:
        """Ends it, also while it starts; returns before its objects are gone."""
        scenario = _find_scenario(name)
        async with self._changing:
            now = await self.read_state()
            if now.name != name or now.phase is ScenarioPhase.OFF:
                raise ApiError(409, "Conflict", f"the scenario {name} is not on")
            if now.phase is ScenarioPhase.ENDING:
                return
            if self._task is not None and not self._task.done():
                self._task.cancel()
                await asyncio.wait((self._task,))
            if self._node is None or self._node.name != now.node:
                self._node = await self._find_node(now.node)
            self._now = ScenarioState(ScenarioPhase.ENDING, name, self._node.name)
            self._work(model.end_scenario, scenario, self._node)

    def _work(
        self, change: Callable[..., Awaitable[None]], scenario: Scenario, node: ScenarioNode
    ) -> None:
        if self._streams.full:
            raise ApiError(503, "ServiceUnavailable", "too many open pages: close some")
        cluster = cluster_calls.ClusterCalls(self._call, self._clock.sleep)

        async def run() -> None:
            self._problem = ""
            try:
                await change(scenario, cluster, node)
            except (ApiError, UserError) as problem:
                self._problem = problem.message
            except ApiUnreachable as problem:
                self._problem = str(problem)

        self._task = self._streams.start(run())

    async def _find_node(self, name: str) -> ScenarioNode:
        try:
            return nodes.scenario_node((await self._api.get_json("/transom/nodes"))["items"], name)
        except UserError as problem:
            raise ApiError(409, "Conflict", f"{problem.message} ({problem.hint})") from problem

    async def _call(self, method: str, path: str, body: Any, media_type: str) -> Any:
        where, _, query = path.partition("?")
        answer = await self._api.request(
            method,
            where,
            parse_query(query.encode()),
            body=orjson.dumps(body) if body is not None else b"",
            media_type=media_type,
        )
        return answer.json()


def _find_scenario(name: str) -> Scenario:
    found = catalogue.SCENARIOS.get(name)
    if found is None:
        raise ApiError(400, "BadRequest", f"there is no scenario {name[:80]!r}")
    return found
