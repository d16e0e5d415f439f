"""When probes run and what they change: the rules of Kubernetes 1.20 on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.small import Node, make_pod, running_node

from transom.kubelet.prober import ProbeManager
from transom.machinery.objects import Object
from transom.runtime.api import ExecResult, RuntimeFailure

GOOD, BAD = ExecResult(b"", b"", 0), ExecResult(b"no", b"", 1)


def probe(period: int = 10, **fields: Any) -> Object:
    return {
        "exec": {"command": ["check"]},
        "periodSeconds": period,
        "timeoutSeconds": 1,
        "failureThreshold": 3,
        "successThreshold": 1,
        **fields,
    }


class Watched:
    """A pod under probes; `changes` counts what was reported."""

    def __init__(self, node: Node, **probes: Object) -> None:
        self.node = node
        self.changes: list[str] = []
        self.pod = make_pod("web", {"name": "app", **probes})
        self.prober = ProbeManager(node.env, self.changes.append)
        self.id = ""

    async def start(self) -> None:
        self.prober.add_pod(self.pod)
        (self.id,) = await self.node.start(self.pod)
        self.prober.sync("uid-web")

    async def restart(self) -> None:
        self.node.runtime.exit(self.id, 1)
        self.prober.sync("uid-web")
        sandbox = self.node.runtime.sandboxes("uid-web")[0].id
        self.id = await self.node.start_container(
            self.pod, self.pod["spec"]["containers"][0], sandbox, attempt=1
        )
        self.prober.sync("uid-web")

    @property
    def times(self) -> int:
        return sum(call[0] == "exec" for call in self.node.runtime.calls)


async def test_readiness_begins_as_a_failure_and_follows_the_probes() -> None:
    async with running_node() as node:
        node.runtime.commands = [GOOD]
        web = Watched(node, readinessProbe=probe())
        assert web.prober.readiness("nobody") is None
        await web.start()
        assert web.prober.readiness(web.id) is False
        await node.clock.run_for(10)  # within one period, wherever in it
        assert (
            web.times == 1 and web.prober.readiness(web.id) is True and web.changes == ["uid-web"]
        )
        node.runtime.commands = [BAD]
        await node.clock.run_for(20)
        assert web.prober.readiness(web.id) is True  # two failures are below the threshold
        await node.clock.run_for(10)
        assert web.prober.readiness(web.id) is False and len(web.changes) == 2
        assert node.recorded.all == [("Unhealthy", "Readiness probe failed: no")] * 3
        assert node.recorded.paths[0] == "spec.containers{app}"
        await node.clock.run_for(50)
        assert len(web.changes) == 2
        web.prober.remove_pod("uid-web")
        before = web.times
        await node.clock.run_for(50)
        assert web.times == before and web.prober.readiness(web.id) is None


async def test_success_threshold_and_initial_delay() -> None:
    async with running_node() as node:
        node.runtime.commands = [GOOD]
        web = Watched(node, readinessProbe=probe(successThreshold=3, initialDelaySeconds=25))
        await web.start()
        await node.clock.run_for(24.9)
        assert web.times == 0
        await node.clock.run_for(10.1)
        assert web.times == 1
        await node.clock.run_for(10)
        assert web.prober.readiness(web.id) is False
        await node.clock.run_for(10)
        assert web.prober.readiness(web.id) is True


async def test_liveness_is_held_after_its_failure_until_there_is_another_container() -> None:
    async with running_node() as node:
        node.runtime.commands = [BAD]
        web = Watched(node, livenessProbe=probe())
        await web.start()
        assert web.prober.liveness(web.id) is True
        await node.clock.run_for(30)
        assert web.prober.liveness(web.id) is False and web.times == 3
        await node.clock.run_for(100)
        assert web.times == 3
        old = web.id
        await web.restart()
        assert web.prober.liveness(old) is None and web.prober.liveness(web.id) is True
        await node.clock.run_for(10)
        assert web.times == 4 and web.prober.liveness(web.id) is True


async def test_startup_holds_the_others_back() -> None:
    async with running_node() as node:
        node.runtime.commands = [BAD]
        web = Watched(
            node,
            startupProbe=probe(failureThreshold=10),
            readinessProbe=probe(1),
            livenessProbe=probe(1),
        )
        await web.start()
        await node.clock.run_for(20)
        assert web.times == 2 and web.prober.startup(web.id) is None
        assert web.prober.readiness(web.id) is False
        assert {text for _, text in node.recorded.all} == {"Startup probe failed: no"}
        node.runtime.commands = [GOOD]
        await node.clock.run_for(10)
        assert web.prober.startup(web.id) is True
        await node.clock.run_for(2)
        assert web.prober.readiness(web.id) is True
        before = len(node.runtime.calls)
        await node.clock.run_for(10)
        # readiness and liveness; startup has done its part
        assert len(node.runtime.calls) - before == 20
        await web.restart()
        assert web.prober.startup(web.id) is None and web.prober.readiness(web.id) is False
    async with running_node() as node:
        node.runtime.commands = [BAD]
        web = Watched(node, startupProbe=probe(failureThreshold=2))
        await web.start()
        await node.clock.run_for(20)
        assert web.prober.startup(web.id) is False and web.changes == ["uid-web"]


async def test_an_ended_container_is_not_probed() -> None:
    async with running_node() as node:
        node.runtime.commands = [GOOD]
        web = Watched(node, readinessProbe=probe())
        await web.start()
        await node.clock.run_for(10)
        node.runtime.exit(web.id, 0)
        await node.clock.run_for(100)
        assert web.times == 1
        await web.restart()
        await node.clock.run_for(10)
        assert web.times == 2


async def test_a_probe_that_cannot_be_made_is_tried_three_times_and_does_not_count() -> None:
    async with running_node() as node:
        node.runtime.commands = [GOOD, RuntimeFailure("Unknown", "gone")]
        web = Watched(node, readinessProbe=probe())
        await web.start()
        await node.clock.run_for(20)
        assert web.times == 4 and web.prober.readiness(web.id) is True
        assert node.recorded.all == [
            ("Unhealthy", "Readiness probe errored: rpc error: code = Unknown desc = gone")
        ]


async def test_a_terminating_pod_is_not_probed() -> None:
    async with running_node() as node:
        node.runtime.commands = [BAD]
        web = Watched(node, startupProbe=probe(), livenessProbe=probe())
        web.pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
        await web.start()
        await node.clock.run_for(100)
        assert (
            web.times == 0
            and web.prober.startup(web.id) is True
            and web.prober.liveness(web.id) is True
        )


@pytest.mark.parametrize(("version", "at_once"), [("v1.20.15", False), ("v1.24.0", True)])
async def test_probes_are_spread_over_their_period(version: str, at_once: bool) -> None:
    async with running_node(version=version) as node:
        node.runtime.commands = [GOOD]
        manager = ProbeManager(node.env, lambda uid: None)
        await node.clock.run_for(60)
        pods = [make_pod(f"p{n}", {"name": "app", "readinessProbe": probe()}) for n in range(40)]
        for pod in pods:
            await node.start(pod)
            manager.add_pod(pod)
        await node.clock.run_for(0.01)
        assert (sum(c[0] == "exec" for c in node.runtime.calls) == 40) is at_once
        await node.clock.run_for(5)
        early = sum(c[0] == "exec" for c in node.runtime.calls)
        assert early == 40 if at_once else 10 < early < 30
        manager.close()


async def test_counts_for_the_metric() -> None:
    async with running_node() as node:
        node.runtime.commands = [BAD, GOOD]
        web = Watched(node, readinessProbe=probe())
        await web.start()
        await node.clock.run_for(30)
        assert [
            (c.kind, c.pod["name"], c.container, c.result, c.times) for c in web.prober.counts()
        ] == [
            ("readiness", "web", "app", "failed", 1),
            ("readiness", "web", "app", "successful", 2),
        ]
