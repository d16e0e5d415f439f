"""The fixtures of the hostile-input suite: a server in its own process with many objects, attacked
over HTTPS.

Each attack runs inside `attack()`, which fails when a callback of the server's event loop used more
than the loop budget, when the server's memory grew beyond a bound, or (with ROUNDS set, `make
hostile`) when a second client had to wait too long.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.conftest import ROOT, Cluster, long_callbacks, running_cluster
from tests.hostile.client import Client, Endpoint

MIB = 1024 * 1024
ROUNDS = int(os.environ.get("ROUNDS", "0"))
PODS = int(os.environ.get("PODS", "50000" if ROUNDS else "5000"))
SEED = int(os.environ.get("SEED", "1"))
LONGEST_P99 = 0.1
_SETTLE = 0.3 if ROUNDS else 0.15
_BASELINE_SECONDS = 2.0
_LONGEST_TEST = 600  # seconds, with ROUNDS; creating 50,000 pods is part of the first one
Attack = Callable[..., AbstractContextManager[None]]

_latencies: dict[str, list[float]] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ROUNDS:
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.timeout(_LONGEST_TEST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROUNDS or not _latencies:
        return
    terminalreporter.section("latency of small GETs of a second client during each attack")
    everything: list[float] = []
    for name, values in _latencies.items():
        everything += values
        terminalreporter.write_line(
            f"{_p99(values) * 1000:7.1f} ms p99 {max(values) * 1000:8.1f} ms max  {name}"
        )
    terminalreporter.write_line(
        f"{_p99(everything) * 1000:7.1f} ms p99 {max(everything) * 1000:8.1f} ms max  all attacks"
    )


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


@pytest.fixture
def rounds() -> int:
    """How often an attack is repeated."""
    return max(1, ROUNDS)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{SEED}/{request.node.nodeid}")


class Victim:
    """The server under attack."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.endpoint = Endpoint(cluster.kubeconfig)
        state = Path(cluster.env["XDG_DATA_HOME"]) / "transom" / cluster.name
        self.pid = int((state / "transom.pid").read_text().split()[0])

    def client(self, *, anonymous: bool = False, token: str = "") -> Client:
        return Client(self.endpoint, anonymous=anonymous, token=token)

    def rss(self, field: str = "VmRSS") -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise AssertionError(field)

    def cpu(self) -> float:
        """Seconds of CPU time that the server has used. Unlike elapsed time, this does not depend
        on what else runs on the machine.
        """
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def pod(number: int) -> dict[str, object]:
    """A pod that no scheduler takes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:06}",
            "labels": {"app": f"app-{number % 100}", "number": str(number)},
        },
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        },
    }


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server with PODS pods in the namespace `crowd`."""
    with running_cluster(tmp_path_factory.mktemp("hostile"), "--no-nodes") as cluster:
        found = Victim(cluster)
        client = found.client()
        client.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "crowd"}})
        for _ in range(100):
            if client("GET", "/api/v1/namespaces/crowd/serviceaccounts/default").status == 200:
                break
            time.sleep(0.1)
        calls = [("POST", "/api/v1/namespaces/crowd/pods", pod(number)) for number in range(PODS)]
        for answer in client.pipelined(calls):
            assert answer.status == 201, answer
        client.close()
        yield found


NODES = """\
apiVersion: transom.dev/v1
kind: Cluster
nodes:
- {name: control-plane, role: control-plane}
- {name: linux-1}
- {name: windows-1, os: windows}
"""
PROGRAM_PODS = {
    "shell": "busybox",
    "web": "nginx:1.19",
    "windows": "mcr.microsoft.com/windows/servercore:ltsc2019",
}


@pytest.fixture(scope="session")
def node_victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server with simulated nodes, and a pod of each of PROGRAM_PODS in the namespace
    `default`.
    """
    folder = tmp_path_factory.mktemp("hostile-nodes")
    (folder / "cluster.yaml").write_text(NODES)
    with running_cluster(folder, "--config", str(folder / "cluster.yaml")) as cluster:
        found = Victim(cluster)
        client = found.client()
        for name, image in PROGRAM_PODS.items():
            windows = name == "windows"
            command = {
                "shell": ["sleep", "1000000"],
                "windows": ["powershell", "-Command", "Start-Sleep 1000000"],
            }.get(name)
            container = {"name": "main", "image": image} | ({"command": command} if command else {})
            spec = {
                "automountServiceAccountToken": False,
                "containers": [container],
                "nodeSelector": {"kubernetes.io/os": "windows" if windows else "linux"},
            }
            client.ok(
                "POST",
                "/api/v1/namespaces/default/pods",
                {"metadata": {"name": name}, "spec": spec},
            )
        deadline = time.monotonic() + 60
        for name in PROGRAM_PODS:
            while (pod := client.ok("GET", f"/api/v1/namespaces/default/pods/{name}"))["status"][
                "phase"
            ] != "Running":
                assert time.monotonic() < deadline, pod["status"]
                time.sleep(0.1)
        client.close()
        yield found


@pytest.fixture
def attack(victim: Victim, request: pytest.FixtureRequest) -> Attack:
    """`with attack(rss=...)`: what happens inside must leave the server responsive and small."""
    return watched_attack(victim, request.node.name)


@pytest.fixture
def node_attack(node_victim: Victim, request: pytest.FixtureRequest) -> Attack:
    """The same for the server with nodes."""
    return watched_attack(node_victim, request.node.name)


def watched_attack(victim: Victim, name: str) -> Attack:
    @contextmanager
    def watched(rss: int = 100 * MIB) -> Iterator[None]:
        time.sleep(_SETTLE)  # what was before this attack is reported by then
        before = long_callbacks(victim.cluster)
        memory = victim.rss()
        victim.reset_peak()
        with second_client(victim) as latencies:
            yield
            time.sleep(_SETTLE)
        blocked = long_callbacks(victim.cluster).removeprefix(before).strip()
        grown = victim.rss("VmHWM") - memory
        _latencies.setdefault(name, []).extend(latencies)
        sys.stdout.write(
            f"grew by {grown / MIB:.0f} MiB; second client: p99 {_p99(latencies) * 1000:.1f} ms\n"
        )
        assert not blocked, blocked
        assert grown < rss, f"the server grew by {grown / MIB:.0f} MiB"
        if ROUNDS and _p99(latencies) >= LONGEST_P99:
            # On a busy machine every answer takes longer: what the same client waits for without an
            # attack is allowed for.
            usual = _baseline(victim)
            assert _p99(latencies) < LONGEST_P99 + usual, (
                f"p99 of the second client: {_p99(latencies) * 1000:.0f} ms, without an "
                f"attack {usual * 1000:.0f} ms"
            )

    return watched


def _baseline(victim: Victim) -> float:
    """The second client's p99 while nothing else happens to the server; about 2 ms on an idle
    machine.
    """
    with second_client(victim) as latencies:
        time.sleep(_BASELINE_SECONDS)
    _latencies.setdefault("(no attack)", []).extend(latencies)
    return _p99(latencies)


@contextmanager
def second_client(victim: Victim) -> Iterator[list[float]]:
    """How long small requests of another process took, once the context has ended; only for `make
    hostile`.
    """
    latencies: list[float] = []
    if not ROUNDS:
        yield latencies
        return
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.second_client", str(victim.cluster.kubeconfig)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdin is not None
    assert other.stdout.readline() == "ready\n"
    try:
        yield latencies
    finally:
        other.stdin.close()
        latencies += json.loads(other.stdout.read() or "[]")
        other.wait()
