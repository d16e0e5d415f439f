"""Namespaces that Windows does not share, commands that it does not have, variables, DNS and hosts
files.
"""

from __future__ import annotations

from typing import Any

import pytest

from transom.client.resources import PODS

from .windows_pods import (
    BOTH,
    NANO,
    cmd,
    config,
    container,
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
    until,
    warnings,
)

flavours = pytest.mark.parametrize("flavour", BOTH)
NOT_FOUND = "The system cannot find the file specified."
IIS = "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019"


# ---- namespaces ----


@pytest.mark.windows("API-33", "LNET-05", "WIN-POD-002")
@pytest.mark.parametrize(
    ("version", "words"), [("v1.20.15", "Failed to create"), ("v1.14.10", "Failed create")]
)
async def test_host_network_fails_with_docker(node: Any, version: str, words: str) -> None:
    async with node("windows", version=version) as node:
        await node.create("p", hostNetwork=True, containers=[container()])
        await node.settle(20)
        assert state(await node.pod("p")) == {"waiting": {"reason": "ContainerCreating"}}
        assert (await recorded(node, "FailedCreatePodSandBox"))[0] == (
            f"{words} pod sandbox: rpc error: code = Unknown desc = failed to start sandbox "
            'container for pod "p": '
            "Error response from daemon: network host not found"
        )


@pytest.mark.windows("API-33", "LNET-05", "WIN-POD-003")
async def test_host_network_is_ignored_by_containerd(node: Any) -> None:
    async with node("windows", flavour="containerd") as node:
        await node.create("p", hostNetwork=True, containers=[container()])
        pod = await running(node)
        assert meant(node, pod).ips[0].startswith("10.244.1.")  # a network of its own


@pytest.mark.windows("API-34")
@flavours
async def test_cluster_first_with_host_net_is_cluster_first(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", dnsPolicy="ClusterFirstWithHostNet", containers=[container()])
        await node.create("q", containers=[container()])
        pod, other = await running(node), await running(node, "q")
        assert meant(node, pod).config.dns == meant(node, other).config.dns
        assert meant(node, pod).config.dns.searches == (
            "default.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
        )


@pytest.mark.windows("API-31", "API-32", "FEAT-07", "WIN-POD-004", "WIN-POD-005")
@flavours
@pytest.mark.parametrize("field", ["hostPID", "hostIPC"])
async def test_namespaces_of_the_node_are_not_shared(node: Any, flavour: str, field: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("other", containers=[container("cmd", stdin=True)])
        await running(node, "other")
        await node.create("p", **{field: True}, containers=[container()])
        pod = await running(node)
        seen = await printed(node, pod, "tasklist")
        assert "kubelet.exe" not in seen and "cmd.exe  " in seen and seen.count("CExecSvc.exe") == 1
        assert not await warnings(node)


@pytest.mark.windows("API-36", "FEAT-07", "WIN-POD-006")
@flavours
async def test_share_process_namespace_shares_the_network_alone(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p", shareProcessNamespace=True, containers=[container(), {"name": "web", "image": IIS}]
        )
        pod = await running(node)
        assert "PING.EXE" in (await printed(node, pod, "tasklist")).upper()
        assert "PING.EXE" not in (await printed(node, pod, "tasklist", "web")).upper()
        await run(node, pod, "cmd", "/c", "echo x> C:\\mine.txt")
        # nor is the root file system
        assert await printed(node, pod, "type C:\\mine.txt", "web") == NOT_FOUND
        code = await run(
            node, pod, "curl", "-s", "-o", "nul", "-w", "%{http_code}", "http://127.0.0.1/"
        )
        assert code.stdout == b"200"


@pytest.mark.windows("API-36", "WIN-POD-013")
@flavours
async def test_an_ephemeral_container_sees_its_own_processes_only(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        await running(node)
        body = {
            "spec": {
                "ephemeralContainers": [
                    container("cmd", name="debug", stdin=True, targetContainerName="c")
                ]
            }
        }
        await node.client.patch(
            PODS,
            "default",
            "p",
            body,
            "application/strategic-merge-patch+json",
            subresource="ephemeralcontainers",
        )
        pod = await until(
            node, "p", lambda pod: "running" in str(pod["status"].get("ephemeralContainerStatuses"))
        )
        assert "PING.EXE" not in (await printed(node, pod, "tasklist", "debug")).upper()


@pytest.mark.windows("WIN-POD-008", "WIN-POD-009")
@pytest.mark.parametrize(
    ("flavour", "version", "known"),
    [
        ("docker", "v1.20.15", False),
        ("containerd", "v1.20.15", False),
        ("containerd", "v1.21.14", True),
        ("docker", "v1.21.14", False),
    ],
)
async def test_host_aliases_are_ignored(node: Any, flavour: str, version: str, known: bool) -> None:
    async with node("windows", flavour=flavour, version=version) as node:
        await node.create(
            "p", hostAliases=[{"ip": "1.2.3.4", "hostnames": ["friend"]}], containers=[container()]
        )
        pod = await running(node)
        assert (
            "friend" in await printed(node, pod, "type C:\\Windows\\System32\\drivers\\etc\\hosts")
        ) is known
        assert ("1.2.3.4" in await printed(node, pod, "ping -n 1 friend")) is known


# ---- commands ----


@pytest.mark.windows("API-02", "API-08", "WIN-CTR-002")
@pytest.mark.parametrize(
    ("flavour", "reason", "code"),
    [("docker", "ContainerCannotRun", 127), ("containerd", "StartError", 128)],
)
@pytest.mark.parametrize("command", [["/bin/sh", "-c", "sleep 1"], ["bash"], ["sleep", "10"]])
async def test_there_is_no_sh(
    node: Any, flavour: str, reason: str, code: int, command: list[str]
) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", restartPolicy="Never", containers=[container(*command)])
        pod = await ended(node)
        end = state(pod)["terminated"]
        assert (end["reason"], end["exitCode"]) == (reason, code)
        identity = in_runtime(node, pod).id
        if flavour == "docker":
            assert end["message"] == (
                f"container {identity} encountered an error during "
                "hcsshim::System::CreateProcess: failure in a Windows system "
                f"call: {NOT_FOUND} (0x2)"
            )
        else:
            assert end["message"].endswith(
                f"hcs::System::CreateProcess {identity}: {NOT_FOUND}: unknown"
            )


@pytest.mark.windows("WIN-CTR-002")
async def test_nano_server_has_no_powershell(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[container("powershell", "-Command", "exit 0", image=NANO)],
        )
        assert NOT_FOUND in state(await ended(node))["terminated"]["message"]


@pytest.mark.windows("API-02", "API-08", "WIN-CTR-003")
@flavours
async def test_probes_and_hooks_of_linux_fail(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        shell = {"exec": {"command": ["cat", "/tmp/healthy"]}}
        await node.create(
            "p",
            terminationGracePeriodSeconds=2,
            containers=[
                container(livenessProbe={**shell, "periodSeconds": 1, "failureThreshold": 2}),
            ],
        )
        if flavour == "docker":
            await until(node, "p", lambda pod: states(pod)[0].get("restartCount"), 30)
            word = "failed"
        else:  # what could not be run says nothing of the container's health
            await running(node)
            await node.settle(30)
            assert states(await node.pod("p"))[0]["restartCount"] == 0
            word = "errored"
        unhealthy = [text for text in await recorded(node, "Unhealthy") if NOT_FOUND in text]
        assert unhealthy and unhealthy[0].startswith(f"Liveness probe {word}: ")
        hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 1"]}}}
        await node.create("q", containers=[container(lifecycle=hook)])
        await running(node, "q")
        await node.client.delete(PODS, "default", "q")
        await node.settle(10)
        assert await recorded(node, "FailedPreStopHook")


@pytest.mark.windows("WIN-CTR-002", "LIFE-03")
@pytest.mark.parametrize("flavour", BOTH)
async def test_exec_of_a_program_that_is_not_there(node: Any, flavour: str) -> None:
    from transom.runtime.api import RuntimeFailure

    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container()])
        pod = await running(node)
        identity = in_runtime(node, pod).id
        if flavour == "docker":
            result = await run(node, pod, "ls")
            assert result.exit_code == 126 and result.stdout.decode().strip() == (
                f"container {identity} encountered an error during "
                "hcsshim::System::CreateProcess: failure in a Windows system "
                f"call: {NOT_FOUND} (0x2)"
            )
        else:
            with pytest.raises(RuntimeFailure, match="The system cannot find the file specified"):
                await run(node, pod, "ls")


@pytest.mark.windows("API-07", "API-08", "WIN-CTR-004")
async def test_paths_inside_a_container_are_read_by_windows_programs(node: Any) -> None:
    async with node("windows") as node:
        await node.create("p", containers=[container(workingDir="C:\\app")])
        pod = await running(node)
        assert await printed(node, pod, "cd") == "C:\\app"
        await run(node, pod, "cmd", "/c", "echo x> C:\\app\\f.txt")
        assert await printed(node, pod, "type C:\\app\\f.txt") == "x"
        assert await printed(node, pod, "type /etc/hosts") != "x"  # a slash begins an option there


# ---- variables ----


@pytest.mark.windows("WIN-CTR-005")
@flavours
async def test_names_of_variables_are_the_same_whatever_their_case(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        env = [{"name": "Colour", "value": "red"}, {"name": "COLOUR", "value": "blue"}]
        await node.create("p", restartPolicy="Never", containers=[cmd("echo %colour%", env=env)])
        assert log(node, await ended(node)) == "blue"  # the later one


@pytest.mark.windows("SVC-02", "API-01")
async def test_the_kubelet_expands_its_own_variables_and_the_shell_its_own(node: Any) -> None:
    async with node("windows") as node:
        env = [
            {"name": "A", "value": "one"},
            {"name": "B", "value": "$(A)-%A%"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ]
        await node.create(
            "p",
            restartPolicy="Never",
            containers=[
                container("cmd", "/c", "echo $(B) %A% %NODE% %KUBERNETES_NONE%", env=env),
            ],
        )
        assert log(node, await ended(node)) == "one-one one node1 %KUBERNETES_NONE%"


@pytest.mark.windows("API-01", "API-07")
@flavours
async def test_the_token_of_the_service_account_and_its_path(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        source = [
            {
                "downwardAPI": {
                    "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}}]
                }
            }
        ]
        await node.create(
            "p",
            volumes=[{"name": "v", "projected": {"sources": source}}],
            containers=[container(volumeMounts=[{"name": "v", "mountPath": "/var/run/secrets/x"}])],
        )
        pod = await running(node)
        assert config(node, pod).mounts[0].container_path == "c:/var/run/secrets/x"
        assert await printed(node, pod, "type C:\\var\\run\\secrets\\x\\labels") == "p"


# ---- fields of later releases ----


@pytest.mark.windows("WIN-API-004", "WIN-API-005")
async def test_fields_that_1_20_does_not_know_are_dropped(node: Any) -> None:
    async with node("windows") as node:
        context = {"windowsOptions": {"hostProcess": True, "runAsUserName": "ContainerUser"}}
        await node.create(
            "p", os={"name": "windows"}, containers=[container(securityContext=context)]
        )
        pod = await running(node)
        assert "os" not in pod["spec"]
        assert pod["spec"]["containers"][0]["securityContext"] == {
            "windowsOptions": {"runAsUserName": "ContainerUser"}
        }
        # it is not a process of the node
        assert await printed(node, pod, "echo %COMPUTERNAME%") != "NODE1"
