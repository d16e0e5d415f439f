"""kubelet.exe of a Windows node by its command line: errors, the effect of its flags, and what
keeps running without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.node.programs.simulated_node import NodeTestCluster, simulated_cluster
from tests.simulation.loop import VIRTUAL_LOOP

from transom.client.resources import PODS
from transom.http.messages import HttpRequest
from transom.kubelet.server.server import answer_ping_healthz
from transom.machinery.releases import Release
from transom.node.network_settings import NetworkSettings
from transom.node.programs.flags import kubelet
from transom.node.programs.start import NO_CONFIGURATION
from transom.runtime.sim.engine import SimRuntime


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


DOCUMENT = (
    "--hostname-override=w",
    "--v=6",
    "--pod-infra-container-image=mcr.microsoft.com/oss/kubernetes/pause:1.4.1",
    "--resolv-conf=",
    "--allow-privileged=true",
    "--enable-debugging-handlers",
    "--cluster-dns=10.96.0.10",
    "--cluster-domain=cluster.local",
    r"--kubeconfig=c:\k\config",
    "--hairpin-mode=promiscuous-bridge",
    "--image-pull-progress-deadline=20m",
    "--cgroups-per-qos=false",
    r"--log-dir=C:\k\logs",
    "--logtostderr=false",
    "--enforce-node-allocatable=",
    "--network-plugin=cni",
    r"--cni-bin-dir=c:\k\cni",
    r"--cni-conf-dir=c:\k\cni\config",
)


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


async def ready(cluster: NodeTestCluster, name: str = "w") -> str:
    conditions = (await cluster.node(name))["status"].get("conditions") or ()
    return next((f"{c['status']} {c['message']}" for c in conditions if c["type"] == "Ready"), "")


async def is_ready(cluster: NodeTestCluster, name: str = "w") -> bool:
    return (await ready(cluster, name)).startswith("True")


@pytest.mark.windows(
    "TRB-33", "TRB-35", "TRB-38", "TRB-39", "TRB-42", "TRB-43", "TRB-46", "TRB-47", "TRB-49"
)
async def test_the_line_of_the_document_starts_a_kubelet_that_finds_its_pods() -> None:
    async with simulated_cluster() as cluster:
        before = await cluster.runs("old")
        cluster.files.mkdir(r"C:\k\logs")
        await cluster.stop("kubelet")
        assert cluster.binaries.running("kubelet") is None
        ip = await cluster.service("old")
        await cluster.clock.sleep(3)
        assert cluster.balancers(ip)  # kube-proxy goes on
        await cluster.clock.sleep(60)
        assert (await ready(cluster)).startswith("Unknown")  # no kubelet reports the node's status
        printed = await cluster.launch("kubelet", *DOCUMENT)
        await cluster.until(lambda: is_ready(cluster))
        assert (
            "Flag --allow-privileged has been deprecated" in printed.text
            and "unknown flag" not in printed.text
        )
        after = await cluster.runs("new")
        assert after["status"]["podIP"] != before["status"]["podIP"]
        old = await cluster.client.get(PODS, "default", "old")
        assert old["status"]["containerStatuses"] == before["status"]["containerStatuses"]
        names = cluster.files.listdir(r"C:\k\logs")
        assert "kubelet.exe.INFO" in names and any(".log.INFO.20200102-" in name for name in names)
        content = cluster.files.read(r"C:\k\logs\kubelet.exe.INFO").decode()
        assert (
            content.startswith("Log file created at: 2020/01/02 03:05:0")
            and "Running on machine: W\n" in content
        )
        assert (
            '"Event occurred" object="default/new" kind="Pod"' in content
            and 'FLAG: --v="6"' in content
        )
        assert "Event occurred" not in printed.text  # files, not the standard error
        assert "Event occurred" in (await cluster.binaries.log("kubelet")).decode()
        await printed.process.stop()
        assert await printed.end() == 0


@pytest.mark.parametrize(
    ("network", "windows"),
    [
        (NetworkSettings(), {}),
        (NetworkSettings(mode="overlay"), {}),
        (NetworkSettings(dual_stack=True), {"runtime": "containerd", "build": 19041}),
        (
            NetworkSettings(),
            {
                "runtime": "containerd",
                "max_pods": 30,
                "labels": {"a": "b"},
                "kube_reserved": {"cpu": "500m"},
                "system_reserved": {"memory": "1Gi"},
                "eviction_hard": {"memory.available": "1Gi"},
                "taints": ({"key": "os", "value": "windows", "effect": "NoSchedule"},),
                "feature_gates": {"WinDSR": True},
                "priority_class": "HIGH_PRIORITY_CLASS",
            },
        ),
    ],
)
async def test_the_usual_line_gives_the_usual_settings(
    network: NetworkSettings, windows: dict[str, Any]
) -> None:
    """What a node runs with since boot is what its command line says."""

    async with simulated_cluster(network, **windows) as cluster:
        usual = cluster.pool.node("w").kubelet_settings()
        printed = await cluster.relaunch("kubelet")
        assert not printed.process.ended, printed.text
        await cluster.clock.sleep(1)
        running = cluster.pool.node("w").kubelet
        assert running is not None and running.env.config == usual
        assert (
            kubelet.kubelet_flags(
                kubelet.parse_kubelet_flags(cluster.binaries.usual("kubelet")[1])
            ).unused
            == ()
        )
        await cluster.runs("p")


REFUSED: Sequence[tuple[tuple[str, ...], str]] = (
    (("--nope",), "unknown flag: --nope"),
    (("run",), "unknown command: run"),
    (
        ("--max-pods=many",),
        (
            'invalid argument "many" for "--max-pods" flag: strconv.ParseInt: parsing "many": '
            "invalid syntax"
        ),
    ),
    (
        ("--cgroups-per-qos=true",),
        "invalid configuration: CgroupsPerQOS (--cgroups-per-qos) true is not supported on Windows",
    ),
    (
        ("--cgroups-per-qos=true", "--enforce-node-allocatable=pods"),
        "EnforceNodeAllocatable (--enforce-node-allocatable) [pods] is not supported on Windows",
    ),
    (
        ("--windows-priorityclass=URGENT",),
        "unknown priority class URGENT, valid ones are available at",
    ),
    (("--feature-gates=WinUnderlay=true",), "unrecognized feature gate: WinUnderlay"),
    (("--hairpin-mode=yes",), 'option "yes" specified for hairpinMode'),
    (
        (r"--kubeconfig=c:\k\nope",),
        (
            r"failed to run Kubelet: invalid kubeconfig: CreateFile c:\k\nope: The system cannot "
            r"find the file specified."
        ),
    ),
    (
        (r"--kubeconfig=c:\k\empty",),
        f"failed to run Kubelet: invalid kubeconfig: {NO_CONFIGURATION}",
    ),
    (("--network-plugin=nope",), 'failed to create kubelet: network plugin "nope" not found'),
    (
        ("--container-runtime=remote",),
        "the container runtime endpoint address was not specified or empty",
    ),
    (
        (
            "--container-runtime=remote",
            "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd",
        ),
        (
            "Error while dialing open ////./pipe/containerd-containerd: The system cannot find "
            "the file specified."
        ),
    ),
    ((r"--config=c:\k\kubelet.yaml",), r'failed to read kubelet config file "c:\k\kubelet.yaml"'),
)


@pytest.mark.windows("TRB-42", "TRB-45", "TRB-48", "FLAG-12")
async def test_what_it_refuses() -> None:
    async with simulated_cluster() as cluster:
        await cluster.stop("kubelet")
        cluster.files.write(r"C:\k\empty", b"apiVersion: v1\n")
        usual = cluster.binaries.usual("kubelet")[1]
        for more, text in REFUSED:
            printed = await cluster.launch("kubelet", *usual, *more)
            assert printed.process.ended and await printed.end() == 255, more
            assert text in printed.text and "\nF0102 03:04:" in "\n" + printed.text, printed.text
            assert text in (await cluster.binaries.log("kubelet")).decode()
        assert cluster.binaries.running("kubelet") is None
        assert (await (await cluster.launch("kubelet", "--version")).end()) == 0
        for program, flag in (("kubelet", "--help"), ("kube-proxy", "--version")):
            errors, answers = list[bytes](), list[bytes]()
            await cluster.binaries.launch(
                program, [flag], {}, "C:\\k", errors.append, answers.append
            )
            assert answers and not errors, (program, flag)
        printed = await cluster.relaunch("kubelet")
        twice = await cluster.launch("kubelet", *usual)
        assert (
            await twice.end() == 255
            and "listen tcp 0.0.0.0:10250: bind: Only one usage" in twice.text
        )
        assert cluster.binaries.running("kubelet") is printed.process


@pytest.mark.windows("W-NODE-36", "W-NODE-39", "W-NODE-41", "W-NODE-42", "W-NODE-43")
@pytest.mark.parametrize("minor", [23, 24, 26, 27, 34, 35, 36])
async def test_a_node_starts_its_kubelet_with_the_flags_of_its_release(minor: int) -> None:
    async with simulated_cluster(release=Release(1, minor), runtime="containerd") as cluster:
        node = cluster.pool.node("w")
        argv = cluster.binaries.usual("kubelet")[1]
        names = {word.partition("=")[0] for word in argv}
        assert ("--image-pull-progress-deadline" in names) == (minor < 24)
        assert ("--log-dir" in names) == ("--logtostderr" in names) == (minor < 26)
        assert ("--container-runtime" in names) == (minor < 27)
        assert ("--pod-infra-container-image" in names) == (minor < 35)
        assert "--container-runtime-endpoint=npipe:////./pipe/containerd-containerd" in argv
        printed = await cluster.relaunch("kubelet")
        assert not printed.process.ended, printed.text
        await cluster.clock.sleep(1)
        assert node.kubelet is not None
        config = node.kubelet.env.config
        deadline = config.image_pull_progress_deadline  # of dockershim, without effect since 1.24
        usual = replace(node.kubelet_settings(), image_pull_progress_deadline=deadline)
        assert config == usual
        await cluster.until(lambda: is_ready(cluster))
        assert b"--container-runtime-endpoint" in await cluster.binaries.log("kubelet")


@pytest.mark.parametrize(
    ("minor", "code", "text"),
    [
        (20, 255, "server.go:155] unknown flag: --nope"),
        (21, 1, '"Failed to parse kubelet flag" err="unknown flag: --nope"'),
        (24, 1, "Error: failed to parse kubelet flag: unknown flag: --nope\nUsage:"),
        (36, 1, '] "command failed" err="failed to parse kubelet flag: unknown flag: --nope"'),
    ],
)
async def test_how_a_kubelet_refuses_its_command_line(minor: int, code: int, text: str) -> None:
    async with simulated_cluster(release=Release(1, minor), runtime="containerd") as cluster:
        await cluster.stop("kubelet")
        printed = await cluster.launch("kubelet", "--nope")
        assert await printed.end() == code
        assert text in printed.text
        assert ("Usage:" in printed.text) == (minor < 25)


@pytest.mark.windows("W-NODE-36", "W-NODE-39")
async def test_the_service_of_a_kubelet_without_log_flags_has_a_log_file() -> None:
    async with simulated_cluster(release=Release(1, 36), runtime="containerd") as cluster:
        await cluster.binaries.log("kubelet")  # from now on the log is written
        content = cluster.files.read(r"C:\var\logs\kubelet.log").decode()
        assert 'FLAG: --v="6"' in content and 'message="Starting kubelet."' in content


async def test_docker_is_looked_for_where_containerd_is() -> None:
    async with simulated_cluster(runtime="containerd") as cluster:
        await cluster.stop("kubelet")
        printed = await cluster.launch("kubelet", *DOCUMENT)
        assert await printed.end() == 255 and "failed to get docker version" in printed.text


@pytest.mark.windows("TRB-40", "TRB-41", "TRB-36", "TRB-20")
async def test_what_pods_get_from_flags() -> None:
    async with simulated_cluster() as cluster:
        image = "mcr.microsoft.com/oss/kubernetes/pause:1.3.0"
        await cluster.relaunch(
            "kubelet",
            "--cluster-dns=10.96.0.99",
            "--cluster-domain=example.org",
            f"--pod-infra-container-image={image}",
            without="cluster-dns",
        )
        await cluster.runs("p")
        sandbox = cluster.pool.node("w").runtime.sandboxes()[0]
        assert sandbox.config.dns.servers == ("10.96.0.99",)
        assert sandbox.config.dns.searches[0] == "default.svc.example.org"
        tags = [tag for known in cluster.pool.node("w").runtime.images() for tag in known.tags]
        assert image in tags


@pytest.mark.windows("TRB-34", "TRB-11")
async def test_another_name() -> None:
    async with simulated_cluster() as cluster:
        await cluster.relaunch("kubelet", "--hostname-override=Minion")
        await cluster.until(lambda: _there(cluster, "minion"))
        await cluster.until(lambda: is_ready(cluster, "minion"))
        container = {
            "name": "c",
            "image": "mcr.microsoft.com/windows/nanoserver:1809",
            "command": ["cmd", "/c", "exit 0"],
        }
        await cluster.client.create(
            PODS,
            "default",
            {
                "metadata": {"name": "p"},
                "spec": {"nodeName": "minion", "restartPolicy": "Never", "containers": [container]},
            },
        )
        await cluster.until(lambda: _succeeded(cluster, "p"))
        await cluster.clock.sleep(60)
        assert (await ready(cluster, "w")).startswith("Unknown")


async def _there(cluster: NodeTestCluster, name: str) -> bool:
    return cluster.pool.cluster.pod_cidr(name) is not None


async def _succeeded(cluster: NodeTestCluster, name: str) -> bool:
    return bool(
        (await cluster.client.get(PODS, "default", name))["status"].get("phase") == "Succeeded"
    )


@pytest.mark.windows("TRB-51")
async def test_an_empty_folder_of_configuration() -> None:
    async with simulated_cluster() as cluster:
        cluster.files.mkdir(r"C:\k\none")
        printed = await cluster.relaunch(
            "kubelet", r"--cni-conf-dir=C:\k\none", "--logtostderr=true"
        )
        assert r"Unable to update cni config: no networks found in C:\k\none" in printed.text
        await cluster.until(lambda: _not_ready(cluster))
        assert "network plugin is not ready: cni config uninitialized" in await ready(cluster)
        await cluster.relaunch("kubelet")
        await cluster.until(lambda: is_ready(cluster))


async def _not_ready(cluster: NodeTestCluster) -> bool:
    return (await ready(cluster)).startswith("False")


@pytest.mark.windows("TRB-50")
async def test_a_folder_without_the_plugins_binary() -> None:
    async with simulated_cluster() as cluster:
        cluster.files.mkdir(r"C:\k\some")
        cluster.files.write(r"C:\k\some\flannel.exe", b"MZ")
        await cluster.relaunch("kubelet", r"--cni-bin-dir=C:\k\some")
        await cluster.pod("p")
        missing = r'failed to find plugin "win-bridge" in path [C:\k\some]'
        await cluster.until(lambda: _recorded(cluster, "FailedCreatePodSandBox", missing))


async def _recorded(cluster: NodeTestCluster, reason: str, text: str) -> bool:
    return any(text in message for message in await cluster.events(reason))


@pytest.mark.windows("TRB-44")
async def test_a_pull_without_progress() -> None:
    async with simulated_cluster() as cluster:
        await cluster.relaunch("kubelet", "--image-pull-progress-deadline=25s")
        await cluster.pod("p", stall_pull="10m")
        began = cluster.clock.time()
        await cluster.until(
            lambda: _recorded(
                cluster, "Failed", "rpc error: code = Unknown desc = context canceled"
            ),
            90,
        )
        assert 30 <= cluster.clock.time() - began < 40  # it is looked at every ten seconds
        await cluster.relaunch("kubelet", "--image-pull-progress-deadline=20m")
        await cluster.client.delete(PODS, "default", "p")
        await cluster.pod("q", stall_pull="10m")
        await cluster.until(lambda: _recorded(cluster, "Pulled", "Successfully pulled image"), 700)


@pytest.mark.windows("TRB-35", "TRB-42")
async def test_the_kubeconfig_says_where_the_api_server_is() -> None:
    async with simulated_cluster() as cluster:
        usual = cluster.files.read(r"C:\k\config").decode()
        cluster.files.write(
            r"C:\k\other", usual.replace("172.20.0.2:6443", "10.1.1.1:6443").encode()
        )
        printed = await cluster.relaunch(
            "kubelet", r"--kubeconfig=C:\k\other", "--logtostderr=true"
        )
        await cluster.clock.sleep(60)
        assert not printed.process.ended and (await ready(cluster)).startswith("Unknown")
        assert "dial tcp 10.1.1.1:6443: connectex: No connection could be made" in printed.text
        printed = await cluster.relaunch("kubelet", "--logtostderr=true")
        await cluster.until(lambda: is_ready(cluster))
        assert "GET https://172.20.0.2:6443/api/v1/nodes/w 200 OK in 0 milliseconds" in printed.text
        printed = await cluster.relaunch("kubelet", "--logtostderr=true", "--v=5")
        await cluster.clock.sleep(15)
        assert "milliseconds" not in printed.text


async def test_without_a_kubeconfig_it_is_alone() -> None:
    async with simulated_cluster() as cluster:
        printed = await cluster.relaunch("kubelet", "--kubeconfig=", "--logtostderr=true")
        assert "standalone mode, no API client" in printed.text and not printed.process.ended
        await cluster.clock.sleep(60)
        assert (await ready(cluster)).startswith("Unknown")
        await printed.process.stop()


async def test_a_configuration_file_counts_less_than_flags() -> None:
    async with simulated_cluster() as cluster:
        content = (
            b"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: "
            b"7\nclusterDomain: a.org\n"
        )
        cluster.files.write(r"C:\k\kubelet.yaml", content)
        await cluster.relaunch("kubelet", r"--config=C:\k\kubelet.yaml")
        await cluster.clock.sleep(1)
        running = cluster.pool.node("w").kubelet
        assert running is not None
        assert (running.env.config.max_pods, running.env.config.cluster_domain) == (
            7,
            "cluster.local",
        )


async def test_a_full_disk_can_still_be_read() -> None:
    async with simulated_cluster() as cluster:
        host = cluster.pool.node("w").machine
        host.fill_disk()
        assert b"Version" in await cluster.binaries.log("kubelet")
        assert cluster.binaries.running("kubelet") is not None
        printed = await cluster.relaunch("kubelet")
        assert await printed.end() == 2
        assert "log: exiting because of error: log: cannot create log: open C:\\k\\" in printed.text
        assert printed.text.endswith(": There is not enough space on the disk.\n")
        assert cluster.binaries.running("kubelet") is None


async def test_a_reboot_ends_programs_started_by_hand() -> None:
    async with simulated_cluster() as cluster:
        printed = await cluster.relaunch(
            "kubelet", "--max-pods=3", "--pod-infra-container-image=nope/nope:404"
        )
        await cluster.pool.reboot("w")
        assert await printed.end() == 1
        await cluster.until(lambda: is_ready(cluster))
        assert cluster.binaries.running("kubelet") is not printed.process
        assert (await cluster.node())["status"]["capacity"]["pods"] == "110"
        await cluster.runs("p")


async def test_healthz_on_the_loopback_address() -> None:
    def open_ports(cluster: NodeTestCluster) -> list[int]:
        runtime = cluster.pool.node("w").runtime
        assert isinstance(runtime, SimRuntime)
        sockets = runtime.core.node_namespace.sockets()
        return [s.port for s in sockets if s.address == "127.0.0.1" and s.program == "kubelet"]

    async with simulated_cluster() as cluster:
        await cluster.runs("first")
        assert open_ports(cluster) == [10248]
        await cluster.stop("kubelet")
        assert open_ports(cluster) == []
        await cluster.relaunch("kubelet", "--healthz-port=10300")
        await cluster.runs("second")
        assert open_ports(cluster) == [10300]


@pytest.mark.parametrize(
    "path, status", [("/healthz", 200), ("/healthz/ping", 200), ("/pods", 404)]
)
def test_the_healthz_port_serves_nothing_else(path: str, status: int) -> None:
    assert answer_ping_healthz(HttpRequest("GET", path.encode(), path, {})).status == status


SHUTDOWN = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
"""
NO_SERVICE = 'err="kubelet is NOT running as a Windows service"'


@pytest.mark.windows("W-NODE-21", "W-NODE-22", "W-NODE-23", "WIN-NODE-122", "WIN-NODE-123")
@pytest.mark.parametrize("service", [True, False])
async def test_only_a_kubelet_that_is_a_service_learns_of_a_shutdown(service: bool) -> None:
    async with simulated_cluster(release=Release(1, 36), runtime="containerd") as cluster:
        cluster.files.write("C:\\k\\kubelet.yaml", SHUTDOWN.encode())
        more = ["--windows-service"] if service else []
        printed = await cluster.relaunch("kubelet", r"--config=C:\k\kubelet.yaml", *more)
        await _runs_without_token(cluster)
        assert (NO_SERVICE in printed.text) is not service
        await cluster.pool.shut_down("w")
        pod = await cluster.client.get(PODS, "default", "p")
        assert (pod["status"].get("reason") == "Terminated") is service
        recorded = await cluster.events("NodeShutdown")
        assert recorded == (["Shutdown manager detected preshutdown event"] if service else [])


@pytest.mark.windows("W-NODE-24", "WIN-NODE-124")
async def test_a_shutdown_of_windows_cannot_be_cancelled() -> None:
    async with simulated_cluster(release=Release(1, 36), runtime="containerd") as cluster:
        cluster.files.write("C:\\k\\kubelet.yaml", SHUTDOWN.encode())
        await cluster.relaunch("kubelet", r"--config=C:\k\kubelet.yaml", "--windows-service")
        await _runs_without_token(cluster)
        power = cluster.pool.node("w").machine.power
        assert power.request("off", 0)
        await cluster.until(lambda: _shutting_down(cluster))
        power.cancel()  # `shutdown /a`
        await cluster.clock.sleep(60)
        assert not (await ready(cluster)).startswith("True")


async def _shutting_down(cluster: NodeTestCluster) -> bool:
    return "node is shutting down" in await ready(cluster)


async def _runs_without_token(cluster: NodeTestCluster) -> None:
    container = {"name": "c", "image": cluster.image, "command": ["ping", "-t", "localhost"]}
    spec = {
        "nodeName": "w",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    await cluster.client.create(PODS, "default", {"metadata": {"name": "p"}, "spec": spec})
    await cluster.until(lambda: _running(cluster))


async def _running(cluster: NodeTestCluster) -> bool:
    pod = await cluster.client.get(PODS, "default", "p")
    return pod["status"].get("phase") == "Running"


@pytest.mark.windows("W-OS-24", "SUP-OS-124", "W-OS-26", "SUP-OS-126")
@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("npipe://./pipe/containerd-containerd", ""),
        ("npipe:////./pipe/containerd-containerd", ""),
        ("tcp://127.0.0.1:1234", ""),
        ("unix:///run/containerd/containerd.sock", 'protocol "unix" not supported'),
    ],
)
async def test_endpoints_of_runtimes(endpoint: str, problem: str) -> None:
    async with simulated_cluster(release=Release(1, 36)) as cluster:
        printed = await cluster.relaunch("kubelet", f"--container-runtime-endpoint={endpoint}")
        if problem:
            assert f"failed to run Kubelet: {problem}" in printed.text and await printed.end() != 0
        else:
            assert not printed.process.ended, printed.text
