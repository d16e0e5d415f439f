"""Simulated nodes of a cluster that is stopped and started keep their disks, as after a reboot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.node.programs.simulated_node import NodeTestCluster
from tests.simulation.loop import LoopClock, run

from transom.client.resources import EVENTS, NODES, PODS
from transom.cluster.config import ClusterConfig
from transom.cluster.endpoints.node_control import ControlHandler
from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.user_errors import UserError
from transom.node.cluster_access import ControlPlaneFacts
from transom.node.inspect import inspect_nodes
from transom.node.machine_disks import MachineDisks
from transom.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def pod(name: str, node: str, image: str, command: list[str], top: str) -> dict[str, Any]:
    volumes: dict[str, Any] = {
        "disk": {"emptyDir": {}},
        "host": {"hostPath": {"path": f"{top}data", "type": "DirectoryOrCreate"}},
    }
    if node == "l":
        volumes["memory"] = {"emptyDir": {"medium": "Memory"}}
    mounts = [{"name": volume, "mountPath": f"{top}{volume}"} for volume in volumes]
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "c", "image": image, "command": command, "volumeMounts": mounts}
            ],
            "volumes": [{"name": volume, **source} for volume, source in volumes.items()],
        },
    }


def test_pods_keep_their_volumes_and_identity_and_count_the_restart(tmp_path: Path) -> None:
    script = (
        "echo x >> /disk/starts; echo x >> /host/starts; echo x >> /memory/starts; echo x >> "
        "/layer; sleep 100000"
    )
    line = r"echo x>> C:\disk\starts & echo x>> C:\host\starts & ping -t localhost"

    async def main(clock: LoopClock) -> None:
        store = MemoryStore(clock)
        uids: dict[str, str] = {}

        async def first(cluster: NodeTestCluster) -> None:
            await cluster.client.create(
                PODS, "default", pod("a", "l", "busybox", ["sh", "-c", script], "/")
            )
            await cluster.client.create(
                PODS, "default", pod("b", "w", cluster.image, ["cmd", "/c", line], "C:\\")
            )
            for name in "ab":
                await cluster.until(lambda name=name: cluster._phase(name, "Running"))  # type: ignore[misc]
                uids[name] = (await cluster.client.get(PODS, "default", name))["metadata"]["uid"]
            await clock.sleep(3)

        async def second(cluster: NodeTestCluster) -> None:
            async def restarted(name: str) -> bool:
                found = await cluster.client.get(PODS, "default", name)
                (status,) = found["status"]["containerStatuses"]
                assert found["metadata"]["uid"] == uids[name]
                return bool(status["restartCount"] == 1 and status["state"].get("running"))

            for name in "ab":
                await cluster.until(lambda name=name: restarted(name))  # type: ignore[misc]
                (status,) = (await cluster.client.get(PODS, "default", name))["status"][
                    "containerStatuses"
                ]
                assert status["lastState"]["terminated"]["exitCode"] == 255
            await clock.sleep(3)
            folder = "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/{}/starts"
            linux, windows = (
                cluster.pool.node("l").machine.files,
                cluster.pool.node("w").machine.files,
            )
            assert linux.read(folder.format(uids["a"], "disk")) == b"x\nx\n"
            assert linux.read(folder.format(uids["a"], "memory")) == b"x\n"
            assert linux.read("/data/starts") == b"x\nx\n"
            assert windows.read("C:" + folder.format(uids["b"], "disk")).split() == [b"x", b"x"]
            assert windows.read(r"C:\data\starts").split() == [b"x", b"x"]
            events = [
                (e["reason"], e["involvedObject"]["name"])
                for e in (await cluster.client.list(EVENTS, "")).items
            ]
            assert ("Rebooted", "l") in events
            # images stay
            assert sum(reason == "Pulling" and name == "b" for reason, name in events) == 1

        for scenario in (first, second):
            disks = MachineDisks(tmp_path / "machines.db", inline=True)
            async with NodeTestCluster(clock, store=store, disks=disks).running() as cluster:
                await scenario(cluster)
            disks.close()

    run(main)


def test_a_killed_process_leaves_what_was_written_back(tmp_path: Path) -> None:
    async def main(clock: LoopClock) -> None:
        disks = MachineDisks(tmp_path / "machines.db", inline=True)

        async def scenario(cluster: NodeTestCluster) -> None:
            files = cluster.pool.node("l").machine.files
            files.mkdir("/data")
            files.write("/data/old", b"written")
            await clock.sleep(30)
            files.write("/data/new", b"still in memory")
            # as if nothing came after: what is on disk now is what a killed process leaves
            disks.save([])
            left.append(MachineDisks(tmp_path / "machines.db").load("l"))

        left: list[Any] = []
        async with NodeTestCluster(clock, disks=disks).running() as cluster:
            await scenario(cluster)
        rows = left[0].document["host"]["files"]["rows"]
        names = [row[1] for row in rows]
        assert "old" in names
        assert "new" not in names

    run(main)


def test_a_deleted_node_leaves_nothing(tmp_path: Path) -> None:
    async def main(clock: LoopClock) -> None:
        path = tmp_path / "machines.db"
        disks = MachineDisks(path, inline=True)

        async def scenario(cluster: NodeTestCluster) -> None:
            await clock.sleep(30)
            assert MachineDisks(path).load("l") is not None
            await cluster.pool.delete("l")
            assert MachineDisks(path).load("l") is None

        async with NodeTestCluster(clock, disks=disks).running() as cluster:
            await scenario(cluster)
        assert MachineDisks(path).load("l") is None
        assert MachineDisks(path).load("w") is not None

    run(main)


def test_a_node_with_unusable_files_leaves_the_cluster_alone(tmp_path: Path) -> None:
    """A pod with a hostPath can write all files of its node."""

    async def main(clock: LoopClock) -> None:
        store = MemoryStore(clock)
        disks = MachineDisks(tmp_path / "machines.db", inline=True)
        async with NodeTestCluster(clock, disks=disks, store=store).running() as cluster:
            await clock.sleep(30)
            files = cluster.pool.node("l").machine.files
            files.remove("/opt", recursive=True)
            files.symlink("opt", "/opt")
            await clock.sleep(30)
        disks.close()
        disks = MachineDisks(tmp_path / "machines.db", inline=True)
        async with NodeTestCluster(clock, disks=disks, store=store).running() as cluster:
            await clock.sleep(30)
            pool = cluster.pool
            assert pool.is_ready("w") and not pool.is_ready("l")
            assert pool.names() == {"l", "w"} and len(pool.numbers()) == 2
            control = ControlHandler(ClusterConfig("l"), pool, ControlPlaneFacts({}, dict))
            answer = await control(HttpRequest("GET", b"/transom/nodes", "/transom/nodes", {}))
            assert isinstance(answer, HttpResponse)
            rows = {row["name"]: row for row in orjson.loads(answer.body)["items"]}
            assert rows["l"].keys() == rows["w"].keys()
            assert rows["l"]["state"] == "not started" and not rows["l"]["ready"]
            assert "symbolic links" in rows["l"]["problem"] and rows["w"]["problem"] is None
            inside = await inspect_nodes(pool, ControlPlaneFacts({}, dict))
            assert [one["name"] for one in inside["items"]] == ["w"]
            (unusable,) = inside["unusable"]
            assert unusable["reason"] == rows["l"]["problem"] and unusable["files"] == ""
            assert unusable["replace"] == "transom node add l"
            for work in (pool.start, pool.stop, pool.reboot):
                with pytest.raises(UserError, match=r"node 'l' cannot start: .*symbolic links"):
                    await work("l")
            await pool.delete("l")
            assert pool.names() == {"w"}
            found = await cluster.client.list(NODES)
            assert [one["metadata"]["name"] for one in found.items] == ["w"]

    run(main)
