"""What the document lists as supported for pods on Windows: each of its points on a whole node,
with both runtimes.
"""

from __future__ import annotations

from typing import Any

import pytest

from transom.client.resources import CONFIG_MAPS, PODS, SECRETS

from .windows_pods import (
    BOTH,
    WAIT,
    cmd,
    config,
    container,
    do,
    ended,
    in_runtime,
    log,
    meant,
    printed,
    recorded,
    run,
    running,
    state,
    states,
    summary,
    until,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
SHARED = {"volumes": [{"name": "v", "emptyDir": {}}]}
MOUNT = [{"name": "v", "mountPath": "C:\\shared"}]


@pytest.mark.windows("POD-03", "POD-05", "POD-06", "RT-12", "RT-13", "RES-03")
@flavours
async def test_single_or_multiple_containers_per_pod_with_process_isolation(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        sit = [
            container("cmd", name="a", stdin=True),
            container(name="b"),
            container(*WAIT, "-4", name="lone"),
        ]
        await node.create("p", containers=sit[:2])
        await node.create("q", containers=sit[2:])
        pod = await running(node)
        assert [s["ready"] for s in states(pod)] == [True, True]
        # One sandbox, one address, and no process of one container is seen in another.
        [sandbox] = node.runtime.sandboxes(pod["metadata"]["uid"])
        assert sandbox.ips == (pod["status"]["podIP"],)
        for mine, other in (("a", "b"), ("b", "a")):
            seen = await printed(node, pod, "tasklist", mine)
            assert ("PING.EXE" in seen.upper()) == (mine == "b"), (seen, other)
            # of the container's own system, as in every Windows container
            assert "CExecSvc.exe" in seen


@pytest.mark.windows("POD-07", "STO-01")
@flavours
async def test_volume_sharing_between_the_containers_of_a_pod(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        one = cmd("echo hello> C:\\shared\\file.txt & ping -t localhost", "a", volumeMounts=MOUNT)
        await node.create("p", **SHARED, containers=[one, container(name="b", volumeMounts=MOUNT)])
        pod = await running(node)
        assert await printed(node, pod, "type C:\\shared\\file.txt", "b") == "hello"


@pytest.mark.windows("POD-01", "POD-02", "POD-08", "OS-03")
@flavours
async def test_pod_status_fields(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        status = pod["status"]
        assert (status["phase"], status["qosClass"], status["hostIP"]) == (
            "Running",
            "BestEffort",
            "192.168.0.1",
        )
        assert status["podIPs"] == [{"ip": status["podIP"]}] and status["podIP"].startswith(
            "10.244.1."
        )
        assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
            ("Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
        )
        [entry] = status["containerStatuses"]
        assert (
            entry["containerID"].startswith(f"{flavour}://")
            and entry["restartCount"] == 0
            and entry["started"]
        )
        assert set(entry) == {
            "name",
            "state",
            "lastState",
            "ready",
            "restartCount",
            "image",
            "imageID",
            "containerID",
            "started",
        }
        await node.client.delete(PODS, "default", "p")
        await node.settle(40)
        assert await node.missing("p")
        lines = await recorded(node)
        assert [line for line in lines if "container c" in line] == [
            "Created container c",
            "Started container c",
            "Stopping container c",
        ]


@pytest.mark.windows("POD-09")
@flavours
async def test_readiness_probes(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        probe = {"exec": {"command": ["cmd", "/c", "type C:\\ready.txt"]}, "periodSeconds": 2}
        await node.create("p", containers=[container(readinessProbe=probe)])
        pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Running")
        await node.settle(5)
        assert not states(await node.pod("p"))[0]["ready"]
        [text, *_] = await recorded(node, "Unhealthy")
        assert text == "Readiness probe failed: The system cannot find the file specified.\r\n"
        await run(node, pod, "cmd", "/c", "echo yes> C:\\ready.txt")
        await until(node, "p", lambda pod: states(pod)[0]["ready"], 5)
        await run(node, pod, "cmd", "/c", "del C:\\ready.txt")
        pod = await until(node, "p", lambda pod: not states(pod)[0]["ready"], 15)
        assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "False"
        assert states(pod)[0]["restartCount"] == 0


@pytest.mark.windows("POD-10", "RT-14")
@flavours
async def test_liveness_probes(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        probe = {
            "exec": {"command": ["cmd", "/c", "exit 1"]},
            "periodSeconds": 2,
            "failureThreshold": 2,
        }
        await node.create(
            "p", terminationGracePeriodSeconds=3, containers=[container(livenessProbe=probe)]
        )
        first = await running(node)
        pod = await until(node, "p", lambda pod: states(pod)[0]["restartCount"] == 1, 30)
        assert "Container c failed liveness probe, will be restarted" in await recorded(
            node, "Killing"
        )
        # The pause container keeps the address while the other one comes and goes.
        assert pod["status"]["podIP"] == first["status"]["podIP"]
        assert len(node.runtime.sandboxes(pod["metadata"]["uid"])) == 1


@pytest.mark.windows("POD-09", "POD-10")
async def test_probes_by_http_and_tcp(node: Any) -> None:
    async with node("windows") as node:
        iis = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"
        probes = {
            "livenessProbe": {"tcpSocket": {"port": 80}},
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
        }
        await node.create(
            "p",
            containers=[{"name": "c", "image": iis, "ports": [{"containerPort": 80}], **probes}],
        )
        pod = await until(node, "p", lambda pod: states(pod)[0].get("ready"))
        await node.settle(60)
        assert states(await node.pod("p"))[0]["restartCount"] == 0 and states(pod)[0]["started"]
        assert not await recorded(node, "Unhealthy")


@pytest.mark.windows("POD-11")
@flavours
async def test_post_start_events(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:

        def hook(script: str) -> dict[str, Any]:
            return {"postStart": {"exec": {"command": ["cmd", "/c", script]}}}

        await node.create("p", containers=[container(lifecycle=hook("echo started> C:\\hook.txt"))])
        pod = await running(node)
        assert await printed(node, pod, "type C:\\hook.txt") == "started"
        await node.create(
            "q",
            containers=[container(lifecycle=hook("echo no& exit 3"))],
            terminationGracePeriodSeconds=1,
        )
        await until(node, "q", lambda pod: states(pod)[0].get("restartCount"))
        [text, *_] = await recorded(node, "FailedPostStartHook")
        assert "error: command 'cmd /c echo no& exit 3' exited with 3: " in text
        assert "FailedPostStartHook" in await recorded(node, "Killing")


@pytest.mark.windows("POD-12")
@flavours
async def test_pre_stop_events(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        hook = {
            "preStop": {
                "exec": {
                    "command": ["cmd", "/c", "echo bye> C:\\shared\\bye.txt& ping -n 4 127.0.0.1"]
                }
            }
        }
        await node.create("p", **SHARED, containers=[container(lifecycle=hook, volumeMounts=MOUNT)])
        pod = await running(node)
        path = f"C:\\var\\lib\\kubelet\\pods\\{pod['metadata']['uid']}\\volumes\\kubernetes.io~empty-dir\\v\\bye.txt"
        await node.client.delete(PODS, "default", "p")
        await node.settle(2)
        assert node.host.files.read(path).strip() == b"bye"
        # it is asked to leave when the hook has ended
        assert in_runtime(node, pod).state == "running"
        await node.settle(8)
        assert await node.missing("p")
        failing = {"preStop": {"exec": {"command": ["cmd", "/c", "exit 5"]}}}
        await node.create("q", containers=[container(lifecycle=failing)])
        await running(node, "q")
        await node.client.delete(PODS, "default", "q")
        await node.settle(40)
        assert await node.missing("q") and await recorded(node, "FailedPreStopHook")


@pytest.mark.windows("POD-13", "POD-14", "API-42", "API-43")
@flavours
async def test_config_maps_and_secrets_as_variables_and_volumes(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.client.create(
            CONFIG_MAPS, "default", {"metadata": {"name": "m"}, "data": {"colour": "red"}}
        )
        await node.client.create(
            SECRETS, "default", {"metadata": {"name": "s"}, "stringData": {"word": "sesame"}}
        )
        env = [
            {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "colour"}}},
            {"name": "BOTH", "value": "$(COLOUR) and $(WORD)"},
        ]
        mounts = [
            {"name": "m", "mountPath": "/etc/m"},
            {"name": "s", "mountPath": "C:\\etc\\s", "readOnly": True},
        ]
        await node.create(
            "p",
            volumes=[
                {"name": "m", "configMap": {"name": "m"}},
                {"name": "s", "secret": {"secretName": "s"}},
            ],
            containers=[
                container(
                    env=[
                        {
                            "name": "WORD",
                            "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}},
                        },
                        *env,
                    ],
                    envFrom=[{"prefix": "ALL_", "configMapRef": {"name": "m"}}],
                    volumeMounts=mounts,
                )
            ],
        )
        pod = await running(node)
        variables = (await printed(node, pod, "set")).splitlines()
        assert {"COLOUR=red", "WORD=sesame", "BOTH=red and sesame", "ALL_colour=red"} <= set(
            variables
        )
        assert (
            await printed(node, pod, "type C:\\etc\\m\\colour & type C:\\etc\\s\\word")
            == "redsesame"
        )
        await node.client.patch(CONFIG_MAPS, "default", "m", {"data": {"colour": "blue"}})
        await node.client.patch(SECRETS, "default", "s", {"stringData": {"word": "open"}})
        await node.settle(130)
        assert (
            await printed(node, pod, "type C:\\etc\\m\\colour & type C:\\etc\\s\\word")
            == "blueopen"
        )


@pytest.mark.windows("POD-15", "API-41", "API-45")
@flavours
async def test_empty_dir(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        again = cmd(
            "type C:\\shared\\x & echo once>> C:\\shared\\x & ping -n 3 localhost > nul",
            volumeMounts=MOUNT,
        )
        await node.create("p", **SHARED, containers=[again])
        pod = await until(node, "p", lambda pod: states(pod)[0].get("restartCount") == 1, 40)
        await node.settle(1)
        assert log(node, pod, attempt=1).strip() == "once"
        folder = f"C:\\var\\lib\\kubelet\\pods\\{pod['metadata']['uid']}"
        assert node.host.files.exists(f"{folder}\\volumes\\kubernetes.io~empty-dir\\v\\x")
        await node.client.delete(PODS, "default", "p")
        await node.settle(60)
        assert not node.host.files.exists(folder)


@pytest.mark.windows("POD-16")
@flavours
async def test_named_pipe_host_mounts(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        pipe = "\\\\.\\pipe\\agent"
        node.host.files.make(pipe, "pipe")
        await node.create(
            "p",
            volumes=[{"name": "v", "hostPath": {"path": pipe}}],
            containers=[container(volumeMounts=[{"name": "v", "mountPath": pipe}])],
        )
        pod = await running(node)
        mount = config(node, pod).mounts[0]
        assert (mount.host_path, mount.container_path) == (pipe, pipe)


@pytest.mark.windows("POD-17", "API-15", "API-16", "WIN-RES-006")
@flavours
async def test_resource_limits(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        limits = {"limits": {"cpu": "500m", "memory": "256Mi"}}
        await node.create("p", containers=[container(resources=limits)])
        pod = await running(node)
        resources = config(node, pod).windows.resources
        assert (resources.cpu_maximum, resources.memory_limit) == (
            1250,
            256 << 20,
        )  # an eighth of four processors
        assert (resources.cpu_shares, resources.cpu_count) == (0, 0)
        assert pod["status"]["qosClass"] == "Guaranteed"  # requests default to limits


@pytest.mark.windows("LIFE-01", "RES-02")
@flavours
async def test_pod_and_container_metrics(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        await running(node)
        summary(node)
        await node.settle(15)
        [pod] = summary(node)["pods"]
        [one] = pod["containers"]
        assert pod["podRef"]["name"] == "p" and one["name"] == "c"
        assert (
            one["cpu"]["usageCoreNanoSeconds"] > 0 and one["memory"]["workingSetBytes"] > 10 << 20
        )


@pytest.mark.windows("LIFE-03")
@flavours
async def test_exec(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        result = await run(node, pod, "cmd", "/c", "echo out& echo err>&2& exit 7")
        assert result == (b"out\r\n", b"err\r\n", 7)


@pytest.mark.windows("RT-12", "RT-13", "POD-06")
async def test_containers_of_a_pod_share_localhost_and_its_ports(node: Any) -> None:
    async with node("windows") as node:
        iis = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"
        await node.create("p", containers=[{"name": "web", "image": iis}, container()])
        pod = await running(node)
        result = await run(
            node, pod, "curl", "-s", "-o", "nul", "-w", "%{http_code}", "http://localhost/"
        )
        assert result.stdout == b"200"
        connection = await do(node, node.runtime.port_forward(meant(node, pod).id, 80))
        connection.close()


@pytest.mark.windows("POD-01", "API-12")
@flavours
async def test_restart_policies_and_init_containers_work_as_on_linux(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p",
            **SHARED,
            restartPolicy="Never",
            initContainers=[cmd("echo made> C:\\shared\\x", "init", volumeMounts=MOUNT)],
            containers=[cmd("type C:\\shared\\x", volumeMounts=MOUNT)],
        )
        pod = await ended(node)
        assert pod["status"]["phase"] == "Succeeded" and log(node, pod) == "made"
        assert state(pod)["terminated"]["reason"] == "Completed"
        await node.create("q", restartPolicy="Never", containers=[cmd("exit 3")])
        pod = await ended(node, "q")
        assert (pod["status"]["phase"], state(pod)["terminated"]["exitCode"]) == ("Failed", 3)
