"""`transom up --servers`: processes that end, an upgrade, and clients that are not interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.etcd_process import require_etcd


class ServersCluster:
    def __init__(self, folder: Path) -> None:
        self._env = os.environ | {"XDG_DATA_HOME": str(folder / "home"), "HOME": str(folder)}
        self.kubeconfig = folder / "kubeconfig"
        self.state = folder / "home" / "transom" / "transom"

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=180)

    def ok(self, *args: str) -> str:
        done = self.run(*args)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *args]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "-o", "json").stdout)
        return found

    def pid(self, group: str, number: int) -> int:
        return int(self.status()["servers"][group][number - 1]["pid"])


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServersCluster]:
    require_etcd()
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = ServersCluster(tmp_path)
    try:
        made.ok(
            "up", "--servers=3", "--linux=1", "--windows=1", "--kubeconfig", str(made.kubeconfig)
        )
        yield made
    finally:
        made.run("delete")


def _create_maps(cluster: ServersCluster, until: threading.Event, failed: list[str]) -> int:
    """As a user does: one command after the other, each tried at most three times."""
    count = 0
    while not until.is_set():
        for attempt in range(3):
            done = cluster.kubectl("create", "configmap", f"m{count}")
            if done.returncode == 0 or (attempt and "already exists" in done.stderr):
                break
        else:
            failed.append(done.stderr)
        count += 1
    return count


@pytest.mark.timeout(400)
def test_servers_members_and_nodes_may_fail_one_at_a_time(cluster: ServersCluster) -> None:
    found = cluster.status()
    assert found["ready"] and [one["ready"] for one in found["servers"]["servers"]] == [True] * 3
    assert len(found["servers"]["etcd"]) == 3
    endpoints = "jsonpath={.subsets[*].addresses[*].ip}"
    addresses = cluster.kubectl("get", "endpoints", "kubernetes", "-o", endpoints)
    assert addresses.stdout == "172.20.0.2 172.20.0.3 172.20.0.4"
    pod = ("run", "p", "--image=nginx", '--overrides={"spec":{"nodeName":"linux-1"}}')
    assert cluster.kubectl(*pod).returncode == 0
    waited = cluster.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=50s")
    assert waited.returncode == 0, waited.stderr
    assert cluster.kubectl("exec", "p", "--", "hostname").stdout.strip() == "p"
    assert "p" in cluster.ok("ps")
    cluster.ok("node", "add", "extra")
    assert cluster.kubectl("create", "deployment", "web", "--image=nginx").returncode == 0
    on_linux = '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}}}'
    assert cluster.kubectl("patch", "deployment", "web", "-p", on_linux).returncode == 0
    rolled_out = ("rollout", "status", "deployment/web", "--timeout=50s")
    assert cluster.kubectl(*rolled_out).returncode == 0
    pod_names = ("get", "pods", "-l", "app=web", "-o", "name")
    before_upgrade = cluster.kubectl(*pod_names).stdout.split()
    cluster.ok("snapshot", "save", str(cluster.state.parent / "s.snapshot"))

    until = threading.Event()
    failed: list[str] = []
    counts: list[int] = []
    client = threading.Thread(target=lambda: counts.append(_create_maps(cluster, until, failed)))
    client.start()
    try:
        for group, number in (("servers", 1), ("etcd", 2)):
            before = cluster.pid(group, number)
            os.kill(before, signal.SIGKILL)
            wait_for(partial(_is_back, cluster, group, number, before))
        cluster.ok("upgrade")
    finally:
        until.set()
        client.join()
    assert not failed and counts[0] > 3
    assert cluster.kubectl(*rolled_out).returncode == 0
    assert set(before_upgrade).isdisjoint(cluster.kubectl(*pod_names).stdout.split())  # drained
    cordoned = ("get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}")
    assert cluster.kubectl(*cordoned).stdout == ""
    listed = cluster.kubectl("get", "configmaps", "-o", "name").stdout.splitlines()
    assert sum("/m" in name for name in listed) == counts[0]
    assert cluster.kubectl("exec", "p", "--", "hostname").stdout.strip() == "p"

    processes = cluster.status()["servers"]
    pids = [one["pid"] for one in (*processes["servers"], *processes["etcd"], processes["nodes"])]
    cluster.ok("down")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    refused = cluster.run("up", "--servers", "1")
    assert refused.returncode == 2 and "was created with 3 API servers" in refused.stderr

    # The cluster goes on with one server and a file.
    cluster.ok("migrate", "--to", "sqlite")
    cluster.ok("up", "--kubeconfig", str(cluster.kubeconfig))
    again = cluster.kubectl("get", "configmaps", "-o", "name")
    assert sorted(again.stdout.splitlines()) == sorted(listed), again.stderr
    ready = cluster.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
    assert ready.returncode == 0, ready.stderr


def _is_back(cluster: ServersCluster, group: str, number: int, before: int) -> bool:
    one = cluster.status()["servers"][group][number - 1]
    return one["pid"] not in (None, before) and one.get("ready", True)


@pytest.mark.timeout(400)
def test_all_processes_end_with_the_first(cluster: ServersCluster) -> None:
    found = cluster.status()
    processes = found["servers"]
    pids = [one["pid"] for one in (*processes["servers"], *processes["etcd"], processes["nodes"])]
    os.kill(found["pid"], signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert cluster.status()["state"] == "stopped"
