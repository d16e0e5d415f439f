"""Every scenario on a cluster in virtual time: doctor reports it, and no longer after its end."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.doctor.findings import DoctorFinding
from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.scenarios.catalogue import SCENARIOS
from transom.scenarios.cluster_calls import ClusterCalls
from transom.scenarios.model import (
    Object,
    Scenario,
    end_scenario,
    run_scenario,
    wait_for_finding,
)
from transom.scenarios.nodes import scenario_node

Play = Callable[[Callable[[VirtualCluster], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def play_1_30(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """For scenarios that later releases do not have."""
    with virtual_cluster(tmp_path_factory.mktemp("older"), release="1.30") as (cluster, run):
        yield lambda scenario: run(scenario(cluster))


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """One cluster for all scenarios: each leaves it as it was, which the next one sees."""
    with virtual_cluster(tmp_path_factory.mktemp("scenarios"), release="1.36") as (cluster, run):
        yield lambda scenario: run(scenario(cluster))


_GONE_SECONDS = 40  # the grace period of pods, and some more: a delete returns when they are gone


class VirtualTarget:
    """`ScenarioCluster` of a virtual cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    async def apply(self, obj: Object) -> None:
        await self._cluster.apply(obj)

    async def delete(self, obj: Object) -> None:
        await self._cluster.delete(obj)
        await self._cluster.clock.sleep(_GONE_SECONDS)

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        request = HttpRequest(method, path.encode(), path, {}, orjson.dumps(body) if body else b"")
        answer = await self._cluster.control(request)
        assert isinstance(answer, HttpResponse) and isinstance(answer.body, bytes)
        if answer.status != 200:
            raise ApiError(answer.status, "BadRequest", answer.body.decode())
        return orjson.loads(answer.body)

    async def sleep(self, seconds: float) -> None:
        await self._cluster.clock.sleep(seconds)

    async def findings(self, scenario: Scenario) -> list[DoctorFinding]:
        """What doctor reports as soon as it reports the scenario."""
        found: list[DoctorFinding] = []

        async def reported() -> bool:
            found[:] = await self._cluster.doctor()
            return any(scenario.finding in one.what for one in found)

        await wait_for_finding(scenario, self, reported)
        return found


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=list(SCENARIOS))
def test_doctor_reports_a_scenario(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    play: Play = request.getfixturevalue("play_1_30" if scenario.until else "play")

    async def body(cluster: VirtualCluster) -> None:
        target = VirtualTarget(cluster)
        node = scenario_node((await target.control("GET", "/transom/nodes"))["items"])
        await run_scenario(scenario, target, node)
        found = await target.findings(scenario)
        assert [one for one in found if scenario.finding in one.what], await cluster.story(found)
        assert "where nothing listens" not in "".join(one.what for one in found)
        await end_scenario(scenario, target, node)
        await cluster.silence()

    play(body)


def test_doctor_reports_a_slow_pull_with_docker(tmp_path: Path) -> None:
    """Docker's kubelet cancels the pull; containerd's waits for it."""
    scenario = SCENARIOS["slow-image-pull"]
    with virtual_cluster(tmp_path, release="1.20") as (cluster, run):

        async def body() -> None:
            target = VirtualTarget(cluster)
            node = scenario_node((await target.control("GET", "/transom/nodes"))["items"])
            await run_scenario(scenario, target, node)
            await cluster.clock.sleep(1500)
            [found] = [f for f in await cluster.doctor() if scenario.finding in f.what]
            assert "than the kubelet waits for progress (context canceled)" in found.what

        run(body())


class NewNamespace:
    """Refuses pods until its service account has a token, as releases before 1.24 do."""

    def __init__(self, refusals: int, message: str) -> None:
        self.refusals = refusals
        self.message = message
        self.slept = 0.0

    async def call(self, method: str, path: str, body: Any, media: str) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise UserError(self.message)

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "scenario"}}
_NO_TOKEN = 'No API token found for service account "default", retry after the token is created'


async def test_pods_wait_for_the_account_of_a_new_namespace() -> None:
    late = NewNamespace(3, _NO_TOKEN)
    await ClusterCalls(late.call, late.sleep).apply(_POD)
    assert late.refusals == 0 and late.slept > 0
    never = NewNamespace(1000, _NO_TOKEN)
    with pytest.raises(UserError, match="No API token"):
        await ClusterCalls(never.call, never.sleep).apply(_POD)
    assert never.slept <= 15
    other = NewNamespace(1, "pods is forbidden")
    with pytest.raises(UserError, match="forbidden"):
        await ClusterCalls(other.call, other.sleep).apply(_POD)
    assert other.slept == 0


def test_scenarios_name_the_public_issue() -> None:
    for name, scenario in SCENARIOS.items():
        assert re.fullmatch(r"[\w-]+/[\w-]+#[1-9]\d*", scenario.issue), name
        assert "--help" not in scenario.evidence
