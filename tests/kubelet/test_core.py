"""The core of a kubelet with everything else faked: the state of pods, what is reported, what is
retried.
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from transom.client.api import STRATEGIC_PATCH
from transom.client.resources import PODS
from transom.kit.clock import VirtualClock
from transom.kubelet.config import KubeletConfig
from transom.kubelet.failures import ContainerFailure, PodRejection, VolumeFailure
from transom.kubelet.interfaces import HookFailure
from transom.kubelet.workers import PodWorker, PodWorkers, SyncOutcome
from transom.machinery.releases import Release
from transom.runtime.api import RuntimeFailure, RuntimeStatus


def conditions(pod: Any) -> dict[str, str]:
    return {c["type"]: c["status"] for c in pod["status"]["conditions"]}


def state(pod: Any, name: str = "c", kind: str = "containerStatuses") -> Any:
    return next(s for s in pod["status"][kind] if s["name"] == name)


async def test_a_pod_runs_is_deleted_and_leaves_nothing(core: Any) -> None:
    async with core() as node:
        created = await node.create("p")
        await node.settle()
        pod = await node.pod("p")
        status = pod["status"]
        assert status["phase"] == "Running"
        assert [c["type"] for c in status["conditions"]] == [
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ]
        assert set(conditions(pod).values()) == {"True"}
        assert status["podIP"] == "10.0.0.1" and status["podIPs"] == [{"ip": "10.0.0.1"}]
        assert status["hostIP"] == "192.168.0.1" and status["startTime"] == "2020-01-02T03:04:06Z"
        assert state(pod) == {
            "name": "c",
            "state": {"running": {"startedAt": "2020-01-02T03:04:06Z"}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": "image",
            "imageID": "sha256:1",
            "containerID": "docker://container2",
            "started": True,
        }
        # that it was being created was over before it was worth telling
        assert len(node.writes) == 1
        assert node.core.statuses.get(pod["metadata"]["uid"]) == status

        await node.client.delete(PODS, "default", "p")
        await node.settle()
        assert await node.missing("p")
        assert (
            not node.runtime.sandboxes() and not node.runtime.containers() and not node.parts.mounts
        )
        assert not node.parts.probed and node.core.workers.get(created["metadata"]["uid"]) is None
        assert node.core.statuses.get(created["metadata"]["uid"]) is None
        assert ("stop_container", "c", 30) in node.runtime.calls
        assert await node.events() == [
            ("Normal", "Created", "Created container c"),
            ("Normal", "Started", "Started container c"),
            ("Normal", "Killing", "Stopping container c"),
        ]


async def test_a_slow_start_is_reported(core: Any) -> None:
    async with core() as node:
        node.parts.mount_waits = asyncio.Event()
        await node.create("p")
        await node.settle()
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Pending"
        assert state(pod)["state"] == {"waiting": {"reason": "ContainerCreating"}}
        ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
        assert (ready["reason"], ready["message"]) == (
            "ContainersNotReady",
            "containers with unready status: [c]",
        )
        node.parts.mount_waits.set()
        await node.settle()
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        assert len(node.writes) == 2


async def test_a_pod_that_waits_is_deleted_at_once(core: Any) -> None:
    async with core() as node:
        node.parts.mount_waits = asyncio.Event()
        await node.create("p")
        await node.settle()
        await node.client.delete(PODS, "default", "p")
        await node.settle()
        assert await node.missing("p")
        assert not node.runtime.calls


async def test_init_containers_run_in_order(core: Any) -> None:
    async with core() as node:
        await node.create(
            "p", initContainers=[{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
        )
        await node.settle()
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Pending"
        assert state(pod, "b", "initContainerStatuses")["state"] == {
            "waiting": {"reason": "PodInitializing"}
        }
        initialized = pod["status"]["conditions"][0]
        assert initialized["message"] == "containers with incomplete status: [a b]"
        node.runtime.exit_all("a", 0)
        await node.settle()
        assert state(await node.pod("p"), "a", "initContainerStatuses")["ready"]
        node.runtime.exit_all("b", 0)
        await node.settle()
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Running" and conditions(pod)["Initialized"] == "True"
        assert [c[1] for c in node.runtime.calls if c[0] == "start_container"] == ["a", "b", "c"]


async def test_an_init_container_that_fails_ends_a_pod_that_never_restarts(core: Any) -> None:
    async with core() as node:
        await node.create("p", initContainers=[{"name": "a", "image": "i"}], restartPolicy="Never")
        await node.settle()
        node.runtime.exit_all("a", 3)
        await node.settle()
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Failed"
        assert state(pod, "a", "initContainerStatuses")["state"]["terminated"]["exitCode"] == 3
        assert node.runtime.sandboxes()[0].state == "notready"


async def test_a_container_that_crashes_waits_longer_and_longer(core: Any) -> None:
    async with core() as node:
        node.runtime.start_exits["c"] = [1] * 20
        pod = await node.create("p")
        uid = pod["metadata"]["uid"]
        await node.settle()
        entry = state(await node.pod("p"))
        # the first restart comes at once
        assert entry["restartCount"] == 1 and "terminated" in entry["state"]
        seen: list[Any] = []
        for _ in range(1000):
            await node.settle(1)
            entry = state(await node.pod("p"))
            if entry["state"] not in seen:
                seen.append(entry["state"])
        assert {
            "waiting": {
                "reason": "CrashLoopBackOff",
                "message": f"back-off 20s restarting failed container=c pod=p_default({uid})",
            }
        } in seen
        assert (
            "back-off 5m0s" in entry["state"]["waiting"]["message"] and entry["restartCount"] == 8
        )
        assert entry["lastState"]["terminated"]["exitCode"] == 1
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        assert len(node.runtime.containers()) <= 2
        assert ("Warning", "BackOff", "Back-off restarting failed container") in await node.events()


@pytest.mark.parametrize(("release", "latest"), [(Release(1, 34), 15.0), (Release(1, 35), 7.5)])
async def test_when_a_container_is_restarted_after_its_back_off(
    core: Any, release: Release, latest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1.35 when the back-off ends, with the jitter of every retry; before every ten seconds."""
    monkeypatch.setattr(KubeletConfig, "crash_loop_backoff", (5.0, 5.0))
    async with core(release=release) as node:
        node.runtime.start_exits["c"] = [1] * 20
        starts: list[float] = []
        start = node.runtime.start_container

        async def started(container_id: str) -> str:
            starts.append(node.clock.monotonic())
            return await start(container_id)

        node.runtime.start_container = started
        await node.create("p")
        await node.settle(100)
        waits = [b - a for a, b in pairwise(starts[1:])]
        assert waits and max(waits) <= latest + 2
        assert min(waits) >= (5.0 if release >= Release(1, 35) else 10.0)


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


async def test_an_error_is_retried_after_ten_seconds_whatever_backed_off_before() -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def sync(worker: PodWorker) -> SyncOutcome:
        seen.append(clock.monotonic())
        ends = {1: clock.time() + 3, 2: clock.time() - 1, 3: clock.time() + 500}
        worker.backoff_ends = ends.get(len(seen))
        return SyncOutcome.FAILED

    workers = PodWorkers(clock, NoJitter(), 60, sync)
    workers.wake(workers.add("u1", {"metadata": {"uid": "u1"}}))
    await clock.run_for(80, turns=10)
    assert [b - a for a, b in pairwise(seen)] == [3, 0, 60, 10]


async def test_restart_policies(core: Any) -> None:
    async with core() as node:
        await node.create("never", restartPolicy="Never", containers=[{"name": "x", "image": "i"}])
        await node.create(
            "failure", restartPolicy="OnFailure", containers=[{"name": "y", "image": "i"}]
        )
        await node.settle()
        node.runtime.exit_all("x", 4)
        node.runtime.exit_all("y", 4)
        await node.settle()
        assert (await node.pod("never"))["status"]["phase"] == "Failed"
        assert state(await node.pod("failure"), "y")["restartCount"] == 1
        node.runtime.exit_all("y", 0)
        await node.settle()
        pod = await node.pod("failure")
        assert pod["status"]["phase"] == "Succeeded"
        assert pod["status"]["podIP"]
        ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")
        assert all(s.state == "notready" for s in node.runtime.sandboxes())
        assert not node.parts.mounts
        await node.client.delete(PODS, "default", "failure")
        await node.settle()
        assert await node.missing("failure")


async def test_failures_on_the_way_up(core: Any) -> None:
    async with core() as node:
        node.parts.mount_failures = [VolumeFailure("unmounted volumes=[v]")]
        node.runtime.fail["run_sandbox"] = [RuntimeFailure("Unknown", "no network")]
        node.parts.pull_failures["image"] = [ContainerFailure("ErrImagePull", "not found")]
        node.parts.config_failures = [
            ContainerFailure("CreateContainerConfigError", 'secret "s" not found')
        ]
        node.runtime.fail["create_container"] = [RuntimeFailure("Unknown", "bad mount")]
        node.runtime.fail["start_container"] = [RuntimeFailure("Unknown", "no such file")] * 2
        await node.create("p")
        seen = []
        for _ in range(160):
            await node.settle(0.5)
            waiting = state(await node.pod("p"))["state"].get("waiting") or {}
            if waiting and (not seen or seen[-1] != waiting):
                seen.append(waiting)
        assert seen == [
            {"reason": "ContainerCreating"},
            {"reason": "ErrImagePull", "message": "not found"},
            {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'},
            {"reason": "CreateContainerError", "message": "bad mount"},
            {"reason": "RunContainerError", "message": "no such file"},
        ]
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        assert [e for e in await node.events() if e[0] == "Warning"] == [
            ("Warning", "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[v]"),
            (
                "Warning",
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = no network",
            ),
            ("Warning", "Failed", 'Error: secret "s" not found'),
            ("Warning", "Failed", "Error: bad mount"),
            ("Warning", "Failed", "Error: no such file"),
        ]


async def test_probes_change_readiness_and_restart(core: Any) -> None:
    async with core() as node:
        probe = {"tcpSocket": {"port": 80}}
        pod = await node.create(
            "p",
            containers=[
                {
                    "name": "c",
                    "image": "i",
                    "readinessProbe": probe,
                    "livenessProbe": probe,
                    "startupProbe": probe,
                }
            ],
        )
        uid = pod["metadata"]["uid"]
        await node.settle()
        assert (state(await node.pod("p"))["ready"], state(await node.pod("p"))["started"]) == (
            False,
            False,
        )
        container = node.runtime.containers(uid)[0].id
        node.parts.report(uid, "startup", container, True)
        node.parts.report(uid, "readiness", container, True)
        await node.settle()
        pod = await node.pod("p")
        assert state(pod)["ready"] and state(pod)["started"] and conditions(pod)["Ready"] == "True"
        node.parts.report(uid, "liveness", container, False)
        await node.settle()
        pod = await node.pod("p")
        assert state(pod)["restartCount"] == 1 and not state(pod)["ready"]
        assert (
            "Normal",
            "Killing",
            "Container c failed liveness probe, will be restarted",
        ) in await node.events()


async def test_a_probe_result_while_a_container_is_created_but_not_started(core: Any) -> None:
    async with core() as node:
        pod = await node.create(
            "p",
            restartPolicy="OnFailure",
            containers=[
                {"name": "c", "image": "i", "readinessProbe": {"tcpSocket": {"port": 80}}},
                {"name": "d", "image": "i"},
            ],
        )
        uid = pod["metadata"]["uid"]
        await node.settle()
        server = next(c.id for c in node.runtime.containers(uid) if c.name == "c")
        node.runtime.delay = 2.0
        node.runtime.exit_all("d", 3)
        await node.settle(3.5)
        assert node.runtime.containers(uid)[0].state == "created"
        node.parts.report(uid, "readiness", server, True)
        await node.settle(0.2)
        assert state(await node.pod("p"))["ready"]
        assert (
            state(await node.pod("p"), "d")["state"].get("terminated", {"exitCode": 3})["exitCode"]
            == 3
        )
        await node.settle(4)
        entry = state(await node.pod("p"), "d")
        assert "running" in entry["state"] and entry["restartCount"] == 1


async def test_another_image_restarts_the_container(core: Any) -> None:
    async with core() as node:
        await node.create("p", restartPolicy="Never")
        await node.settle()
        await node.client.patch(
            PODS,
            "default",
            "p",
            {"spec": {"containers": [{"name": "c", "image": "other"}]}},
            STRATEGIC_PATCH,
        )
        writes = len(node.writes)
        await node.settle(0.05)
        assert [c.image for c in node.runtime.containers() if c.state == "running"] == ["other"]
        # who has just read the pod can still write it: it stands as before
        assert len(node.writes) == writes
        await node.settle()
        entry = state(await node.pod("p"))
        assert entry["image"] == "other" and entry["restartCount"] == 1
        assert (
            "Normal",
            "Killing",
            "Container c definition changed, will be restarted",
        ) in await node.events()


async def test_a_lost_sandbox_is_made_again(core: Any) -> None:
    async with core() as node:
        await node.create("p")
        await node.settle()
        await node.stop_kubelet()
        node.runtime.lose_sandboxes()
        await node.start_kubelet()
        await node.settle(20)
        pod = await node.pod("p")
        assert pod["status"]["phase"] == "Running" and state(pod)["restartCount"] == 1
        assert (
            node.runtime.sandboxes()[0].config.attempt == 1 and pod["status"]["podIP"] == "10.0.0.3"
        )
        assert (
            "Normal",
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.",
        ) in await node.events()


async def test_a_restarted_kubelet_keeps_running_containers(core: Any) -> None:
    async with core() as node:
        await node.create("stays")
        await node.create("goes")
        await node.create("deleted")
        await node.settle()
        before = (await node.pod("stays"))["status"]
        await node.stop_kubelet()
        await node.client.delete(PODS, "default", "goes", grace=0)
        await node.client.delete(PODS, "default", "deleted")
        node.runtime.calls.clear()
        await node.start_kubelet()
        assert (await node.pod("stays"))["status"] == before
        assert await node.missing("deleted")
        assert [s.config.name for s in node.runtime.sandboxes()] == ["stays"]
        assert len(node.parts.mounts) == 1
        assert not [c for c in node.runtime.calls if c[0] in ("run_sandbox", "start_container")]


async def test_the_deadline(core: Any) -> None:
    async with core() as node:
        await node.create("p", activeDeadlineSeconds=20)
        await node.settle(19)
        assert (await node.pod("p"))["status"]["phase"] == "Running"
        await node.settle(2)
        status = (await node.pod("p"))["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
        assert status["message"] == "Pod was active on the node longer than the specified deadline"
        assert "terminated" in status["containerStatuses"][0]["state"]
        assert node.runtime.containers()[0].state != "running"


async def test_a_refused_pod_fails_and_can_be_deleted(core: Any) -> None:
    async with core() as node:
        node.parts.refused = PodRejection("OutOfcpu", "Node didn't have enough resource: cpu")
        await node.create("p")
        await node.settle()
        assert (await node.pod("p"))["status"] == {
            "phase": "Failed",
            "reason": "OutOfcpu",
            "message": "Pod Node didn't have enough resource: cpu",
            "startTime": "2020-01-02T03:04:06Z",
        }
        assert (
            "Warning",
            "OutOfcpu",
            "Node didn't have enough resource: cpu",
        ) in await node.events()
        await node.client.delete(PODS, "default", "p")
        await node.settle()
        assert await node.missing("p") and not node.runtime.calls


async def test_eviction_leaves_a_bare_status(core: Any) -> None:
    async with core() as node:
        pod = await node.create("p")
        await node.settle()
        await node.core.kill_pod(pod, "Evicted", "The node was low on resource: memory. ", 0)
        await node.settle()
        status = (await node.pod("p"))["status"]
        assert status == {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory. ",
            "startTime": status["startTime"],
        }
        assert ("stop_container", "c", 0) in node.runtime.calls
        assert not node.runtime.containers() and not node.parts.mounts


async def test_hooks(core: Any) -> None:
    async with core() as node:
        handler = {"exec": {"command": ["x"]}}
        node.parts.hook_failures = [
            HookFailure("Exec lifecycle hook ([x]) failed", "exited with 1")
        ]
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[
                {"name": "c", "image": "i", "lifecycle": {"postStart": handler, "preStop": handler}}
            ],
        )
        await node.settle()
        assert (
            "Warning",
            "FailedPostStartHook",
            "Exec lifecycle hook ([x]) failed",
        ) in await node.events()
        assert ("Normal", "Killing", "FailedPostStartHook") in await node.events()
        assert [name for name, _ in node.parts.hooks] == ["c", "c"]


async def test_a_finalizer_holds_the_object_only(core: Any) -> None:
    async with core() as node:
        await node.create("p", metadata={"finalizers": ["x/y"]})
        await node.settle()
        await node.client.delete(PODS, "default", "p")
        await node.settle(30)
        pod = await node.pod("p")
        assert "terminated" in state(pod)["state"] and pod["status"]["podIP"] == "10.0.0.1"
        assert not node.runtime.sandboxes()
        writes = len(node.writes)
        await node.settle(300)
        assert len(node.writes) == writes
        await node.client.patch(PODS, "default", "p", {"metadata": {"finalizers": None}})
        await node.settle()
        assert await node.missing("p") and not [*node.core.workers]


async def test_others_may_not_change_the_status_for_long(core: Any) -> None:
    async with core() as node:
        await node.create("p")
        await node.settle()
        body = {"status": {"podIP": "1.2.3.4", "phase": "Pending"}}
        await node.client.patch(PODS, "default", "p", body, subresource="status")
        await node.settle(11)
        status = (await node.pod("p"))["status"]
        assert (status["phase"], status["podIP"]) == ("Running", "10.0.0.1")


async def test_a_pod_that_others_declare_failed_is_stopped(core: Any) -> None:
    async with core() as node:
        await node.create("p")
        await node.settle()
        await node.client.patch(
            PODS, "default", "p", {"status": {"phase": "Failed"}}, subresource="status"
        )
        await node.settle(11)
        assert (await node.pod("p"))["status"]["phase"] == "Failed"
        assert all(s.state == "notready" for s in node.runtime.sandboxes())


async def test_readiness_gates(core: Any) -> None:
    async with core() as node:
        await node.create("p", readinessGates=[{"conditionType": "x/y"}])
        await node.settle()
        pod = await node.pod("p")
        ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
        assert (
            ready["message"]
            == 'corresponding condition of pod readiness gate "x/y" does not exist.'
        )
        body = {"status": {"conditions": [{"type": "x/y", "status": "True"}]}}
        await node.client.patch(PODS, "default", "p", body, STRATEGIC_PATCH, subresource="status")
        await node.settle()
        pod = await node.pod("p")
        assert conditions(pod) == {
            "x/y": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
            "PodScheduled": "True",
        }


async def test_a_status_that_could_not_be_written_is_written_later(core: Any) -> None:
    async with core() as node:
        node.fail_writes = 2
        await node.create("p")
        await node.settle()
        assert (await node.pod("p"))["status"]["phase"] == "Pending"
        await node.settle(25)
        assert (await node.pod("p"))["status"]["phase"] == "Running"


async def test_the_network_is_waited_for(core: Any) -> None:
    async with core() as node:
        node.runtime.state = RuntimeStatus(
            network_reason="NetworkPluginNotReady", network_message="docker: no cni"
        )
        await node.create("p")
        await node.create("h", hostNetwork=True)
        await node.settle()
        assert (await node.pod("p"))["status"]["phase"] == "Pending"
        host = (await node.pod("h"))["status"]
        assert (host["phase"], host["podIP"]) == ("Running", "192.168.0.1")
        text = (
            "network is not ready: runtime network not ready: NetworkReady=false "
            "reason:NetworkPluginNotReady "
            "message:docker: no cni"
        )
        assert ("Warning", "NetworkNotReady", text) in await node.events()
        node.runtime.state = RuntimeStatus()
        await node.settle(2)
        assert (await node.pod("p"))["status"]["phase"] == "Running"


async def test_grace_and_pre_stop(core: Any) -> None:
    async with core() as node:
        slow = {"exec": {"command": ["sleep"]}}
        await node.create(
            "p",
            terminationGracePeriodSeconds=20,
            containers=[{"name": "c", "image": "i", "lifecycle": {"preStop": slow}}],
        )
        await node.create(
            "q", terminationGracePeriodSeconds=20, containers=[{"name": "d", "image": "i"}]
        )
        await node.settle()
        node.parts.hook_seconds = 15
        await node.client.delete(PODS, "default", "p")
        await node.client.delete(PODS, "default", "q", grace=1)
        await node.settle(14)
        assert "running" in state(await node.pod("p"))["state"]
        await node.settle(2)
        assert await node.missing("p") and await node.missing("q")
        assert ("stop_container", "c", 5) in node.runtime.calls
        assert (
            "stop_container",
            "d",
            2,
        ) in node.runtime.calls  # no container is killed without a moment to end


async def test_a_runtime_that_cannot_stop_a_pod_is_asked_again(core: Any) -> None:
    async with core() as node:
        uid = (await node.create("p"))["metadata"]["uid"]
        await node.settle()
        node.runtime.fail["stop_container"] = node.runtime.fail["stop_sandbox"] = [
            RuntimeFailure("Unknown", "stuck")
        ] * 2
        await node.client.delete(PODS, "default", "p")
        await node.settle()
        text = (
            'error killing pod: [failed to "KillContainer" for "c" with KillContainerError: '
            '"rpc error: code = Unknown desc = stuck", '
            f'failed to "KillPodSandbox" for "{uid}" with KillPodSandboxError: "rpc error: '
            'code = Unknown desc = stuck"]'
        )
        assert ("Warning", "FailedKillPod", text) in await node.events()
        assert not await node.missing("p")
        await node.settle(16)
        assert await node.missing("p")


@pytest.mark.parametrize("seed", range(8))
async def test_a_kubelet_that_crashes_loses_and_doubles_nothing(core: Any, seed: int) -> None:
    async with core() as node:
        chance = random.Random(seed)
        node.runtime.delay = 0.3
        for round in range(6):
            await node.create(f"p{round}", terminationGracePeriodSeconds=2)
            await node.settle(chance.random() * 2)
            if round and chance.random() < 0.7 and not await node.missing(f"p{round - 1}"):
                await node.client.delete(
                    PODS, "default", f"p{round - 1}", grace=chance.choice((None, 0))
                )
                await node.settle(chance.random())
            await node.stop_kubelet()
            if chance.random() < 0.3:
                node.runtime.lose_sandboxes()
            await node.settle(chance.random())
            await node.start_kubelet()
        await node.settle(60)
        pods = (await node.client.list(PODS, "default")).items
        assert {p["status"]["phase"] for p in pods} <= {"Running"}
        assert not [p for p in pods if "deletionTimestamp" in p["metadata"]]
        uids = sorted(p["metadata"]["uid"] for p in pods)
        assert sorted(s.config.uid for s in node.runtime.sandboxes() if s.state == "ready") == uids
        assert (
            sorted(
                c.labels["io.kubernetes.pod.uid"]
                for c in node.runtime.containers()
                if c.state == "running"
            )
            == uids
        )
        assert (
            {s.config.uid for s in node.runtime.sandboxes()} == set(uids) == set(node.parts.mounts)
        )
        for pod in pods:
            assert (
                state(pod)["containerID"]
                == f"docker://{node.runtime.containers(pod['metadata']['uid'])[0].id}"
            )
