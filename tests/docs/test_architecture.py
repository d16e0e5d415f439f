"""docs/architecture.md is true: its files exist, and its walks are what happens.

Each walk is run for real, in processes that record the functions they call (`recorder`). A walk
lists a function for each file; all of them must be called, in the order of the list.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml
from tests.conftest import Cluster, kubectl_binaries, running_cluster

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "transom"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

_FILE = re.compile(r"`([\w./*-]*(?:/|\.py|\.txt|\.svg|\.md))`")
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_WALK = re.compile(
    r"^### (.*?): (\d+) files \(before the restructuring: (\d+)\)\n(.*?)(?=^##|\Z)", re.S | re.M
)
_STEP = re.compile(r"^\d+\. `([\w/]+\.py)` `([\w.<>]+)`", re.M)

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "containers": [
            {
                "name": "web",
                "image": "mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019",
            }
        ],
    },
}


@dataclass(frozen=True)
class Walk:
    name: str
    count: int
    before: int
    steps: list[tuple[str, str]]


def walks() -> dict[str, Walk]:
    found = (
        Walk(name, int(count), int(before), _STEP.findall(body))
        for name, count, before, body in _WALK.findall(PAGE)
    )
    return {walk.name: walk for walk in found}


@pytest.mark.parametrize("name", sorted(set(_FILE.findall(PAGE))))
def test_every_file_that_the_page_names_exists(name: str) -> None:
    assert any(any(folder.glob(name.rstrip("/"))) for folder in (PACKAGE, ROOT, ROOT / "docs")), (
        f"docs/architecture.md names {name}, which does not exist"
    )


@pytest.mark.parametrize("target", sorted(set(_LINK.findall(PAGE))))
def test_every_link_leads_to_a_file(target: str) -> None:
    assert (ROOT / "docs" / target).exists()


def test_every_package_is_described() -> None:
    packages = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.M))
    assert described == packages


def test_the_page_has_all_walks() -> None:
    before = {walk.name: walk.before for walk in walks().values()}
    assert before == {
        "create": 45,
        "pod to node and back": 35,
        "exec": 30,
        "trace": 18,
        "lint": 14,
        "up": 16,
    }


@pytest.mark.parametrize("walk", walks().values(), ids=lambda walk: walk.name)
def test_a_walk_counts_its_files(walk: Walk) -> None:
    files = [file for file, _ in walk.steps]
    assert len(set(files)) == walk.count < walk.before


# (file, function) -> times of its calls, over all processes that wrote a record
Calls = dict[tuple[str, str], list[int]]


class Recording:
    """Processes that record the functions they call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self) -> dict[str, str]:
        return {
            "WALK_RECORDS": str(self.folder),
            "PYTHONPATH": str(Path(__file__).parent / "recorder"),
        }

    def clear(self) -> None:
        for file in self.folder.iterdir():
            file.unlink()

    def begin(self, pid: int) -> None:
        self.clear()
        os.kill(pid, signal.SIGUSR1)
        _await(self.folder / f"{pid}.begun")

    def end(self, pid: int) -> Calls:
        os.kill(pid, signal.SIGUSR2)
        _await(self.folder / f"{pid}.record")
        return self.calls()

    def calls(self) -> Calls:
        found: Calls = {}
        for record in self.folder.glob("*.record"):
            for line in record.read_text().splitlines():
                file, name, *times = line.split(" ")
                found.setdefault((file, name), []).extend(map(int, times))
        return found


def _await(path: Path) -> None:
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written")


def check(walk: Walk, calls: Calls) -> None:
    """Each function is called, after the one before it in the list. Functions that other clients
    of the server call too have many calls; the first one that is late enough counts.
    """
    assert [step for step in walk.steps if step not in calls] == []
    now = 0
    for step in walk.steps:
        later = [when for when in calls[step] if when > now]
        assert later, f"{walk.name}: {step} is not called after the step before it"
        now = min(later)


@dataclass(frozen=True)
class Recorded:
    cluster: Cluster
    recording: Recording
    pid: int
    up: Calls

    def kubectl(self, *args: str) -> str:
        done = subprocess.run(
            [kubectl_binaries()[0], *args],
            env=self.cluster.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def create(self, pod: dict[str, Any]) -> None:
        """One request and no other: kubectl would also ask for the version and the types."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(
            cadata=b64decode(server["certificate-authority-data"]).decode()
        )
        with NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(b64decode(user[part]))
            pair.flush()
            context.load_cert_chain(pair.name)
        request = urllib.request.Request(
            f"{server['server']}/api/v1/namespaces/default/pods",
            json.dumps(pod).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=context) as response:
            assert response.status == 201

    def ensure_pod(self) -> None:
        """The tests share a pod, and each of them can run alone or in another worker."""
        if not self.kubectl("get", "pod/web", "--ignore-not-found"):
            self.create(POD)
        self.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    if not kubectl_binaries():
        pytest.skip("no kubectl on this machine")
    recording = Recording(tmp_path_factory.mktemp("records"))
    folder = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in recording.environment().items():
            patch.setenv(name, value)
        with running_cluster(folder, "--loop-budget", "10s") as cluster:
            (pid_file,) = (folder / "data").rglob("*.pid")
            pid = int(pid_file.read_text().split()[0])
            up = recording.end(pid)
            yield Recorded(cluster, recording, pid, up)


@pytest.mark.e2e
def test_up(recorded: Recorded) -> None:
    check(walks()["up"], recorded.up)


@pytest.mark.e2e
def test_create(recorded: Recorded) -> None:
    recorded.recording.begin(recorded.pid)
    spec = POD["spec"] | {"schedulerName": "none"}
    recorded.create(POD | {"metadata": {"name": "unscheduled"}, "spec": spec})
    check(walks()["create"], recorded.recording.end(recorded.pid))


@pytest.mark.e2e
def test_pod_to_node_and_back(recorded: Recorded) -> None:
    recorded.kubectl("delete", "pod/web", "--ignore-not-found", "--now")
    recorded.recording.begin(recorded.pid)
    recorded.create(POD)
    recorded.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    check(walks()["pod to node and back"], recorded.recording.end(recorded.pid))


@pytest.mark.e2e
def test_exec(recorded: Recorded) -> None:
    recorded.ensure_pod()
    recorded.recording.begin(recorded.pid)
    assert "Microsoft Windows" in recorded.kubectl("exec", "web", "--", "cmd", "/c", "ver")
    check(walks()["exec"], recorded.recording.end(recorded.pid))


@pytest.mark.e2e
def test_trace(recorded: Recorded) -> None:
    recorded.ensure_pod()
    recorded.recording.begin(recorded.pid)
    recorded.cluster.transom("trace", "--name", recorded.cluster.name, "windows-1", "pod/web")
    check(walks()["trace"], recorded.recording.end(recorded.pid))


@pytest.mark.e2e
def test_lint(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "records")
    recording.folder.mkdir()
    (tmp_path / "pod.json").write_text(json.dumps(POD))
    transom = Path(sys.executable).with_name("transom")
    done = subprocess.run(
        [transom, "lint", tmp_path / "pod.json"],
        env={**os.environ, **recording.environment()},
        capture_output=True,
        text=True,
    )
    assert "WIN-" in done.stdout, done.stderr
    check(walks()["lint"], recording.calls())
