"""Clusters that are killed, stopped, restarted and deleted, and the state of their containers
afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import PATIENCE, Space

from transom.machines import mounting
from transom.runtime.native import cgroups

from .conftest import apply, deployment, import_programs, pod, processes, share_template

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
WAIT = {"linux": ("sleep", "86400"), "windows": ("ping", "-n", "86400", "127.0.0.1")}


@pytest.fixture(scope="module")
def own(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that may be killed."""
    made = tmp_path_factory.mktemp("killed")
    share_template(made / "data", tmp_path_factory.getbasetemp().parent / "transom-wine")
    with running_cluster(made, "--config", str(folder / "cluster.yaml")) as running:
        import_programs(running, made)
        yield running


@pytest.fixture(scope="module")
def space(own: Cluster) -> Space:
    """With a pod of each system that every test finds again."""
    found = Space(Kubectl(kubectl_binaries()[0], own), "default")
    found.until(bool, "serviceaccount", "default")
    apply(found, *(pod(f"old-{name}", name, *command) for name, command in WAIT.items()))
    found.ready("pods", "--all")
    return found


def _status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.transom("status", "--name", cluster.name, "--output", "json").stdout
    )
    return found


def _kill(cluster: Cluster) -> None:
    pid = _status(cluster)["pid"]
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.01)


def _up(cluster: Cluster) -> None:
    done = cluster.transom("up", "--name", cluster.name, check=False)
    assert done.returncode == 0, done.stderr


def _identity(space: Space, name: str) -> tuple[str, str, int]:
    """Which container it is, where it is reached, how often it was started."""
    status = space.object("pod", name)["status"]
    return (
        status["containerStatuses"][0]["containerID"],
        status["podIP"],
        status["containerStatuses"][0]["restartCount"],
    )


def _containers(cluster: Cluster) -> list[str]:
    """Those that run, as the nodes see them: NAMESPACE/POD."""
    found = json.loads(cluster.transom("ps", "--name", cluster.name, "--output", "json").stdout)
    return sorted(f"{c['namespace']}/{c['pod']}" for c in found if c["state"] == "running")


def test_killed_in_the_middle_of_a_rollout(own: Cluster, space: Space) -> None:
    """Containers go on and are found again; the rollout ends; nothing is there twice."""
    for name, command in WAIT.items():
        apply(
            space,
            deployment(
                name, name, 3, *command, container={"env": [{"name": "EDITION", "value": "first"}]}
            ),
        )
    for name in WAIT:
        space("rollout", "status", f"deployment/{name}", "--timeout=60s", timeout=70)
    before = {name: _identity(space, name) for name in ("old-linux", "old-windows")}
    for name in WAIT:
        space("set", "env", f"deployment/{name}", "EDITION=second")
    space.until(lambda found: found["status"].get("updatedReplicas", 0) >= 1, "deployment", "linux")
    _kill(own)
    alive = [line for _, line in processes(own)]
    assert sum("transom.runtime.native.monitor" in line for line in alive) == 1 and len(alive) > 10
    _up(own)
    for name in WAIT:
        space("rollout", "status", f"deployment/{name}", "--timeout=60s", timeout=70)
        space.until(lambda found: len(found["items"]) == 3, "pods", f"--selector=app={name}")
    assert {name: _identity(space, name) for name in before} == before
    # Pods that were deleted while the cluster was down: kubelets find their containers and end them.
    expected = space.until(
        lambda found: (
            _containers(own)
            == sorted(f"default/{item['metadata']['name']}" for item in found["items"])
        ),
        "pods",
    )
    assert len(expected["items"]) == 8
    assert sum("transom.runtime.native.monitor" in line for _, line in processes(own)) == 1
    for name in WAIT:
        printed = (
            ("sh", "-c", "echo $EDITION") if name == "linux" else ("cmd", "/c", "echo %EDITION%")
        )
        assert space("exec", f"deployment/{name}", "--", *printed) == "second\n"
        assert "hi" in space(
            "exec",
            f"old-{name}",
            "--",
            *(("echo", "hi") if name == "linux" else ("cmd", "/c", "echo hi")),
        )
    space("delete", "deployment", *WAIT, "--wait=false")


def _started_again(space: Space, name: str, count: int) -> None:
    """Once more than it was."""
    space.until(
        lambda found: found["status"]["containerStatuses"][0]["restartCount"] == count + 1,
        "pod",
        name,
    )
    space.ready(f"pod/{name}")


def test_a_script_that_serves_keeps_running(own: Cluster, space: Space) -> None:
    """PowerShell's two halves are in the container, and in no other process."""
    script = (
        "$l = New-Object System.Net.HttpListener; $l.Prefixes.Add('http://*:80/'); "
        "$l.Start(); $n = 0; while (1) { "
        "$c = $l.GetContext(); $n++; $b = [Text.Encoding]::UTF8.GetBytes('visit ' + $n); "
        "$c.Response.OutputStream.Write($b, 0, $b.Length); $c.Response.Close() }"
    )
    probe = {"tcpSocket": {"port": 80}, "periodSeconds": 1}
    container = {"image": "mcr.microsoft.com/windows/servercore:ltsc2019", "readinessProbe": probe}
    apply(space, pod("counter", "windows", "powershell", "-Command", script, container=container))
    space.ready("pod/counter")
    before = _identity(space, "counter")
    page = ("exec", "old-linux", "--", "wget", "-q", "-O", "-", f"http://{before[1]}/")
    assert space(*page) == "visit 1"
    _kill(own)
    _up(own)
    space.ready("pod/counter")
    assert (space(*page), _identity(space, "counter")) == ("visit 2", before)
    space("delete", "pod", "counter")


def test_a_node_without_power(own: Cluster, space: Space) -> None:
    """Its containers are gone at once; they come back with it, as new ones."""
    node = space.object("pod", "old-windows")["spec"]["nodeName"]
    for name, which in (("old-linux", "linux-1"), ("old-windows", node)):
        before = _identity(space, name)
        own.transom("node", "stop", which, "--name", own.name)
        assert f"default/{name}" not in _containers(own)
        own.transom("node", "start", which, "--name", own.name)
        _started_again(space, name, before[2])
        assert _identity(space, name)[0] != before[0]


def test_a_node_that_is_deleted(own: Cluster, space: Space) -> None:
    """Nothing stays of its containers and its files, so that another one may have its name."""
    for kind, command in WAIT.items():
        own.transom("node", "add", f"more-{kind}", "--os", kind, "--name", own.name)
        apply(space, pod(f"on-{kind}", kind, *command, nodeName=f"more-{kind}"))
    for kind in WAIT:
        space.ready(f"pod/on-{kind}")
        own.transom("node", "delete", f"more-{kind}", "--name", own.name)
        assert f"default/on-{kind}" not in _containers(own)
    space("delete", "pods", "on-linux", "on-windows", "--force", "--grace-period=0")
    state = _status_folder(own)
    assert not [mount.point for mount in mounting.mount_points(state) if "/more-" in mount.point]
    assert not [*Path(state).glob("containers/more-*"), *Path(state).glob("machines/more-*")]
    assert not [
        group for group in cgroups.cgroup_leaves(f"/transom/{own.name}") if "/more-" in group
    ]


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_down_and_up(own: Cluster, space: Space, killed: bool) -> None:
    """Nothing runs and nothing is mounted while it is down; everything runs again afterwards."""
    before = {name: _identity(space, name)[2] for name in ("old-linux", "old-windows")}
    if killed:
        _kill(own)
    own.transom("down", "--name", own.name)
    assert not processes(own)
    assert not mounting.mount_points(_status_folder(own))
    _up(own)
    for name, count in before.items():
        _started_again(space, name, count)


def _status_folder(cluster: Cluster) -> str:
    return os.path.realpath(f"{cluster.env['XDG_DATA_HOME']}/transom/{cluster.name}")


def _namespaces() -> dict[str, str]:
    """Every network namespace that something holds: a process, or a mount."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found[os.readlink(f"/proc/{entry}/ns/net")] = entry
            except OSError:
                continue
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_delete_leaves_nothing(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, killed: bool
) -> None:
    share_template(tmp_path / "data", tmp_path_factory.getbasetemp().parent / "transom-wine")
    with running_cluster(tmp_path, "--config", str(folder / "cluster.yaml")) as running:
        import_programs(running, tmp_path)
        space = Space(Kubectl(kubectl_binaries()[0], running), "default")
        space.until(bool, "serviceaccount", "default")
        memory = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}
        mount = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}
        apply(
            space,
            *(
                pod(name, name, *command, container=mount, **memory)
                for name, command in WAIT.items()
            ),
        )
        space.ready("pods", "--all")
        held = {
            os.readlink(f"/proc/{pid}/ns/net")
            for pid, line in processes(running)
            if "sleep" in line or "ping" in line
        }
        assert len(held) >= 2
        state = _status_folder(running)
        if killed:
            _kill(running)
        assert processes(running) and mounting.mount_points(state)
    assert not processes(running)
    assert not mounting.mount_points(state)
    assert not Path(state).exists()
    assert not [
        name
        for mount in cgroups.cgroup_hierarchies().mounts.values()
        for name in Path(mount).glob(f"transom/{running.name}")
    ]
    assert not held & set(_namespaces())
    assert (
        not [link for link in os.listdir("/run/netns") if running.name in link]
        if Path("/run/netns").exists()
        else True
    )
