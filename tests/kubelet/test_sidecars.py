"""Sidecars: init containers that keep running next to the containers of a pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kubelet.test_actions import INIT, NEXT, acts, container, names, pod, sandbox

from transom.client.resources import PODS
from transom.kit.clock import VirtualClock
from transom.kubelet.conditions import compute_pod_phase, make_initialized_condition
from transom.kubelet.features import PodFeatures, pod_features
from transom.kubelet.termination_order import TerminationOrder
from transom.machinery.releases import Release
from transom.machinery.tables.pods import print_pod

CURRENT = PodFeatures(sidecars=True, short_hash=True)
SIDE = {**INIT, "restartPolicy": "Always"}
LATER = {**NEXT, "restartPolicy": "Always"}
STARTUP = {**SIDE, "startupProbe": {"exec": {}}}
LIVE = {**SIDE, "livenessProbe": {"exec": {}}}


def test_sidecars_exist_since_the_release_that_turned_them_on() -> None:
    assert not pod_features((1, 20), {}).sidecars
    assert not pod_features((1, 28), {}).sidecars
    assert pod_features((1, 28), {"SidecarContainers": True}).sidecars
    assert pod_features((1, 29), {}).sidecars
    assert pod_features((1, 37), {}).sidecars


@pytest.mark.parametrize(
    ("case", "inits", "containers", "more", "init", "start", "killed"),
    [
        ("the first one starts", [SIDE, NEXT], [], {}, ["i"], [], []),
        ("it runs: the next one follows", [SIDE, NEXT], [container("i")], {}, ["j"], [], []),
        ("it runs: the containers follow", [SIDE], [container("i")], {}, [], ["a", "b"], []),
        ("its startup probe has no result", [STARTUP], [container("i")], {}, [], [], []),
        ("it has started", [STARTUP], [container("i")], {"up": True}, [], ["a", "b"], []),
        ("its startup failed", [STARTUP], [container("i")], {"up": False}, ["i"], [], ["startup"]),
        (
            "its liveness failed while the next one runs",
            [LIVE, NEXT],
            [container("j"), container("i")],
            {"live": False},
            ["i"],
            [],
            ["liveness"],
        ),
        (
            "it ended beside the containers",
            [SIDE],
            [container("a"), container("b"), container("i", "exited", 1)],
            {},
            ["i"],
            [],
            [],
        ),
        (
            "the runtime lost it",
            [INIT, LATER],
            [container("a"), container("b")],
            {},
            ["j"],
            [],
            [],
        ),
        (
            "an init container after it failed",
            [SIDE, NEXT],
            [container("j", "exited", 1), container("i")],
            {},
            ["j"],
            [],
            [],
        ),
        (
            "a completed init container does not run again",
            [INIT, LATER],
            [container("j"), container("i", "exited")],
            {},
            [],
            ["a", "b"],
            [],
        ),
    ],
)
def test_init_containers_start_in_order(
    case: str, inits: Any, containers: Any, more: Any, init: Any, start: Any, killed: Any
) -> None:
    found = acts(pod(inits=inits), [sandbox()], *containers, features=CURRENT, **more)
    assert names(found.init) == init, case
    assert names(found.start) == start, case
    assert [reason.probe for reason in found.kill] == killed, case
    assert not found.kill_pod


def test_sidecars_do_not_keep_a_pod_alive() -> None:
    ended = (container("a", "exited"), container("b", "exited"))
    found = acts(pod("Never", inits=[SIDE]), [sandbox()], *ended, container("i"), features=CURRENT)
    assert found.kill_pod and not found.init and not found.start


def test_a_failed_init_container_ends_a_pod_that_never_restarts() -> None:
    found = acts(
        pod("Never", inits=[SIDE, NEXT]),
        [sandbox()],
        container("j", "exited", 1),
        container("i"),
        features=CURRENT,
    )
    assert found.kill_pod and not found.init


def entry(name: str, kind: str, code: int = 0, **more: Any) -> Any:
    state = {kind: {"exitCode": code} if kind == "terminated" else {}}
    return {"name": name, "state": state, "ready": False, **more}


@pytest.mark.parametrize(
    ("side", "started", "phase"),
    [
        (entry("i", "waiting"), False, "Pending"),
        (entry("i", "running", started=False), False, "Pending"),
        (entry("i", "running", started=False), True, "Running"),
        (entry("i", "running", started=True), False, "Running"),
        (entry("i", "terminated", 1), False, "Running"),
    ],
)
def test_the_phase_waits_for_sidecars_once(side: Any, started: bool, phase: str) -> None:
    statuses = [side, entry("a", "running"), entry("b", "running")]
    assert compute_pod_phase(pod(inits=[SIDE]), statuses, CURRENT, has_started=started) == phase


def test_a_pod_succeeds_when_sidecars_have_ended() -> None:
    ended = [entry("a", "terminated"), entry("b", "terminated")]
    running, failed = entry("i", "running", started=True), entry("i", "terminated", 137)
    assert compute_pod_phase(pod("Never", inits=[SIDE]), [running, *ended], CURRENT) == "Running"
    assert compute_pod_phase(pod("Never", inits=[SIDE]), [failed, *ended], CURRENT) == "Succeeded"


def test_a_pod_stays_initialized_while_a_sidecar_restarts() -> None:
    spec, side = pod(inits=[SIDE])["spec"], [entry("i", "waiting")]
    waits = make_initialized_condition(spec, side, [entry("a", "waiting")], "", CURRENT, {})
    assert waits["message"] == "containers with incomplete status: [i]"
    runs = make_initialized_condition(spec, side, [entry("a", "running")], "", CURRENT, {})
    assert runs == {"type": "Initialized", "status": "True"}


async def test_sidecars_stop_last_in_reverse_order() -> None:
    clock = VirtualClock()
    order = TerminationOrder(pod(inits=[SIDE, LATER]), ("a", "i", "j"), clock)
    turns: list[str] = []

    async def stop(name: str) -> None:
        await order.wait_for_turn(name, 30)
        turns.append(name)

    tasks = [asyncio.ensure_future(stop(name)) for name in ("i", "j", "a")]
    await clock.run_for(1)
    assert turns == ["a"]
    order.container_terminated("a")
    await clock.run_for(1)
    assert turns == ["a", "j"]
    order.container_terminated("j")
    await clock.run_for(1)
    assert turns == ["a", "j", "i"]
    await asyncio.gather(*tasks)


async def test_a_sidecar_waits_no_longer_than_its_grace_period() -> None:
    clock = VirtualClock()
    order = TerminationOrder(pod(inits=[SIDE]), ("a", "i"), clock)
    waiting = asyncio.ensure_future(order.wait_for_turn("i", 5))
    await clock.run_for(4)
    assert not waiting.done()
    await clock.run_for(2)
    assert await waiting == 5


def test_kubectl_shows_a_completed_pod_whose_sidecar_was_killed() -> None:
    shown = print_pod(
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}], "initContainers": [SIDE]},
            "status": {
                "phase": "Succeeded",
                "conditions": [{"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [entry("i", "terminated", 137, restartCount=1)],
                "containerStatuses": [
                    {
                        "name": "a",
                        "ready": False,
                        "restartCount": 0,
                        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
                    }
                ],
            },
        },
        0.0,
    )
    assert shown[1:4] == ["0/2", "Completed", 1]


async def test_a_pod_with_a_sidecar_runs_and_completes(core: Any) -> None:
    async with core(release=Release(1, 36)) as node:
        await node.create("p", initContainers=[SIDE], restartPolicy="Never")
        await node.settle()
        status = (await node.pod("p"))["status"]
        assert status["phase"] == "Running"
        assert status["initContainerStatuses"][0]["started"] is True
        assert status["initContainerStatuses"][0]["ready"] is True
        assert [c["type"] for c in status["conditions"]] == [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ]
        assert {c["observedGeneration"] for c in status["conditions"]} == {1}
        assert status["observedGeneration"] == 1
        assert status["hostIPs"] == [{"ip": status["hostIP"]}]
        node.runtime.exit_all("c", 0)
        await node.settle()
        assert ("stop_container", "i", 30) in node.runtime.calls
        status = (await node.pod("p"))["status"]
        assert status["phase"] == "Succeeded"
        assert {c["type"]: c.get("reason") for c in status["conditions"]} == {
            "PodReadyToStartContainers": None,
            "Initialized": "PodCompleted",
            "Ready": "PodCompleted",
            "ContainersReady": "PodCompleted",
            "PodScheduled": None,
        }


async def test_a_deleted_pod_ends_before_it_goes(core: Any) -> None:
    async with core(release=Release(1, 36)) as node:
        await node.create("p", metadata={"finalizers": ["example.com/keep"]})
        await node.settle()
        await node.client.delete(PODS, "default", "p")
        await node.settle()
        assert (await node.pod("p"))["status"]["phase"] in ("Succeeded", "Failed")
